"""A cap on a whole sweep, resolved: what it may spend, and what any one run can cost it at the most.

Every run has a hard ceiling in each capped currency, so that a block's cost is bounded before it is launched. How a
study file says it is cap_checks.py's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SweepCap:
    """Amounts by currency."""

    total: dict[str, float]
    per_arm: dict[str, float]
    ceilings: dict[str, float]
    """Of one run: all capped currencies."""
    steps: dict[str, float]
    """The most that one update takes beyond a ceiling: all capped currencies."""
    retries: int

    def most(self) -> dict[str, float]:
        """What one cell can spend over all its attempts: once for its path, once for each crash."""
        return {name: (1 + self.retries) * (ceiling + self.steps[name]) for name, ceiling in self.ceilings.items()}
