"""What a task is: finite pools of problems, a verifier with a binary outcome, and step boundaries.

Pools are disjoint by content (tasks/pools.py). A verifier never raises to signal a wrong answer; if it
raises, the trainer counts a verifier error, which is not the same as reward 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

PoolName = Literal["train", "tuning", "confirmatory"]
POOLS: tuple[PoolName, ...] = ("train", "tuning", "confirmatory")


@dataclass(frozen=True)
class Problem:
    """One problem. `prompt` is the text that the policy continues."""

    prompt: str
    answer: str
    content_hash: str
    """SHA-256 (hex) of what makes the problem this problem, white space normalised: the key of disjoint pools."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """Problems, their verifier, and where a completion's steps end."""

    name: str

    def pool(self, name: PoolName) -> Sequence[Problem]:
        """The problems of one pool, in a fixed order."""
        ...

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        """Whether `completion` solves `problem`. `finished`: the end token was drawn (not truncated)."""
        ...

    def step_boundaries(self, problem: Problem, pieces: Sequence[str]) -> list[int]:
        """Where steps end in a completion given as the text of each of its T tokens.

        Returns strictly increasing positions b with 0 < b < T: a step ends before token b. The start (0)
        and the end (T) are not listed; a completion of a single step gives an empty list.
        """
        ...
