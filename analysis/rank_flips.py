"""Where the ranking at equal compute flips against the ranking at equal updates, pair by pair.

Promise: a *certain* flip has an intersection-union p, adjusted over pairs, directions and points, of at most alpha,
so that a study without a flip shows one with at most that probability. *Possible* means that the two estimates have
opposite signs, no more. Declared claims are judged in `verdicts`, other points in `flip_grid`. Source of the rules:
docs/method.md, sections 3 and 7.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from analysis.flip_grid import GridRow, Kind, flip_grid, grid_tables
from analysis.points import Point, compute_points, equal_updates
from analysis.readings import ALL_MODELS, Readings
from analysis.snapshot import Snapshot
from analysis.statistics.flips import adjusted_flip_p_values, flip_share, rank_agreement
from analysis.statistics.paired import Floats, complete_pairs, paired_test, t_p_value
from analysis.tables import HOURS_NOTE, Heading, Table, degenerate_note, interval, p_value


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
    p_updates: float
    """One-sided: a ahead at equal updates."""
    p_compute: float
    """One-sided: a behind at equal compute."""
    p: float
    """Intersection-union: the larger of the two."""
    p_adjusted: float
    """See `adjusted_flip_p_values`; a row that cannot be tested stays in the family at p = 1."""
    resample_share: float
    """Of joint resamples of the seeds, those in which a leads at equal updates and trails at equal compute."""
    kind: Kind
    """certain: p_adjusted <= alpha; possible: the estimates have opposite signs, a ahead first; not evaluable:
    no pairs at one of the points, or runs that failed or did not reach it."""


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
        agreement = [_agreement_table(self.agreements)] if self.agreements else []
        shown = _shown(self)
        pairs = {(rows[0].model, rows[0].currency): [(row.a, row.b) for row in rows] for rows in shown}
        return [*(_flip_table(rows, self) for rows in shown), *agreement, *grid_tables(self.grid, pairs)]


def rank_flips(snapshot: Snapshot, generator: np.random.Generator) -> RankFlips:
    """Every pair and direction, at the declared point of every currency but updates."""
    readings = Readings(snapshot)
    points = compute_points(snapshot)
    if not points or len(snapshot.arm_names) < 2:
        note = "Nothing can flip: that takes two arms, and milestones in a currency other than updates."
        return RankFlips(Heading.of(snapshot, note), snapshot.study.alpha, (), (), ())
    rows: list[FlipRow] = []
    agreements: list[Agreement] = []
    for model in readings.models:
        for compute in points:
            for pair in permutations(snapshot.arm_names, 2):
                updates = equal_updates(snapshot, pair, readings.frame(model, compute))
                rows.append(_row(readings, model, pair, updates, compute, generator=generator))
            agreements += _agreement(readings, model, compute, generator)
    return RankFlips(
        heading=Heading.of(snapshot),
        alpha=snapshot.study.alpha,
        rows=_judged(rows, len(points), snapshot.study.alpha),
        agreements=tuple(agreements),
        grid=flip_grid(readings, points),
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
    lost = any(readings.missing(model, pair, point) for point in (updates, compute) if point)
    p_updates, p_compute = float("nan"), float("nan")
    if not lost:
        p_updates = float(t_p_value(complete_pairs(at_updates), 0.0, "greater"))
        p_compute = float(t_p_value(complete_pairs(at_compute), 0.0, "less"))
    kind: Kind = "none"
    if lost or not first.n or not second.n:
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
        p_updates=p_updates,
        p_compute=p_compute,
        p=float(np.maximum(p_updates, p_compute)),
        p_adjusted=1.0,
        resample_share=flip_share(at_updates[both], at_compute[both], generator),
        kind=kind,
    )


def _judged(rows: list[FlipRow], points: int, alpha: float) -> tuple[FlipRow, ...]:
    """The rows with their p adjusted over the whole table, certain flips named.

    Rows: all models, of each its points, of each its pairs.
    """
    models = len({row.model for row in rows})

    def by_pair(p_values: list[float]) -> Floats:
        """(models x pairs, points)"""
        return np.array(p_values).reshape(models, points, -1).swapaxes(1, 2).reshape(-1, points)

    first, second = by_pair([row.p_updates for row in rows]), by_pair([row.p_compute for row in rows])
    adjusted = adjusted_flip_p_values(first, second, all(row.updates_declared for row in rows))
    in_order = adjusted.reshape(models, -1, points).swapaxes(1, 2).ravel()
    return tuple(
        replace(row, p_adjusted=float(p), kind="certain" if p <= alpha else row.kind)
        for row, p in zip(rows, in_order, strict=True)
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


def _shown(flips: RankFlips) -> list[list[FlipRow]]:
    """The rows of each main table: one table per model and point of compute."""
    groups: dict[tuple[str, str, float], list[FlipRow]] = {}
    for row in flips.rows:
        groups.setdefault((row.model, row.currency, row.amount), []).append(row)
    return [_one_a_pair(rows) for rows in groups.values()]


def _one_a_pair(rows: list[FlipRow]) -> list[FlipRow]:
    """Of each pair's two directions the one that may flip."""
    pairs: dict[frozenset[str], FlipRow] = {}
    for row in sorted(rows, key=lambda row: (row.p_adjusted, row.kind != "possible")):
        pairs.setdefault(frozenset((row.a, row.b)), row)
    return sorted(pairs.values(), key=rows.index)


