"""The scripted instrument's task: numbered problems, solved when the completion says so.

Nothing is asked of a policy here; `ScriptedPolicy` decides by its declared accuracy and writes the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from harness.tasks.base import PoolName, Problem
from harness.tasks.pools import FILL_ORDER, TaskSpec, content_hash

SOLVED_MARK: Final = "solved"
"""What the scripted engine writes at the end of a completion that solves its problem."""


class ScriptedSpec(TaskSpec):
    """Numbered problems for the scripted model, whose accuracy is a declared function of its updates."""

    REVISION: ClassVar[int] = 1


class ScriptedTask:
    """Pools of consecutive numbers."""

    name = "scripted"

    def __init__(self, spec: ScriptedSpec):
        self.spec = spec
        self._pools: dict[PoolName, tuple[Problem, ...]] = {}
        first = 0
        for pool in FILL_ORDER:
            after = first + getattr(spec.pool, pool)
            prompts = (f"problem {number}" for number in range(first, after))
            self._pools[pool] = tuple(Problem(prompt, SOLVED_MARK, content_hash(prompt)) for prompt in prompts)
            first = after

    def pool(self, name: PoolName) -> Sequence[Problem]:
        """The problems of one pool, in a fixed order."""
        return self._pools[name]

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        """Whether the completion carries the scripted engine's mark."""
        return finished and SOLVED_MARK in completion

    def step_boundaries(self, problem: Problem, pieces: Sequence[str]) -> list[int]:
        """A completion is a single step."""
        return []
