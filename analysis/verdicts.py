"""What became of each declared claim. The rules are the tables of docs/verdicts.md, and a test holds them together.

Promise: every claim of the plan gets a verdict, and the family that its p is adjusted in has the plan's size; what
cannot be decided says why, and is never decided by missing data. How p-values come about is left to `statistics`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from analysis.at_budget import HOUR_CURRENCIES
from analysis.errors import AnalysisError
from analysis.points import Point
from analysis.readings import ALL_MODELS, Readings
from analysis.snapshot import Snapshot
from analysis.statistics.discrete import sign_test_p_value
from analysis.statistics.equivalence import equivalence_p_value, outside_p_value
from analysis.statistics.flips import flip_contradiction_p_value, flip_p_value
from analysis.statistics.multiplicity import holm
from analysis.statistics.paired import Floats, complete_pairs, paired_test, t_p_value
from analysis.tables import HOURS_NOTE, Heading, Table, degenerate_note, interval, p_value

Decision = Literal["supported", "contradicted", "equivalent", "inconclusive", "not evaluable"]


@dataclass(frozen=True)
class Verdict:
    """One claim, judged. Estimates are a - b in points; NaN where there is none."""

    claim: str
    statement: str
    text: str
    kind: str
    """directional | equivalence | rank-flip."""
    model: str
    currency: str
    amount: float
    then_currency: str | None
    """A rank flip's second point."""
    then_amount: float
    verdict: Decision
    reason: str
    """Why it is not evaluable; empty otherwise."""
    n: int
    """Complete pairs of seeds (of a rank flip: at the point with fewer)."""
    planned: int
    """Seeds in the plan."""
    estimate_points: float
    low_points: float
    """Of the t interval at level 1 - alpha; of an equivalence claim, 1 - 2 alpha."""
    high_points: float
    estimate_then_points: float
    """At a rank flip's second point."""
    low_then_points: float
    high_then_points: float
    p: float
    """Against the claim's null hypothesis: small supports it."""
    p_adjusted: float
    p_contradicted: float
    """Against the claim itself: small contradicts it."""
    p_contradicted_adjusted: float
    p_equivalent: float
    """Of a directional claim with a margin: that the difference is inside the margin on both sides."""
    p_equivalent_adjusted: float
    seeds_in_favour: int
    """Seeds whose own difference is as claimed."""
    sign_p: float
    """Sign test of those, one-sided, of a directional claim: a check without a distribution, not adjusted."""
    flags: tuple[str, ...]
    """What a reader of the verdict must know."""


@dataclass(frozen=True)
class Verdicts:
    """All claims of the study, in its order."""

    heading: Heading
    alpha: float
    correction: str
    rows: tuple[Verdict, ...]

    def records(self) -> list[dict[str, Any]]:
        """Flat rows."""
        return [{**asdict(row), "flags": "; ".join(row.flags)} for row in self.rows]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def tables(self) -> list[Table]:
        """One table, a line per claim."""
        if not self.rows:
            return [Table("Verdicts", ("claim",), (), ("The study declares no claims.",))]
        cells = tuple(_cells(row) for row in self.rows)
        adjusted = "Holm's adjustment" if self.correction == "holm" else "no adjustment"
        notes = [
            f"{row.claim}: " + (f"{row.statement} ({row.text})" if row.statement else row.text) for row in self.rows
        ]
        notes += [f"{row.claim}, not evaluable: {row.reason}" for row in self.rows if row.reason]
        notes += [f"{row.claim}: {', '.join(row.flags)}" for row in self.rows if row.flags]
        notes += [
            "a - b: the claim's first arm minus its second, in points of accuracy, with its t interval over paired "
            "seeds; a rank flip has a second point.",
            *degenerate_note(cells),
            f"p: small supports the claim; {adjusted} over the plan's {len(self.rows)} claims; alpha {self.alpha:g}. "
            "How a verdict comes about: docs/verdicts.md.",
            "Seeds: complete pairs of those planned; in favour: seeds whose own difference is as claimed.",
        ]
        if any(currency in HOUR_CURRENCIES for row in self.rows for currency in (row.currency, row.then_currency)):
            notes.append(HOURS_NOTE)
        columns = ("claim", "model", "verdict", "a - b", "a - b at 2nd point", "p", "seeds", "in favour")
        return [Table("Verdicts", columns, cells, tuple(notes))]


