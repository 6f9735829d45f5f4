"""The chain task's problems, traces, verifier and step boundaries."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.errors import InputError
from harness.tasks.boundaries import positions
from harness.tasks.chain import ChainSpec, ChainTask, Steps, clean_trace, faulty_trace, framed, problem_of
from harness.tasks.pools import PoolSizes, check_disjoint

STEPS = Steps()
RATES = {"+": 0.15, "-": 0.35, "*": 0.60}

expressions = st.from_regex(r"[0-9]([+*-][0-9]){3,6}", fullmatch=True)


@pytest.fixture(scope="module")
def task() -> ChainTask:
    return ChainTask(ChainSpec(pool=PoolSizes(train=2_000, tuning=200, confirmatory=200)))


def left_to_right(expression: str) -> list[int]:
    """Running results by Python's own arithmetic on integers, reduced only at the end of each step."""
    results = [int(expression[0])]
    for operator, operand in re.findall(r"([+*-])([0-9])", expression[1:]):
        exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[operator](results[-1], int(operand))
        results.append(exact % 10)
    return results[1:]


def test_the_worked_example_of_the_description() -> None:
    problem = problem_of("8-6+0*3", STEPS)
    assert problem.prompt == "8-6+0*3      >"
    assert problem.answer == "6"
    assert clean_trace("8-6+0*3") == "620236=6"


@given(expressions)
def test_a_clean_trace_holds_operands_and_running_results(expression: str) -> None:
    trace, answer = clean_trace(expression).split("=")
    results = left_to_right(expression)
    assert trace[0::2] == expression[2::2]
    assert [int(digit) for digit in trace[1::2]] == results
    assert answer == str(results[-1])


def test_problems_have_three_to_six_steps_one_frame_and_twelve_new_tokens_on_average(task: ChainTask) -> None:
    problems = task.pool("train")
    steps = {len(problem.metadata["expression"]) // 2 for problem in problems}
    assert steps == {3, 4, 5, 6}
    assert {len(problem.prompt) for problem in problems} == {14}
    assert {problem.prompt[-1] for problem in problems} == {">"}
    new_tokens = [len(clean_trace(problem.metadata["expression"])) + 1 for problem in problems]
    assert sum(new_tokens) / len(new_tokens) == pytest.approx(12, abs=0.2)


def test_pools_are_disjoint_and_the_same_every_time(task: ChainTask) -> None:
    pools = {name: task.pool(name) for name in ("train", "tuning", "confirmatory")}
    check_disjoint(pools)
    assert pools == {name: ChainTask(task.spec).pool(name) for name in pools}


def test_one_step_gives_exactly_three_hundred_problems() -> None:
    steps = Steps(min=1, max=1)
    sizes = PoolSizes(train=200, tuning=50, confirmatory=50)
    whole = ChainTask(ChainSpec(pool=sizes, steps=steps))
    assert len({problem.prompt for name in sizes.by_name() for problem in whole.pool(name)}) == 300
    with pytest.raises(InputError, match="too few distinct problems"):
        ChainTask(ChainSpec(pool=PoolSizes(train=201, tuning=50, confirmatory=50), steps=steps))


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="min 5 is above max 3"):
        Steps(min=5, max=3)


@pytest.mark.parametrize(
    ("completion", "finished", "solved"),
    [
        ("620236=6", True, True),
        ("=6", True, True),  # the trace is not graded
        ("620236=6", False, False),  # truncated: the end token was not drawn
        ("620236=5", True, False),
        ("6202366", True, False),
        ("620236=66", True, False),
        ("620236=6 ", True, False),
        ("", True, False),
    ],
)
def test_only_a_finished_completion_that_ends_with_the_answer_is_right(
    task: ChainTask, completion: str, finished: bool, solved: bool
) -> None:
    assert task.verify(problem_of("8-6+0*3", STEPS), completion, finished) is solved


@given(expressions)
def test_a_step_ends_after_every_second_character_of_a_trace(expression: str) -> None:
    task = ChainTask(ChainSpec(pool=PoolSizes(train=1, tuning=1, confirmatory=1)))
    pieces = [*clean_trace(expression), ""]
    boundaries = task.step_boundaries(problem_of(expression, STEPS), pieces)
    assert boundaries == [2 * step for step in range(1, len(expression) // 2 + 1)]


@pytest.mark.parametrize(
    ("pieces", "boundaries"),
    [
        ([*"6202"], [2]),  # truncated: the last step ends with the completion
        ([*"620=", ""], [2]),  # a step left half done
        ([*"=6", ""], []),
        (["62", "0236", "=6", ""], [1, 2]),  # tokens of several characters
        (["6", "", "2", "0", "2", "=", "6"], [3, 5]),  # a special token within
        ([*"62=6202=2", ""], [2]),  # what follows the first mark is the last step
        ([""], []),
    ],
)
def test_boundaries_of_traces_that_are_not_clean(task: ChainTask, pieces: list[str], boundaries: list[int]) -> None:
    assert task.step_boundaries(task.pool("train")[0], pieces) == boundaries


@given(st.lists(st.text("0123456789=+ ", max_size=3), min_size=1), st.lists(st.integers(0, 60)))
def test_token_positions_increase_strictly_inside_the_completion(pieces: list[str], ends: list[int]) -> None:
    found = positions(pieces, ends)
    assert all(0 < position < len(pieces) for position in found)
    assert all(before < after for before, after in pairwise(found))
    for position in found:  # a step ends with the first token that completes it
        before, with_last = len("".join(pieces[: position - 1])), len("".join(pieces[:position]))
        assert any(before < end <= with_last for end in ends)


def test_the_faulty_demonstrator_errs_by_one_at_its_rates_and_carries_on_from_there() -> None:
    rng = random.Random(3)
    errors = {operator: [0, 0] for operator in RATES}
    for _ in range(4_000):
        expression = "".join(
            [str(rng.randrange(10)), *(rng.choice("+-*") + str(rng.randrange(10)) for _ in range(4))]
        )
        trace = faulty_trace(expression, rng, RATES)
        value = int(expression[0])
        for operator, operand, told in zip(expression[1::2], expression[2::2], trace[1:-2:2], strict=True):
            right = left_to_right(f"{value}{operator}{operand}")[0]
            value = int(told)
            assert (value - right) % 10 in (0, 1, 9)
            errors[operator][0] += value != right
            errors[operator][1] += 1
        assert trace.endswith(f"={value}")
    for operator, (wrong, steps) in errors.items():  # about 5,300 steps each: four standard errors are 0.03
        assert wrong / steps == pytest.approx(RATES[operator], abs=0.03)


def test_a_frame_is_as_wide_as_its_longest_expression() -> None:
    assert framed("1+1", Steps(min=1, max=2)) == "1+1  >"
