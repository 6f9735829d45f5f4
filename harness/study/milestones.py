"""Where every run of a study is evaluated: fractions of each budget, and the declared grids.

Declared here, reached in train/milestones.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from harness.compute.kinds import CURRENCIES
from harness.study.cell import Milestone
from harness.study.training import EvaluateSpec

WHOLE_CURRENCIES: Final = ("generated_tokens", "updates")
"""Counted one by one."""


def fraction_of(percentage: str) -> Fraction:
    """``25%`` as 1/4, exactly."""
    return Fraction(percentage.removesuffix("%")) / 100


def amount_at(currency: str, budget: float, fraction: Fraction) -> float:
    """A fraction of a budget; rounded down, to what fits within it, where the currency is counted one by one."""
    amount = fraction * Fraction(budget)
    return int(amount) if currency in WHOLE_CURRENCIES else float(amount)


def declared_milestones(evaluate: EvaluateSpec, budgets: Mapping[str, float]) -> list[Milestone]:
    """All milestones, each once, by currency and then amount; one that is a fraction of a budget says so."""
    found: dict[tuple[str, float], Milestone] = {}
    for currency in CURRENCIES:
        for percentage in evaluate.at if currency in budgets else []:
            fraction = fraction_of(percentage)
            amount = amount_at(currency, budgets[currency], fraction)
            found[currency, amount] = Milestone(currency, amount, float(fraction))
        for amount in getattr(evaluate, currency):
            found.setdefault((currency, amount), Milestone(currency, amount))
    return sorted(found.values(), key=lambda milestone: (CURRENCIES.index(milestone.currency), milestone.amount))


def amount_text(amount: float) -> str:
    """An amount as a study would write it: 240_000, 1.5e+12, 0.25."""
    return f"{int(amount):_}" if float(amount).is_integer() and abs(amount) < 1e9 else f"{amount:g}"


def milestone_text(milestone: Milestone) -> str:
    """A milestone as a claim would write it: ``50 updates``, ``25% of generated_tokens (60_000)``."""
    amount = amount_text(milestone.amount)
    if milestone.fraction is None:
        return f"{amount} {milestone.currency}"
    return f"{milestone.fraction * 100:g}% of {milestone.currency} ({amount})"
