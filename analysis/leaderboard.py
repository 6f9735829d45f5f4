"""Who leads at each declared budget: accuracy, paired difference to the baseline, rank interval, and the price.

Promise: every planned arm has a row at every point. An arm that did not reach a budget with every run,
or failed in one, is shown with what is known, unranked and last; a diverged run is scored at the declared floor and
counted.
Rows are per model and, with several, over all models (each seed's mean with equal weights).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.at_budget import accuracy_array, interpolated_at
from analysis.health import Health
from analysis.points import Point, declared_points
from analysis.readings import ALL_MODELS, Readings
from analysis.snapshot import Snapshot
from analysis.spending import Spending, spending_by_arm, spending_table
from analysis.statistics.paired import paired_test
from analysis.statistics.ranks import Rank, rank_arms
from analysis.tables import HOURS_NOTE, Heading, Table, degenerate_note, interval, percent


@dataclass(frozen=True)
class LeaderboardRow:
    """One arm at one point. Accuracies from 0 to 1, differences in points; NaN where there is none."""

    model: str
    currency: str
    amount: float
    origin: str
    """Of the point: budget, or grid."""
    arm: str
    baseline: bool
    accuracy: float
    """Mean over seeds."""
    seeds_done: int
    seeds_planned: int
    not_reached: int
    diverged: int
    failed: int
    unhealthy: int
    """Runs that fail a health gate of the study; counted all the same."""
    left_out: int
    """Runs in blocks that are not finished yet: they count for no arm."""
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    ties: str
    """Letters; arms that share one cannot be told apart. Empty where the arm is not ranked."""
    difference_points: float
    """To the baseline, over complete pairs."""
    difference_low_points: float
    """Of the t interval over seeds at level 1 - alpha; NaN where degenerate."""
    difference_high_points: float
    difference_p: float
    """Two-sided, unadjusted."""
    pairs: int
    interpolated_difference_points: float
    """Sensitivity analysis, see `interpolated_at`."""
    overshoot: float
    """Mean, in the currency: where the meter stood when the milestone was passed - amount."""
    undershoot: float
    """Mean, in the currency: amount - the charge of the policy evaluated."""
    spending: Spending
    """Of the whole runs, whatever the point."""


@dataclass(frozen=True)
class Leaderboard:
    """All rows: points in the order of the budgets, models in the plan's order, arms best first."""

    heading: Heading
    rows: tuple[LeaderboardRow, ...]

    def records(self) -> list[dict[str, Any]]:
        """Flat rows, spending by kind included."""
        return [
            {**{key: value for key, value in asdict(row).items() if key != "spending"}, **row.spending.flat()}
            for row in self.rows
        ]

    def to_json(self) -> dict[str, Any]:
        """Heading and rows as plain values."""
        return asdict(self)

    def tables(self) -> list[Table]:
        """One table per model and point, then what each arm spent."""
        groups: dict[tuple[str, str, float], list[LeaderboardRow]] = {}
        for row in self.rows:
            groups.setdefault((row.model, row.currency, row.amount), []).append(row)
        spent: dict[tuple[str, str], Spending] = {(row.model, row.arm): row.spending for row in self.rows}
        return [_table(rows) for rows in groups.values()] + spending_table(spent)


def leaderboard(snapshot: Snapshot, points: Sequence[Point] | None = None) -> Leaderboard:
    """The leaderboard at `points`; by default at every declared budget, and at one milestone of other currencies."""
    points = declared_points(snapshot) if points is None else points
    readings = Readings(snapshot)
    spending = spending_by_arm(snapshot)
    rows: list[LeaderboardRow] = []
    waiting = 0
    for point in points:
        waiting = max(waiting, readings.left_out(None, point))
        between = interpolated_at(snapshot, point.currency, point.amount)
        between["counted"] = readings.frame(None, point)["counted"].to_numpy()
        for model in readings.models:
            rows += _rows(readings, point, between, model, spending=spending)
    notes = [f"{waiting} of {snapshot.planned['block'].nunique()} blocks are not finished and count for no arm."]
    return Leaderboard(Heading.of(snapshot, *(notes if waiting else ()), *_health(readings.health)), tuple(rows))


def _health(health: Health) -> list[str]:
    """What the unhealthy runs failed, and the gates that could not be held against some runs, with counts."""
    failed, unrecorded = _counted(health.failed), _counted(health.unrecorded, " not recorded")
    notes = [f"Unhealthy: runs that fail a gate of the study, by gate: {failed}."] if failed else []
    return notes + ([f"Gates neither passed nor failed: {unrecorded}."] if unrecorded else [])


def _counted(words_by_cell: Mapping[str, Sequence[str]], suffix: str = "") -> str:
    counts = Counter(word for words in words_by_cell.values() for word in words)
    return ", ".join(f"{word}{suffix} ({count})" for word, count in counts.items())


