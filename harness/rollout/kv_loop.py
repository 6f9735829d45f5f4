"""Our own batched sampling loop over any causal language model of transformers with a key-value cache.

It promises what rollout/protocol.py asks of an engine. Equal prompts are prefilled once and shared; finished
rows leave the batch; ragged prompts are padded on the left. It leaves metering to rollout/metered.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.rollout.cache import GrowingCache, left_padding_mask, position_bytes
from harness.rollout.draw import Uniforms, draw
from harness.rollout.protocol import FinishReason, Request, Sample

LEAST_CACHE_BYTES = 2**28
"""Memory that a batch's cache may take, or the weights' own size where that is more."""
PREFILL_POSITIONS = 32_768
"""Prompts of a batch x the longest one's length, at most: bounds activations and the mask of ragged prompts."""
COMPACT_SHARE = 1 / 8
"""Finished rows are dropped once they are this share of the batch: dropping copies the cache, keeping computes."""


class KVLoopEngine:
    """Samples from the weights that `module` holds at each call.

    `stop_ids`: every id that ends a completion. `cache_bytes`: memory bound of a batch, rows x (longest prompt +
    longest completion) positions; requests beyond it are sampled in several batches, the same ones for the same
    requests. None: LEAST_CACHE_BYTES or more.
    """

    def __init__(self, module: nn.Module, stop_ids: Collection[int], cache_bytes: int | None = None):
        self._module = module
        config = module.config.get_text_config()  # type: ignore[union-attr, operator]
        self._layers = int(config.num_hidden_layers)
        self._window = _attention_window(config)
        parameters = inspect.signature(module.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"  # renamed in 5.24
        weights = list(module.parameters())
        self._dtype = weights[0].dtype
        if cache_bytes is None:
            cache_bytes = max(LEAST_CACHE_BYTES, sum(weight.nbytes for weight in weights))
        self._batch_positions = cache_bytes // position_bytes(config, self._dtype)
        self._is_stop = torch.zeros(config.vocab_size, dtype=torch.bool)
        self._is_stop[[token for token in stop_ids if token < config.vocab_size]] = True

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        """One sample per request, in the order of the requests.

        InputError for an empty prompt or for more positions than a sliding window spans.
        """
        self._check(requests)
        samples: list[Sample | None] = [None] * len(requests)
        with torch.inference_mode(), _evaluation_mode(self._module):
            for batch in _batches(requests, self._batch_positions):
                for position, sample in zip(batch, self._sample([requests[i] for i in batch]), strict=True):
                    samples[position] = sample
        return [sample for sample in samples if sample is not None]

    def _check(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if not request.prompt_ids or request.sampling.max_new_tokens < 1:
                raise InputError("nothing to sample from or to", "give a prompt and at least one new token")
            positions = len(request.prompt_ids) + request.sampling.max_new_tokens
            if positions > self._window:
                raise InputError(
                    f"prompt and completion take {positions} positions, the sliding window spans {self._window}",
                    "lower max_new_tokens, or use a model with full attention",
                )

    def _sample(self, requests: Sequence[Request]) -> list[Sample]:
        """Samples one batch of requests with equal temperature and top-p."""
        device = next(self._module.parameters()).device
        prompts = list(dict.fromkeys(request.prompt_ids for request in requests))
        place = {prompt: row for row, prompt in enumerate(prompts)}
        sampling = requests[0].sampling
        limits = torch.tensor([request.sampling.max_new_tokens for request in requests], device=device)
        longest, shortest = int(limits.max()), int(limits.min())
        cache = GrowingCache(self._layers, most_columns=max(map(len, prompts)) + longest)
        logits, padding = self._prefill(prompts, cache, device)

        uniforms = Uniforms([request.seed for request in requests], longest)
        is_stop = self._is_stop.to(device)
        tokens_TR = torch.zeros(longest, len(requests), dtype=torch.long, device=device)
        logprobs_TR = torch.zeros(longest, len(requests), dtype=torch.float64, device=device)

        rows = torch.arange(len(requests), device=device)
        shared = torch.tensor([place[request.prompt_ids] for request in requests], device=device)
        cache.take(shared)
        logits, padding = logits[shared], padding[shared]
        columns = cache.get_seq_length()
        done = torch.zeros(len(requests), dtype=torch.bool, device=device)
        mask = self._mask(padding, columns + longest)
        for step in range(longest):
            u = torch.from_numpy(uniforms.at(step)).to(device)
            tokens, logprobs = draw(logits, u[rows], sampling.temperature, sampling.top_p)
            tokens_TR[step, rows] = tokens
            logprobs_TR[step, rows] = logprobs
            done |= is_stop[tokens]
            if step + 1 >= shortest:
                done |= limits[rows] <= step + 1
            finished = int(done.count_nonzero())
            if finished == len(rows):
                break
            if finished >= max(1, COMPACT_SHARE * len(rows)):
                kept = (~done).nonzero()[:, 0]
                rows, tokens, padding, done = rows[kept], tokens[kept], padding[kept], done[kept]
                unused = int(padding.min())
                cache.take(kept, first_column=unused)
                padding, columns = padding - unused, columns - unused
                mask = self._mask(padding, columns + longest)
            columns += 1
            positions = columns - 1 - padding[:, None]
            logits = self._forward(tokens[:, None], positions, None if mask is None else mask[..., :columns], cache)
        return _samples(requests, tokens_TR, logprobs_TR, is_stop)

    def _prefill(
        self, prompts: Sequence[tuple[int, ...]], cache: GrowingCache, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Fills the cache; returns the last logits (prompts, vocabulary) and the left padding (prompts,)."""
        width = max(map(len, prompts))
        padding = torch.tensor([width - len(prompt) for prompt in prompts], device=device)
        ids = torch.tensor([(0,) * (width - len(prompt)) + prompt for prompt in prompts], device=device)
        positions = (torch.arange(width, device=device) - padding[:, None]).clamp_(min=0)
        mask = self._mask(padding, width)
        if mask is not None:
            later = torch.ones(width, width, dtype=torch.bool, device=device).triu_(diagonal=1)
            mask = mask.expand(-1, -1, width, -1).masked_fill(later, torch.finfo(mask.dtype).min)
        return self._forward(ids, positions, mask, cache), padding

    def _mask(self, padding: Tensor, columns: int) -> Tensor | None:
        """None where nothing is padded: then the model's own causal rule is enough."""
        if not bool(padding.any()):
            return None
        return left_padding_mask(padding, columns, self._dtype)

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: GrowingCache) -> Tensor:
        """Logits after the last column of `ids`, (rows, vocabulary)."""
        output = self._module(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: cache},
        )
        logits: Tensor = output.logits[:, -1]
        return logits


def _attention_window(config: object) -> float:
    """Positions up to which every layer attends to all of them. InputError for layers without such a cache."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if unknown := kinds - {"full_attention", "sliding_attention"}:
        raise InputError(
            f"the model has layers of kind {', '.join(sorted(unknown))}", "use a model with attention layers"
        )
    window = getattr(config, "sliding_window", None)
    return window if window and ("sliding_attention" in kinds or not hasattr(config, "layer_types")) else float("inf")


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Without dropout inside; every part's training flag is put back afterwards."""
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in flags:
            part.training = training


def _batches(requests: Sequence[Request], most_positions: int) -> Iterator[list[int]]:
    """Positions of the requests, in batches of equal temperature and top-p, equal prompts side by side."""

    def order(position: int) -> tuple[float, float, int, tuple[int, ...]]:
        request = requests[position]
        return (request.sampling.temperature, request.sampling.top_p, len(request.prompt_ids), request.prompt_ids)

    batch: list[int] = []
    prompts = longest = 0
    for position in sorted(range(len(requests)), key=order):
        width, limit = len(requests[position].prompt_ids), requests[position].sampling.max_new_tokens
        if batch:
            before, now = order(batch[-1]), order(position)
            prompts, longest = prompts + (before != now), max(longest, limit)
            rows_full = (len(batch) + 1) * (width + longest) > most_positions
            if before[:2] != now[:2] or rows_full or prompts * width > PREFILL_POSITIONS:
                yield batch
                batch = []
        if not batch:
            prompts, longest = 1, limit
        batch.append(position)
    if batch:
        yield batch


def _samples(requests: Sequence[Request], tokens_TR: Tensor, logprobs_TR: Tensor, is_stop: Tensor) -> list[Sample]:
    """Cuts each column at its first end token or at its limit; the first request of a prompt pays its prefill."""
    stops_RT = is_stop[tokens_TR].T.cpu().numpy()
    tokens_RT, logprobs_RT = tokens_TR.T.tolist(), logprobs_TR.T.tolist()
    seen: set[tuple[int, ...]] = set()
    samples = []
    for request, stops, tokens, logprobs in zip(requests, stops_RT, tokens_RT, logprobs_RT, strict=True):
        limit = request.sampling.max_new_tokens
        stop = int(stops[:limit].argmax())
        stopped = bool(stops[stop])
        length = stop + 1 if stopped else limit
        cached = len(request.prompt_ids) if request.prompt_ids in seen else 0
        seen.add(request.prompt_ids)
        reason: FinishReason = "stop" if stopped else "length"
        samples.append(Sample(tuple(tokens[:length]), tuple(logprobs[:length]), reason, cached))
    return samples
