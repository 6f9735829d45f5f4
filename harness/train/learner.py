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
from harness.interventions.base import Group
from harness.models.policy import Policy
from harness.models.scripted import ScriptedPolicy
from harness.study.training import TrainingSpec
from harness.train.advantages import advantage_of


@dataclass(frozen=True)
class Gradient:
    """What `backward` found."""

    loss: float
    grad_norm: float
    """2-norm before clipping."""
    trained_tokens: int
    """Tokens with a weight other than zero."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


class Learner(Protocol):
    """Trains one policy."""

    def backward(self, groups: Sequence[Group], work: Work) -> Gradient: ...

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
        import torch

        self._policy = policy
        self._training = training
        self._named = [(name, p) for name, p in policy.module.named_parameters() if p.requires_grad]
        self._optimiser = torch.optim.AdamW(
            [p for _, p in self._named],
            lr=training.learning_rate,
            betas=training.adam_betas,
            weight_decay=training.weight_decay,
        )

    def backward(self, groups: Sequence[Group], work: Work) -> Gradient:
        import torch

        from harness.compute.flops import training_flops
        from harness.train.losses import batch_loss, loss_rows, micro_batches

        module = self._policy.module
        module.train()
        self._optimiser.zero_grad(set_to_none=False)
        loss, trained_tokens = 0.0, 0
        for rows in micro_batches(loss_rows(groups, self._training), self._training.micro_batch_tokens):
            flops = training_flops(self._policy.shape, [row.length for row in rows])
            with work.run("policy_train", flops=flops):
                share = batch_loss(module, rows, self._training.temperature)
                share.backward()  # type: ignore[no-untyped-call]
                loss += float(share.detach())
            trained_tokens += sum(sum(weight != 0.0 for weight in row.weights) for row in rows)
        for _, parameter in self._named:  # the first update may have had nothing to learn from
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in self._named], self._training.max_grad_norm)
        return Gradient(loss, float(norm), trained_tokens)

    def step(self, learning_rate: float) -> bool:
        import torch

        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._optimiser.step()
        return all(bool(torch.isfinite(p).all()) for _, p in self._named)

    def tensors(self) -> dict[str, Any]:
        kept = {f"model.{name}": p.detach() for name, p in self._named}
        for name, parameter in self._named:
            for key, value in self._optimiser.state.get(parameter, {}).items():
                kept[f"optimiser.{key}.{name}"] = value
        return kept

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, parameter in self._named:
                parameter.copy_(tensors[f"model.{name}"])
        for name, parameter in self._named:
            state = {
                key: tensors[f"optimiser.{key}.{name}"]
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"optimiser.{key}.{name}" in tensors
            }
            if state:
                self._optimiser.state[parameter] = {key: value.clone() for key, value in state.items()}


class ScriptedLearner:
    """Adds the mean advantage of an update to the scripted policy's skill."""

    def __init__(self, policy: ScriptedPolicy):
        self._policy = policy
        self._gain = 0.0

    def backward(self, groups: Sequence[Group], work: Work) -> Gradient:
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
