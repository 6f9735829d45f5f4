"""The sweep at work: keeps the slots full, notices what ended, decides what is launched again.

Every decision is read from the cells' own records (states.py), so that it makes no difference whether this
process, an earlier sweep or another study launched what runs. What is not launched is left to the next sweep.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from harness.launch.backend import Backend
from harness.launch.jobs import Job
from harness.launch.json_files import write_json
from harness.launch.options import LaunchFacts, SweepOptions
from harness.launch.progress import Display, RunningCell, Snapshot
from harness.launch.reservations import Reservations
from harness.launch.spending import cost_of
from harness.launch.states import CellState, cell_state, out_of_memory_attempt
from harness.launch.tails import Progress
from harness.layout import CellFolder, RunsFolder
from harness.study.cell import Cell

_ALIKE = 3
"""So many first cells failing for one reason are told of as one trouble."""


@dataclass(eq=False)
class Entry:
    """One planned cell on its way through the sweep."""

    cell: Cell
    folder: CellFolder
    progress: Progress
    best_updates: int = 0
    """The most updates seen when a launch last made progress."""
    fruitless_launches: int = 0
    """Launches in a row that ended without a new update."""

    @property
    def label(self) -> str:
        return f"{self.cell.model}/{self.cell.arm}/{self.cell.seed}"

    @property
    def fraction(self) -> float:
        return self.progress.fraction(self.cell.content["budgets"])


class Loop:
    """Each cell of the plan is, at any time, in exactly one of `done`, `failed`, `waiting`, `ours`, `elsewhere`."""

    def __init__(
        self,
        study: str,
        runs: RunsFolder,
        backend: Backend,
        options: SweepOptions,
        facts: LaunchFacts,
        code_hash: Callable[[], str],
        display: Display,
        warn: Callable[[str, str], None],
        reservations: Reservations | None = None,
    ):
        """`warn` records (code, message) in the study's log. `reservations`: in the sweep's cap, where it has one."""
        self.study = study
        self.runs = runs
        self.backend = backend
        self.options = options
        self.facts = facts
        self.code_hash = code_hash
        self.display = display
        self.warn = warn
        self.reservations = reservations
        self.done: list[Entry] = []
        self.failed: list[tuple[Entry, str]] = []
        self.waiting: deque[Entry] = deque()
        self.ours: dict[Job, Entry] = {}
        self.elsewhere: list[Entry] = []
        self.launched = 0
        self.closed = ""
        """Why nothing more is launched; empty while something may be."""
        self.refused = False
        """Whether it was closed because going on would be wrong, and not by a failure or a signal."""
        self._code = code_hash()
        self._ends: list[str] = []
        """Of each cell settled by this sweep, in order: why it failed; empty where it did not."""
        self._started_at = time.monotonic()
        self._work_at_start = 0.0

    def admit(self, cells: Sequence[Cell]) -> None:
        """Puts each cell where it belongs, in block order; writes the cell.json of those that may be launched."""
        for cell in sorted(cells, key=lambda cell: (cell.block, cell.position)):
            folder = CellFolder(self.runs.cell(cell.id))
            entry = Entry(cell, folder, Progress(folder))
            entry.progress.read()
            entry.best_updates = entry.progress.updates
            state = self._state(entry)
            if self.reservations is not None and (folder.attempt_numbers() or state.status == "running"):
                self.reservations.reopen(cell.block)
            if state.status not in ("done", "running") or not folder.spec.exists():
                folder.path.mkdir(parents=True, exist_ok=True)
                cell.write(folder.spec)
            match state.status:
                case "done":
                    self.done.append(entry)
                case "running":
                    self.elsewhere.append(entry)
                    self.display.notice(f"{entry.label} runs already ({state.holder or 'starting'}): waiting for it")
                case "failed" if not self.options.retry_failed:
                    self.failed.append((entry, state.reason))
                case _:
                    self.waiting.append(entry)
            if state.status != "running":
                waits = bool(self.waiting) and self.waiting[-1] is entry
                self._book(entry, settled=not waits)
        self._work_at_start = self._work()

    def run(self, heartbeat: Callable[[], None]) -> None:
        """Until every cell is settled, or until ours have ended once nothing more may be launched."""
        while True:
            began, launched_before = time.monotonic(), self.launched
            heartbeat()
            self._collect()
            self._fill()
            self.display.show(self._snapshot())
            if not self.ours and (self.closed or not (self.waiting or self.elsewhere)):
                return
            if self.launched == launched_before:  # else the launch may be over already: inline cells do not wait
                time.sleep(max(0.0, self.options.poll_seconds - (time.monotonic() - began)))

    def close(self, why: str, refused: bool = False) -> None:
        """Nothing more is launched; what runs goes on. The first reason stands."""
        if not self.closed:
            self.closed, self.refused = why, refused

    def _state(self, entry: Entry) -> CellState:
        return cell_state(entry.folder, self.options.stale_after_seconds)

    def _collect(self) -> None:
        for ended in self.backend.poll():
            self._settle(self.ours.pop(ended.job), launched_by_us=True)
        for entry in list(self.elsewhere):
            if self._state(entry).status != "running":
                self.elsewhere.remove(entry)
                self._settle(entry, launched_by_us=False)
        for entry in (*self.ours.values(), *self.elsewhere):
            entry.progress.read()

    def _settle(self, entry: Entry, launched_by_us: bool) -> None:
        """Files a cell that was running a moment ago."""
        state = self._state(entry)
        entry.progress.read()
        match state.status:
            case "running":  # by somebody who was quicker, or an orphan whose supervisor died
                self.elsewhere.append(entry)
                self.display.notice(f"{entry.label} runs elsewhere ({state.holder or 'starting'}): waiting for it")
            case "done":
                self._book(entry, settled=True)
                self.done.append(entry)
                self._ends.append("")
                self.display.ended(entry.label, "done", "")
            case "failed":
                self._fail(entry, state.reason)
            case _:
                self._take_back(entry, state, launched_by_us)

    def _take_back(self, entry: Entry, state: CellState, launched_by_us: bool) -> None:
        """An interrupted cell waits again, first in line, unless its workers die without getting anywhere."""
        if entry.progress.updates > entry.best_updates:
            entry.best_updates = entry.progress.updates
            entry.fruitless_launches = 0
        elif launched_by_us and not self.closed:
            entry.fruitless_launches += 1
        if entry.fruitless_launches >= self.options.max_fruitless_launches:
            self._fail(entry, f"{entry.fruitless_launches} launches in a row got nowhere: {state.reason}")
            return
        self._book(entry, settled=False)
        if self.reservations is not None and not self.reservations.retries_left(entry.cell.id):
            self._fail(entry, f"it crashed more often than the sweep's cap has room for: {state.reason}")
            return
        self.waiting.appendleft(entry)
        self.display.ended(entry.label, state.status, state.reason)

    def _fail(self, entry: Entry, reason: str) -> None:
        self._book(entry, settled=True)
        like = next((other for other, theirs in self.failed if alike(theirs, reason)), None)
        self.failed.append((entry, reason))
        self.display.ended(entry.label, "failed", f"like {like.label}" if like else reason)
        self._ends.append(reason)
        if len(self._ends) == _ALIKE and all(alike(end, reason) for end in self._ends):
            self.display.notice(f"the first {_ALIKE} cells all failed alike: {reason}")
        if self.options.stop_on_failure:
            self.close(f"stopped at the first failure, {entry.label}: {reason}")

    def _fill(self) -> None:
        """Launches while there is a free slot. Cells that run elsewhere on this machine take one, too."""
        while not self.closed and self._busy() < self.backend.workers and (entry := self._next()) is not None:
            self.waiting.remove(entry)
            if self._state(entry).status in ("running", "done"):  # another study's sweep was quicker
                self._settle(entry, launched_by_us=False)
                continue
            try:
                if self._same_code():
                    self._launch(entry)
                else:
                    self.waiting.appendleft(entry)
            except OSError as error:
                self.waiting.appendleft(entry)
                self.close(f"{entry.label} cannot be launched: {error.strerror}: {error.filename}", refused=True)

    def _next(self) -> Entry | None:
        """The first cell that waits and has room in the cap. Where none has, and nothing runs, the sweep is over."""
        for entry in self.waiting:
            if self.reservations is None or self.reservations.may_launch(entry.cell.block):
                return entry
        if self.waiting and not self.ours and not self.elsewhere:
            blocks = len({entry.cell.block for entry in self.waiting})
            self.close(f"the sweep's cap has no room for another block; {blocks} are left")
        return None

    def _book(self, entry: Entry, settled: bool) -> None:
        """Takes what a cell has spent into the books of the cap."""
        if self.reservations is not None:
            crashes, spent = cost_of(entry.folder, entry.cell.content["charged"], entry.cell.gpus)
            self.reservations.book(entry.cell.id, crashes, spent, settled=settled)

    def _busy(self) -> int:
        holders = [self._state(entry).holder for entry in self.elsewhere]
        return len(self.ours) + sum(holder is None or holder.process.here for holder in holders)

    def _launch(self, entry: Entry) -> None:
        attempt = out_of_memory_attempt(entry.folder)
        memory = {} if attempt is None else {"out_of_memory_attempt": attempt}
        write_json(entry.folder.launch, {"study": self.study, **asdict(self.facts), **memory})
        self.display.started(entry.label)
        job = self.backend.start(entry.folder, int(entry.cell.content["threads"]), self._code)
        self.ours[job] = entry
        self.launched += 1

    def _same_code(self) -> bool:
        """Whether a cell launched now would run the code that the sweep started with, or may run another."""
        now = self.code_hash()
        if now == self._code:
            return True
        if not self.options.allow_code_change:
            self.close(
                "the code changed while the sweep ran, so nothing more is launched; undo the change, start the "
                "sweep again, or allow it with --allow-code-change",
                refused=True,
            )
            return False
        told = f"the code changed from {self._code[:12]} to {now[:12]}; later cells run the new code"
        self.warn("code-changed", told)
        self.display.notice(told)
        self._code = now
        self.facts = replace(self.facts, mode="exploratory", mode_reason="the code changed during the sweep")
        return True

    def _work(self) -> float:
        """Cells' worth of work behind us: 1 for each done, a fraction for each begun."""
        begun = (*self.waiting, *self.ours.values(), *self.elsewhere)
        return len(self.done) + sum(entry.fraction for entry in begun)

    def _snapshot(self) -> Snapshot:
        running = (*self.ours.values(), *self.elsewhere)
        total = len(running) + len(self.done) + len(self.failed) + len(self.waiting)
        work = self._work()
        rate = (work - self._work_at_start) / max(1e-9, time.monotonic() - self._started_at)
        left = total - len(self.failed) - work
        return Snapshot(
            total=total,
            done=len(self.done),
            failed=len(self.failed),
            waiting=len(self.waiting),
            running=[RunningCell(entry.label, entry.progress.updates, entry.fraction) for entry in running],
            left_seconds=left / rate if rate > 0 and not self.closed else None,
        )


def alike(one: str, other: str) -> bool:
    """Whether two reasons differ in nothing but numbers and addresses."""

    def without_numbers(reason: str) -> str:
        return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", reason)

    return without_numbers(one) == without_numbers(other)
