"""Intervals, tests, adjustments and power against published values, brute force and the rules of the method page."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics.discrete import sign_test_p_value, smallest_p_value
from analysis.statistics.equivalence import equivalence_p_value, outside_p_value
from analysis.statistics.multiplicity import benjamini_hochberg, holm
from analysis.statistics.paired import paired_test, t_interval, t_p_value
from analysis.statistics.power import minimum_detectable_effect, paired_t_power, seeds_needed

# Student's (1908) sleep data: extra hours under two drugs, the textbook's paired example.
SLEEP = np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])


def test_paired_t_gives_the_textbook_values_of_students_sleep_data() -> None:
    test = paired_test(SLEEP)
    assert test.mean == pytest.approx(1.58)
    assert test.p == pytest.approx(0.002833, abs=5e-7)
    assert (test.low, test.high) == (pytest.approx(0.7001142, abs=1e-6), pytest.approx(2.4598858, abs=1e-6))


def test_one_sided_p_values_are_halves_of_the_two_sided_one_and_sum_to_one() -> None:
    greater, less = t_p_value(SLEEP, 0, "greater"), t_p_value(SLEEP, 0, "less")
    assert greater == pytest.approx(0.002833 / 2, abs=5e-7)
    assert greater + less == pytest.approx(1)


def test_a_threshold_shifts_the_null_hypothesis() -> None:
    assert t_p_value(SLEEP, 1.58, "greater") == pytest.approx(0.5)
    assert t_p_value(SLEEP, 1.0) == pytest.approx(stats.ttest_1samp(SLEEP, 1.0).pvalue)


def test_studies_on_leading_axes_are_independent() -> None:
    both = np.stack([SLEEP, 2 * SLEEP - 1])
    low, high = t_interval(both)
    assert low == pytest.approx([t_interval(row)[0] for row in both])
    assert high == pytest.approx([t_interval(row)[1] for row in both])


@pytest.mark.parametrize("differences", [[0.5] * 8, [0.1 + 0.2, 0.3, 0.3], [2.0], [0.0, 0.0]])
def test_differences_without_spread_are_degenerate_and_never_certain(differences: list[float]) -> None:
    test = paired_test(differences)
    assert test.mean == pytest.approx(np.mean(differences))
    assert test.degenerate
    assert np.isnan([test.low, test.high, test.p]).all()
    assert np.isnan(equivalence_p_value(differences, 10.0))


def test_incomplete_pairs_are_left_out_and_no_pair_at_all_is_not_a_zero() -> None:
    gaps = np.array([1.0, np.nan, 2.0, 4.0])
    assert paired_test(gaps) == paired_test([1.0, 2.0, 4.0])
    nothing = paired_test([np.nan, np.nan])
    assert nothing.n == 0
    assert np.isnan(nothing.mean)


def test_equivalence_holds_exactly_when_the_ninety_per_cent_interval_is_inside_the_margin() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        differences = generator.normal(0.2, 1.0, 12)
        low, high = t_interval(differences, 0.90)
        assert (equivalence_p_value(differences, 0.7) <= 0.05) == (low > -0.7 and high < 0.7)


def test_equality_is_not_inferred_from_a_large_p() -> None:
    noisy = np.array([-9.0, 8.0, -7.0, 9.0, -1.0])
    assert paired_test(noisy).p > 0.9
    assert equivalence_p_value(noisy, 1.0) > 0.05


def test_a_difference_beyond_the_margin_contradicts_equivalence() -> None:
    beyond = np.array([3.1, 2.9, 3.3, 2.7, 3.0])
    assert outside_p_value(beyond, 1.0) < 0.001
    assert outside_p_value(-beyond, 1.0) == pytest.approx(outside_p_value(beyond, 1.0))
    assert outside_p_value(beyond - 3.0, 1.0) > 0.99


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan")])
def test_a_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        equivalence_p_value(SLEEP, margin)


# Holm (1979) and Benjamini-Hochberg (1995) by their definitions, the slow way.
def holm_by_definition(p: list[float]) -> list[float]:
    ordered = sorted(range(len(p)), key=lambda i: p[i])
    return [
        min(1.0, max((len(p) - k) * p[i] for k, i in enumerate(ordered[: ordered.index(j) + 1])))
        for j in range(len(p))
    ]


def hochberg_by_definition(p: list[float]) -> list[float]:
    ordered = sorted(range(len(p)), key=lambda i: p[i])
    return [
        min(1.0, *(len(p) * p[i] / (k + 1) for k, i in enumerate(ordered) if k >= ordered.index(j)))
        for j in range(len(p))
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_adjusted_p_values_follow_their_definitions(p: list[float]) -> None:
    assert holm(p) == pytest.approx(holm_by_definition(p))
    assert benjamini_hochberg(p) == pytest.approx(hochberg_by_definition(p))


def test_adjusted_p_values_of_the_published_example() -> None:
    # The fifteen p-values of Benjamini and Hochberg (1995), section 4: at 5 % they find four, Holm three.
    published = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240,
        0.4262, 0.5719, 0.6528, 0.7590, 1.0,
    ]  # fmt: skip
    assert (benjamini_hochberg(published) <= 0.05).sum() == 4
    assert (holm(published) <= 0.05).sum() == 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(0, 4))
def test_a_hypothesis_without_data_stays_in_the_family_at_one(p: list[float], absent: int) -> None:
    for adjust in (holm, benjamini_hochberg):
        explicit = adjust([*p, *[1.0] * absent])
        assert adjust([*p, *[float("nan")] * absent]) == pytest.approx(explicit)
        assert adjust(p, family_size=len(p) + absent) == pytest.approx(explicit[: len(p)])


def test_one_nan_does_not_empty_the_family() -> None:  # S1
    assert holm([0.01, float("nan"), 0.02]) == pytest.approx([0.03, 1.0, 0.04])


def test_a_family_smaller_than_its_members_is_refused() -> None:
    with pytest.raises(ValueError, match="family"):
        holm([0.1, 0.2], family_size=1)


def test_five_of_six_successes_under_a_fair_coin() -> None:
    assert sign_test_p_value(5, 6) == pytest.approx(0.109, abs=5e-4)
    outcomes = list(product((0, 1), repeat=6))
    assert sign_test_p_value(5, 6) == pytest.approx(sum(sum(coins) >= 5 for coins in outcomes) / len(outcomes))


def test_three_pairs_cannot_reach_five_per_cent_with_a_discrete_test() -> None:  # S10
    signs = np.array(list(product((-1, 1), repeat=3)))
    means = np.abs((signs * [1.0, 2.0, 3.0]).mean(axis=1))
    assert smallest_p_value(3) == pytest.approx(np.mean(means >= means.max())) == 0.25
    assert smallest_p_value(3, two_sided=False) == sign_test_p_value(3, 3) == 0.125
    assert smallest_p_value(6) <= 0.05 < smallest_p_value(5)


# docs/method.md, section 7.
DETECTABLE = {3: 3.26, 5: 1.68, 8: 1.16, 10: 1.00, 16: 0.75, 20: 0.66, 30: 0.53}
NEEDED = {0.5: (10, 6, 3), 1.0: (34, 15, 5), 1.5: (73, 30, 9), 2.0: (128, 52, 13)}


@pytest.mark.parametrize("seeds", DETECTABLE)
def test_minimum_detectable_effects_are_those_of_the_method(seeds: int) -> None:
    assert minimum_detectable_effect(seeds) == pytest.approx(DETECTABLE[seeds], rel=0.02)


@pytest.mark.parametrize("deviation", NEEDED)
def test_seeds_needed_are_those_of_the_method(deviation: float) -> None:
    assert tuple(seeds_needed(points, deviation) for points in (0.5, 0.8, 1.7)) == NEEDED[deviation]


def test_power_is_alpha_without_an_effect_and_nothing_below_two_seeds() -> None:
    assert paired_t_power(0.0, 8) == pytest.approx(0.05)
    assert paired_t_power(0.0, 8, two_sided=False) == pytest.approx(0.05)
    assert paired_t_power(9.0, 1) == 0.0
    assert minimum_detectable_effect(1) == float("inf")


def test_power_agrees_with_simulation() -> None:
    generator = np.random.default_rng(11)
    p = t_p_value(generator.normal(1.16, 1.0, (20_000, 8)))
    assert np.mean(p <= 0.05) == pytest.approx(0.80, abs=0.012)
