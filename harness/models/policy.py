"""What the trainer trains and the engine samples from, whatever stands behind it.

`TorchPolicy` (models/torch_policy.py) is a causal language model of transformers with its tokenizer;
`ScriptedPolicy` (models/scripted.py) is the instrument whose accuracy is a declared function of its updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.compute.flops import ModelShape
from harness.rollout.protocol import Engine

__all__ = ["ModelShape", "Policy"]


class Policy(Protocol):
    """A policy: text to ids and back, an engine over its current weights, its shape and its device."""

    stop_ids: frozenset[int]
    shape: ModelShape
    device: str
    """`cpu`, `cuda:NVIDIA H200`, ...: hours are comparable only on one of them."""

    def encode(self, prompt: str) -> tuple[int, ...]: ...

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, special tokens as the empty string; joined, the completion's text."""
        ...

    def engine(self) -> Engine:
        """A raw engine over the weights in memory; to be given to `MeteredEngine` only."""
        ...
