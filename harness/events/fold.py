"""Folds the attempts of a cell into one run: what led to its weights, and what was lost on the way.

The crash rule: a checkpoint holds the effect of its attempt's events up to a sequence number, so an attempt
resumed from it keeps those and no later ones. What an attempt did beyond is lost: by its own fault, and then it stays
*algorithmic*, or by the infrastructure's, and then it is *retraced*: *spent* only (docs/method.md, section 2).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from harness.events.reader import read_events
from harness.events.schema import HISTORY_KINDS, Event, EventLogError

Totals = dict[str, dict[str, float]]
"""Kind of work -> {samples, generated_tokens, ..., wall_seconds, cpu_seconds}, summed."""

Fault = Literal["self", "infrastructure"]

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

    def status(self) -> str | None:
        """completed | failed | interrupted; None without a `finished` event."""
        status: str | None = self.events[-1].payload["status"] if self.events[-1].kind == "finished" else None
        return status


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
    """Of the path that led to the weights, and what the run lost by its own fault."""
    lost_self: Totals = field(default_factory=dict)
    """The latter."""
    retraced: Totals = field(default_factory=dict)
    """Lost by the infrastructure's fault."""
    spent: Totals = field(default_factory=dict)
    """Algorithmic and retraced together."""
    crashes: dict[Fault, int] = field(default_factory=lambda: {"self": 0, "infrastructure": 0})
    """Attempts that another one had to follow, or that failed, by whose fault they ended."""


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


def fault_of(status: str | None, out_of_memory: bool = False) -> Fault:
    """Whose fault it was that an attempt ended as it did, should work of it be lost.

    Its own: an error that it told of, or memory that ran out. The infrastructure's: it was asked to stop, or killed.
    `out_of_memory`: evidence of that, which a killed attempt cannot give; its successor does.
    """
    return "self" if status == "failed" or (status is None and out_of_memory) else "infrastructure"


def faults(logs: Sequence[AttemptLog], newest_out_of_memory: bool = False) -> dict[int, Fault]:
    """By attempt. Evidence about each is told by the next; about the newest, by the caller."""
    told = [bool(log.events[0].payload.get("earlier_out_of_memory")) for log in logs[1:]]
    memory = [*told, newest_out_of_memory]
    return {log.number: fault_of(log.status(), evidence) for log, evidence in zip(logs, memory, strict=False)}


def lost_by_own_fault(
    logs: Sequence[AttemptLog], resumed_from: tuple[int, int] | None, newest_out_of_memory: bool = False
) -> tuple[Totals, dict[str, float]]:
    """What a new attempt after `logs`, resumed from (attempt, seq), is charged beside what its checkpoint holds.

    Work by kind, and hours by currency.
    """
    following = Attempt(max((log.number for log in logs), default=0) + 1, -1, resumed_from)
    path = surviving_segments([*(log.attempt() for log in logs), following])
    kept = {segment.attempt: segment.last_seq for segment in path}
    guilty = faults(logs, newest_out_of_memory)
    work: Totals = {}
    hours: dict[str, float] = {}
    for log in logs:
        if guilty[log.number] != "self":
            continue
        lost = [event for event in log.events if event.seq > kept.get(log.number, -1)]
        for event in lost:
            for kind, row in _work(event).items():
                _add(work.setdefault(kind, {}), row)
        _add(hours, _hours_within(log, kept.get(log.number, -1)))
    return work, hours


def _hours_within(log: AttemptLog, after_seq: int) -> dict[str, float]:
    """Hours charged in an attempt after an event of it."""
    charges = [(event.seq, event.measured["charge"]) for event in log.events if _tells_the_charge(event)]
    if not charges:
        return {}
    start = next((charge for seq, charge in reversed(charges) if seq <= after_seq), charges[0][1])
    return {currency: amount - start[currency] for currency, amount in charges[-1][1].items()}


def _tells_the_charge(event: Event) -> bool:
    """Evaluations tell that of the policy evaluated."""
    return event.kind != "evaluation" and "charge" in event.measured


def fold_run(cell_folder: str | os.PathLike[str]) -> FoldedRun:
    """The run that the attempts of a cell amount to. An `EventLogError` where their record is broken."""
    logs = read_attempts(cell_folder)
    run = FoldedRun()
    guilty = faults(logs)
    for log, event, surviving in survivors(logs):
        lost_self = not surviving and guilty[log.number] == "self"
        for kind, work in _work(event).items():
            kept = (
                [run.algorithmic] if surviving else [run.algorithmic, run.lost_self] if lost_self else [run.retraced]
            )
            for totals in (run.spent, *kept):
                _add(totals.setdefault(kind, {}), work)
        if surviving:
            _extend(run, event)
    for log in logs:
        if log.status() == "failed" or (log.status() is None and log is not logs[-1]):
            run.crashes[guilty[log.number]] += 1
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