def verdicts(snapshot: Snapshot) -> Verdicts:
    """Judges every declared claim."""
    readings = Readings(snapshot)
    rows = [_tested(readings, form) for form in snapshot.claims["form"]]
    return Verdicts(
        heading=Heading.of(snapshot),
        alpha=snapshot.study.alpha,
        correction=snapshot.study.correction,
        rows=tuple(_judged(rows, snapshot)),
    )


@dataclass(frozen=True)
class _Tests:
    """The p-values of one claim; see docs/verdicts.md for the row of each."""

    p: float
    contradicted: float
    equivalent: float = float("nan")
    in_favour: int = 0
    sign: float = float("nan")


def _directional(form: dict[str, Any], differences: Floats) -> _Tests:
    sign = 1.0 if form["relation"] == ">" else -1.0
    claimed, margin, sides = sign * differences, float(form["margin_points"]), int(form.get("sides", 1))
    agreeing, decided = int((claimed > margin).sum()), int((claimed != margin).sum())
    return _Tests(
        p=min(1.0, sides * float(t_p_value(claimed, margin, "greater"))),
        contradicted=min(1.0, sides * float(t_p_value(claimed, margin, "less"))),
        equivalent=float(equivalence_p_value(claimed, margin)) if margin > 0 else float("nan"),
        in_favour=agreeing,
        sign=sign_test_p_value(agreeing, decided),
    )


def _equivalence(form: dict[str, Any], differences: Floats) -> _Tests:
    margin = float(form["margin_points"])
    return _Tests(
        p=float(equivalence_p_value(differences, margin)),
        contradicted=float(outside_p_value(differences, margin)),
        in_favour=int((np.abs(differences) < margin).sum()),
    )


def _rank_flip(first: Floats, second: Floats, in_favour: int) -> _Tests:
    return _Tests(
        p=float(flip_p_value(first, second)),
        contradicted=float(flip_contradiction_p_value(first, second)),
        in_favour=in_favour,
    )


def _tested(readings: Readings, form: dict[str, Any]) -> Verdict:
    """The claim with its estimates and unadjusted p-values, not decided yet."""
    model, pair, kind, alpha = form["model"], (form["a"], form["b"]), form["kind"], readings.snapshot.study.alpha
    if model is None and len(readings.models) == 1:
        model = readings.models[0]
    points = [Point(form[key]["currency"], float(form[key]["amount"])) for key in ("at", "then") if form.get(key)]
    read = [readings.differences(model, *pair, point) for point in points]
    complete = [complete_pairs(differences) for differences in read]
    if kind == "directional":
        tests = _directional(form, complete[0])
    elif kind == "equivalence":
        tests = _equivalence(form, complete[0])
    elif kind == "rank-flip":
        tests = _rank_flip(complete[0], complete[1], int(((read[0] > 0) & (read[1] < 0)).sum()))
    else:
        raise AnalysisError(
            f"claim {form['id']} is of an unknown kind {kind!r}", "directional, equivalence, rank-flip"
        )
    level = 1 - 2 * alpha if kind == "equivalence" else 1 - alpha
    shown = [paired_test(differences, level) for differences in complete]
    reason = _obstacle(readings, model, pair, points) or _too_little(complete)
    undecided = float("nan")
    return Verdict(
        claim=form["id"],
        statement=form["statement"],
        text=form["text"],
        kind=kind,
        model=model or ALL_MODELS,
        currency=points[0].currency,
        amount=points[0].amount,
        then_currency=points[1].currency if len(points) > 1 else None,
        then_amount=points[1].amount if len(points) > 1 else undecided,
        verdict="not evaluable" if reason else "inconclusive",
        reason=reason,
        n=min(test.n for test in shown),
        planned=len(read[0]),
        estimate_points=shown[0].mean,
        low_points=shown[0].low,
        high_points=shown[0].high,
        estimate_then_points=shown[1].mean if len(shown) > 1 else undecided,
        low_then_points=shown[1].low if len(shown) > 1 else undecided,
        high_then_points=shown[1].high if len(shown) > 1 else undecided,
        p=undecided if reason else tests.p,
        p_adjusted=undecided,
        p_contradicted=undecided if reason else tests.contradicted,
        p_contradicted_adjusted=undecided,
        p_equivalent=undecided if reason else tests.equivalent,
        p_equivalent_adjusted=undecided,
        seeds_in_favour=tests.in_favour,
        sign_p=tests.sign,
        flags=_flags(readings, model, pair, points),
    )


