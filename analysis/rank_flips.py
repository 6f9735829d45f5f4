"""Where the ranking at equal compute flips against the ranking at equal updates, pair by pair.

Promise: a *certain* flip has an intersection-union p, adjusted by Holm over every row of the table (pairs,
directions, currencies, models), of at most alpha; so a study without a flip shows one with at most that
probability. *Possible* means that the two estimates have opposite signs, no more. Declared claims are judged in
`verdicts`, other points in `flip_grid`. Source of the rules: docs/method.md, sections 3 and 7.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np

from analysis.flip_grid import GridRow, flip_grid, grid_tables
from analysis.points import Point, compute_points, equal_updates
from analysis.readings import ALL_MODELS, Readings
from analysis.snapshot import Snapshot
from analysis.statistics.flips import flip_p_value, flip_share, rank_agreement
from analysis.statistics.multiplicity import holm
from analysis.statistics.paired import complete_pairs, paired_test
from analysis.tables import HOURS_NOTE, Heading, Table, interval, p_value

Kind = Literal["certain", "possible", "none", "not evaluable"]


@dataclass(frozen=True)
class FlipRow:
    """One ordered pair: does a lead b at equal updates and trail it at equal compute? Differences are a - b."""

    model: str
    a: str
    b: str
    updates: float
    """The equal-updates point; NaN where the pair has none."""
    updates_declared: bool
    """False: the exploratory default, chosen for this pair from the data."""
    currency: str
    amount: float
    n_updates: int
    """Complete pairs of seeds at the equal-updates point."""
    difference_updates_points: float
    low_updates_points: float
    high_updates_points: float
    n_compute: int
    difference_compute_points: float
    low_compute_points: float
    high_compute_points: float
    p: float
    """Intersection-union: the larger of the two one-sided p."""
    p_adjusted: float
    """Holm over all rows; a row that cannot be tested stays in the family at p = 1."""
    resample_share: float
    """Of joint resamples of the seeds, those in which a leads at equal updates and trails at equal compute."""
    kind: Kind
    """certain: p_adjusted <= alpha; possible: the estimates have opposite signs, a ahead first; not evaluable:
    no pairs at one of the points, or runs that did not reach it."""


@dataclass(frozen=True)
class Agreement:
    """How alike the rankings at equal updates and at equal compute are, over all arms."""

    model: str
    updates: float
    currency: str
    amount: float
    arms: int
    """Arms with readings at both points."""
    seeds: int
    """Seeds in which all of them have both."""
    kendall_tau: float
    """Between the two rankings, each from its own half of the seeds."""
    noise_floor: float
    """Between a ranking and itself, from disjoint halves: what the seeds alone do to it."""


@dataclass(frozen=True)
class RankFlips:
    """Flips at the declared points, rank agreement, and the grid of all other points."""

    heading: Heading
    alpha: float
    rows: tuple[FlipRow, ...]
    agreements: tuple[Agreement, ...]
    grid: tuple[GridRow, ...]

    def records(self) -> list[dict[str, Any]]:
        """The rows at the declared points, flat."""
        return [asdict(row) for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def tables(self) -> list[Table]:
        """Flips per model, rank agreement, and the grid."""
        models = dict.fromkeys(row.model for row in self.rows)
        flips = [_flip_table(model, self) for model in models]
        return [*flips, _agreement_table(self.agreements), *grid_tables(self.grid)]


def rank_flips(snapshot: Snapshot, generator: np.random.Generator) -> RankFlips:
    """Every pair and direction, at the declared point of every currency but updates."""
    readings = Readings(snapshot)
    rows: list[FlipRow] = []
    agreements: list[Agreement] = []
    for model in readings.models:
        for compute in compute_points(snapshot):
            for pair in permutations(snapshot.arm_names, 2):
                updates = equal_updates(snapshot, pair, readings.frame(model, compute))
                rows.append(_row(readings, model, pair, updates, compute, generator=generator))
            agreements += _agreement(readings, model, compute, generator)
    return RankFlips(
        heading=Heading.of(snapshot),
        alpha=snapshot.study.alpha,
        rows=_judged(rows, snapshot.study.alpha),
        agreements=tuple(agreements),
        grid=flip_grid(readings),
    )


def _row(
    readings: Readings,
    model: str | None,
    pair: tuple[str, str],
    updates: Point | None,
    compute: Point,
    *,
    generator: np.random.Generator,
) -> FlipRow:
    """A row that is not judged yet."""
    alpha = readings.snapshot.study.alpha
    at_compute = readings.differences(model, *pair, compute)
    at_updates = readings.differences(model, *pair, updates) if updates else np.full_like(at_compute, np.nan)
    both = ~np.isnan(at_updates) & ~np.isnan(at_compute)
    first, second = paired_test(at_updates, 1 - alpha), paired_test(at_compute, 1 - alpha)
    # Runs that did not come so far are not missing by chance: their pairs cannot be left out of a test.
    unreached = any(readings.count(model, pair, point, "not reached") for point in (updates, compute) if point)
    p = float("nan") if unreached else float(flip_p_value(complete_pairs(at_updates), complete_pairs(at_compute)))
    kind: Kind = "none"
    if unreached or not first.n or not second.n:
        kind = "not evaluable"
    elif first.mean > 0 > second.mean:
        kind = "possible"
    return FlipRow(
        model=model or ALL_MODELS,
        a=pair[0],
        b=pair[1],
        updates=updates.amount if updates else float("nan"),
        updates_declared=updates is not None and updates.origin == "budget",
        currency=compute.currency,
        amount=compute.amount,
        n_updates=first.n,
        difference_updates_points=first.mean,
        low_updates_points=first.low,
        high_updates_points=first.high,
        n_compute=second.n,
        difference_compute_points=second.mean,
        low_compute_points=second.low,
        high_compute_points=second.high,
        p=p,
        p_adjusted=1.0,
        resample_share=flip_share(at_updates[both], at_compute[both], generator),
        kind=kind,
    )


def _judged(rows: list[FlipRow], alpha: float) -> tuple[FlipRow, ...]:
    """The rows with their p adjusted over the whole table, certain flips named."""
    adjusted = holm([row.p for row in rows])
    return tuple(
        replace(row, p_adjusted=float(p), kind="certain" if p <= alpha else row.kind)
        for row, p in zip(rows, adjusted, strict=True)
    )


def _agreement(
    readings: Readings, model: str | None, compute: Point, generator: np.random.Generator
) -> list[Agreement]:
    """Rank agreement over all arms; empty where the arms have no common equal-updates point."""
    arms = readings.snapshot.arm_names
    updates = equal_updates(readings.snapshot, arms, readings.frame(model, compute))
    if updates is None:
        return []
    first, second = readings.accuracies(model, arms, updates), readings.accuracies(model, arms, compute)
    known = ~np.isnan(first).all(axis=1) & ~np.isnan(second).all(axis=1)
    whole = ~np.isnan(first[known]).any(axis=0) & ~np.isnan(second[known]).any(axis=0)
    tau, floor = rank_agreement(first[known][:, whole], second[known][:, whole], generator)
    return [
        Agreement(
            model=model or ALL_MODELS,
            updates=updates.amount,
            currency=compute.currency,
            amount=compute.amount,
            arms=int(known.sum()),
            seeds=int(whole.sum()) if known.any() else 0,
            kendall_tau=tau,
            noise_floor=floor,
        )
    ]


def _flip_table(model: str, flips: RankFlips) -> Table:
    """One line per pair and point: of its two directions the one that flips, or else the one that leads first."""
    rows = [row for row in flips.rows if row.model == model]
    shown = [row for row in rows if row.kind in ("certain", "possible")]
    flipped = {(frozenset((row.a, row.b)), row.currency) for row in shown}
    for row in rows:
        pair = (frozenset((row.a, row.b)), row.currency)
        if pair not in flipped and (row.difference_updates_points >= 0 or row.a < row.b):
            flipped.add(pair)
            shown.append(row)
    notes = [
        f"Differences in points, first arm - second, paired over seeds, {100 * (1 - flips.alpha):g} % t interval.",
        f"Certain: intersection-union p, by Holm over all {len(flips.rows)} pairs, directions and points, at most "
        f"{flips.alpha:g}. Possible: estimates of opposite sign.",
    ]
    if not all(row.updates_declared for row in rows):
        notes.append("Equal updates are not declared: exploratory default, the updates of the pair's costlier arm.")
    if any(Point(row.currency, row.amount).in_hours for row in rows):
        notes.append(HOURS_NOTE)
    return Table(
        title=f"{model}: equal updates against equal compute",
        columns=("pair", "updates", "leads", "difference", "compute", "leads ", "difference ", "flip", "p", "share"),
        rows=tuple(_cells(row) for row in sorted(shown, key=rows.index)),
        notes=tuple(notes),
    )


def _cells(row: FlipRow) -> tuple[str, ...]:
    first = interval(row.difference_updates_points, row.low_updates_points, row.high_updates_points)
    second = interval(row.difference_compute_points, row.low_compute_points, row.high_compute_points)
    return (
        f"{row.a} - {row.b}",
        "–" if np.isnan(row.updates) else f"{row.updates:,.0f}",
        _leader(row, row.difference_updates_points),
        first,
        str(Point(row.currency, row.amount)),
        _leader(row, row.difference_compute_points),
        second,
        row.kind,
        p_value(row.p_adjusted),
        "–" if np.isnan(row.resample_share) else f"{row.resample_share:.2f}",
    )


def _leader(row: FlipRow, difference: float) -> str:
    if np.isnan(difference):
        return "–"
    return "tie" if difference == 0 else row.a if difference > 0 else row.b


def _agreement_table(agreements: tuple[Agreement, ...]) -> Table:
    points = [Point(row.currency, row.amount) for row in agreements]
    note = (
        "Both from disjoint halves of the seeds, averaged over splits; agreement at its floor is what seeds alone do."
    )
    rows = tuple(
        (
            row.model,
            f"{row.updates:,.0f}",
            str(point),
            str(row.arms),
            str(row.seeds),
            *("–" if np.isnan(tau) else f"{tau:+.2f}" for tau in (row.kendall_tau, row.noise_floor)),
        )
        for row, point in zip(agreements, points, strict=True)
    )
    return Table(
        title="Kendall's tau between the rankings at equal updates and at equal compute",
        columns=("model", "updates", "compute", "arms", "seeds", "tau", "noise floor"),
        rows=rows,
        notes=(note, HOURS_NOTE) if any(point.in_hours for point in points) else (note,),
    )
