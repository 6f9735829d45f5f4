"""A torch module with its own optimiser: trained, clipped, stepped and kept in a checkpoint together.

The policy is one (train/learner.py); value heads and critics of interventions are others. Passes through a module
are metered by whoever makes them (compute/work.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Trainable:
    """`module` under AdamW (Loshchilov & Hutter 2019). Frozen parameters are neither trained nor kept."""

    def __init__(
        self,
        module: nn.Module,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
    ):
        self.module = module
        self._named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self._max_grad_norm = max_grad_norm
        self._optimiser = torch.optim.AdamW(
            [p for _, p in self._named], lr=learning_rate, betas=betas, weight_decay=weight_decay
        )

    def zero_grad(self) -> None:
        """Forgets gradients."""
        self._optimiser.zero_grad(set_to_none=False)

    def clip(self) -> float:
        """Clips the gradient to `max_grad_norm`; returns its 2-norm before. A missing gradient counts as zero."""
        for _, parameter in self._named:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return float(nn.utils.clip_grad_norm_([p for _, p in self._named], self._max_grad_norm))

    def step(self, learning_rate: float | None = None) -> bool:
        """One optimiser step, at another learning rate from now on where given; whether all weights are finite."""
        if learning_rate is not None:
            for group in self._optimiser.param_groups:
                group["lr"] = learning_rate
        self._optimiser.step()
        return all(bool(torch.isfinite(p).all()) for _, p in self._named)

    def tensors(self) -> dict[str, Tensor]:
        """Weights, and the optimiser's moments and step counts, by name."""
        kept = {f"model.{name}": p.detach() for name, p in self._named}
        for name, parameter in self._named:
            for key, value in self._optimiser.state.get(parameter, {}).items():
                kept[f"optimiser.{key}.{name}"] = value
        return kept

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `tensors` gave."""
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
                self._optimiser.state[parameter] = {
                    # AdamW counts its steps on the CPU, wherever the moments are
                    key: value.clone() if key == "step" else value.to(parameter.device, copy=True)
                    for key, value in state.items()
                }
