"""What turns groups into a new policy, in two halves with the milestone barrier between them.

`backward` does an update's whole work but the step; `step` changes the weights. `TorchLearner` trains a
language model, `ScriptedLearner` the scripted instrument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.compute.work import Work
from harness.interventions.base import Group, LossTerm
from harness.models.policy import Policy
from harness.models.scripted import ScriptedPolicy
from harness.study.training import TrainingSpec
from harness.train.advantages import advantage_of
from harness.train.signals import SamplerMismatch


@dataclass(frozen=True)
class Gradient:
    """What `backward` found."""

    loss: float
    grad_norm: float
    """2-norm before clipping."""
    trained_tokens: int
    """Tokens with a weight other than zero."""
    sampler_mismatch: float | None = None
    """See `SamplerMismatch`. None where no token was trained, where the sampler's log-probabilities are of a nucleus
    and not of the whole distribution (top_p below 1), and where the policy has none."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


class Learner(Protocol):
    """Trains one policy."""

    def backward(self, groups: Sequence[Group], work: Work, term: LossTerm | None = None) -> Gradient:
        """The gradient of the policy loss, and of an intervention's `term`."""
        ...

    def step(self, learning_rate: float) -> bool:
        """Changes the weights; whether they are all finite afterwards."""
        ...

    def tensors(self) -> dict[str, Any]:
        """Weights and optimiser state by name: torch tensors for a checkpoint."""
        ...

    def load_tensors(self, tensors: dict[str, Any]) -> None: ...


class TorchLearner:
    """AdamW on the policy-gradient loss of `train/losses.py`."""

    def __init__(self, policy: Any, training: TrainingSpec):
        from harness.models.trainable import Trainable

        self._policy = policy
        self._training = training
        self._trainable = Trainable(
            policy.module, training.learning_rate, training.adam_betas, training.weight_decay, training.max_grad_norm
        )

    def backward(self, groups: Sequence[Group], work: Work, term: LossTerm | None = None) -> Gradient:
        from harness.compute.flops import training_flops
        from harness.train.losses import batch_loss, loss_rows, micro_batches

        module, training = self._policy.module, self._training
        module.train()
        self._trainable.zero_grad()
        loss, trained_tokens = 0.0, 0
        mismatch = SamplerMismatch() if training.top_p == 1 else None
        rows = loss_rows(groups, training)
        for batch in micro_batches(rows, training.micro_batch_tokens, all_rows=term is not None):
            flops = training_flops(self._policy.shape, [row.length for row in batch])
            with work.run("policy_train", flops=flops):
                share = batch_loss(module, batch, training.temperature, term, mismatch)
                share.backward()  # type: ignore[no-untyped-call]
                loss += float(share.detach())
            trained_tokens += sum(sum(weight != 0.0 for weight in row.weights) for row in batch)
        apart = None if mismatch is None else mismatch.mean()
        return Gradient(loss, self._trainable.clip(), trained_tokens, apart)

    def step(self, learning_rate: float) -> bool:
        return self._trainable.step(learning_rate)

    def tensors(self) -> dict[str, Any]:
        return dict(self._trainable.tensors())

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        self._trainable.load_tensors(tensors)


class ScriptedLearner:
    """Adds the mean advantage of an update to the scripted policy's skill."""

    def __init__(self, policy: ScriptedPolicy):
        self._policy = policy
        self._gain = 0.0

    def backward(self, groups: Sequence[Group], work: Work, term: LossTerm | None = None) -> Gradient:
        if term is not None:
            raise ValueError("the scripted policy has no log-probabilities for a loss term")
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        tokens = sum(len(rollout.sample.token_ids) for rollout in rollouts)
        with work.run("policy_train", flops=6 * self._policy.shape.matmul_parameters * tokens):
            self._gain = float(np.mean([advantage_of(rollout).mean() for rollout in rollouts]))
        return Gradient(loss=-self._gain, grad_norm=abs(self._gain), trained_tokens=tokens)

    def step(self, learning_rate: float) -> bool:
        self._policy.skill += self._gain
        return math.isfinite(self._policy.skill)

    def tensors(self) -> dict[str, Any]:
        import torch

        return {"skill": torch.tensor(self._policy.skill, dtype=torch.float64)}

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        self._policy.skill = float(tensors["skill"])


def build_learner(policy: Policy, training: TrainingSpec) -> Learner:
    """The learner that can train this policy."""
    if isinstance(policy, ScriptedPolicy):
        return ScriptedLearner(policy)
    return TorchLearner(policy, training)
