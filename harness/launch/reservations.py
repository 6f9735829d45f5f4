"""Room in a sweep's cap: whole blocks are reserved before their first cell is launched.

Invariant: what was spent and what is reserved never exceed the cap, in any capped currency, in total and for each
arm, whatever runs cost (within their ceilings), however often they crash (within the retries). So a sweep ends
between blocks, with its arms balanced. A run that is asked to stop loses nothing, so only crashes are counted: the
path that leads to the weights is within the ceiling, and so is what each crash loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from harness.study.caps import SweepCap
from harness.study.milestones import amount_text

Amounts = Mapping[str, float]


class Planned(Protocol):
    """What the books need to know of a cell."""

    @property
    def id(self) -> str: ...

    @property
    def block(self) -> int: ...

    @property
    def arm(self) -> str: ...


@dataclass
class _Account:
    """One cell."""

    arm: str
    crashes: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    settled: bool = False
    """Done or failed: it will not be launched again."""


class Reservations:
    """The books of one sweep of `cells`."""

    def __init__(self, cap: SweepCap, cells: Iterable[Planned]):
        self.cap = cap
        self._blocks: dict[int, list[str]] = {}
        self._accounts: dict[str, _Account] = {}
        for cell in cells:
            self._blocks.setdefault(cell.block, []).append(cell.id)
            self._accounts[cell.id] = _Account(cell.arm)
        self._open: set[int] = set()

    def book(self, cell: str, crashes: int, spent: Amounts, *, settled: bool) -> None:
        """What a cell has spent so far, over all attempts; `settled`: and it is done with."""
        account = self._accounts[cell]
        account.crashes, account.spent, account.settled = crashes, dict(spent), settled

    def reopen(self, block: int) -> None:
        """A block that an earlier sweep began is open: its runs are under way or done in part."""
        self._open.add(block)

    def may_launch(self, block: int) -> bool:
        """Whether the block is open, or fits as a whole into what is left, and then opens it."""
        if block in self._open:
            return True
        asked = self._asked(block)
        for arm in (None, *{self._accounts[cell].arm for cell in self._blocks[block]}):
            cap = self.cap.total if arm is None else self.cap.per_arm
            for currency, amount in cap.items():
                taken = self.spent(arm)[currency] + self.reserved(arm)[currency]
                if taken + asked[arm][currency] > amount:
                    return False
        self._open.add(block)
        return True

    def retries_left(self, cell: str) -> bool:
        """Whether there is room for going on after its crashes so far."""
        return self._accounts[cell].crashes <= self.cap.retries

    def spent(self, arm: str | None = None) -> dict[str, float]:
        """By all cells, or those of one arm."""
        return self._sum(account.spent for account in self._of(arm))

    def reserved(self, arm: str | None = None) -> dict[str, float]:
        """For what cells of open blocks may still spend."""
        cells = [cell for block in self._open for cell in self._blocks[block]]
        return self._sum(self._outstanding(cell) for cell in cells if arm in (None, self._accounts[cell].arm))

    def __str__(self) -> str:
        """What is spent, reserved and left in total, by currency; of caps per arm, only that there are any."""
        spent, reserved = self.spent(), self.reserved()
        parts = [
            f"{amount_text(amount)} {name}: {spent[name]:.3g} spent, {reserved[name]:.3g} reserved, "
            f"{amount - spent[name] - reserved[name]:.3g} left"
            for name, amount in self.cap.total.items()
        ]
        if self.cap.per_arm:
            parts.append(f"per arm {', '.join(f'{amount_text(x)} {name}' for name, x in self.cap.per_arm.items())}")
        return f"capped at {'; '.join(parts)}"

    def _asked(self, block: int) -> dict[str | None, dict[str, float]]:
        """By arm, and in total (None)."""
        cells = self._blocks[block]
        arms = {self._accounts[cell].arm for cell in cells}
        asked: dict[str | None, dict[str, float]] = {
            arm: self._sum(self._outstanding(cell) for cell in cells if self._accounts[cell].arm == arm)
            for arm in arms
        }
        asked[None] = self._sum(self._outstanding(cell) for cell in cells)
        return asked

    def _outstanding(self, cell: str) -> dict[str, float]:
        account = self._accounts[cell]
        if account.settled:
            return {}
        return {name: max(0.0, most - account.spent.get(name, 0.0)) for name, most in self.cap.most().items()}

    def _of(self, arm: str | None) -> list[_Account]:
        return [account for account in self._accounts.values() if arm in (None, account.arm)]

    def _sum(self, amounts: Iterable[Amounts]) -> dict[str, float]:
        totals = dict.fromkeys(self.cap.ceilings, 0.0)
        for one in amounts:
            for currency in totals:
                totals[currency] += one.get(currency, 0.0)
        return totals
