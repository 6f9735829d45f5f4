"""The scripted instrument: a policy whose accuracy is a declared function of its updates.

It stands where a language model would, so that a whole sweep (cells, processes, events, store, tables) can be
run against a known truth, and in milliseconds. Its skill grows by the mean advantage of each update; a sample
solves its problem with probability `accuracy()`, decided by the sample's own seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from harness.compute.kinds import Device
from harness.models.presets import PRESETS, BuiltPolicy
from harness.rollout.protocol import Request, Sample
from harness.seeds import hashed_seed
from harness.tasks.base import Task
from harness.tasks.scripted import SOLVED_MARK

FILLER, SOLVED, FAILED = 1, 2, 3
"""Token ids: any step of a completion, and the two ends."""

START, CEILING = 0.2, 0.9
"""Accuracy before training, and what it approaches."""


def planted_accuracy(skill: float) -> float:
    """The declared truth: START + (CEILING - START)(1 - exp(-skill))."""
    return START + (CEILING - START) * (1.0 - math.exp(-skill))


class ScriptedPolicy:
    """A policy of one number, its skill."""

    stop_ids = frozenset({SOLVED, FAILED})
    shape = PRESETS["scripted"].shape
    device = "cpu"

    def __init__(self, skill: float = 0.0):
        self.skill = skill

    def accuracy(self) -> float:
        """Probability that a sample solves its problem now."""
        return planted_accuracy(self.skill)

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(100 + byte for byte in prompt.encode())

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return [{FILLER: ".", SOLVED: SOLVED_MARK, FAILED: "failed"}[token] for token in token_ids]

    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(self)


class ScriptedEngine:
    """Completions of exactly `max_new_tokens` tokens, the last of which says whether the problem is solved."""

    def __init__(self, policy: ScriptedPolicy):
        self._policy = policy

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        accuracy = self._policy.accuracy()
        seen: set[tuple[int, ...]] = set()
        samples = []
        for request in requests:
            solved = hashed_seed(request.seed, "solves") / 2**64 < accuracy
            length = request.sampling.max_new_tokens
            tokens = (FILLER,) * (length - 1) + (SOLVED if solved else FAILED,)
            logprob = math.log(accuracy if solved else 1.0 - accuracy)
            cached = len(request.prompt_ids) if request.prompt_ids in seen else 0
            seen.add(request.prompt_ids)
            samples.append(Sample(tokens, (0.0,) * (length - 1) + (logprob,), "stop", cached))
        return samples


def build(task: Task, cache: Path, device: Device = "cpu") -> BuiltPolicy:
    """The preset `scripted`. It has no warm start, so nothing is cached; it computes nothing, on any device."""
    return BuiltPolicy(ScriptedPolicy())
