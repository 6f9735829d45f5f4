"""Predictions by a small value model of the prompt, trained on what the run has seen of other prompts.

Two layers on the policy's hidden state at the prompt's last token, the policy itself untouched. Its work, the pass
over all candidates' prompts included, is charged as `probe`: it is done to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from harness.compute.flops import scoring_flops
from harness.errors import InputError
from harness.interventions.base import Draw, Group, Step
from harness.interventions.selection.base import Prediction, SelectionParameters, Selector
from harness.models.policy import Policy

if TYPE_CHECKING:
    from torch import Tensor

    from harness.models.trainable import Trainable


class SelectModel(Selector):
    """Keeps the prompts whose success a small model of the prompt predicts nearest one half."""

    KINDS = ("probe",)
    SOURCE = "ours: a value model of the prompt"

    class Parameters(SelectionParameters):
        """Of the value model."""

        hidden: Annotated[int, Field(ge=1)] = 64
        """Width of its hidden layer."""
        learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-3
        """AdamW's; one step on each update's groups."""

    parameters: Parameters

    def modules(self, policy: Policy) -> Mapping[str, Trainable]:
        module = getattr(policy, "module", None)
        if module is None:
            raise InputError("select-model reads hidden states, and the scripted policy has none", "another selector")
        from torch import nn

        from harness.models.trainable import Trainable

        width = module.config.get_text_config().hidden_size
        layers = nn.Sequential(
            nn.Linear(width, self.parameters.hidden), nn.GELU(), nn.Linear(self.parameters.hidden, 1)
        )
        self._model = Trainable(layers.to(next(module.parameters()).device), self.parameters.learning_rate)
        return {"prompt-value": self._model}

    def predict(self, step: Step, candidates: Sequence[Draw]) -> Prediction:
        import torch

        self._states = _prompt_states(step, candidates)
        keys = [(draw.index, draw.visit) for draw in candidates]
        with step.work.run("probe", flops=self._flops(len(keys))), torch.no_grad():
            logits_C = self._model.module(torch.stack([self._states[key] for key in keys])).squeeze(1)
            return np.asarray(torch.sigmoid(logits_C).double().cpu().numpy())
        yield  # it needs no sample; a generator all the same

    def observe(self, groups: Sequence[Group], step: Step) -> None:
        import torch

        states_GD = torch.stack([self._states[group.problem_index, group.visit] for group in groups])
        rates_G = torch.tensor([group.rewards().mean() for group in groups], dtype=torch.float32)
        self._model.zero_grad()
        with step.work.run("probe", flops=3 * self._flops(len(groups))):
            logits_G = self._model.module(states_GD).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits_G, rates_G.to(logits_G.device))
            loss.backward()  # type: ignore[no-untyped-call]
            self._model.clip()
            self._model.step()
        step.notes["prompt_value_loss"] = float(loss.detach())

    def _flops(self, prompts: int) -> int:
        """Of a forward pass of the value model alone."""
        return 2 * prompts * sum(p.numel() for p in self._model.module.parameters() if p.ndim == 2)


def _prompt_states(step: Step, draws: Sequence[Draw]) -> dict[tuple[int, int], Tensor]:
    """(problem index, visit) -> the policy's last hidden state at the prompt's last token, shape (D,), float32.

    Prompts of one length are one batch, so that nothing is padded.
    """
    import torch

    policy: Any = step.policy
    prompts = {(draw.index, draw.visit): policy.encode(draw.problem.prompt) for draw in draws}
    device = next(policy.module.parameters()).device
    found: dict[tuple[int, int], Tensor] = {}
    for length in sorted({len(ids) for ids in prompts.values()}):
        keys = [key for key, ids in prompts.items() if len(ids) == length]
        with step.work.run("probe", flops=scoring_flops(policy.shape, [length] * len(keys))), torch.no_grad():
            ids_CP = torch.tensor([prompts[key] for key in keys], device=device)
            states_CPD = policy.module.base_model(input_ids=ids_CP, use_cache=False).last_hidden_state
            found |= dict(zip(keys, states_CPD[:, -1].float(), strict=True))
    return found
