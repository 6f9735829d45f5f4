"""Group relative policy optimisation: a rollout's advantage is its outcome less its group's mean.

Shao et al. 2024 (DeepSeekMath), section 4.1. The division by the group's standard deviation is the study's
`advantage_scale: group-std`, so that arms differ in one thing at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.interventions.base import Conversation, Group, Parameters, Step
from harness.interventions.groups import sample_groups
from harness.study.training import TrainingSpec


class GRPO:
    """A_t = r - mean(r of the group), the same for every token of a rollout."""

    class Parameters(Parameters):
        """None of its own."""

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    @staticmethod
    def least_update_tokens(parameters: Any, training: TrainingSpec) -> int:
        """One token for each rollout."""
        return training.prompts_per_update * training.group_size

    def collect(self, step: Step) -> Conversation:
        return (yield from sample_groups(step))

    def advantages(self, groups: Sequence[Group]) -> None:
        for group in groups:
            mean = group.rewards().mean()
            for rollout in group.rollouts:
                rollout.advantage_T = np.full(len(rollout.sample.token_ids), rollout.reward - mean)

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""
