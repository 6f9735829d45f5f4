"""What a person sees of a running sweep: bars on a terminal, plain lines elsewhere, nothing for a program.

A display only shows; it decides nothing and keeps no record. All write to standard error, so that standard
output carries results alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

MOST_BARS: Final = 40
"""Running cells that have a bar each."""


@dataclass(frozen=True)
class RunningCell:
    """A cell at work."""

    label: str
    """model/arm/seed."""
    updates: int
    fraction: float
    """Share of its budgets used up, in [0, 1]."""


@dataclass(frozen=True)
class Snapshot:
    """The whole sweep at one moment."""

    total: int
    done: int
    failed: int
    waiting: int
    running: list[RunningCell]
    left_seconds: float | None
    """Expected time to the end; None while nothing can be said."""

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.total} done", f"{len(self.running)} running", f"{self.waiting} waiting"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.left_seconds is not None:
            parts.append(f"about {spoken(self.left_seconds)} left")
        return ", ".join(parts)


class Display(Protocol):
    """Entered when the sweep starts, left when it ends."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def started(self, label: str) -> None:
        """A cell was launched."""
        ...

    def ended(self, label: str, status: str, reason: str) -> None:
        """A cell's launch is over."""
        ...

    def notice(self, text: str) -> None:
        """One line that a person should see."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """Called several times a second."""
        ...


class SilentDisplay:
    """For programs that read `--json`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, label: str) -> None:
        pass

    def ended(self, label: str, status: str, reason: str) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        pass


class PlainDisplay(SilentDisplay):
    """One line per start and end of a cell, and how things stand every now and then: for logs and pipes."""

    def __init__(
        self,
        stream: TextIO | None = None,
        summary_every_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream = stream or sys.stderr
        self._every_seconds = summary_every_seconds
        self._clock = clock
        self._last_summary = clock()

    def started(self, label: str) -> None:
        self.notice(f"started {label}")

    def ended(self, label: str, status: str, reason: str) -> None:
        self.notice(_ended_line(label, status, reason))

    def notice(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def show(self, snapshot: Snapshot) -> None:
        if self._clock() - self._last_summary >= self._every_seconds:
            self._last_summary = self._clock()
            self.notice(str(snapshot))


class LiveDisplay:
    """A bar for the sweep and one for each running cell; what is worth keeping scrolls by above them."""

    def __init__(self, console: Console):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self._whole = self._progress.add_task("[bold]cells", total=1.0, note="")
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, label: str) -> None:
        pass  # its bar appears

    def ended(self, label: str, status: str, reason: str) -> None:
        self.notice(_ended_line(label, status, reason))

    def notice(self, text: str) -> None:
        self._progress.console.print(escape(text), highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        under_way = sum(cell.fraction for cell in snapshot.running)
        self._progress.update(
            self._whole, total=snapshot.total, completed=snapshot.done + under_way, note=escape(str(snapshot))
        )
        running = {cell.label: cell for cell in summed_up(snapshot.running)}
        for label in [label for label in self._bars if label not in running]:
            self._progress.remove_task(self._bars.pop(label))
        for label, cell in running.items():
            if label not in self._bars:
                self._bars[label] = self._progress.add_task(escape(label), total=1.0, note="")
            self._progress.update(self._bars[label], completed=cell.fraction, note=f"{cell.updates} updates")


def summed_up(running: list[RunningCell]) -> list[RunningCell]:
    """The cells themselves, or, of more than a terminal has lines for, their arms: with mean updates and fraction."""
    if len(running) <= MOST_BARS:
        return running
    arms: dict[str, list[RunningCell]] = {}
    for cell in running:
        arms.setdefault(cell.label.rpartition("/")[0], []).append(cell)
    return [
        RunningCell(
            f"{arm} ({len(cells)} cells)",
            round(sum(cell.updates for cell in cells) / len(cells)),
            sum(cell.fraction for cell in cells) / len(cells),
        )
        for arm, cells in arms.items()
    ]


def make_display(silent: bool = False, plain: bool = False) -> Display:
    """Nothing when `silent` (for `--json`), bars on a terminal, plain lines otherwise or when asked for."""
    if silent:
        return SilentDisplay()
    console = Console(stderr=True)
    return LiveDisplay(console) if console.is_terminal and not plain else PlainDisplay()


def spoken(seconds: float) -> str:
    """A duration as people say it: 40 s, 12 min, 3 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _ended_line(label: str, status: str, reason: str) -> str:
    return f"{status} {label}" + (f": {reason}" if reason else "")
