"""Points of reading: which budgets and milestones a table reads runs at, and where updates are equal.

The equal-updates point is a choice, so it is declared (a budget in updates) or labelled as the exploratory
default. Source of the rules: docs/method.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from analysis.at_budget import HOUR_CURRENCIES, at_budget
from analysis.snapshot import Snapshot

CURRENCY_NAMES: Final = {
    "updates": "updates",
    "generated_tokens": "generated tokens",
    "flops": "FLOPs",
    "gpu_hours": "GPU-hours",
    "cpu_hours": "CPU-hours",
}
"""What people read, in the order of the figure's panels; data keep the keys."""


@dataclass(frozen=True)
class Point:
    """An amount of one currency."""

    currency: str
    amount: float
    origin: str = "budget"
    """budget; grid (a milestone standing for a currency without a budget, see `_declared_point`); milestone;
    default (see `equal_updates`)."""

    @property
    def in_hours(self) -> bool:
        return self.currency in HOUR_CURRENCIES

    @property
    def short(self) -> str:
        """The amount alone."""
        return f"{self.amount:.4g}" if self.in_hours or self.currency == "flops" else f"{self.amount:,.0f}"

    def __str__(self) -> str:
        return f"{self.short} {CURRENCY_NAMES[self.currency]}"


def declared_points(snapshot: Snapshot) -> list[Point]:
    """The declared point of every currency with milestones, currencies with a budget first."""
    budgeted = set(snapshot.budgets["currency"])
    currencies = sorted(set(snapshot.milestones["currency"]), key=lambda name: (name not in budgeted, name))
    return [_declared_point(snapshot, currency) for currency in currencies]


def _declared_point(snapshot: Snapshot, currency: str) -> Point:
    """The currency's budget; without one (or without an evaluation there), a milestone of its grid.

    That is the largest which no ended run fell short of; if there is none, the largest.
    """
    milestones = milestones_in(snapshot, currency)
    for budget in snapshot.budgets.loc[snapshot.budgets["currency"] == currency, "amount"]:
        if budget in milestones:
            return Point(currency, float(budget))
    reached = (amount for amount in reversed(milestones) if _nobody_fell_short(snapshot, currency, amount))
    return Point(currency, next(reached, milestones[-1]), "grid")


def _nobody_fell_short(snapshot: Snapshot, currency: str, amount: float) -> bool:
    return not at_budget(snapshot, currency, amount)["status"].eq("not reached").any()


def compute_points(snapshot: Snapshot) -> list[Point]:
    """The declared points in every currency but updates: where compute is equal."""
    return [point for point in declared_points(snapshot) if point.currency != "updates"]


def milestones_in(snapshot: Snapshot, currency: str) -> list[float]:
    """Ascending amounts at which every run is evaluated."""
    here = snapshot.milestones[snapshot.milestones["currency"] == currency]
    return sorted({float(amount) for amount in here["amount"]})


def equal_updates(snapshot: Snapshot, arms: Sequence[str], compute: pd.DataFrame) -> Point | None:
    """Where `arms` have made equally many updates, to be compared with their readings at a budget of compute.

    Declared: the study's budget in updates. Otherwise the exploratory default: the updates that the costliest
    of the arms made within the budget of compute (the fewest over seeds), rounded down to the evaluated grid;
    None when the grid has no such milestone. compute: an `at_budget` frame at that budget, of one model or all.
    """
    if "updates" in set(snapshot.budgets["currency"]):
        return _declared_point(snapshot, "updates")
    read = compute[compute["arm"].isin(arms) & compute["counted"] & (compute["status"] == "ok")]
    fewest = read["updates"].min()  # NaN without readings: no milestone compares
    grid = [amount for amount in milestones_in(snapshot, "updates") if amount <= fewest]
    return Point("updates", grid[-1], "default") if grid else None
