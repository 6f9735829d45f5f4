"""Model FLOPs in closed form, as exact integers, so that totals never depend on the order of summation.

Formulas (docs/method.md, section 2): a token fed through the model costs 2N for its matrix products (one
multiplication and one addition per parameter) plus 4 x layers x attention width x context for attention
(query x key and weights x value, both over the context, the token itself included); a backward pass costs
twice its forward pass. Normalisation, softmax, embedding look-ups and sampling are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harness.compute.kinds import Device

MOST_FLOPS_PER_SECOND: Final[dict[Device, float]] = {"cpu": 1e13, "cuda": 1e17}
"""More than any core and any GPU does: for telling what certainly takes longer, and for nothing else."""


@dataclass(frozen=True)
class ModelShape:
    """What a model's FLOPs are computed from."""

    matmul_parameters: int
    """N: parameters that take part in a matrix product for each token: all but embedding look-ups, output head
    included (once, also when tied)."""
    layers: int
    attention_width: int
    """Query heads x head size: the width that the attention term is proportional to."""


def forward_flops(shape: ModelShape, tokens: int, cached: int = 0) -> int:
    """Forward pass over `tokens` tokens of one sequence, after `cached` tokens whose keys and values are held.

    The token at position i (from 0) attends to i + 1 tokens, so the contexts are cached + 1 ... cached + tokens.
    """
    contexts = tokens * cached + tokens * (tokens + 1) // 2
    return 2 * shape.matmul_parameters * tokens + 4 * shape.layers * shape.attention_width * contexts


def decode_flops(shape: ModelShape, prefix_tokens: int, completion_tokens: int) -> int:
    """Sampling a completion one token at a time after a prefix that was prefilled.

    The first token is drawn from the prefill's last logits and the last one is never fed back, so T tokens
    take T - 1 forward passes: prefill and decode together feed each token once.
    """
    return forward_flops(shape, max(0, completion_tokens - 1), prefix_tokens)


def scoring_flops(shape: ModelShape, lengths: Iterable[int]) -> int:
    """A forward pass over whole sequences; `lengths` are the tokens fed of each, padding left out."""
    return sum(forward_flops(shape, length) for length in lengths)


def training_flops(shape: ModelShape, lengths: Iterable[int]) -> int:
    """Forward and backward over whole sequences: three forward passes; `lengths` as in `scoring_flops`."""
    return 3 * scoring_flops(shape, lengths)
