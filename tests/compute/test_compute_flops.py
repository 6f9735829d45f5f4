"""FLOPs against sums over single tokens, and against what torch counts."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from harness.compute.flops import ModelShape, decode_flops, forward_flops, scoring_flops, training_flops
from harness.models.torch_policy import model_shape

SHAPE = ModelShape(matmul_parameters=1_000, layers=3, attention_width=16)


def one_token(context: int) -> int:
    """Two FLOPs per parameter; per layer, two per element of a (width x context) product, twice."""
    return 2 * 1_000 + 3 * 2 * (2 * 16 * context)


@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (7, 0), (1, 12), (5, 40), (0, 9)])
def test_a_forward_pass_is_the_sum_over_its_tokens(tokens: int, cached: int) -> None:
    assert forward_flops(SHAPE, tokens, cached) == sum(one_token(cached + i + 1) for i in range(tokens))


@pytest.mark.parametrize(("prefix", "completion"), [(1, 1), (10, 6), (512, 64)])
def test_prefill_and_decode_feed_each_token_but_the_last_once(prefix: int, completion: int) -> None:
    together = forward_flops(SHAPE, prefix) + decode_flops(SHAPE, prefix, completion)
    assert together == sum(one_token(position + 1) for position in range(prefix + completion - 1))


def test_an_aborted_completion_without_tokens_costs_no_decoding() -> None:
    assert decode_flops(SHAPE, 10, 0) == 0


def test_a_cached_prefix_is_work_saved_and_nothing_else() -> None:
    assert forward_flops(SHAPE, 30) == forward_flops(SHAPE, 12) + forward_flops(SHAPE, 18, cached=12)


def test_training_is_three_forward_passes_over_each_sequence() -> None:
    lengths = [3, 9, 9]
    assert scoring_flops(SHAPE, lengths) == sum(one_token(i + 1) for length in lengths for i in range(length))
    assert training_flops(SHAPE, lengths) == 3 * scoring_flops(SHAPE, lengths)


def test_the_formula_agrees_with_torch_s_count_on_a_real_model() -> None:
    """torch counts the full square of attention, causal or not: T^2 contexts instead of T(T+1)/2."""
    config = LlamaConfig(
        vocab_size=31,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        attn_implementation="eager",
    )
    module = LlamaForCausalLM(config)
    shape, tokens = model_shape(module), 10
    with FlopCounterMode(display=False) as counter:
        module(torch.ones(1, tokens, dtype=torch.long))
    square = 4 * shape.layers * shape.attention_width * tokens * tokens
    triangle = 4 * shape.layers * shape.attention_width * tokens * (tokens + 1) // 2
    assert forward_flops(shape, tokens) == counter.get_total_flops() - square + triangle
