"""Where a study stands at one moment, from the records of its cells alone: whoever launched them, from wherever.

Reading it changes nothing and needs no sweep to be running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compute.kinds import CURRENCIES
from harness.launch.loop import alike
from harness.launch.progress import RunningCell, Snapshot
from harness.launch.reservations import Reservations
from harness.launch.spending import cost_of
from harness.launch.states import STATUSES, Status, cell_state
from harness.launch.tails import Progress
from harness.layout import CellFolder, RunsFolder
from harness.study.caps import SweepCap
from harness.study.cell import Cell


@dataclass(frozen=True)
class CellView:
    """One planned cell."""

    cell: str
    label: str
    """model/arm/seed."""
    arm: str
    status: Status
    reason: str
    updates: int
    fraction: float
    """Share of its budgets used up, in [0, 1]."""
    charge: Mapping[str, float]
    """Algorithmic, by currency, so far."""
    where: str
    """Who works on it; empty unless it runs, and where nobody has signed yet."""


@dataclass(frozen=True)
class Overview:
    """All planned cells of a study."""

    study: str
    cells: Sequence[CellView]
    left_seconds: float | None
    """Expected time to the end; None while nothing can be said."""

    def having(self, *statuses: Status) -> list[CellView]:
        """The cells of these statuses."""
        return [cell for cell in self.cells if cell.status in statuses]

    def counts(self) -> dict[Status, int]:
        """Cells by status, those that there are."""
        found = {status: len(self.having(status)) for status in STATUSES}
        return {status: count for status, count in found.items() if count}

    def slowest(self, most: int = 5) -> list[CellView]:
        """Running cells that are least far."""
        return sorted(self.having("running"), key=lambda cell: cell.fraction)[:most]

    def troubles(self, *statuses: Status) -> list[tuple[str, list[CellView]]]:
        """Cells of these statuses, grouped by reasons that are alike but for their numbers."""
        groups: list[tuple[str, list[CellView]]] = []
        for cell in self.having(*statuses):
            group = next((cells for reason, cells in groups if alike(reason, cell.reason)), None)
            if group is None:
                groups.append((cell.reason, [cell]))
            else:
                group.append(cell)
        return groups

    def charged(self) -> dict[str, float]:
        """Algorithmic charge of all cells together, by currency: what budgets bind on."""
        totals = {currency: sum(cell.charge.get(currency, 0.0) for cell in self.cells) for currency in CURRENCIES}
        return {currency: amount for currency, amount in totals.items() if amount}

    def snapshot(self) -> Snapshot:
        """For a display of progress."""
        return Snapshot(
            total=len(self.cells),
            done=len(self.having("done")),
            failed=len(self.having("failed")),
            waiting=len(self.having("waiting", "interrupted")),
            running=[RunningCell(cell.label, cell.updates, cell.fraction) for cell in self.having("running")],
            left_seconds=self.left_seconds,
        )


def books_of(cap: SweepCap, cells: Sequence[Cell], told: Overview, runs: RunsFolder) -> Reservations:
    """What is spent and reserved of a sweep's cap, as a sweep would find it now; reads the cells' logs."""
    books = Reservations(cap, cells)
    for cell, view in zip(cells, told.cells, strict=True):
        folder = CellFolder(runs.cell(cell.id))
        begun = bool(folder.attempt_numbers())
        if begun:
            crashes, spent = cost_of(folder, cell.content["charged"], cell.gpus)
            books.book(cell.id, crashes, spent, settled=view.status in ("done", "failed"))
        if begun or view.status == "running":
            books.reopen(cell.block)
    return books


def overview(
    study: str, cells: Sequence[Cell], runs: RunsFolder, seconds_by_arm: Mapping[str, float], at_once: int
) -> Overview:
    """Reads the ends of each cell's few files.

    `seconds_by_arm`: mean duration of the arms' earlier runs; `at_once`: cells that would run together.
    """
    views = [_view(cell, CellFolder(runs.cell(cell.id))) for cell in cells]
    left = [view for view in views if view.status not in ("done", "failed")]
    known = [seconds_by_arm[view.arm] * (1 - view.fraction) for view in left if view.arm in seconds_by_arm]
    seconds = max([*known, sum(known) / max(1, at_once)], default=0.0) if len(known) == len(left) else None
    return Overview(study, views, seconds)


def _view(cell: Cell, folder: CellFolder) -> CellView:
    state, progress = cell_state(folder), Progress(folder)
    progress.read()
    return CellView(
        cell=cell.id,
        label=f"{cell.model}/{cell.arm}/{cell.seed}",
        arm=cell.arm,
        status=state.status,
        reason=state.reason,
        updates=progress.updates,
        fraction=1.0 if state.status == "done" else progress.fraction(cell.content["budgets"]),
        charge=progress.charge,
        where=str(state.holder) if state.holder else "",
    )
