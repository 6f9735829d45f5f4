"""How one token is drawn from logits: one uniform number per token, by the inverse of the distribution function.

A request's uniforms come from its own seed, in order, so they are the same whatever the batch. Everything is
computed in float64, so that a rounding error of the sum never picks a token of probability zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.rollout.protocol import NotFinite


class Uniforms:
    """u[t] of each row: number t of the Philox stream keyed by the row's 64-bit seed."""

    BLOCK = 256
    """Numbers drawn ahead per row, at most."""

    def __init__(self, seeds: Sequence[int], steps: int):
        self._ahead = min(steps, self.BLOCK)
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._block: NDArray[np.float64] = np.empty((0, len(seeds)))
        self._start = 0

    def at(self, step: int) -> NDArray[np.float64]:
        """The uniforms of all rows at one step, shape (rows,), in [0, 1). Steps are asked for in order."""
        if step >= self._start + len(self._block):
            self._start = step
            self._block = np.stack([stream.random(self._ahead) for stream in self._streams], axis=1)
        uniforms: NDArray[np.float64] = self._block[step - self._start]
        return uniforms


def draw(logits: Tensor, uniforms: Tensor, temperature: float, top_p: float) -> tuple[Tensor, Tensor]:
    """Draws one token per row; returns token ids and their log-probabilities, each (rows,).

    `logits` (rows, vocabulary), `uniforms` (rows,) float64 in [0, 1). The token is the first one, in the order of
    ids, whose cumulative probability exceeds u, so a u on a boundary belongs to the token above it. The
    log-probability is that of the distribution drawn from: after temperature, renormalised over the `top_p` nucleus.
    NotFinite where logits that are not finite leave no distribution.
    Temperature 0 takes the highest logit, the lowest id among equals, with certainty: log-probability 0.
    """
    if temperature == 0:
        chosen = logits.argmax(dim=-1)
        return chosen, torch.zeros(chosen.shape, dtype=torch.float64, device=logits.device)
    logprobs = torch.log_softmax(logits.double() / temperature, dim=-1)
    if top_p < 1:
        logprobs = torch.log_softmax(logprobs.masked_fill(~nucleus(logprobs, top_p), -torch.inf), dim=-1)
    cumulative = logprobs.exp().cumsum(dim=-1)
    # u x total < total holds in floating point for u < 1, so the index below never leaves the vocabulary.
    target = uniforms[:, None] * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, target, right=True)
    if bool((chosen >= logits.shape[-1]).any()):  # only where the sum is not a number
        raise NotFinite("the policy's logits are not finite")
    return chosen[:, 0], logprobs.gather(1, chosen)[:, 0]


def nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    """Mask (rows, vocabulary) of the fewest most probable tokens whose mass reaches `top_p`; lower ids first among
    equals; never empty."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.exp()
    mass_before = probabilities.cumsum(dim=-1) - probabilities
    mass_before[:, 0] = 0
    return torch.zeros_like(logprobs, dtype=torch.bool).scatter(1, order, mass_before < top_p)
