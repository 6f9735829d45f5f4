"""Folds the attempts of a cell into one run: what led to its weights, and what was lost on the way (costs.py)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from harness.events.attempts import Fault, read_attempts, survivors
from harness.events.costs import Hours, Totals, add, faults, spent_hours, work_of
from harness.events.schema import HISTORY_KINDS, Event


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


def fold_run(cell_folder: str | os.PathLike[str]) -> FoldedRun:
    """The run that the attempts of a cell amount to. An `EventLogError` where their record is broken."""
    logs = read_attempts(cell_folder)
    run = FoldedRun()
    guilty = faults(logs)
    for log, event, surviving in survivors(logs):
        lost_self = not surviving and guilty[log.number] == "self"
        for kind, work in work_of(event).items():
            kept = (
                [run.algorithmic] if surviving else [run.algorithmic, run.lost_self] if lost_self else [run.retraced]
            )
            for totals in (run.spent, *kept):
                add(totals.setdefault(kind, {}), work)
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
