"""Folds the attempts of a cell into one run: what led to its weights, and what was retraced.

The crash rule: a checkpoint holds the effect of its attempt's events up to a sequence number, so an attempt
resumed from it keeps those and no later ones. Everything else that was done is *spent*, not *algorithmic*.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.events.reader import read_events
from harness.events.schema import HISTORY_KINDS, Event, EventLogError

Totals = dict[str, dict[str, float]]
"""Kind of work -> {samples, generated_tokens, ..., wall_seconds, cpu_seconds}, summed."""

_SECONDS: Final[tuple[str, ...]] = ("wall_seconds", "cpu_seconds")


@dataclass(frozen=True)
class Attempt:
    """What the fold needs to know of one attempt."""

    number: int
    last_seq: int
    resumed_from: tuple[int, int] | None
    """(attempt, last sequence number that its checkpoint holds the effect of), or None: started afresh."""


@dataclass(frozen=True)
class Segment:
    """Events of one attempt that survive, both ends included."""

    attempt: int
    first_seq: int
    last_seq: int

    def holds(self, seq: int) -> bool:
        return self.first_seq <= seq <= self.last_seq


@dataclass(frozen=True)
class AttemptLog:
    """One attempt's number, log and events (at least one)."""

    number: int
    path: Path
    events: list[Event]

    def attempt(self) -> Attempt:
        """Its place in the chain, from its first event."""
        first = self.events[0]
        if first.kind != "attempt_started":
            raise EventLogError(f"begins with `{first.kind}` instead of `attempt_started`", self.path, 1)
        resumed = first.payload.get("resumed_from")
        origin = None if resumed is None else (int(resumed["attempt"]), int(resumed["seq"]))
        return Attempt(self.number, self.events[-1].seq, origin)


@dataclass
class FoldedRun:
    """One run. `history` is deterministic: two equal runs have equal ones, whatever crashed on the way."""

    status: str = "running"
    """completed | failed | interrupted, of the newest attempt; running where it has no `finished` event."""
    reason: str = ""
    updates: int = 0
    diverged: bool = False
    charge: dict[str, float] = field(default_factory=dict)
    """Last cumulative algorithmic charge of the charged kinds: generated_tokens, flops, gpu_hours, cpu_hours."""
    history: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """(kind, payload) of `HISTORY_KINDS` on the surviving path; no evaluations that were due only in hours."""
    algorithmic: Totals = field(default_factory=dict)
    retraced: Totals = field(default_factory=dict)
    spent: Totals = field(default_factory=dict)
    """Algorithmic and retraced together."""


def surviving_segments(attempts: Iterable[Attempt]) -> list[Segment]:
    """The path from the newest attempt back, oldest segment first; empty without attempts.

    Raises a ValueError where the path leads to an attempt or an event that is not there.
    """
    known = {attempt.number: attempt for attempt in attempts}
    path: list[Segment] = []
    number, last_seq = (max(known), known[max(known)].last_seq) if known else (0, -1)
    while known:
        path.append(Segment(number, 0, last_seq))
        origin = known[number].resumed_from
        if origin is None:
            break
        earlier, kept = origin
        if earlier not in known or earlier >= number:
            raise ValueError(f"attempt {number} resumes from attempt {earlier}, which has no record")
        if kept > known[earlier].last_seq:
            raise ValueError(
                f"attempt {number} resumes from event {kept} of attempt {earlier}, whose record ends at"
                f" {known[earlier].last_seq}"
            )
        number, last_seq = earlier, kept
    return path[::-1]


def read_attempts(cell_folder: str | os.PathLike[str]) -> list[AttemptLog]:
    """The attempts under ``<cell>/attempts/<n>/events.jsonl``, ascending; those without an event are left out."""
    logs = {int(path.parent.name): path for path in Path(cell_folder).glob("attempts/[0-9]*/events.jsonl")}
    read = [AttemptLog(number, logs[number], read_events(logs[number]).events) for number in sorted(logs)]
    return [log for log in read if log.events]


def survivors(logs: Sequence[AttemptLog]) -> list[tuple[AttemptLog, Event, bool]]:
    """Every event of a cell in order of attempt and sequence, with whether it survives."""
    try:
        segments = {segment.attempt: segment for segment in surviving_segments(log.attempt() for log in logs)}
    except ValueError as error:
        raise EventLogError(str(error), logs[-1].path, 1) from None
    return [
        (log, event, log.number in segments and segments[log.number].holds(event.seq))
        for log in logs
        for event in log.events
    ]


def fold_run(cell_folder: str | os.PathLike[str]) -> FoldedRun:
    """The run that the attempts of a cell amount to. An `EventLogError` where their record is broken."""
    logs = read_attempts(cell_folder)
    run = FoldedRun()
    for _, event, surviving in survivors(logs):
        for kind, work in _work(event).items():
            for totals in (run.spent, run.algorithmic if surviving else run.retraced):
                _add(totals.setdefault(kind, {}), work)
        if surviving:
            _extend(run, event)
    for event in logs[-1].events if logs else ():
        if event.kind == "finished":
            run.status, run.reason = event.payload["status"], event.payload.get("reason") or ""
    return run


def _extend(run: FoldedRun, event: Event) -> None:
    if event.kind in ("update", "finished"):
        run.charge = {**event.payload["charge"], **event.measured.get("charge", {})}
    if event.kind == "update":
        run.updates = event.payload["update"]
    run.diverged = run.diverged or bool(event.payload.get("diverged"))
    only_in_hours = event.kind == "evaluation" and not event.payload["milestones"]
    if event.kind in HISTORY_KINDS and not only_in_hours:
        run.history.append((event.kind, event.payload))


def _work(event: Event) -> Totals:
    """The work that one event charges, by kind, counted and measured values together."""
    if event.kind not in ("ledger", "evaluation"):
        return {}
    measured: Totals = event.measured.get("rows", {})
    if event.kind == "evaluation":
        seconds = {name: event.measured[name] for name in _SECONDS if event.measured.get(name) is not None}
        measured = {"evaluation": seconds} if seconds else {}
    rows: Totals = {kind: dict(row) for kind, row in event.payload["rows"].items()}
    for kind, row in measured.items():
        rows.setdefault(kind, {}).update(row)
    return rows


def _add(totals: dict[str, float], work: dict[str, float]) -> None:
    for name, amount in work.items():
        totals[name] = totals.get(name, 0) + amount