def _rows(
    readings: Readings,
    point: Point,
    between: pd.DataFrame,
    model: str | None,
    *,
    spending: dict[tuple[str | None, str], Spending],
) -> list[LeaderboardRow]:
    arms, baseline = readings.snapshot.arm_names, readings.snapshot.study.baseline
    alpha = readings.snapshot.study.alpha
    here = readings.frame(model, point)
    accuracies = readings.accuracies(model, arms, point)
    sensitivity = accuracy_array(between, arms, model)
    reached = np.array([readings.missing(model, [arm], point) == 0 for arm in arms])
    ranks = rank_arms(np.where(reached[:, None], accuracies, np.nan), alpha)
    reference = arms.index(baseline)
    rows = []
    for index, arm in enumerate(arms):
        mine = here[here["arm"] == arm]
        states = mine["status"].value_counts()
        read = mine[mine["counted"]]
        done = ~np.isnan(accuracies[index])
        test = paired_test(100 * (accuracies[index] - accuracies[reference]), 1 - alpha)
        rank: Rank | None = ranks[index]
        rows.append(
            LeaderboardRow(
                model=model or ALL_MODELS,
                currency=point.currency,
                amount=point.amount,
                origin=point.origin,
                arm=arm,
                baseline=arm == baseline,
                accuracy=_mean(accuracies[index]),
                seeds_done=int(done.sum()),
                seeds_planned=mine["seed"].nunique(),
                not_reached=int(states.get("not reached", 0)),
                diverged=int(states.get("diverged", 0)),
                failed=int(states.get("failed", 0)),
                unhealthy=readings.unhealthy(model, [arm]),
                left_out=int((~mine["counted"]).sum()),
                rank=rank.rank if rank else None,
                rank_low=rank.low if rank else None,
                rank_high=rank.high if rank else None,
                ties=rank.ties if rank else "",
                difference_points=float("nan") if arm == baseline else test.mean,
                difference_low_points=float("nan") if arm == baseline else test.low,
                difference_high_points=float("nan") if arm == baseline else test.high,
                difference_p=float("nan") if arm == baseline else test.p,
                pairs=test.n,
                interpolated_difference_points=float("nan")
                if arm == baseline
                else _mean(100 * (sensitivity[index] - sensitivity[reference])),
                overshoot=_mean(read["overshoot"].to_numpy(float)),
                undershoot=_mean(read["undershoot"].to_numpy(float)),
                spending=spending[model, arm],
            )
        )
    # Never first without a rank; the study's order decides between equals.
    return sorted(rows, key=lambda row: (row.rank is None, row.rank or 0, np.isnan(row.accuracy), -row.accuracy))


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _table(rows: Sequence[LeaderboardRow]) -> Table:
    point = Point(rows[0].currency, rows[0].amount, rows[0].origin)
    baseline = next(row.arm for row in rows if row.baseline)
    cells = tuple(_cells(row, point) for row in rows)
    notes = [
        "Rank, its interval, tie group: arms that share a letter cannot be told apart (pairwise tests, unadjusted).",
    ]
    if any(row.rank is None for row in rows):
        notes.append("No rank: no reading, or runs that failed or did not reach the budget.")
    notes += [
        f"Difference to {baseline} in points, with its t interval over paired seeds.",
        *degenerate_note(cells),
        "Past: how far the meter had run beyond the budget when the policy was evaluated; unused: what of the budget "
        "that policy had not spent; both in % of the budget.",
    ]
    if point.in_hours:
        notes.append(HOURS_NOTE)
    return Table(
        title=f"{rows[0].model} at {point}"
        + (" (no budget: a milestone of the grid)" if point.origin == "grid" else ""),
        columns=("arm", "rank", "accuracy %", "difference", "seeds", "past / unused %", "remarks"),
        rows=cells,
        notes=tuple(notes),
    )


def _cells(row: LeaderboardRow, point: Point) -> tuple[str, ...]:
    difference = interval(row.difference_points, row.difference_low_points, row.difference_high_points)
    return (
        row.arm,
        "–" if row.rank is None else f"{row.rank} [{row.rank_low}-{row.rank_high}] {row.ties}",
        percent(row.accuracy),
        "baseline" if row.baseline else difference,
        f"{row.seeds_done}/{row.seeds_planned}",
        f"{_share(row.overshoot, point)} / {_share(row.undershoot, point)}",
        remarks(row),
    )


def _share(amount: float, point: Point) -> str:
    return "–" if np.isnan(amount) else f"{100 * amount / point.amount:.1f}"


def remarks(row: LeaderboardRow) -> str:
    """What must not be overlooked about an arm's runs, with counts; empty when all is well."""
    counts = {
        "not reached": row.not_reached,
        "diverged": row.diverged,
        "failed": row.failed,
        "unhealthy": row.unhealthy,
        f"run{'' if row.left_out == 1 else 's'} in unfinished blocks": row.left_out,
    }
    return ", ".join(f"{number} {what}" for what, number in counts.items() if number)
