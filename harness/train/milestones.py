"""When a run is evaluated and when it ends: exact accuracy at a budget (docs/method.md, section 3).

One barrier stands before each optimiser step. A milestone B is due there when the charge is above B: the
policy in memory, not yet updated, is the last one whose whole cost was within B. Milestones in updates are due
right after the step that reaches them, so "at 50 updates" buys no 51st batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.study.cell import Milestone


class Schedule:
    """A cell's milestones and budgets, and which of the milestones have passed."""

    def __init__(
        self,
        milestones: Sequence[Milestone],
        budgets: Mapping[str, float],
        passed: Iterable[tuple[str, float]] = (),
    ):
        self._milestones = list(milestones)
        self._budgets = dict(budgets)
        self._passed = set(passed)

    @property
    def passed(self) -> list[tuple[str, float]]:
        """(currency, amount) of the milestones that have had their evaluation, sorted: what a checkpoint keeps."""
        return sorted(self._passed)

    def due(self, charge: Mapping[str, float], *, after_step: bool) -> list[Milestone]:
        """Milestones that became due, each returned once. `charge` by currency, `updates` among them.

        Before a step: those in every currency but updates with charge > amount. After it: those in updates
        with charge >= amount.
        """
        due = [m for m in self.open() if self._is_due(m, charge, after_step)]
        self._passed.update((m.currency, m.amount) for m in due)
        return due

    def open(self) -> list[Milestone]:
        """Milestones that were not due so far."""
        return [m for m in self._milestones if (m.currency, m.amount) not in self._passed]

    def exhausted(self, charge: Mapping[str, float]) -> bool:
        """Whether every declared budget is: above it, or at it for updates."""
        return all(
            charge[currency] >= amount if currency == "updates" else charge[currency] > amount
            for currency, amount in self._budgets.items()
        )

    @staticmethod
    def _is_due(milestone: Milestone, charge: Mapping[str, float], after_step: bool) -> bool:
        if milestone.currency == "updates":
            return after_step and charge["updates"] >= milestone.amount
        return not after_step and charge[milestone.currency] > milestone.amount


def learning_rate_factor(decay: str, fraction_spent: float, warmup_updates: int, update: int) -> float:
    """What the learning rate is multiplied by at update `update` (from 1).

    Decay follows the fraction spent of the one budget that it names, in [0, 1], not the steps; warm-up is
    linear, in updates.
    """
    import math

    fraction = min(max(fraction_spent, 0.0), 1.0)
    factor = {"none": 1.0, "linear": 1.0 - fraction, "cosine": 0.5 * (1.0 + math.cos(math.pi * fraction))}[decay]
    return factor * min(1.0, update / (warmup_updates + 1) if warmup_updates else 1.0)
