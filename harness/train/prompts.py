"""Which problems an update trains on: a shuffled pass over the training pool, then another.

The order depends on the run seed alone, so that seed i of two arms sees the same prompts; where a run is, is
one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.interventions.base import Draw
from harness.seeds import hashed_seed
from harness.tasks.base import Problem


class PromptStream:
    """Draws problems of a pool without replacement, pass after pass."""

    def __init__(self, pool: Sequence[Problem], run_seed: int, position: int = 0):
        self._pool = pool
        self._run_seed = run_seed
        self._order_of: tuple[int, list[int]] | None = None
        self.position = position
        """Draws made so far: all there is to save."""

    def draw(self, count: int) -> list[Draw]:
        """The next `count` problems; `visit` is the number of earlier passes."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Draw:
        visit, place = divmod(self.position, len(self._pool))
        self.position += 1
        index = self._order(visit)[place]
        return Draw(self._pool[index], index, visit)

    def _order(self, visit: int) -> list[int]:
        if self._order_of is None or self._order_of[0] != visit:
            generator = np.random.default_rng(hashed_seed(self._run_seed, "prompts", visit))
            self._order_of = (visit, generator.permutation(len(self._pool)).tolist())
        return self._order_of[1]
