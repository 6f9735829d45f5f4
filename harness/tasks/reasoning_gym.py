"""Any data set of Reasoning Gym by name, as a task with a binary outcome and disjoint pools.

Reasoning Gym builds item i of seed s from s + i, so neighbouring seeds share items (docs/method.md, section 8).
Pools are therefore drawn from far, hashed seeds with duplicates removed; pools made of explicit seeds, e.g. to
repeat a published recipe, are built exactly as said, and refused when they overlap.

The outcome is a score of exactly 1: the default scorers give partial credit. Their exceptions are let through, for
the trainer to count. The graded answer is what stands in the completion's last <answer>...</answer>, or else the
whole completion, white space at its ends removed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from harness.errors import InputError
from harness.errors import Problem as Trouble
from harness.study.suggest import did_you_mean
from harness.study.training import Spec
from harness.tasks.base import PoolName, Problem
from harness.tasks.boundaries import positions
from harness.tasks.pools import FILL_ORDER, TaskSpec, build_pools, check_disjoint, content_hash, pool_seeds

UNUSABLE: Final = {
    **dict.fromkeys(
        ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"),
        "its problems come without an answer",
    ),
    **dict.fromkeys(
        (
            "codeio",
            "intermediate_integration",
            "isomorphic_strings",
            "knight_swap",
            "list_functions",
            "polynomial_multiplication",
            "ransom_note",
            "word_ladder",
        ),
        "its problems differ from process to process, whatever the seed",
    ),
    "game_of_life_halting": "its scorer gives full marks to any text",
}
"""Data sets of reasoning-gym 0.1.25 that cannot serve as a verifiable task, and why. Those that differ between
processes iterate over sets of text, or draw from the global generator; a test compares all others."""

BLOCK: Final = 500
"""Problems drawn from one hashed seed before the next one: Reasoning Gym's own default size."""
SEEDS: Final = 2**31
"""Hashed seeds are reduced below this: some data sets hand seed + item to numpy, which takes 32 bits."""

Seed = Annotated[int, Field(ge=0)]
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_STEP_END = re.compile(r"\n+|[.!?;](?=\s)")


class PoolSeeds(Spec):
    """An explicit seed for each pool."""

    train: Seed
    """Item i of the training pool is made of this seed + i."""
    tuning: Seed
    """The same for the tuning pool."""
    confirmatory: Seed
    """The same for the confirmatory pool."""


class ReasoningGymSpec(TaskSpec):
    """A data set of Reasoning Gym, its outcome made binary."""

    REVISION: ClassVar[int] = 1

    dataset: str
    """Its name in Reasoning Gym, e.g. chain_sum."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The data set's own parameters; those left out keep their defaults. Without `seed` and `size`."""
    seeds: PoolSeeds | None = None
    """None: hashed seeds, duplicates removed. Given: exactly these, refused when the pools overlap."""


class ReasoningGymTask:
    """Problems of one data set, graded by its own scorer."""

    name = "reasoning-gym"

    def __init__(self, spec: ReasoningGymSpec):
        self.spec = spec
        self._check()
        self._scorer = self._dataset(seed=0, size=1)
        if spec.seeds is None:
            self._pools = build_pools(f"{self.name}/{spec.dataset}", spec.pool, self._draws)
        else:
            self._pools = {
                pool: tuple(self._problems(getattr(spec.seeds, pool), getattr(spec.pool, pool)))
                for pool in FILL_ORDER
            }
            self._check_filled()
            check_disjoint(self._pools)

    def pool(self, name: PoolName) -> Sequence[Problem]:
        """The problems of one pool, in a fixed order."""
        return self._pools[name]

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        """Whether the end token was drawn and the scorer gives exactly 1. Lets the scorer's exceptions through."""
        if not finished:
            return False
        marked = _ANSWER.findall(completion)
        answer = (marked[-1] if marked else completion).strip()
        return bool(self._scorer.score_answer(answer=answer, entry=problem.metadata["entry"]) == 1.0)

    def step_boundaries(self, problem: Problem, pieces: Sequence[str]) -> list[int]:
        """After each run of line ends, and after `.`, `!`, `?` or `;` before white space."""
        return positions(pieces, (match.end() for match in _STEP_END.finditer("".join(pieces))))

    def _check(self) -> None:
        from reasoning_gym.factory import DATASETS  # slow to import (seconds), so only where it is used

        name = self.spec.dataset
        if name not in DATASETS:
            known = did_you_mean(name, sorted(DATASETS))
            raise InputError(Trouble(f"Reasoning Gym has no data set {name!r}", known, field="task.dataset"))
        if name in UNUSABLE:
            what = f"data set {name!r} cannot be used: {UNUSABLE[name]}"
            raise InputError(Trouble(what, "choose another data set", field="task.dataset"))
        fields = [field.name for field in dataclasses.fields(DATASETS[name][1])]
        known_options = [field for field in fields if field not in ("seed", "size")]
        troubles = []
        for option in self.spec.options:
            if option in ("seed", "size"):
                what, right = f"{option!r} is set per pool", "`seeds` for seeds, `pool` for sizes"
                troubles.append(Trouble(what, right, field=f"task.options.{option}"))
            elif option not in known_options:
                what = f"data set {name!r} has no such option"
                troubles.append(Trouble(what, did_you_mean(option, known_options), field=f"task.options.{option}"))
        if troubles:
            raise InputError(troubles)

    def _dataset(self, seed: int, size: int) -> Any:
        import reasoning_gym

        try:
            return reasoning_gym.create_dataset(self.spec.dataset, seed=seed, size=size, **self.spec.options)
        except (AssertionError, TypeError, ValueError) as error:
            what = f"data set {self.spec.dataset!r} refuses these options: {error}"
            raise InputError(Trouble(what, "values that it accepts", field="task.options")) from None

    def _problems(self, seed: int, size: int) -> Iterator[Problem]:
        """Items 0, 1, ... of one seed; fewer than `size` where the data set says that it is exhausted."""
        dataset = self._dataset(seed, size)
        for index in range(size):
            try:
                entry = dataset[index]
            except IndexError:
                return
            yield Problem(
                entry["question"] + "\n", entry["answer"], content_hash(entry["question"]), {"entry": entry}
            )

    def _draws(self, pool: PoolName) -> Iterator[Problem]:
        for seed in pool_seeds(f"{self.name}/{self.spec.dataset}", pool):
            empty = True
            for problem in self._problems(seed % SEEDS, BLOCK):
                empty = False
                yield problem
            if empty:
                raise self._exhausted(pool, 0)

    def _check_filled(self) -> None:
        for pool, problems in self._pools.items():
            if len(problems) < getattr(self.spec.pool, pool):
                raise self._exhausted(pool, len(problems))

    def _exhausted(self, pool: PoolName, found: int) -> InputError:
        what = f"data set {self.spec.dataset!r} ends after {found:,} problems"
        return InputError(Trouble(what, "a smaller pool or other options", field=f"task.pool.{pool}"))
