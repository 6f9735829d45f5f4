"""Rank intervals and tie groups: what they say of clear, close, equal and missing arms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.ranks import rank_arms


def noisy(means: list[float], seeds: int = 8, sd: float = 0.02, seed: int = 0) -> np.ndarray:
    return np.asarray(means)[:, None] + np.random.default_rng(seed).normal(0, sd, (len(means), seeds))


def test_clearly_separated_arms_have_sharp_ranks() -> None:
    ranks = rank_arms(noisy([0.3, 0.9, 0.6]))
    assert [(rank.rank, rank.low, rank.high) for rank in ranks if rank] == [(3, 3, 3), (1, 1, 1), (2, 2, 2)]
    assert len({rank.ties for rank in ranks if rank}) == 3


def test_twelve_arms_that_differ_by_noise_share_wide_rank_intervals() -> None:  # S6
    ranks = [rank for rank in rank_arms(noisy([0.5] * 12, seeds=5, sd=0.05), alpha=0.001) if rank]
    assert all((rank.low, rank.high) == (1, 12) for rank in ranks)
    assert {rank.ties for rank in ranks} == {"a"}


def test_two_equal_arms_have_the_same_rank() -> None:  # S7
    values = noisy([0.5, 0.8])
    ranks = rank_arms(np.vstack([values, values[1]]))
    assert ranks[1] == ranks[2]
    assert ranks[1] is not None and ranks[1].rank == 1
    assert ranks[0] is not None and ranks[0].rank == 3


def test_a_constant_difference_separates_nobody() -> None:  # S2
    ranks = rank_arms([[0.5] * 8, [0.6] * 8])
    assert [(rank.low, rank.high, rank.ties) for rank in ranks if rank] == [(1, 2, "a"), (1, 2, "a")]


def test_tie_letters_are_shared_exactly_by_pairs_that_cannot_be_told_apart() -> None:
    values = noisy([0.50, 0.51, 0.52, 0.53, 0.54, 0.60], seed=4)
    ranks = rank_arms(values)
    for i in range(6):
        for j in range(i):
            tied = stats.ttest_rel(values[i], values[j]).pvalue > 0.05
            one, other = ranks[i], ranks[j]
            assert one is not None and other is not None
            assert bool(set(one.ties) & set(other.ties)) == tied


@pytest.mark.parametrize("newcomer", [0.1, 0.52, 0.95])
def test_an_unrelated_arm_changes_no_order_and_no_tie_between_the_others(newcomer: float) -> None:
    values = noisy([0.50, 0.51, 0.53, 0.58], seed=2)
    before, after = rank_arms(values), rank_arms(np.vstack([values, noisy([newcomer], seed=9)]))
    for i in range(4):
        for j in range(4):
            old, new = (before[i], before[j]), (after[i], after[j])
            assert all(rank is not None for rank in (*old, *new))
            assert (old[0].rank < old[1].rank) == (new[0].rank < new[1].rank)
            assert bool(set(old[0].ties) & set(old[1].ties)) == bool(set(new[0].ties) & set(new[1].ties))


def test_an_arm_that_is_worst_leaves_every_other_rank_as_it_was() -> None:
    values = noisy([0.50, 0.51, 0.53, 0.58], seed=2)
    assert rank_arms(np.vstack([values, noisy([0.1], seed=9)]))[:4] == rank_arms(values)


def test_an_arm_without_readings_has_no_rank_and_costs_no_other_one_a_place() -> None:
    ranks = rank_arms(np.vstack([noisy([0.3, 0.9]), np.full((1, 8), np.nan)]))
    assert ranks[2] is None
    assert ranks[:2] == rank_arms(noisy([0.3, 0.9]))
    assert rank_arms(np.full((2, 3), np.nan)) == [None, None]
