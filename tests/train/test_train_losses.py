"""The loss against its definition, and gradients that do not depend on how a batch is cut (case M12)."""

import numpy as np
import pytest
import torch
from support.hook_arms import squared
from test_train_advantages import group
from transformers import Qwen2Config, Qwen2ForCausalLM

from harness.interventions.base import Rollout
from harness.rollout.protocol import Request, Sample, Sampling
from harness.study.training import TrainingSpec
from harness.train.losses import Row, batch_loss, loss_rows, micro_batches, token_logprobs


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=17, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).float()


def row(prompt_ids, token_ids, weights) -> Row:
    request = Request("rollout", tuple(prompt_ids), Sampling(16), 0, 0)
    sample = Sample(tuple(token_ids), (0.0,) * len(token_ids), "stop")
    return Row(Rollout(request, sample, "", 0.0), tuple(weights), 0.1)


def ragged_rows(count: int = 9) -> list[Row]:
    draw = np.random.default_rng(5)
    rows = []
    for _ in range(count):
        prompt, completion = int(draw.integers(1, 7)), int(draw.integers(1, 9))
        rows.append(
            row(
                draw.integers(1, 17, prompt).tolist(),
                draw.integers(1, 17, completion).tolist(),
                draw.normal(size=completion).tolist(),
            )
        )
    return rows


def gradient(module, batches, term=None) -> torch.Tensor:
    module.zero_grad()
    for rows in batches:
        batch_loss(module, rows, 1.0, term).backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def test_log_probabilities_equal_those_of_each_sequence_alone_without_padding(module):
    rows = ragged_rows()
    together = token_logprobs(module, rows, temperature=0.7)
    for i, row in enumerate(rows):
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logits = module(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1] / 0.7
        alone = logits.log_softmax(-1).gather(1, torch.tensor(row.token_ids)[:, None]).squeeze(1)
        torch.testing.assert_close(together[i, : len(row.token_ids)], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("term", [None, squared])
@pytest.mark.parametrize("tokens", [1, 20, 40, 10_000])
def test_the_gradient_does_not_depend_on_micro_batches_order_or_padding(module, tokens, term):
    rows = ragged_rows()
    alone = gradient(module, [[row] for row in rows], term)
    cut = gradient(module, micro_batches(list(reversed(rows)), tokens, all_rows=term is not None), term)
    assert float((cut - alone).norm() / alone.norm()) < 1e-5


def test_a_loss_term_adds_its_own_gradient(module):
    """That of 0.5 x share x log pi squared, by hand, with the share of every row 0.1."""
    rows = ragged_rows()
    found = gradient(module, [rows], squared) - gradient(module, [rows])
    module.zero_grad()
    for row in rows:
        (0.05 * token_logprobs(module, [row], 1.0).square().sum()).backward()
    by_hand = torch.cat([p.grad.flatten() for p in module.parameters()])
    assert float((found - by_hand).norm() / by_hand.norm()) < 1e-4


def test_micro_batches_hold_every_weighted_row_within_the_limit():
    rows = ragged_rows(30)
    silent = row((1, 2), (3,), (0.0,))
    batches = micro_batches([*rows, silent], 40)
    flat = [found for batch in batches for found in batch]
    assert len(flat) == len(rows) and all(row in flat for row in rows)
    assert sum(map(len, micro_batches([*rows, silent], 40, all_rows=True))) == len(rows) + 1
    for batch in batches:
        width = max(len(r.prompt_ids) for r in batch) + max(len(r.token_ids) for r in batch)
        assert len(batch) == 1 or len(batch) * width <= 40


@pytest.mark.parametrize(
    ("denominator", "expected"),
    [
        ("token-mean", [1 / 6, 1 / 6, 1 / 6, 1 / 6, -1 / 6, -1 / 6]),
        ("sequence-mean", [1 / 8] * 4 + [-1 / 4] * 2),
        ("constant", [1 / 20] * 4 + [-1 / 20] * 2),
    ],
)
def test_loss_denominators_follow_their_definitions(denominator, expected):
    groups = [group(1.0, 0.0, lengths=(4, 2))]
    for rollout, value in zip(groups[0].rollouts, (1.0, -1.0), strict=True):
        rollout.advantage_T = np.full(len(rollout.sample.token_ids), value)
    rows = loss_rows(groups, TrainingSpec(loss_denominator=denominator, max_new_tokens=10))
    assert np.concatenate([row.weights for row in rows]) == pytest.approx(expected)


def test_truncated_rollouts_are_masked_only_when_declared():
    groups = [group(1.0, 0.0)]
    for rollout in groups[0].rollouts:
        rollout.advantage_T = np.ones(2)
    cut = groups[0].rollouts[0]
    cut.sample = type(cut.sample)(cut.sample.token_ids, cut.sample.logprobs, "length")
    assert len(loss_rows(groups, TrainingSpec(mask_truncated=False))) == 2
    assert len(loss_rows(groups, TrainingSpec(mask_truncated=True))) == 1


def test_a_constant_denominator_does_not_depend_on_what_is_masked():
    groups = [group(1.0, 0.0)]
    for rollout in groups[0].rollouts:
        rollout.advantage_T = np.ones(2)
    cut = groups[0].rollouts[0]
    cut.sample = type(cut.sample)(cut.sample.token_ids, cut.sample.logprobs, "length")
    (row,) = loss_rows(groups, TrainingSpec(loss_denominator="constant", mask_truncated=True, max_new_tokens=10))
    assert row.weights == pytest.approx([1 / 20, 1 / 20])
