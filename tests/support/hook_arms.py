"""Arms that use every hook of an intervention: a value head, a penalty, a filter, fixed training values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.compute.flops import scoring_flops
from harness.interventions.base import Conversation, Group, Intervention, LossTerm, Rollout, Step
from harness.interventions.groups import sample_groups
from harness.models.trainable import Trainable
from harness.study.training import TrainingSpec


class ValueHead(Intervention):
    """A_t = R - V(s_t), V a linear head on the policy's last hidden state, trunk detached."""

    def modules(self, policy: Any) -> Mapping[str, Trainable]:
        self._head = Trainable(nn.Linear(policy.module.config.hidden_size, 1), learning_rate=1e-2)
        return {"head": self._head}

    def collect(self, step: Step) -> Conversation:
        return (yield from sample_groups(step))

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        policy: Any = step.policy
        errors = []
        for rollout in (rollout for group in groups for rollout in group.rollouts):
            prompt, tokens = rollout.request.prompt_ids, rollout.sample.token_ids
            with step.work.run("critic", flops=scoring_flops(policy.shape, [len(prompt) + len(tokens)])):
                with torch.no_grad():
                    ids = torch.tensor([[*prompt, *tokens]])
                    states = policy.module(ids, output_hidden_states=True).hidden_states[-1][0, len(prompt) - 1 : -1]
                values_T = self._head.module(states).squeeze(1)
            rollout.advantage_T = rollout.reward - values_T.detach().double().numpy()
            errors.append((values_T - rollout.reward).square().mean())
        self._head.zero_grad()
        with step.work.run("critic", flops=1):
            torch.stack(errors).mean().backward()
            self._head.clip()
            self._head.step()
        step.notes["value_error"] = float(torch.stack(errors).mean().detach())


class Penalised(Intervention):
    """No advantage at all: what is learned comes from a term on the squared log-probabilities."""

    def collect(self, step: Step) -> Conversation:
        return (yield from sample_groups(step))

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        for group in groups:
            for rollout in group.rollouts:
                rollout.advantage_T = np.zeros(len(rollout.sample.token_ids))

    def loss_term(self) -> LossTerm:
        return squared


def squared(rollouts: Sequence[Rollout], logprobs_BT: Tensor, shares_BT: Tensor) -> Tensor:
    return 0.5 * (shares_BT * logprobs_BT.square()).sum()


class Filtered(Intervention):
    """Every second group is dropped, whatever came of it."""

    def collect(self, step: Step) -> Conversation:
        groups = yield from sample_groups(step)
        for group in groups[1::2]:
            step.discard(group)
        return groups[::2]

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        for group in groups:
            for rollout in group.rollouts:
                rollout.advantage_T = np.full(len(rollout.sample.token_ids), 0.1)


class Fixed(Filtered):
    """Its definition wants advantages unscaled."""

    @classmethod
    def configure(cls, parameters: Any, training: TrainingSpec) -> TrainingSpec:
        return training.model_copy(update={"advantage_scale": "none"})


HOOK_ARMS: dict[str, type[Intervention]] = {
    "value-head": ValueHead,
    "penalised": Penalised,
    "filtered": Filtered,
    "fixed": Fixed,
}
