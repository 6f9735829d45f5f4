"""Rank-flip tests, joint resampling and rank agreement on arrays with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.flips import (
    adjusted_flip_p_values,
    flip_contradiction_p_value,
    flip_p_value,
    flip_share,
    rank_agreement,
)
from analysis.statistics.multiplicity import holm

AHEAD = np.array([3.0, 4.0, 2.0, 5.0, 3.5])
BEHIND = np.array([-2.0, -4.0, -1.0, -2.5, -3.0])


def test_p_of_a_flip_is_the_larger_of_two_one_sided_p_values() -> None:
    first = stats.ttest_1samp(AHEAD, 0, alternative="greater").pvalue
    second = stats.ttest_1samp(BEHIND, 0, alternative="less").pvalue
    assert flip_p_value(AHEAD, BEHIND) == pytest.approx(max(first, second))


def test_a_flip_is_directional() -> None:
    assert flip_p_value(AHEAD, BEHIND) < 0.05
    assert flip_p_value(BEHIND, AHEAD) > 0.95
    assert flip_p_value(AHEAD, AHEAD) > 0.95


def test_a_flip_is_contradicted_by_the_reverse_at_either_point() -> None:
    q1 = stats.ttest_1samp(AHEAD, 0, alternative="less").pvalue
    q2 = stats.ttest_1samp(AHEAD, 0, alternative="greater").pvalue
    assert flip_contradiction_p_value(AHEAD, AHEAD) == pytest.approx(min(1.0, 2 * min(q1, q2)))
    assert flip_contradiction_p_value(AHEAD, BEHIND) == 1.0


def test_without_spread_at_one_point_nothing_is_certain() -> None:
    assert np.isnan(flip_p_value(AHEAD, np.full(5, -4.0)))


def test_with_one_point_flips_are_adjusted_by_holm_over_pairs_and_directions() -> None:
    first, second = np.array([[0.001], [0.02], [0.6]]), np.array([[0.004], [0.001], [0.7]])
    expected = holm(np.maximum(first, second)[:, 0])
    assert adjusted_flip_p_values(first, second, True)[:, 0] == pytest.approx(expected)
    assert adjusted_flip_p_values(first, second, False)[:, 0] == pytest.approx(expected)


def test_several_points_of_compute_multiply_only_what_is_tested_several_times() -> None:
    # One pair: p at equal updates is one test for all three points; the compute side is Holm over three.
    first, second = np.array([[0.02, 0.02, 0.02]]), np.array([[0.001, 0.01, 0.04]])
    assert adjusted_flip_p_values(first, second, True)[0] == pytest.approx([0.02, 0.02, 0.04])
    assert adjusted_flip_p_values(first, second, False)[0] == pytest.approx(holm([0.02, 0.02, 0.04]))


def test_what_cannot_be_tested_stays_in_the_family_at_one() -> None:
    nan = float("nan")
    adjusted = adjusted_flip_p_values([[0.01], [nan]], [[0.001], [0.001]], True)
    assert adjusted[:, 0] == pytest.approx([0.02, 1.0])


def test_the_share_of_joint_resamples_is_the_exact_one_of_two_seeds(generator: np.random.Generator) -> None:
    # Of four equally likely draws only (0, 0) flips: seed 1 does not lead, and its 9 points outweigh seed 0's lead.
    share = flip_share(np.array([1.0, -9.0]), np.array([-1.0, -1.0]), generator, 40_000)
    assert share == pytest.approx(0.25, abs=0.01)


def test_resampling_keeps_what_the_two_points_share(generator: np.random.Generator) -> None:
    # The points mirror each other: whenever one leads the other trails. Drawn apart, half as many would flip.
    first = np.random.default_rng(1).normal(0, 1, 9)
    first -= first.mean()
    assert flip_share(first, -first, generator) == pytest.approx(0.5, abs=0.05)
    assert flip_share(first, first, generator) == 0.0


def test_resampling_needs_the_same_seeds_and_at_least_two(generator: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="same seeds"):
        flip_share(AHEAD, BEHIND[:3], generator)
    assert np.isnan(flip_share(AHEAD[:1], BEHIND[:1], generator))


def test_the_same_generator_gives_the_same_share() -> None:
    shares = [flip_share(AHEAD - 3, BEHIND + 2, np.random.default_rng(5)) for _ in range(2)]
    assert shares[0] == shares[1]


def test_clear_rankings_agree_fully_or_not_at_all(generator: np.random.Generator) -> None:
    clear = np.array([0.2, 0.4, 0.6, 0.8])[:, None] + np.random.default_rng(0).normal(0, 0.01, (4, 8))
    assert rank_agreement(clear, clear, generator) == (1.0, 1.0)
    assert rank_agreement(clear, 1 - clear, generator) == (-1.0, 1.0)


def test_agreement_of_noise_is_at_its_noise_floor(generator: np.random.Generator) -> None:
    noise = np.random.default_rng(0).normal(0, 1, (30, 2, 5, 6))
    taus = np.array([rank_agreement(first, second, generator) for first, second in noise])
    assert np.abs(taus.mean(axis=0)).max() < 0.2  # both are zero on average, within four standard errors


def test_both_taus_are_averages_over_every_split_of_few_seeds(generator: np.random.Generator) -> None:
    first, second = np.random.default_rng(2).normal(0, 1, (2, 4, 3))
    splits = [([0], [1, 2]), ([1], [0, 2]), ([2], [0, 1])]
    cross, floor = [], []
    for left, right in splits:
        halves = [values[:, half].mean(axis=1) for values in (first, second) for half in (left, right)]
        cross += [stats.kendalltau(halves[0], halves[3])[0], stats.kendalltau(halves[2], halves[1])[0]]
        floor += [stats.kendalltau(halves[0], halves[1])[0], stats.kendalltau(halves[2], halves[3])[0]]
    assert rank_agreement(first, second, generator) == pytest.approx((np.mean(cross), np.mean(floor)))


def test_agreement_needs_two_arms_and_two_seeds(generator: np.random.Generator) -> None:
    assert np.isnan(rank_agreement(np.ones((1, 8)), np.ones((1, 8)), generator)).all()
    assert np.isnan(rank_agreement(np.ones((3, 1)), np.ones((3, 1)), generator)).all()
    assert np.isnan(rank_agreement(np.ones((3, 4)), np.ones((3, 4)), generator)).all()
