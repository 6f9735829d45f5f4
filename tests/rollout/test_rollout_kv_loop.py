"""The sampling loop against plain forward passes without a cache, alone and in a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from harness.errors import InputError
from harness.rollout.kv_loop import KVLoopEngine
from harness.rollout.protocol import Request, Sample, Sampling
from harness.seeds import hashed_seed

VOCABULARY, STOP_IDS = 26, frozenset({1, 7})
POSITION_BYTES = 2 * 2 * 4 * 8 * 4
"""Keys and values, layers, heads, head size, bytes of a float32."""
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.3,  # far from uniform, so that a wrong position or mask shows
}


def tiny(architecture: str, attention: str = "sdpa") -> nn.Module:
    torch.manual_seed(3)
    if architecture == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=4, attn_implementation=attention))
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, attn_implementation=attention))


def ragged_requests(sampling: Sampling, groups: int = 6, group_size: int = 3) -> list[Request]:
    """Groups with one prompt each, of lengths 1 to 30, and another limit for every request."""
    draws = np.random.default_rng(11)
    requests = []
    for group in range(groups):
        prompt = tuple(draws.integers(0, VOCABULARY, size=1 + (group * 17) % 30).tolist())
        for index in range(group_size):
            limit = sampling.max_new_tokens - (group + index) % 5
            seed = hashed_seed("test", group, index)
            requests.append(
                Request("rollout", prompt, replace(sampling, max_new_tokens=limit), seed, group, 0, index)
            )
    return requests


def without_cache(module: nn.Module, request: Request, sample: Sample) -> torch.Tensor:
    """Log-probabilities of the sampled tokens by one float32 forward pass over the whole sequence."""
    ids = torch.tensor([request.prompt_ids + sample.token_ids])
    with torch.no_grad():
        logits = module.eval()(ids).logits.float() / request.sampling.temperature
    start = len(request.prompt_ids)
    return logits.log_softmax(-1)[0, start - 1 : -1].gather(1, ids[0, start:, None])[:, 0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_a_forward_pass_without_cache(
    architecture: str, attention: str, temperature: float
) -> None:
    module = tiny(architecture, attention)
    requests = ragged_requests(Sampling(40, temperature))
    samples = KVLoopEngine(module, STOP_IDS).generate(requests)
    for request, sample in zip(requests, samples, strict=True):
        assert len(sample.logprobs) == len(sample.token_ids)
        assert (without_cache(module, request, sample) - torch.tensor(sample.logprobs)).abs().max() < 1e-4


@pytest.mark.parametrize("sampling", [Sampling(40), Sampling(40, 0.8, 0.7), Sampling(40, 0.0)])
def test_a_request_gives_the_same_tokens_alone_in_a_batch_and_in_small_batches(sampling: Sampling) -> None:
    module = tiny("qwen2")
    requests = ragged_requests(sampling)
    together = KVLoopEngine(module, STOP_IDS).generate(requests)
    backwards = KVLoopEngine(module, STOP_IDS).generate(requests[::-1])[::-1]
    small = KVLoopEngine(module, STOP_IDS, cache_bytes=100 * POSITION_BYTES).generate(requests)
    alone = [KVLoopEngine(module, STOP_IDS).generate([request])[0] for request in requests]
    for others in (backwards, small, alone):
        assert [sample.token_ids for sample in others] == [sample.token_ids for sample in together]


def test_the_same_batch_gives_identical_bits() -> None:
    module, requests = tiny("llama"), ragged_requests(Sampling(40))
    assert KVLoopEngine(module, STOP_IDS).generate(requests) == KVLoopEngine(module, STOP_IDS).generate(requests)


def test_requests_of_unlike_sampling_share_a_call() -> None:
    module = tiny("qwen2")
    mixed = [
        replace(request, sampling=replace(request.sampling, temperature=(0.0, 1.0, 0.5)[position % 3]))
        for position, request in enumerate(ragged_requests(Sampling(20)))
    ]
    engine = KVLoopEngine(module, STOP_IDS)
    assert [s.token_ids for s in engine.generate(mixed)] == [engine.generate([r])[0].token_ids for r in mixed]


def test_greedy_takes_the_argmax_at_every_step() -> None:
    module = tiny("qwen2")
    for request, sample in zip(
        requests := ragged_requests(Sampling(15, 0.0)), KVLoopEngine(module, STOP_IDS).generate(requests), strict=True
    ):
        ids = torch.tensor([request.prompt_ids + sample.token_ids])
        with torch.no_grad():
            best = module(ids).logits.argmax(-1)[0, len(request.prompt_ids) - 1 : -1]
        assert sample.token_ids == tuple(best.tolist())
        assert set(sample.logprobs) == {0.0}


def test_any_end_token_stops_it_is_kept_and_a_truncated_sample_says_length() -> None:
    requests = ragged_requests(Sampling(40), groups=20)
    samples = KVLoopEngine(tiny("qwen2"), STOP_IDS).generate(requests)
    for request, sample in zip(requests, samples, strict=True):
        *earlier, last = sample.token_ids
        assert not STOP_IDS & set(earlier)
        assert (sample.finish_reason == "stop") == (last in STOP_IDS)
        if sample.finish_reason == "length":
            assert len(sample.token_ids) == request.sampling.max_new_tokens
    assert {sample.token_ids[-1] for sample in samples if sample.finish_reason == "stop"} == STOP_IDS
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}


def test_an_end_token_as_the_last_allowed_one_is_a_stop() -> None:
    module = tiny("qwen2")
    request = next(
        request
        for request in ragged_requests(Sampling(40), groups=20)
        if KVLoopEngine(module, STOP_IDS).generate([request])[0].finish_reason == "stop"
    )
    length = len(KVLoopEngine(module, STOP_IDS).generate([request])[0].token_ids)
    tight = replace(request, sampling=replace(request.sampling, max_new_tokens=length))
    assert KVLoopEngine(module, STOP_IDS).generate([tight])[0].finish_reason == "stop"


def test_the_first_request_with_a_prompt_pays_its_prefill() -> None:
    requests = ragged_requests(Sampling(5), groups=4, group_size=3)
    samples = KVLoopEngine(tiny("qwen2"), STOP_IDS).generate(requests)
    for position, (request, sample) in enumerate(zip(requests, samples, strict=True)):
        assert sample.cached_prefill_tokens == (0 if position % 3 == 0 else len(request.prompt_ids))


def test_prefill_counts_say_what_was_fed_to_the_model() -> None:
    """Also where a memory bound makes two batches prefill the same prompt."""
    module = tiny("qwen2")
    fed = 0

    def count(_: nn.Module, __: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        nonlocal fed
        if kwargs["input_ids"].shape[1] > 1:
            fed += kwargs["input_ids"].numel()

    module.register_forward_pre_hook(count, with_kwargs=True)
    request = Request("rollout", tuple(range(2, 12)), Sampling(10), 5, 0)
    requests = [replace(request, seed=seed) for seed in range(9)]
    for batches, positions in ((1, 180), (3, 60)):  # nine rows of 20 positions each
        fed = 0
        samples = KVLoopEngine(module, STOP_IDS, cache_bytes=positions * POSITION_BYTES).generate(requests)
        assert sum(10 - sample.cached_prefill_tokens for sample in samples) == fed
        assert fed == 10 * batches


def test_many_long_prompts_are_prefilled_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    module, requests = tiny("qwen2"), ragged_requests(Sampling(10))
    expected = [sample.token_ids for sample in KVLoopEngine(module, STOP_IDS).generate(requests)]
    shapes = []
    module.register_forward_pre_hook(lambda _, __, kwargs: shapes.append(kwargs["input_ids"].shape), with_kwargs=True)
    monkeypatch.setattr("harness.rollout.kv_loop.PREFILL_POSITIONS", 50)
    samples = KVLoopEngine(module, STOP_IDS).generate(requests)
    assert [sample.token_ids for sample in samples] == expected
    assert max(rows * columns for rows, columns in shapes if columns > 1) <= 50


def test_finished_rows_leave_the_batch() -> None:
    module = tiny("qwen2")
    fed = 0

    def count(_: nn.Module, __: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        nonlocal fed
        fed += kwargs["input_ids"].numel()

    module.register_forward_pre_hook(count, with_kwargs=True)
    request = Request("rollout", (3,), Sampling(100), 0, 0)
    requests = [replace(request, seed=hashed_seed("leave", row)) for row in range(64)]
    samples = KVLoopEngine(module, STOP_IDS).generate(requests)
    lengths = [len(sample.token_ids) for sample in samples]
    assert max(lengths) > 3 * np.mean(lengths)  # ragged
    needed = sum(lengths) - len(lengths) + 1  # no last token is fed; the shared prompt is, once
    assert needed <= fed < 1.1 * needed


def test_training_mode_and_gradients_are_left_as_they_were() -> None:
    module = tiny("qwen2")
    module.train()
    module.model.layers[0].eval()  # frozen by its owner
    modes = [part.training for part in module.modules()]
    KVLoopEngine(module, STOP_IDS).generate(ragged_requests(Sampling(3), groups=1))
    assert [part.training for part in module.modules()] == modes
    loss = module(torch.ones(1, 4, dtype=torch.long)).logits.sum()
    loss.backward()
    assert torch.is_grad_enabled()


def test_the_engine_samples_from_the_weights_of_the_moment() -> None:
    module, requests = tiny("qwen2"), ragged_requests(Sampling(20))
    engine = KVLoopEngine(module, STOP_IDS)
    engine.generate(requests)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(0.5)
    assert engine.generate(requests) == KVLoopEngine(module, STOP_IDS).generate(requests)


@pytest.mark.parametrize("fault", [{"prompt_ids": ()}, {"sampling": Sampling(0)}])
def test_a_request_for_nothing_is_refused(fault: dict[str, object]) -> None:
    request = replace(Request("rollout", (2, 3), Sampling(4), 1, 0), **fault)
    with pytest.raises(InputError):
        KVLoopEngine(tiny("qwen2"), STOP_IDS).generate([request])


def test_more_positions_than_a_sliding_window_spans_are_refused() -> None:
    module = MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=16))
    engine = KVLoopEngine(module, STOP_IDS)
    fits = Request("rollout", (2,) * 8, Sampling(8), 1, 0)
    sample = engine.generate([fits])[0]
    assert (without_cache(module, fits, sample) - torch.tensor(sample.logprobs)).abs().max() < 1e-4
    with pytest.raises(InputError, match="sliding window spans 16"):
        engine.generate([replace(fits, sampling=Sampling(9))])


def test_no_requests_give_no_samples() -> None:
    assert KVLoopEngine(tiny("qwen2"), STOP_IDS).generate([]) == []
