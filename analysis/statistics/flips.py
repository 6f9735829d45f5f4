"""Does a ranking flip between two points of reading? Tests, resampling and rank correlation over seeds.

A flip from a to b: a ahead at the first point *and* behind at the second. As an intersection-union test its
p is the larger of the two one-sided p (Berger 1982), and no correction between the two is needed.
Source of the rules: docs/method.md, section 7.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from analysis.statistics.multiplicity import holm
from analysis.statistics.paired import Floats, t_p_value

_MOST_SPLITS = 200
"""Splits of the seeds into halves that are averaged over; all of them when there are no more."""


def flip_p_value(first: ArrayLike, second: ArrayLike) -> Floats:
    """p of a flip from a to b.

    first (..., seeds): a - b per seed at the first point; second (..., seeds'): a - b at the second. No gaps; the
    seeds of the two need not be the same. Returns p (...), NaN where either is degenerate.
    """
    return np.maximum(t_p_value(first, 0.0, "greater"), t_p_value(second, 0.0, "less"))


def adjusted_flip_p_values(first: ArrayLike, second: ArrayLike, first_shared: bool) -> Floats:
    """p of flips from one first point to several second points, adjusted over pairs and directions, and over points.

    first, second: (pairs, points) one-sided p of being ahead at the first point and behind at the second, NaN where
    untestable (counted as 1); each direction of a pair is a row. first_shared: all points share one first point.
    Returns (pairs, points). Where nothing flips, the smallest result is at most alpha with at most that
    probability: a pair that is not ahead at a shared first point has one valid p there, whatever the second
    points; one that is ahead is behind at none, and Holm over the points covers all of them; Holm over the
    pairs does the rest. With one point this is Holm over pairs and directions.
    """
    first, second = (np.nan_to_num(np.asarray(p, dtype=np.float64), nan=1.0) for p in (first, second))
    if first_shared:
        united = np.maximum(first, np.apply_along_axis(holm, 1, second))
    else:
        united = np.apply_along_axis(holm, 1, np.maximum(first, second))
    return np.apply_along_axis(holm, 0, united)


def flip_contradiction_p_value(first: ArrayLike, second: ArrayLike) -> Floats:
    """p against a claimed flip from a to b: min(1, 2 min(q1, q2)) of the reverse one-sided p.

    Arguments and result as `flip_p_value`.
    """
    reverse = np.minimum(t_p_value(first, 0.0, "less"), t_p_value(second, 0.0, "greater"))
    return np.asarray(np.minimum(1.0, 2 * reverse))


def flip_share(first: ArrayLike, second: ArrayLike, generator: np.random.Generator, resamples: int = 10_000) -> float:
    """Share of joint resamples of the seeds in which a leads at the first point and trails at the second.

    first, second: (seeds,) a - b of the *same* seeds in the same order, without gaps. A seed is drawn for both
    points at once, so that what the points share stays shared. NaN below two seeds.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(
            f"joint resampling needs the same seeds at both points, not {first.shape} and {second.shape}"
        )
    if first.size < 2:
        return float("nan")
    drawn = generator.integers(first.size, size=(resamples, first.size))
    return float(np.mean((first[drawn].mean(axis=1) > 0) & (second[drawn].mean(axis=1) < 0)))


def rank_agreement(first: ArrayLike, second: ArrayLike, generator: np.random.Generator) -> tuple[float, float]:
    """Kendall's tau-b between the rankings at two points, and its noise floor.

    first, second: (arms, seeds) accuracies of the same arms and seeds, without gaps. Both numbers come from
    disjoint halves of the seeds and are averaged over splits: the agreement compares one point's ranking on one
    half with the other point's on the other half; the floor compares a point's ranking with its own. An
    agreement at the floor is what seeds alone would do; well below it, the rankings differ. NaN below two arms
    or two seeds, or when a ranking is all ties.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    arms, seeds = first.shape
    if arms < 2 or seeds < 2:
        return float("nan"), float("nan")
    agreements, floors = [], []
    for half in _halves(seeds, generator):
        left, right = half, np.setdiff1d(np.arange(seeds), half)
        a, b = first[:, left].mean(axis=1), first[:, right].mean(axis=1)
        c, d = second[:, left].mean(axis=1), second[:, right].mean(axis=1)
        agreements += [_tau(a, d), _tau(c, b)]
        floors += [_tau(a, b), _tau(c, d)]
    return _mean(agreements), _mean(floors)


def _halves(seeds: int, generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """Left halves, floor(seeds / 2) each: every one, or a random sample where there are too many."""
    size = seeds // 2
    if comb(seeds, size) <= _MOST_SPLITS:
        return [np.array(half) for half in combinations(range(seeds), size)]
    return [np.sort(generator.permutation(seeds)[:size]) for _ in range(_MOST_SPLITS)]


def _tau(one: Floats, other: Floats) -> float:
    """tau-b; NaN when one ranking is all ties. Rounded first, so that equal means are ties."""
    return float(stats.kendalltau(one.round(12), other.round(12)).statistic)


def _mean(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
