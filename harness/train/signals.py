"""Signals of a run's health that an update tells: entropy of the policy, distance of sampler and trainer.

Both come from log-probabilities that are there anyway, so they cost no pass through the model. What a study makes of
them is left to analysis/health.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.rollout.protocol import Sample

if TYPE_CHECKING:
    from torch import Tensor


def entropy(samples: Iterable[Sample]) -> float | None:
    """Nats per token: minus the mean log-probability of the sampled tokens; None where there are none.

    The Monte Carlo estimate of the mean entropy, over the positions visited, of the distribution that tokens were
    drawn from, after temperature and top-p: E[-log p(y)] = H(p) for y drawn from p.
    """
    surprises = [-logprob for sample in samples for logprob in sample.logprobs]
    return math.fsum(surprises) / len(surprises) if surprises else None


class SamplerMismatch:
    """Mean |log p of the sampler - log p of the trainer| in nats, over an update's trained tokens.

    Above rounding, rollouts were not drawn from the policy that they train: other weights, another precision, a fault
    in either. Gathered over micro-batches, each token with the same weight.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._tokens: list[Tensor] = []

    def add(self, sampler_BT: Tensor, trainer_BT: Tensor, trained_BT: Tensor) -> None:
        """A micro-batch: log-probabilities of both, shape (B, T), and which of the tokens are trained (bool)."""
        apart_BT = (sampler_BT.double() - trainer_BT.detach().double()).abs()
        self._sums.append(apart_BT.masked_fill(~trained_BT, 0.0).sum())
        self._tokens.append(trained_BT.sum())

    def mean(self) -> float | None:
        """None where no token was trained."""
        tokens = sum(int(count) for count in self._tokens)
        return math.fsum(map(float, self._sums)) / tokens if tokens else None
