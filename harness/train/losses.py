"""The policy-gradient loss of one update: strictly on policy, so the ratio is 1 and nothing is clipped.

    L = - sum over trained tokens of A_t log pi(y_t | y_<t, x) / D

D is the study's `loss_denominator`; an intervention may add a term. Log-probabilities are of the sampling
temperature's distribution. Top-p's truncation is not differentiated, as is common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.interventions.base import Group, LossTerm, Rollout
from harness.study.training import TrainingSpec
from harness.train.advantages import advantage_of, trained_rollouts
from harness.train.signals import SamplerMismatch


@dataclass(frozen=True)
class Row:
    """One rollout as the loss sees it."""

    rollout: Rollout
    weights: tuple[float, ...]
    """A_t / D of each token."""
    share: float
    """1 / D."""

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.rollout.request.prompt_ids

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.rollout.sample.token_ids

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


def loss_rows(groups: Sequence[Group], training: TrainingSpec) -> list[Row]:
    """The update's trained rollouts with the weight of each token. Rollouts that get no gradient are left out."""
    trained = trained_rollouts(groups, training)
    trainable = sum(rollout.trainable for group in groups for rollout in group.rollouts)
    tokens = sum(len(rollout.sample.token_ids) for rollout in trained)
    rows = []
    for rollout in trained:
        denominator = {
            "token-mean": tokens,
            "sequence-mean": len(trained) * len(rollout.sample.token_ids),
            "constant": trainable * training.max_new_tokens,
        }[training.loss_denominator]
        weights = tuple((advantage_of(rollout) / denominator).tolist())
        rows.append(Row(rollout, weights, 1 / denominator))
    return rows


def micro_batches(rows: Sequence[Row], micro_batch_tokens: int, *, all_rows: bool = False) -> list[list[Row]]:
    """Rows sorted by length and cut so that padded size stays within `micro_batch_tokens` (one row at least).

    Rows without any weight are dropped, their gradient being exactly zero: not so (`all_rows`) with another term.
    """
    kept = [row for row in rows if all_rows or any(row.weights)]
    ordered = sorted(kept, key=lambda row: (len(row.prompt_ids), row.length))
    batches: list[list[Row]] = []
    widest_prompt = widest_completion = 0
    for row in ordered:
        widest_prompt = max(widest_prompt, len(row.prompt_ids))
        widest_completion = max(widest_completion, len(row.token_ids))
        padded = (len(batches[-1]) + 1) * (widest_prompt + widest_completion) if batches else 0
        if batches and padded <= micro_batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
            widest_prompt, widest_completion = len(row.prompt_ids), len(row.token_ids)
    return batches


def batch_loss(
    module: nn.Module,
    rows: Sequence[Row],
    temperature: float,
    term: LossTerm | None = None,
    mismatch: SamplerMismatch | None = None,
) -> Tensor:
    """The rows' share of L and of `term`, a scalar with a graph.

    Prompts are padded on the left, completions on the right. `mismatch` is told of the tokens with a weight.
    """
    logprobs_BT = token_logprobs(module, rows, temperature)
    weights_BT = _right_padded([row.weights for row in rows], 0.0).to(logprobs_BT.device)
    if mismatch is not None:
        sampler_BT = _right_padded([row.rollout.sample.logprobs for row in rows], 0.0).to(logprobs_BT.device)
        mismatch.add(sampler_BT, logprobs_BT, weights_BT != 0.0)
    loss = -(weights_BT * logprobs_BT).sum()
    if term is None:
        return loss
    shares_BT = _right_padded([[row.share] * len(row.token_ids) for row in rows], 0.0).to(logprobs_BT.device)
    return loss + term([row.rollout for row in rows], logprobs_BT, shares_BT)


def token_logprobs(module: nn.Module, rows: Sequence[Row], temperature: float) -> Tensor:
    """log pi of each completion token, shape (B, T), float32; padding positions hold arbitrary finite values."""
    device = next(module.parameters()).device
    widest = max(len(row.prompt_ids) for row in rows)
    left = [widest - len(row.prompt_ids) for row in rows]
    tokens_BT = _right_padded([row.token_ids for row in rows], 0)
    prompts_BP = torch.tensor([[0] * pad + list(row.prompt_ids) for pad, row in zip(left, rows, strict=True)])
    ids_BS = torch.cat([prompts_BP, tokens_BT], dim=1).to(device)
    extra = {}
    if any(left):  # without left padding the causal mask alone is right: padding on the right is never attended to
        places_BS = torch.arange(ids_BS.shape[1]).expand_as(ids_BS) - torch.tensor(left)[:, None]
        extra["attention_mask"] = (places_BS >= 0).long().to(device)
        extra["position_ids"] = places_BS.clamp(min=0).to(device)
    logits_BTV: Tensor = module(
        input_ids=ids_BS, use_cache=False, logits_to_keep=tokens_BT.shape[1] + 1, **extra
    ).logits
    scaled_BTV = logits_BTV[:, :-1].float() / temperature
    chosen_BT: Tensor = scaled_BTV.gather(2, tokens_BT.to(device)[..., None]).squeeze(2)
    return chosen_BT - scaled_BTV.logsumexp(dim=2)


def _right_padded(rows: Sequence[Sequence[float]] | Sequence[Sequence[int]], fill: float | int) -> Tensor:
    widest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (widest - len(row))] for row in rows])
