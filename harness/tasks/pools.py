"""Finite problem pools that share no problem: drawn from far, hashed seeds, duplicates removed by content hash.

`build_pools` makes disjoint pools of a generator; `check_disjoint` refuses pools that share a problem, however
they were made. What a problem's content is (and so its hash) is the task's to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, count
from typing import Annotated, ClassVar, Final

from pydantic import Field, computed_field

from harness.errors import InputError
from harness.errors import Problem as Trouble
from harness.seeds import hashed_seed
from harness.study.training import Spec
from harness.tasks.base import PoolName, Problem

FILL_ORDER: Final[tuple[PoolName, ...]] = ("confirmatory", "tuning", "train")
"""Held-out pools first, so that a larger training pool leaves the problems of evaluation as they are."""

DRAWS_WITHOUT_NEWS: Final = 1_000
"""Draws in a row that bring only known problems before a pool is given up. With a tenth of the problem space
still unseen, giving up wrongly has probability 0.9 ** 1000, about 1e-46."""


PoolSize = Annotated[int, Field(gt=0, le=1_000_000)]
"""Every run holds its pools in memory: a million problems take about a gigabyte and a minute."""


class PoolSizes(Spec):
    """Problems in each of the three disjoint pools, at most a million each."""

    train: PoolSize
    """Problems that updates draw from."""
    tuning: PoolSize
    """Problems on which values such as a learning rate are chosen."""
    confirmatory: PoolSize
    """Problems that claims are judged on."""

    def by_name(self) -> dict[PoolName, int]:
        """The sizes, in the order in which pools are filled."""
        return {name: getattr(self, name) for name in FILL_ORDER}


class TaskSpec(Spec):
    """What every task's parameters begin with; a task adds its own in a subclass."""

    REVISION: ClassVar[int]
    """Raised by hand, in the subclass, when its problems or its verifier change."""

    pool: PoolSizes
    """Sizes of the three disjoint pools."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def revision(self) -> int:
        """Written out with the parameters, so that it is part of every cell's id."""
        return self.REVISION

    def least_answer_tokens(self) -> int:
        """Tokens of the shortest right completion, the end token included; at least 1 where a task cannot say."""
        return 1


def content_hash(*parts: str) -> str:
    """SHA-256 (hex) of the parts, runs of white space in each normalised to one space."""
    normalised = "\x1f".join(" ".join(part.split()) for part in parts)
    return hashlib.sha256(normalised.encode()).hexdigest()


def pool_seeds(task: str, pool: PoolName) -> Iterator[int]:
    """Endless 64-bit seeds, hashed from ("pool", task, pool, i): far apart, and other ones for each pool."""
    return (hashed_seed("pool", task, pool, draw) for draw in count())


def build_pools(
    task: str, sizes: PoolSizes, draws: Callable[[PoolName], Iterator[Problem]]
) -> dict[PoolName, tuple[Problem, ...]]:
    """Disjoint pools of the asked sizes, without duplicates inside a pool either.

    `draws(pool)` is an endless stream of problems made of `pool_seeds`. Raises InputError when the streams hold
    too few distinct problems.
    """
    pools: dict[PoolName, tuple[Problem, ...]] = {}
    seen: set[str] = set()
    for pool, size in sizes.by_name().items():
        problems: list[Problem] = []
        since_news = 0
        for problem in draws(pool):
            since_news += 1
            if problem.content_hash not in seen:
                seen.add(problem.content_hash)
                problems.append(problem)
                since_news = 0
            if len(problems) == size:
                break
            if since_news == DRAWS_WITHOUT_NEWS:
                raise InputError(
                    Trouble(
                        f"task {task} has too few distinct problems: {len(problems):,} of {size:,} found for this "
                        f"pool, {len(seen):,} for all pools together",
                        "smaller pools, or parameters that allow more problems",
                        field=f"task.pool.{pool}",
                    )
                )
        pools[pool] = tuple(problems)
    return pools


def check_disjoint(pools: Mapping[PoolName, Sequence[Problem]]) -> None:
    """Raises InputError naming every two pools that share problems, how many they share, and one of them."""
    by_hash = {name: {problem.content_hash: problem for problem in pool} for name, pool in pools.items()}
    troubles = []
    for (one, of_one), (other, of_other) in combinations(by_hash.items(), 2):
        shared = of_one.keys() & of_other.keys()
        if shared:
            example = " ".join(next(problem.prompt for key, problem in of_one.items() if key in shared).split())
            troubles.append(
                Trouble(
                    f"pools {one} and {other} share {len(shared):,} of {min(len(of_one), len(of_other)):,} problems, "
                    f"e.g. {example[:80]!r}",
                    "seeds further apart than the pools are long, or no seeds, so that duplicates are removed",
                    field="task.pool",
                )
            )
    if troubles:
        raise InputError(troubles)
