"""The chain task: arithmetic modulo 10, evaluated strictly from left to right, answered with a worked trace.

A prompt is the expression, padded with spaces on the right to the longest expression's length, then `>`; the
fixed frame keeps each operand at one distance from where the trace needs it. The answer writes two digits per
step, the operand and the running result, then `=`, the last result, and the end token:

    8-6+0*3      >620236=6        8-6=2, 2+0=2, 2*3=6

Every token is one character, so steps end after every second one: no separator is needed. A completion is right
when it ends with `=` and the answer and the end token was drawn; the trace itself is not graded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from harness.study.training import Positive, Spec
from harness.tasks.base import PoolName, Problem
from harness.tasks.boundaries import positions
from harness.tasks.pools import TaskSpec, build_pools, content_hash, pool_seeds

MODULUS: Final = 10
OPERATORS: Final = "+-*"
FRAME_END: Final = ">"
RESULT_MARK: Final = "="
STEP_CHARACTERS: Final = 2
"""Operand and running result."""


class Steps(Spec):
    """How many operations an expression has, drawn uniformly."""

    min: Positive = 3
    """Fewest operations."""
    max: Positive = 6
    """Most operations; it also fixes the frame's length."""

    @model_validator(mode="after")
    def _ordered(self) -> Steps:
        if self.min > self.max:
            told = "min {min} is above max {max}; give a min that is at most max"
            raise PydanticCustomError("steps", told, {"min": self.min, "max": self.max})
        return self


class ChainSpec(TaskSpec):
    """Chains of arithmetic modulo 10, answered with a worked trace."""

    REVISION: ClassVar[int] = 1

    steps: Steps = Steps()
    """Operations per expression."""

    def least_answer_tokens(self) -> int:
        """The shortest trace, ``=``, the result, and the end token."""
        return STEP_CHARACTERS * self.steps.min + 3


def apply(value: int, operator: str, operand: int) -> int:
    """One step, modulo 10."""
    result = {"+": value + operand, "-": value - operand, "*": value * operand}[operator]
    return result % MODULUS


def draw_expression(rng: random.Random, steps: Steps) -> str:
    """A random expression such as ``8-6+0*3``: operations, operators and digits uniform."""
    expression = str(rng.randrange(MODULUS))
    for _ in range(rng.randint(steps.min, steps.max)):
        expression += rng.choice(OPERATORS) + str(rng.randrange(MODULUS))
    return expression


def framed(expression: str, steps: Steps) -> str:
    """The prompt of an expression."""
    return expression.ljust(1 + 2 * steps.max) + FRAME_END


def problem_of(expression: str, steps: Steps) -> Problem:
    """The problem that asks for this expression's value."""
    answer = clean_trace(expression)[-1]
    return Problem(framed(expression, steps), answer, content_hash(expression), {"expression": expression})


def clean_trace(expression: str) -> str:
    """The right trace of an expression, e.g. ``620236=6`` of ``8-6+0*3``; without the end token."""
    return faulty_trace(expression, random.Random(0), {})


def faulty_trace(expression: str, rng: random.Random, error_rates: Mapping[str, float]) -> str:
    """The trace of a demonstrator that errs: a step's result is off by one (up or down alike) with the
    probability given for its operator, and the demonstrator carries on from the wrong value."""
    value = int(expression[0])
    trace = ""
    for operator, operand in _operations(expression):
        value = apply(value, operator, int(operand))
        if rng.random() < error_rates.get(operator, 0.0):
            value = (value + rng.choice((-1, 1))) % MODULUS
        trace += operand + str(value)
    return trace + RESULT_MARK + str(value)


def _operations(expression: str) -> Iterator[tuple[str, str]]:
    return zip(expression[1::2], expression[2::2], strict=True)


class ChainTask:
    """Three disjoint pools of expressions, their verifier, and step boundaries after every second character."""

    name = "chain"

    def __init__(self, spec: ChainSpec):
        self.spec = spec
        self._pools = build_pools(self.name, spec.pool, self._draws)

    def _draws(self, pool: PoolName) -> Iterator[Problem]:
        for seed in pool_seeds(self.name, pool):
            yield problem_of(draw_expression(random.Random(seed), self.spec.steps), self.spec.steps)

    def pool(self, name: PoolName) -> Sequence[Problem]:
        """The problems of one pool, in a fixed order."""
        return self._pools[name]

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        """Whether the end token was drawn and the completion ends with ``=answer``."""
        return finished and completion.endswith(RESULT_MARK + problem.answer)

    def step_boundaries(self, problem: Problem, pieces: Sequence[str]) -> list[int]:
        """After every second character before the first ``=``; what follows it is the last step."""
        text = "".join(pieces)
        trace_length = text.find(RESULT_MARK) if RESULT_MARK in text else len(text)
        return positions(pieces, range(STEP_CHARACTERS, trace_length + 1, STEP_CHARACTERS))
