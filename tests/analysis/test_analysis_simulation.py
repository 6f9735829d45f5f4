"""Thousands of simulated studies at the level of the analysis: coverage, false certainty, planted truth recovered."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from analysis.statistics.flips import adjusted_flip_p_values
from analysis.statistics.paired import t_interval, t_p_value
from analysis.statistics.ranks import rank_arms

STUDIES = 2000
MONTE_CARLO = 3 * np.sqrt(0.05 * 0.95 / STUDIES)
"""Three standard errors of a rate of 5 %."""


def studies(means: list[list[float]], seeds: int, seed: int, shared: float = 3.0, own: float = 2.0) -> np.ndarray:
    """(studies, points, arms, seeds) accuracies in points, one row of `means` per point of reading.

    A seed's luck is shared by all arms (that is why they are paired) and partly by an arm's points.
    """
    generator = np.random.default_rng(seed)
    truth = np.asarray(means)[None, :, :, None]
    points, arms = truth.shape[1:3]
    luck = generator.normal(0, shared, (STUDIES, 1, 1, seeds))
    arm_luck = generator.normal(0, own, (STUDIES, 1, arms, seeds))
    return np.asarray(truth + luck + arm_luck + generator.normal(0, own, (STUDIES, points, arms, seeds)))


def certain_flips(accuracies: np.ndarray) -> np.ndarray:
    """(studies, ordered pairs, compute points): point 0 is equal updates, the others are compute."""
    pairs = list(permutations(range(accuracies.shape[2]), 2))
    differences = np.stack([accuracies[:, :, a] - accuracies[:, :, b] for a, b in pairs], axis=1)
    first = t_p_value(differences[:, :, :1], 0.0, "greater")
    second = t_p_value(differences[:, :, 1:], 0.0, "less")
    first = np.broadcast_to(first, second.shape)
    adjusted = [adjusted_flip_p_values(p, q, True) for p, q in zip(first, second, strict=True)]
    return np.asarray(adjusted) <= 0.05


@pytest.mark.parametrize("seeds", [3, 5, 8, 20])
def test_intervals_of_paired_differences_cover_the_planted_difference(seeds: int) -> None:
    accuracies = studies([[60.0, 52.0, 57.0]], seeds, seed=seeds)[:, 0]
    for arm, planted in ((1, -8.0), (2, -3.0)):
        low, high = t_interval(accuracies[:, arm] - accuracies[:, 0])
        assert 0.93 <= np.mean((low <= planted) & (planted <= high)) <= 0.97


def test_where_one_seed_in_five_collapses_intervals_cover_less_and_more_seeds_mend_it() -> None:
    # docs/verdicts.md warns of it. With 8 seeds no collapse is drawn in .8^8 = 17 % of studies: those must miss.
    generator = np.random.default_rng(4)
    coverage = {}
    for seeds in (8, 40):
        collapsed = generator.random((STUDIES, seeds)) < 0.2
        differences = generator.normal(2.0, 1.0, (STUDIES, seeds)) - 30.0 * collapsed
        low, high = t_interval(differences)
        coverage[seeds] = np.mean((low <= 2 - 6) & (high >= 2 - 6))
    assert 0.72 <= coverage[8] <= 1 - 0.8**8 + MONTE_CARLO
    assert 0.91 <= coverage[40] <= 0.97


NO_FLIP = {
    "nothing differs anywhere": [[50, 50, 50], [50, 50, 50]],
    "a leads at equal updates and ties at equal compute": [[90, 50, 10], [50, 50, 50]],
    "a ties at equal updates and trails at equal compute": [[50, 50, 50], [10, 50, 90]],
    "one order everywhere": [[60, 50, 40], [60, 50, 40]],
    "three currencies, ties at each": [[90, 50, 10], [50, 50, 50], [50, 50, 50], [50, 50, 50]],
    "two arms, three currencies, ties at each": [[90, 10], [50, 50], [50, 50], [50, 50]],
}


@pytest.mark.parametrize("means", NO_FLIP.values(), ids=NO_FLIP)
@pytest.mark.parametrize("seeds", [5, 10])
def test_at_most_five_per_cent_of_studies_without_a_flip_show_a_certain_one(means: list, seeds: int) -> None:
    certain = certain_flips(studies(means, seeds, seed=17 + seeds))
    assert np.mean(certain.any(axis=(1, 2))) <= 0.05 + MONTE_CARLO


def test_a_planted_flip_is_found_in_its_direction_and_no_other() -> None:
    certain = certain_flips(studies([[58.0, 50.0], [50.0, 62.0]], seeds=8, seed=5))
    forward, backward = certain[:, 0, 0], certain[:, 1, 0]
    assert forward.mean() > 0.95
    assert backward.mean() == 0.0


def test_a_planted_winner_is_ranked_first_and_alone() -> None:
    accuracies = studies([[50.0, 60.0, 51.0]], seeds=8, seed=6)[:200, 0]
    ranks = [rank_arms(values)[1] for values in accuracies]
    assert np.mean([rank is not None and (rank.low, rank.high) == (1, 1) for rank in ranks]) > 0.95
