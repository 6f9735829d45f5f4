"""Group relative policy optimisation: a rollout's advantage is its outcome less its group's mean.

Shao et al. 2024 (DeepSeekMath), section 4.1. The division by the group's standard deviation is the study's
`advantage_scale: group-std`, so that arms differ in one thing at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.interventions.base import Conversation, Group, Intervention, Step
from harness.interventions.groups import sample_groups


class GRPO(Intervention):
    """A_t = r - mean(r of the group), the same for every token of a rollout."""

    SOURCE = "Shao et al. 2024 (DeepSeekMath), section 4.1"

    def collect(self, step: Step) -> Conversation:
        return (yield from sample_groups(step))

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        for group in groups:
            mean = group.rewards().mean()
            for rollout in group.rollouts:
                rollout.advantage_T = np.full(len(rollout.sample.token_ids), rollout.reward - mean)
