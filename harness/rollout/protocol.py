"""What every sampled token passes through: requests in, samples out.

An engine promises: the same uniforms for a request whatever the batch it is sampled in; log-probabilities
of the sampled tokens under the distribution they were drawn from (after temperature and top-p), within
1e-4 of a float32 log-softmax; identical bits for an identical batch and thread count. It leaves metering
to `MeteredEngine` (rollout/metered.py), the only holder of a raw engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.compute.kinds import Kind

FinishReason = Literal["stop", "length", "aborted"]


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. Temperature 0 is greedy decoding."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Request:
    """One completion wanted. Its seed is hashed by whoever asks (science section 4)."""

    purpose: Kind
    """The ledger row that its tokens are charged to."""
    prompt_ids: tuple[int, ...]
    """Prompt, or prompt and the prefix of a completion to be continued."""
    sampling: Sampling
    seed: int
    """64-bit seed of this sample alone."""
    problem: int
    """Index of the problem in its pool: for the record."""
    visit: int = 0
    """How often the problem was visited before, in this run: for the record."""
    index: int = 0
    """Index in the group, or among the continuations of a prefix: for the record."""


@dataclass(frozen=True)
class Sample:
    """What an engine returns for one request."""

    token_ids: tuple[int, ...]
    """Every sampled token, the end token included; never padding, never the prompt."""
    logprobs: tuple[float, ...]
    """Natural log-probability of each token under the distribution it was drawn from."""
    finish_reason: FinishReason
    """`stop`: an end token was drawn; `length`: the token limit was met first."""
    cached_prefill_tokens: int = 0
    """How many of the prompt's tokens were not computed for this request, since another one shared them."""


class NotFinite(Exception):
    """The policy has diverged: its logits are no distribution to sample from, even where its weights are finite."""


class Engine(Protocol):
    """Samples from the policy's current weights."""

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        """One sample per request, in the order of the requests. `NotFinite` where the policy has diverged."""
        ...
