"""Ranks that say how sure they are: point rank, rank interval and tie group of each arm.

Everything rests on pairwise paired tests at an unadjusted alpha. What a pair's test says depends on that pair
alone, so an unrelated arm added to the table cannot separate two tied arms or tie two separated ones; a
correction over all pairs would let it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.statistics.paired import Floats, paired_test


@dataclass(frozen=True)
class Rank:
    """Where one arm stands among those ranked."""

    rank: int
    """By mean; exactly equal means share a rank."""
    low: int
    """1 + the arms significantly ahead."""
    high: int
    """The ranked arms - those significantly behind."""
    ties: str
    """Letters; two arms share one exactly when their difference is not significant."""


def rank_arms(accuracies: ArrayLike, alpha: float = 0.05) -> list[Rank | None]:
    """Ranks of arms by accuracy, high is good.

    accuracies: (arms, seeds), NaN where a reading is missing; pairs are tested on the seeds that both have. An arm
    without any reading is not ranked (None), and counts for no other's interval.
    """
    values = np.asarray(accuracies, dtype=np.float64)
    ranked = np.flatnonzero(~np.isnan(values).all(axis=1))
    ahead = _significantly_ahead(values[ranked], alpha)
    means = np.array([np.nanmean(row) for row in values[ranked]]).round(12)
    letters = _tie_letters(~(ahead | ahead.T), means)
    ranks: list[Rank | None] = [None] * len(values)
    for index, arm in enumerate(ranked):
        ranks[arm] = Rank(
            rank=1 + int((means > means[index]).sum()),
            low=1 + int(ahead[:, index].sum()),
            high=len(ranked) - int(ahead[index].sum()),
            ties=letters[index],
        )
    return ranks


def _significantly_ahead(values: Floats, alpha: float) -> NDArray[np.bool_]:
    """(arms, arms): whether the row's arm is ahead of the column's with a two-sided p <= alpha."""
    count = len(values)
    ahead = np.zeros((count, count), dtype=bool)
    for i in range(count):
        for j in range(i + 1, count):
            test = paired_test(values[i] - values[j])
            if test.p <= alpha:  # False for NaN: a degenerate difference separates nobody
                ahead[(i, j) if test.mean > 0 else (j, i)] = True
    return ahead


def _tie_letters(tied: NDArray[np.bool_], means: Floats) -> list[str]:
    """Compact letter display: one letter per largest set of mutually tied arms, best set first."""
    neighbours = [set(np.flatnonzero(row).tolist()) - {index} for index, row in enumerate(tied)]
    groups = [sorted(group, key=lambda arm: -means[arm]) for group in _maximal_cliques(neighbours)]
    groups.sort(key=lambda group: [-means[arm] for arm in group])
    letters = [""] * len(means)
    for index, group in enumerate(groups):
        for arm in group:
            letters[arm] += _letter(index)
    return letters


def _letter(index: int) -> str:
    """a ... z, then a1 ... z1, and so on."""
    return chr(ord("a") + index % 26) + (str(index // 26) if index >= 26 else "")


def _maximal_cliques(neighbours: list[set[int]]) -> list[set[int]]:
    """Bron and Kerbosch (1973) with pivoting."""
    found: list[set[int]] = []

    def extend(clique: set[int], candidates: set[int], excluded: set[int]) -> None:
        if not candidates and not excluded:
            found.append(clique)
            return
        pivot = max(candidates | excluded, key=lambda arm: len(neighbours[arm] & candidates))
        for arm in sorted(candidates - neighbours[pivot]):
            extend(clique | {arm}, candidates & neighbours[arm], excluded & neighbours[arm])
            candidates = candidates - {arm}
            excluded = excluded | {arm}

    if neighbours:
        extend(set(), set(range(len(neighbours))), set())
    return found
