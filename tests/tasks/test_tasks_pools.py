"""Pools share no problem, and stay as they are when another pool grows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.tasks.base import PoolName, Problem
from harness.tasks.pools import PoolSizes, build_pools, check_disjoint, content_hash, pool_seeds


def problem(number: int) -> Problem:
    return Problem(f"what is {number}?", str(number), content_hash(f"what is {number}?"))


def numbers_below(space: int):
    def draws(pool: PoolName) -> Iterator[Problem]:
        for seed in pool_seeds("numbers", pool):
            yield problem(random.Random(seed).randrange(space))

    return draws


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_pools_have_their_sizes_and_no_problem_twice(train: int, tuning: int, confirmatory: int, spare: int) -> None:
    sizes = PoolSizes(train=train, tuning=tuning, confirmatory=confirmatory)
    total = train + tuning + confirmatory
    pools = build_pools("numbers", sizes, numbers_below(total + spare))
    assert {name: len(pool) for name, pool in pools.items()} == sizes.model_dump()
    assert len({each.content_hash for pool in pools.values() for each in pool}) == total
    check_disjoint(pools)


def test_building_again_gives_the_same_pools_and_a_larger_training_pool_leaves_the_held_out_ones() -> None:
    small = PoolSizes(train=20, tuning=10, confirmatory=10)
    pools = build_pools("numbers", small, numbers_below(200))
    assert build_pools("numbers", small, numbers_below(200)) == pools
    larger = build_pools("numbers", PoolSizes(train=150, tuning=10, confirmatory=10), numbers_below(200))
    assert (larger["tuning"], larger["confirmatory"]) == (pools["tuning"], pools["confirmatory"])


def test_a_generator_with_too_few_problems_is_refused_with_the_numbers() -> None:
    sizes = PoolSizes(train=9, tuning=1, confirmatory=1)
    with pytest.raises(InputError, match=r"task\.pool\.train: .*8 of 9 found for this pool, 10 for all pools"):
        build_pools("numbers", sizes, numbers_below(10))


def test_overlapping_pools_are_named_with_the_count_and_an_example() -> None:
    pools: dict[PoolName, list[Problem]] = {
        "train": [problem(number) for number in range(10)],
        "tuning": [problem(number) for number in range(7, 12)],
        "confirmatory": [problem(number) for number in range(11, 14)],
    }
    with pytest.raises(InputError) as caught:
        check_disjoint(pools)
    first, second = (each.what for each in caught.value.problems)
    assert first == "pools train and tuning share 3 of 5 problems, e.g. 'what is 7?'"
    assert second == "pools tuning and confirmatory share 1 of 3 problems, e.g. 'what is 11?'"


def test_content_ignores_white_space_and_nothing_else() -> None:
    assert content_hash(" 1 +\n\t2 ") == content_hash("1 + 2")
    assert content_hash("1 + 2") != content_hash("1 + 3")
    assert content_hash("a", "b c") != content_hash("a b", "c")
