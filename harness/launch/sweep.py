"""One sweep of a study, from its plan to every cell settled: alone on its study, recorded, and stoppable.

Running it twice launches nothing twice, and it may be killed at any moment: what it had launched goes on, and
the next sweep waits for that instead of launching it again. How cells are launched is loop.py's.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from harness.errors import InputError
from harness.events.schema import EventLogError
from harness.events.writer import EventWriter
from harness.launch.backend import Backend
from harness.launch.loop import Loop, alike
from harness.launch.options import LaunchFacts, SweepOptions
from harness.launch.progress import Display, SilentDisplay
from harness.launch.reservations import Reservations
from harness.layout import RunsFolder
from harness.study.caps import SweepCap
from harness.study.cell import Cell
from harness.train.lease import HEARTBEAT_SECONDS, Lease, LeaseHeld, LeaseLost

__all__ = ["FailureGroup", "LaunchFacts", "SweepOptions", "SweepResult", "sweep"]


class Planned(Protocol):
    """What a sweep needs of a plan (study/plan.py)."""

    @property
    def study(self) -> str: ...

    @property
    def cells(self) -> Sequence[Cell]: ...

    @property
    def cap(self) -> SweepCap | None:
        """On the whole sweep; None where there is none."""
        ...

    def record(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class FailureGroup:
    """Cells that failed for the same reason."""

    reason: str
    cells: list[str]
    """Cell ids."""
    labels: list[str]
    """model/arm/seed of each."""


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended. Counts are of cells."""

    study: str
    completed: int
    """Done, in this sweep or before."""
    failed: int
    remaining: int
    """Neither done nor failed: interrupted, waiting, or running elsewhere."""
    launched: int
    """Launches made by this sweep."""
    failures: list[FailureGroup]
    stopped: str
    """Why it ended before everything was settled; empty when it did not."""
    exit_code: int
    """0: all done; 1: some failed or remain; 2: going on would have been wrong (the code changed, no room left)."""

    def __str__(self) -> str:
        lines = [f"{self.study}: {self.completed} done, {self.remaining} to do"]
        if self.failed:
            lines[0] += f", {self.failed} failed"
        lines += [f"failed ({', '.join(group.labels)}): {group.reason}" for group in self.failures]
        if self.failed:
            lines.append("failed cells are launched again with --retry-failed")
        if self.stopped:
            lines.append(self.stopped)
        return "\n".join(lines)


def sweep(
    plan: Planned,
    runs: RunsFolder,
    backend: Backend,
    options: SweepOptions,
    *,
    facts: LaunchFacts,
    code_hash: Callable[[], str],
    display: Display | None = None,
) -> SweepResult:
    """Runs the cells of the plan that are not done, in block order, as many at once as the back end has workers.

    Raises an InputError, before anything is launched, when another sweep of the study runs or the runs folder
    cannot be written. The first SIGINT or SIGTERM asks workers to checkpoint and end, the second ends them.
    """
    lock_path = runs.create().sweep_lock(plan.study)
    display = display or SilentDisplay()
    with ExitStack() as held:
        with _writable(lock_path):
            lock = held.enter_context(_alone(plan.study, lock_path))
            log = held.enter_context(EventWriter(runs.study_log(plan.study)))

            def warn(code: str, message: str) -> None:
                log.append("warning", {"code": code, "message": message})

            books = None if plan.cap is None else Reservations(plan.cap, plan.cells)
            loop = Loop(plan.study, runs, backend, options, facts, code_hash, display, warn, books)
            loop.admit(plan.cells)
            log.append("sweep_started", {"study": plan.study, **asdict(facts), "plan": plan.record()})
        with display, _stoppable(loop) as look_for_signals:
            to_do = len(loop.waiting) + len(loop.elsewhere)
            display.notice(f"{plan.study}: {facts.mode}: {facts.mode_reason}")
            display.notice(f"{plan.study}: {len(loop.done)} done, {to_do} to do")
            if books is not None:
                display.notice(f"{plan.study}: {books}")
            loop.run(_every_round(loop, lock, look_for_signals))
        result = _result(plan.study, loop)
        counts = {"completed": result.completed, "failed": result.failed, "remaining": result.remaining}
        with _writable(lock_path):
            log.append("sweep_finished", {"study": plan.study, **counts})
    return result


def _result(study: str, loop: Loop) -> SweepResult:
    remaining = len(loop.waiting) + len(loop.elsewhere)
    stopped = loop.closed
    if stopped and loop.elsewhere:
        stopped += f"; {len(loop.elsewhere)} that this sweep did not launch go on running"
    groups: list[FailureGroup] = []
    for entry, reason in loop.failed:
        group = next((group for group in groups if alike(group.reason, reason)), None)
        if group is None:
            groups.append(group := FailureGroup(reason, [], []))
        group.cells.append(entry.cell.id)
        group.labels.append(entry.label)
    return SweepResult(
        study=study,
        completed=len(loop.done),
        failed=len(loop.failed),
        remaining=remaining,
        launched=loop.launched,
        failures=groups,
        stopped=stopped,
        exit_code=2 if loop.refused else int(bool(loop.failed or remaining)),
    )


@contextmanager
def _alone(study: str, path: Path) -> Iterator[Lease]:
    """Only one sweep of a study at a time."""
    try:
        lock = Lease.acquire_file(path)
    except LeaseHeld as held:
        raise InputError(
            f"study {study} is being swept by {held.holder or 'another process'}",
            "let that sweep go on; `isobudget status` shows how far it is",
        ) from None
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Tells of trouble with the disk as the user's, in one line."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputError(what, "make room, or name another runs folder", str(error.filename or path)) from error
    except EventLogError as error:
        right = "make room, or move the file aside and run `isobudget collect`: cells keep their own records"
        raise InputError(str(error), right) from error


def _every_round(loop: Loop, lock: Lease, look_for_signals: Callable[[], None]) -> Callable[[], None]:
    """What the loop does once per round beside its own work."""
    last_renewal = time.monotonic()

    def heartbeat() -> None:
        nonlocal last_renewal
        look_for_signals()
        if time.monotonic() - last_renewal >= HEARTBEAT_SECONDS:
            last_renewal = time.monotonic()
            try:
                lock.renew()
            except LeaseLost as lost:
                loop.close(f"another sweep took over ({lost})", refused=True)

    return heartbeat


@contextmanager
def _stoppable(loop: Loop) -> Iterator[Callable[[], None]]:
    """Turns signals into requests to the back end; yields what tells of them (a handler itself prints nothing)."""
    received: list[str] = []
    told = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        loop.close(f"stopped by {received[0]}; the same command goes on from here")
        if len(received) == 1:
            loop.backend.interrupt()
        else:
            loop.backend.kill()

    def look() -> None:
        nonlocal told
        if received and told < min(2, len(received)):
            told = min(2, len(received))
            if told == 1:
                loop.display.notice(f"{received[0]}: running cells checkpoint and end; once more ends them at once")
            else:
                loop.display.notice("ending running cells at once")

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield look
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield look
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
