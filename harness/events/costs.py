"""What attempts cost: work by kind and hours, all of it, or what was lost by the run's own fault.

What an attempt did beyond what its successor resumed from is lost: by its own fault, and then it stays *algorithmic*,
or by the infrastructure's, and then it is *retraced*: *spent* only (docs/method.md, section 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from harness.events.attempts import Attempt, AttemptLog, Fault, surviving_segments
from harness.events.schema import CHARGE_KINDS, Event

Totals = dict[str, dict[str, float]]
"""Kind of work -> {samples, generated_tokens, ..., wall_seconds, cpu_seconds}, summed."""

Hours = dict[str, float]
"""gpu_hours and cpu_hours of training phases; empty where no clock told."""

_SECONDS: Final[tuple[str, ...]] = ("wall_seconds", "cpu_seconds")


def work_of(event: Event) -> Totals:
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
        for kind, row in work_of(event).items():
            add(totals.setdefault(kind, {}), row)


def add(totals: dict[str, float], work: dict[str, float]) -> None:
    for name, amount in work.items():
        totals[name] = totals.get(name, 0) + amount


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
            add(hours, _hours_within(log, kept.get(log.number, -1)))
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
        add(totals, _hours_within(log))
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