def _obstacle(readings: Readings, model: str | None, pair: tuple[str, str], points: list[Point]) -> str:
    """Why no test may be made, whatever the differences say; empty when one may."""
    if model is not None and model not in readings.models:
        return f"no model {model} in the plan"
    for point in points:
        if unreached := readings.count(model, pair, point, "not reached"):
            return f"runs that did not reach {point}: {unreached}"
        if failed := readings.count(model, pair, point, "failed"):
            return f"failed runs: {failed}"
        devices = readings.devices(model, pair)
        if point.in_hours and len(devices) > 1:
            return f"hours of different devices do not compare: {', '.join(devices)}"
    return ""


def _too_little(complete: list[Floats]) -> str:
    fewest = min(len(differences) for differences in complete)
    if fewest < 2:
        return f"complete pairs of seeds: {fewest}, at least 2 are needed"
    if any(np.isnan(paired_test(differences).low) for differences in complete):
        return "degenerate: the differences have no spread over seeds"
    return ""


def _flags(readings: Readings, model: str | None, pair: tuple[str, str], points: list[Point]) -> tuple[str, ...]:
    label = readings.snapshot.label
    flags = [] if label.mode == "confirmatory" else [label.mode]
    if runs := max(readings.count(model, pair, point, "diverged") for point in points):
        flags.append(f"diverged runs, scored at the floor: {runs}")
    if unhealthy := readings.unhealthy(model, pair):
        flags.append(f"unhealthy runs: {unhealthy}")
    flags += [f"{signal} not recorded: {runs}" for signal, runs in readings.unrecorded(model, pair).items()]
    if waiting := max(readings.left_out(model, point) for point in points):
        flags.append(f"interim, unfinished blocks: {waiting}")
    return tuple(flags)


def _judged(rows: list[Verdict], snapshot: Snapshot) -> list[Verdict]:
    """The claims with adjusted p-values and decisions. The family is the plan's, whatever has data."""
    alpha, size = snapshot.study.alpha, len(snapshot.claims)

    def adjusted(name: str) -> list[float]:
        p_values = [getattr(row, name) for row in rows]
        if snapshot.study.correction == "none":
            return [1.0 if np.isnan(p) else p for p in p_values]
        if snapshot.study.correction == "holm":
            return [float(p) for p in holm(p_values, size)]
        raise AnalysisError(f"there is no correction {snapshot.study.correction!r}", "holm or none")

    support, against, inside = adjusted("p"), adjusted("p_contradicted"), adjusted("p_equivalent")
    return [
        replace(
            row,
            p_adjusted=p,
            p_contradicted_adjusted=q,
            p_equivalent_adjusted=float("nan") if np.isnan(row.p_equivalent) else e,
            verdict=row.verdict if row.reason else _decision(p, q, e, alpha),
        )
        for row, p, q, e in zip(rows, support, against, inside, strict=True)
    ]


def _decision(p: float, contradicted: float, equivalent: float, alpha: float) -> Decision:
    """The first that holds, in the order of docs/verdicts.md."""
    if p <= alpha:
        return "supported"
    if equivalent <= alpha:
        return "equivalent"
    return "contradicted" if contradicted <= alpha else "inconclusive"


def _cells(row: Verdict) -> tuple[str, ...]:
    return (
        row.claim,
        row.model,
        row.verdict,
        interval(row.estimate_points, row.low_points, row.high_points),
        interval(row.estimate_then_points, row.low_then_points, row.high_then_points),
        p_value(row.p_adjusted if not row.reason else float("nan")),
        f"{row.n}/{row.planned}",
        str(row.seeds_in_favour),
    )