def _flip_table(rows: list[FlipRow], flips: RankFlips) -> Table:
    cells = tuple(_cells(row) for row in rows)
    compute = Point(rows[0].currency, rows[0].amount)
    common = {_updates(row) for row in rows}
    level = f"{100 * (1 - flips.alpha):g} %"
    notes = [
        f"Who leads, and by how many points: first arm - second, paired over seeds, with its {level} t interval.",
        *degenerate_note(cells),
        f"Certain: intersection-union p at most {flips.alpha:g}, by Holm over pairs, directions and models, the "
        "compute side also over the points of compute. Possible: estimates of opposite sign.",
        "Share: of joint resamples of the seeds, those that flip in that direction.",
    ]
    if not all(row.updates_declared for row in rows):
        pairs_at = ", ".join(f"{row.a} - {row.b} at {_updates(row)}" for row in rows)
        notes.append(
            "Equal updates are not declared: exploratory default, what the pair's costlier arm made within the "
            f"budget ({pairs_at})."
        )
    if compute.in_hours:
        notes.append(HOURS_NOTE)
    return Table(
        title=f"{rows[0].model}: {common.pop() if len(common) == 1 else 'equal'} updates against {compute}",
        columns=("pair", "at equal updates", "at equal compute", "flip", "p", "share"),
        rows=cells,
        notes=tuple(notes),
    )


def _cells(row: FlipRow) -> tuple[str, ...]:
    first = interval(row.difference_updates_points, row.low_updates_points, row.high_updates_points)
    second = interval(row.difference_compute_points, row.low_compute_points, row.high_compute_points)
    flips = row.kind in ("certain", "possible") and not np.isnan(row.resample_share)
    return (
        f"{row.a} - {row.b}",
        f"{_leader(row, row.difference_updates_points)} {first}",
        f"{_leader(row, row.difference_compute_points)} {second}",
        row.kind,
        p_value(row.p_adjusted),
        f"{row.resample_share:.2f}" if flips else "–",
    )


def _updates(row: FlipRow) -> str:
    return "no common number of" if np.isnan(row.updates) else f"{row.updates:,.0f}"


def _leader(row: FlipRow, difference: float) -> str:
    if np.isnan(difference):
        return ""
    return "tie" if difference == 0 else row.a if difference > 0 else row.b


def _agreement_table(agreements: tuple[Agreement, ...]) -> Table:
    points = [Point(row.currency, row.amount) for row in agreements]
    note = (
        "Tau well below the noise floor: the two rankings differ by more than seeds explain; near the floor: they do "
        "not. Both are of rankings from disjoint halves of the seeds, averaged over splits."
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
