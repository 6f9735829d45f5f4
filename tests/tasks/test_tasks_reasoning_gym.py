"""Reasoning Gym as a task: pools without overlap, a binary outcome, and refusals in one clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from harness.errors import InputError
from harness.tasks.base import POOLS
from harness.tasks.pools import PoolSizes, check_disjoint
from harness.tasks.reasoning_gym import UNUSABLE, PoolSeeds, ReasoningGymSpec, ReasoningGymTask

SIZES = PoolSizes(train=60, tuning=20, confirmatory=20)


def task(dataset: str = "chain_sum", pool: PoolSizes = SIZES, **more: Any) -> ReasoningGymTask:
    return ReasoningGymTask(ReasoningGymSpec(dataset=dataset, pool=pool, **more))


def test_the_shipped_recipe_of_neighbouring_seeds_is_refused() -> None:
    seeds = PoolSeeds(train=1, tuning=2, confirmatory=1_000_000)
    with pytest.raises(InputError, match="pools tuning and train share 20 of 20 problems"):
        task(seeds=seeds)


def test_explicit_seeds_far_apart_give_exactly_their_items() -> None:
    import reasoning_gym

    made = task(seeds=PoolSeeds(train=1, tuning=1_000, confirmatory=5_000))
    shipped = reasoning_gym.create_dataset("chain_sum", seed=1_000, size=20)
    assert [problem.prompt.strip() for problem in made.pool("tuning")] == [entry["question"] for entry in shipped]


def test_hashed_seeds_give_disjoint_pools_the_same_every_time() -> None:
    made, again = task(), task()
    pools = {name: made.pool(name) for name in POOLS}
    check_disjoint(pools)
    assert {name: len(pool) for name, pool in pools.items()} == SIZES.model_dump()
    assert all(again.pool(name) == pools[name] for name in POOLS)


def test_duplicates_are_removed_and_a_small_problem_space_is_told() -> None:
    one_digit_pairs = {"min_terms": 2, "max_terms": 2, "max_digits": 1}
    whole = task(pool=PoolSizes(train=100, tuning=20, confirmatory=20), options=one_digit_pairs)
    assert len({problem.content_hash for name in POOLS for problem in whole.pool(name)}) == 140
    with pytest.raises(InputError, match="too few distinct problems"):
        task(pool=PoolSizes(train=300, tuning=20, confirmatory=20), options=one_digit_pairs)


@pytest.mark.parametrize(
    ("answer", "finished", "solved"),
    [
        ("{}", True, True),
        ("  {}\n", True, True),
        ("so it is <answer>7777</answer>, no: <answer> {} </answer>", True, True),
        ("<answer>{}</answer> or <answer>7777</answer>", True, False),
        ("it is {}", True, False),  # Reasoning Gym's own score is partial credit here
        ("{}", False, False),
        ("7777", True, False),
        ("", True, False),
    ],
)
def test_the_outcome_is_a_score_of_exactly_one(answer: str, finished: bool, solved: bool) -> None:
    made = task(pool=PoolSizes(train=1, tuning=1, confirmatory=1))
    problem = made.pool("train")[0]
    assert made.verify(problem, answer.format(problem.answer), finished) is solved


def test_partial_credit_is_what_the_library_itself_gives() -> None:
    import reasoning_gym

    shipped = reasoning_gym.create_dataset("chain_sum", seed=1, size=1)
    assert 0 < shipped.score_answer(f"it is {shipped[0]['answer']}", shipped[0]) < 1


def test_exceptions_of_a_scorer_are_let_through() -> None:
    made = task("prime_factorization", PoolSizes(train=2, tuning=2, confirmatory=2))
    with pytest.raises(ValueError, match="invalid literal"):
        made.verify(made.pool("train")[0], "nonsense", True)


@pytest.mark.parametrize(
    ("dataset", "options", "told"),
    [
        ("chain_sums", {}, r"task\.dataset: .*no data set 'chain_sums'; did you mean chain_sum"),
        ("rush_hour", {}, r"task\.dataset: .*'rush_hour' cannot be used: its problems come without an answer"),
        ("game_of_life_halting", {}, "full marks to any text"),
        ("word_ladder", {}, "differ from process to process"),
        ("chain_sum", {"max_term": 3}, r"task\.options\.max_term: .*no such option; did you mean max_terms"),
        ("chain_sum", {"seed": 3}, r"task\.options\.seed: .*per pool"),
        ("chain_sum", {"max_terms": 1}, r"task\.options: .*refuses these options: max_terms must be >= min_terms"),
        ("chain_sum", {"max_terms": "many"}, r"task\.options: .*refuses these options"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(dataset: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        task(dataset, options=options)
    assert "\n" not in str(caught.value)


def test_steps_end_after_lines_and_sentences() -> None:
    made = task(pool=PoolSizes(train=1, tuning=1, confirmatory=1))
    pieces = ["2 + 1.5", " is 3", ".", "5.", " Then", "\n", "\n", "done", "!", ""]
    # "3.5." is one number and a full stop; two line ends are one boundary; the last mark has no space after it
    assert made.step_boundaries(made.pool("train")[0], pieces) == [4, 7]


OUTCOMES = """
import json, random, sys
from harness.tasks.pools import PoolSizes
from harness.tasks.reasoning_gym import UNUSABLE, ReasoningGymSpec, ReasoningGymTask
from reasoning_gym.factory import DATASETS
sizes = PoolSizes(train=20, tuning=4, confirmatory=4)
told = {}
for name in sorted(DATASETS.keys() - UNUSABLE.keys() - {"composite"}):
    random.seed(int(sys.argv[1]))
    task = ReasoningGymTask(ReasoningGymSpec(dataset=name, pool=sizes))
    problems = task.pool("train")
    unsolved = [p.answer for p in problems if not task.verify(p, p.answer, True)]
    told[name] = [[p.content_hash + p.answer for p in problems], unsolved]
print()  # some data sets print dots
print(json.dumps(told))
"""


@pytest.mark.slow
def test_every_usable_data_set_is_the_same_in_every_process_and_accepts_its_own_answers() -> None:
    told = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", OUTCOMES, seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(json.loads(run.stdout.splitlines()[-1]))
    assert not told[0].keys() & UNUSABLE.keys()
    assert [name for name in told[0] if told[0][name] != told[1][name]] == []
    assert {name: unsolved for name, (_, unsolved) in told[0].items() if unsolved} == {}
