"""Folds the attempts of a cell into one run: what led to its weights, and what was lost on the way.

The crash rule: a checkpoint holds the effect of its attempt's events up to a sequence number, so an attempt
resumed from it keeps those and no later ones. What an attempt did beyond is lost: by its own fault, and then it stays
*algorithmic*, or by the infrastructure's, and then it is *retraced*: *spent* only (docs/method.md, section 2).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from harness.events.reader import read_events
from harness.events.schema import CHARGE_KINDS, HISTORY_KINDS, Event, EventLogError

Totals = dict[str, dict[str, float]]
"""Kind of work -> {samples, generated_tokens, ..., wall_seconds, cpu_seconds}, summed."""

Hours = dict[str, float]
"""gpu_hours and cpu_hours of training phases; empty where no clock told."""

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
        status: str | None = self._ending().get("status")
        return status

    def crashed(self, newest: int) -> bool:
        """Whether it failed, or ended without a word; the `newest` attempt may be at work."""
        return self.status() == "failed" or (self.status() is None and self.number != newest)

    def fault(self, out_of_memory: bool) -> Fault:
        """Whose fault its end was (see `fault_of`)."""
        return fault_of(self.status(), self._ending().get("fault"), out_of_memory)

    def _ending(self) -> dict[str, Any]:
        return self.events[-1].payload if self.events[-1].kind == "finished" else {}


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
    spent_hours: Hours = field(default_factory=dict)
    """Of all attempts; of a killed one up to its last sign of life."""
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
    logs, troubles = sound_attempts(cell_folder)
    for error in troubles.values():
        raise error
    return logs


def sound_attempts(cell_folder: str | os.PathLike[str]) -> tuple[list[AttemptLog], dict[int, EventLogError]]:
    """The same where logs may be damaged: those that can be trusted, and by attempt what is wrong with the others."""
    paths = {int(path.parent.name): path for path in Path(cell_folder).glob("attempts/[0-9]*/events.jsonl")}
    logs: list[AttemptLog] = []
    troubles: dict[int, EventLogError] = {}
    for number in sorted(paths):
        try:
            log = AttemptLog(number, paths[number], read_events(paths[number]).events)
            if log.events:
                log.attempt()
                logs.append(log)
        except EventLogError as error:
            troubles[number] = error
    return logs, troubles


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


def fault_of(status: str | None, told: str | None = None, out_of_memory: bool = False) -> Fault:
    """Whose fault it was that an attempt ended as it did, should work of it be lost.

    Its own: an error that it told of, or memory that ran out. The infrastructure's: it was asked to stop, or killed,
    or it `told` that the error was not its own: the disk refused. `out_of_memory`: evidence that memory ran out,
    which a killed attempt cannot give; its successor does.
    """
    if status == "failed":
        return "infrastructure" if told == "infrastructure" else "self"
    return "self" if status is None and out_of_memory else "infrastructure"


def faults(logs: Sequence[AttemptLog], out_of_memory: Collection[int] = ()) -> dict[int, Fault]:
    """By attempt. `out_of_memory`: attempts known to have died of it beside those of which a successor tells."""
    told = {log.number - 1 for log in logs if log.events[0].payload.get("earlier_out_of_memory")}
    return {log.number: log.fault(log.number in told or log.number in out_of_memory) for log in logs}


def lost_by_own_fault(
    logs: Sequence[AttemptLog], resumed_from: tuple[int, int] | None, out_of_memory: Collection[int] = ()
) -> tuple[Totals, Hours]:
    """What a new attempt after `logs`, resumed from (attempt, seq), is charged beside what its checkpoint holds.

    Work by kind, and hours. A ValueError where the path to the checkpoint cannot be followed.
    """
    following = Attempt(max((log.number for log in logs), default=0) + 1, -1, resumed_from)
    path = surviving_segments([*(log.attempt() for log in logs), following])
    kept = {segment.attempt: segment.last_seq for segment in path}
    guilty = faults(logs, out_of_memory)
    work: Totals = {}
    hours: Hours = {}
    for log in logs:
        if guilty[log.number] == "self":
            lost = [event for event in log.events if event.seq > kept.get(log.number, -1)]
            _add_work(work, lost)
            _add(hours, _hours_within(log, kept.get(log.number, -1)))
    return work, hours


def spent_work(logs: Iterable[AttemptLog]) -> Totals:
    """All work of these attempts, by kind."""
    totals: Totals = {}
    for log in logs:
        _add_work(totals, log.events)
    return totals


def spent_hours(logs: Iterable[AttemptLog]) -> Hours:
    """All hours of these attempts: of each what its clock charged between its first line that tells and its last."""
    totals: Hours = {}
    for log in logs:
        _add(totals, _hours_within(log))
    return totals


def _hours_within(log: AttemptLog, after_seq: int = -1) -> Hours:
    """Hours charged in an attempt after an event of it."""
    charges = [(event.seq, event.measured["charge"]) for event in log.events if _tells_the_charge(event)]
    if not charges:
        return {}
    start = next((charge for seq, charge in reversed(charges) if seq <= after_seq), charges[0][1])
    last = {currency: amount for currency, amount in charges[-1][1].items() if amount is not None}
    return {currency: amount - (start.get(currency) or 0) for currency, amount in last.items()}


def _tells_the_charge(event: Event) -> bool:
    """Evaluations tell that of the policy evaluated."""
    return event.kind in CHARGE_KINDS and "charge" in event.measured


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
    run.spent_hours = spent_hours(logs)
    for log in logs:
        if log.crashed(logs[-1].number):
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


def _add_work(totals: Totals, events: Iterable[Event]) -> None:
    for event in events:
        for kind, row in _work(event).items():
            _add(totals.setdefault(kind, {}), row)


def _add(totals: dict[str, float], work: dict[str, float]) -> None:
    for name, amount in work.items():
        totals[name] = totals.get(name, 0) + amount
