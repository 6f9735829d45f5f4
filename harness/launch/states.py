"""What became of a planned cell, from its logs, its lease and its last launch: cheap, and changing nothing.

A cell is done when the last word of its newest attempt is `finished` with status `completed`, unless the collector
has quarantined what led there: it alone reads logs in full, so what it said last stands. A worker writes
that line last of all, after everything else is on disk, so a worker that fails after its last evaluation, or
is killed there, leaves a cell that is not done; one that fails after that line has nothing left to lose.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.errors import InputError
from harness.events.attempts import sound_attempts, surviving_segments
from harness.events.schema import EventLogError
from harness.launch.jobs import Job, jobs
from harness.launch.json_files import read_json
from harness.launch.tails import last_event
from harness.layout import CellFolder, RunsFolder
from harness.train.exit_codes import EXIT_INTERRUPTED, EXIT_LEASE_HELD
from harness.train.lease import STALE_AFTER_SECONDS, Holder, lease_state

Status = Literal["done", "running", "interrupted", "failed", "waiting"]
STATUSES: Final[tuple[Status, ...]] = ("done", "running", "interrupted", "failed", "waiting")

OUT_OF_MEMORY: Final = "killed for want of memory"
CANCELLED: Final = "CANCELLED"
"""The scheduler's word for a job that somebody took out of its queue."""
_CANCELLED: Final = "cancelled in the scheduler's queue"

_FROM_OUTSIDE: Final = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
"""Signals that the infrastructure sends; the others (a segmentation fault, an abort) are the worker's own."""


@dataclass(frozen=True)
class CellState:
    """Where a cell stands."""

    status: Status
    """done; running; interrupted (begun, can go on); failed (would fail again); waiting (no event yet)."""
    reason: str = ""
    """Why it is not done, in one line; empty where there is nothing to say."""
    holder: Holder | None = None
    """Of a running cell: who works on it, where known."""


def cell_state(cell: CellFolder, stale_after_seconds: float = STALE_AFTER_SECONDS) -> CellState:
    """The state of one cell. Reads the ends of a few small files."""
    state = _state(cell, stale_after_seconds)
    if state.status == "failed" and (job := _newest_that_ran(cell)) is not None and job.to_be_retried():
        return CellState("interrupted" if cell.attempt_numbers() else "waiting", f"to be retried: {state.reason}")
    return state


def _state(cell: CellFolder, stale_after_seconds: float) -> CellState:
    lease, holder = lease_state(cell.lease, stale_after_seconds)
    if lease == "live":
        return CellState("running", holder=holder)
    job = _newest_that_ran(cell)
    newest_attempt = max(cell.attempt_numbers(), default=0)
    if job is not None and (job.under_way() or job.given_up()):  # on its way to the lease, or never again
        return CellState("failed", job.given_up()) if job.given_up() else CellState("running")
    order = job.order() if job is not None else None
    if newest_attempt and (order is None or newest_attempt > order.attempts_before):
        try:
            last = last_event(cell.events(newest_attempt))
        except EventLogError as error:
            return CellState("failed", str(error))
        if last is not None and last["kind"] == "finished":
            cancelled = job is not None and job.scheduler_state() == CANCELLED
            return _as_finished(last["payload"], cancelled, _doubt(cell, newest_attempt))
    if job is None:
        return CellState("interrupted", "its worker died") if newest_attempt else CellState("waiting")
    return _as_ended(job, begun=newest_attempt > 0)


def out_of_memory_attempt(cell: CellFolder) -> int | None:
    """The newest attempt, if it was killed for want of memory, as far as the launch that began it could tell."""
    newest = max(cell.attempt_numbers(), default=0)
    for job in reversed(jobs(cell)):
        order = job.order()
        if order is not None and order.attempts_before < newest and job.exit_code() != EXIT_LEASE_HELD:
            return newest if job.out_of_memory() else None
    return None


def find_cell(runs: RunsFolder, beginning: str) -> CellFolder:
    """The one cell whose id is, or begins with, `beginning`; an InputError when there is none, or more than one."""
    folders = sorted(runs.cells.iterdir()) if runs.cells.is_dir() else []
    found = [folder.name for folder in folders if beginning and folder.name.startswith(beginning)]
    if len(found) == 1:
        return CellFolder(runs.cell(found[0]))
    if found:
        what = f"{len(found)} cells begin with {beginning!r}"
        raise InputError(what, f"more of the id: {', '.join(found[:5])}", str(runs.cells))
    raise InputError(f"no cell begins with {beginning!r}", "an id that `isobudget status` shows", str(runs.cells))


def _newest_that_ran(cell: CellFolder) -> Job | None:
    """The newest launch, passing over those that found somebody else at work."""
    return next((job for job in reversed(jobs(cell)) if job.exit_code() != EXIT_LEASE_HELD), None)


def _doubt(cell: CellFolder, newest_attempt: int) -> str:
    """Why no table believes the run, as of the last collection: a log on its path is quarantined. Else empty."""
    runs = RunsFolder(cell.path.parent.parent)
    reasons = {
        int(Path(path).parent.name): f"{path} is quarantined: {reason}"
        for path, reason in (read_json(runs.quarantine) or {}).items()
        if path.startswith(f"cells/{cell.path.name}/attempts/")
    }
    if not reasons or newest_attempt in reasons:
        return reasons.get(newest_attempt, "")
    sound = [log for log in sound_attempts(cell.path)[0] if log.number not in reasons]
    try:
        surviving_segments(log.attempt() for log in sound)
    except ValueError as error:
        return "; ".join([str(error), *reasons.values()])
    return ""


def _as_finished(payload: dict[str, object], cancelled: bool, doubt: str) -> CellState:
    reason = str(payload.get("reason") or "")
    match payload.get("status"):
        case "completed" if doubt:
            return CellState("failed", doubt)
        case "completed":
            return CellState("done")
        case "interrupted" if cancelled:
            return CellState("failed", _CANCELLED)
        case "interrupted":
            return CellState("interrupted", reason)
        case _:
            return CellState("failed", reason or "no reason given")


def _as_ended(job: Job, begun: bool) -> CellState:
    """The state after a launch without a `finished` line."""
    resumable: Status = "interrupted" if begun else "waiting"
    code = job.exit_code()
    if code is None:
        return CellState(resumable, "its worker died, and its supervisor with it")
    last_line = (job.stderr_tail(1) or [""])[0].strip()
    if code == EXIT_INTERRUPTED:
        return CellState(resumable, last_line)
    if code < 0:
        return _as_killed(job, -code, resumable)
    told = last_line or "nothing on its standard error"
    return CellState("failed", f"exit code {code} without a `finished` line: {told}")


def _as_killed(job: Job, number: int, resumable: Status) -> CellState:
    """The state after a launch that a signal ended, as far as it or the scheduler could tell why."""
    if job.out_of_memory():
        return CellState("failed", OUT_OF_MEMORY)
    state = job.scheduler_state()
    if state == CANCELLED:
        return CellState("failed", _CANCELLED)
    if state:
        return CellState(resumable, f"ended by the scheduler: {state}")
    killed = f"killed by signal {number} ({signal.strsignal(number)})"
    return CellState(resumable if number in _FROM_OUTSIDE else "failed", killed)
