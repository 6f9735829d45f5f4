"""How much a flip depends on where updates and compute are called equal: every pair of milestones.

Exploratory by nature: p is adjusted over the whole grid by Benjamini-Hochberg, and the point that the main table
uses is marked. Source of the rules: docs/method.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from analysis.points import CURRENCY_NAMES, Point, equal_updates, milestones_in
from analysis.readings import ALL_MODELS, Readings
from analysis.statistics.flips import flip_p_value
from analysis.statistics.multiplicity import benjamini_hochberg
from analysis.statistics.paired import Floats, complete_pairs
from analysis.tables import HOURS_NOTE, Table

Kind = Literal["certain", "possible", "none", "not evaluable"]


@dataclass(frozen=True)
class GridRow:
    """One unordered pair of arms at one (updates, compute) point. Differences are a - b."""

    model: str
    a: str
    b: str
    updates: float
    currency: str
    amount: float
    difference_updates_points: float
    difference_compute_points: float
    p: float
    """Intersection-union, in the direction of the estimates; NaN where they have the same sign."""
    p_adjusted: float
    """Benjamini-Hochberg over the grid, both directions of every point."""
    kind: Kind
    declared: bool
    """The point that the main table uses."""


def flip_grid(readings: Readings, computes: Sequence[Point]) -> tuple[GridRow, ...]:
    """All pairs and models at all milestones of updates and of the currencies of `computes`, the main table's points.

    Empty where updates have no milestones.
    """
    snapshot = readings.snapshot
    grid = [Point("updates", amount, "milestone") for amount in milestones_in(snapshot, "updates")]
    found = []
    for model in readings.models:
        for compute in computes:
            for a, b in combinations(snapshot.arm_names, 2):
                used = equal_updates(snapshot, (a, b), readings.frame(model, compute))
                for amount in milestones_in(snapshot, compute.currency):
                    at = Point(compute.currency, amount, "milestone")
                    second = _reached(readings, model, (a, b), at)
                    for updates in grid:
                        first = _reached(readings, model, (a, b), updates)
                        declared = amount == compute.amount and used is not None and updates.amount == used.amount
                        found.append((model or ALL_MODELS, (a, b), updates, at, first, second, declared))
    tests = np.array([_p_value(first, second) for *_, first, second, _ in found])
    adjusted = benjamini_hochberg(tests, 2 * len(tests))
    alpha = snapshot.study.alpha
    return tuple(
        GridRow(
            model=model,
            a=pair[0],
            b=pair[1],
            updates=updates.amount,
            currency=at.currency,
            amount=at.amount,
            difference_updates_points=_mean(first),
            difference_compute_points=_mean(second),
            p=float(p),
            p_adjusted=float(p_adjusted),
            kind=_kind(first, second, bool(p_adjusted <= alpha)),
            declared=declared,
        )
        for (model, pair, updates, at, first, second, declared), p, p_adjusted in zip(
            found, tests, adjusted, strict=True
        )
    )


def _reached(readings: Readings, model: str | None, pair: tuple[str, str], point: Point) -> Floats:
    """Complete differences at a point; none where a run did not reach it."""
    if readings.missing(model, pair, point):
        return np.empty(0)
    return complete_pairs(readings.differences(model, *pair, point))


def _p_value(first: Floats, second: Floats) -> float:
    if _mean(first) > 0 > _mean(second):
        return float(flip_p_value(first, second))
    if _mean(first) < 0 < _mean(second):
        return float(flip_p_value(-first, -second))
    return float("nan")


def _kind(first: Floats, second: Floats, significant: bool) -> Kind:
    if not first.size or not second.size:
        return "not evaluable"
    if significant:
        return "certain"
    return "possible" if _mean(first) * _mean(second) < 0 else "none"


def _mean(differences: Floats) -> float:
    return float(differences.mean()) if differences.size else float("nan")


def grid_tables(grid: tuple[GridRow, ...], pairs: Mapping[tuple[str, str], Sequence[tuple[str, str]]]) -> list[Table]:
    """One matrix per model and currency: pairs and updates down, compute across, the leaders' signs at each.

    pairs: of a model and currency, the pairs of arms in the order and direction that the main table shows.
    """
    return [
        _matrix([row for row in grid if (row.model, row.currency) == key], shown)
        for key, shown in pairs.items()
        if any((row.model, row.currency) == key for row in grid)
    ]


def _matrix(rows: list[GridRow], pairs: Sequence[tuple[str, str]]) -> Table:
    lines: dict[tuple[str, float], dict[float, str]] = {}
    for pair in pairs:
        for row in rows:
            if {row.a, row.b} == set(pair):
                lines.setdefault((" - ".join(pair), row.updates), {})[row.amount] = _symbol(row, pair)
    points = [Point(rows[0].currency, amount) for amount in sorted({row.amount for row in rows})]
    notes = [
        "Leader at equal updates, then at equal compute: + the first arm of the pair, - the second.",
        "* certain: corrected over the whole grid (Benjamini-Hochberg), so as a rule stricter than the main table's "
        "test of its one point, which is in [ ]; · not evaluable.",
    ]
    if points[0].in_hours:
        notes.append(HOURS_NOTE)
    return Table(
        title=f"{rows[0].model}: flips over updates and {CURRENCY_NAMES[rows[0].currency]}",
        columns=("pair", "updates", *(point.short for point in points)),
        rows=tuple(
            (pair, f"{updates:,.0f}", *(symbols[point.amount] for point in points))
            for (pair, updates), symbols in lines.items()
        ),
        notes=tuple(notes),
        detail=True,
    )


def _symbol(row: GridRow, pair: tuple[str, str]) -> str:
    """The leaders' signs, with + for the first of `pair`, whichever comes first in the row."""
    sign = 1 if row.a == pair[0] else -1
    if row.kind == "not evaluable":
        text = "·"
    else:
        text = "".join(
            "+" if sign * difference > 0 else "-" if sign * difference < 0 else "0"
            for difference in (row.difference_updates_points, row.difference_compute_points)
        )
        text += "*" if row.kind == "certain" else ""
    return f"[{text}]" if row.declared else text
