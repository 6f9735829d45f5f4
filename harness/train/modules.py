"""What an intervention trains beside the policy: made from the run's seed, and kept in the run's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harness.interventions.base import Intervention
from harness.models.policy import Policy
from harness.seeds import hashed_seed

if TYPE_CHECKING:
    from harness.models.trainable import Trainable

_PREFIX: Final = "intervention."


def build_modules(intervention: Intervention, policy: Policy, run_seed: int) -> dict[str, Trainable]:
    """The intervention's modules by name, their initial weights drawn under a named seed."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(hashed_seed(run_seed, "modules"))
        return dict(intervention.modules(policy))


def tensors_of(modules: Mapping[str, Trainable]) -> dict[str, Any]:
    """All weights and optimiser states, for a checkpoint."""
    return {
        f"{_PREFIX}{name}.{key}": tensor
        for name, module in modules.items()
        for key, tensor in module.tensors().items()
    }


def load_tensors(modules: Mapping[str, Trainable], tensors: Mapping[str, Any]) -> None:
    """Takes over what `tensors_of` gave."""
    for name, module in modules.items():
        start = f"{_PREFIX}{name}."
        module.load_tensors(
            {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
        )
