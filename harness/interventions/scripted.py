"""The scripted arm: declared costs and a declared gain, for studies whose right answer is known.

With the scripted model, accuracy after u updates is start + (ceiling - start)(1 - exp(-gain * u)), and an
update costs exactly prompts x group_size x (rollout_tokens + continuations x continuation_tokens) tokens. So
whatever winner and flip a study plants here, its tables must recover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.interventions.base import ArmParameters, Conversation, Group, Intervention, Step
from harness.interventions.groups import sample_groups
from harness.rollout.protocol import Request
from harness.seeds import hashed_seed
from harness.study.training import TrainingSpec


class Scripted(Intervention):
    """Every token's advantage is the declared gain, which the scripted policy adds to its skill."""

    SOURCE = "ours: an instrument for tests, not a method"

    class Parameters(ArmParameters):
        """The planted truth of one arm."""

        gain: Annotated[float, Field(ge=0)]
        """Skill gained per update."""
        gain_spread: Annotated[float, Field(ge=0)] = 0.0
        """Standard deviation, over seeds, of the logarithm of the gain."""
        rollout_tokens: Annotated[int, Field(ge=1)] = 10
        """Tokens of each rollout."""
        continuations: Annotated[int, Field(ge=0)] = 0
        """Continuations of each rollout."""
        continuation_tokens: Annotated[int, Field(ge=1)] = 10
        """Tokens of each continuation."""

    parameters: Parameters

    def __init__(self, parameters: Parameters):
        super().__init__(parameters)
        self._gain = parameters.gain

    @classmethod
    def least_update_tokens(cls, parameters: Parameters, training: TrainingSpec) -> int:
        """Exactly what one update takes."""
        per_rollout = parameters.rollout_tokens + parameters.continuations * parameters.continuation_tokens
        return training.prompts_per_update * training.group_size * per_rollout

    def collect(self, step: Step) -> Conversation:
        values = self.parameters
        draw = np.random.default_rng(hashed_seed(step.run_seed, "scripted-gain", values.model_dump_json()))
        self._gain = values.gain * math.exp(values.gain_spread * draw.standard_normal())
        groups = yield from sample_groups(step, replace(step.sampling, max_new_tokens=values.rollout_tokens))
        requests = [
            self._continuation(step, group, rollout.request, index)
            for group in groups
            for rollout in group.rollouts
            for index in range(values.continuations)
        ]
        if requests:
            yield requests
        return groups

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        for group in groups:
            for rollout in group.rollouts:
                rollout.advantage_T = np.full(len(rollout.sample.token_ids), self._gain)

    def _continuation(self, step: Step, group: Group, parent: Request, index: int) -> Request:
        return replace(
            parent,
            purpose="continuation",
            sampling=replace(step.sampling, max_new_tokens=self.parameters.continuation_tokens),
            seed=step.seed("continuation", group.problem_index, group.visit, index, "prompt", parent.index),
            index=index,
        )
