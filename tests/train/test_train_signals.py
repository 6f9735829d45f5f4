"""Entropy against enumerated distributions; the distance of sampler and trainer where it is known, or planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.cells import write_cell
from support.short_warm_start import with_cache
from support.studies import chain_study, write_study
from support.sweeps import planned
from transformers import Qwen2Config, Qwen2ForCausalLM

from harness.compute.clock import Clock
from harness.compute.flops import ModelShape
from harness.compute.meter import Meter
from harness.compute.work import Work
from harness.events.fold import fold_run
from harness.interventions.base import Group, Rollout
from harness.layout import RunsFolder
from harness.rollout.draw import draw
from harness.rollout.kv_loop import KVLoopEngine
from harness.rollout.protocol import Request, Sample, Sampling
from harness.seeds import hashed_seed
from harness.study.cell import Cell
from harness.study.training import TrainingSpec
from harness.tasks.base import Problem
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED
from harness.train.learner import TorchLearner
from harness.train.losses import batch_loss, loss_rows, micro_batches
from harness.train.signals import SamplerMismatch, entropy

VOCABULARY, STOP = 17, 3
Shift = Callable[[int, int], float]
"""(rollout, token) -> what is added to the sampler's log-probability."""


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).float()


def surprise(probabilities: Sequence[float]) -> float:
    return -sum(p * np.log(p) for p in probabilities)


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [
        (1.0, 1.0, surprise([1 / 2, 1 / 4, 1 / 8, 1 / 8])),
        (0.5, 1.0, surprise([16 / 22, 4 / 22, 1 / 22, 1 / 22])),  # probabilities squared
        (1.0, 0.75, surprise([2 / 3, 1 / 3])),
    ],
)
def test_entropy_of_draws_in_proportion_is_that_of_the_distribution_drawn_from(
    temperature: float, top_p: float, expected: float
) -> None:
    count = 8 * 3 * 22  # so that each token comes up exactly as often as its probability says
    uniforms = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    logits = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8], dtype=torch.float64).log().expand(count, 4)
    tokens, logprobs = draw(logits, uniforms, temperature, top_p)
    samples = [Sample((int(t),), (float(p),), "length") for t, p in zip(tokens, logprobs, strict=True)]
    assert entropy(samples) == pytest.approx(expected, abs=1e-12)


def test_entropy_of_rollouts_estimates_the_mean_over_positions_found_by_enumeration(module: torch.nn.Module) -> None:
    prompt = (5, 6)
    requests = [Request("rollout", prompt, Sampling(2), hashed_seed("entropy", i), 0) for i in range(4000)]
    samples = KVLoopEngine(module, stop_ids=()).generate(requests)
    with torch.no_grad():
        first = module.eval()(torch.tensor([prompt])).logits[0, -1].double().softmax(0)
        second = module(torch.tensor([[*prompt, token] for token in range(VOCABULARY)])).logits[:, -1].double()
    after = [surprise(row.tolist()) for row in second.softmax(1)]
    expected = (surprise(first.tolist()) + float(first @ torch.tensor(after, dtype=torch.float64))) / 2
    tokens = -np.array([sample.logprobs for sample in samples])
    assert entropy(samples) == pytest.approx(expected, abs=4 * tokens.mean(axis=1).std() / np.sqrt(len(samples)))
    assert expected < 0.95 * np.log(VOCABULARY), "too near to uniform for a wrong weight to show"


def test_every_token_counts_alike_and_nothing_sampled_has_no_entropy() -> None:
    long, short = Sample((1, 1, 1), (-1.0, -1.0, -1.0), "stop"), Sample((1,), (-3.0,), "stop")
    assert entropy([long, short]) == 1.5
    assert entropy([]) is None


def sampled_groups(
    module: torch.nn.Module, temperature: float, shift: Shift = lambda rollout, token: 0.0
) -> list[Group]:
    """Ragged rollouts by our sampler. Of every second one only each third token has an advantage."""
    draws = np.random.default_rng(4)
    requests = [
        Request("rollout", tuple(draws.integers(4, VOCABULARY, 1 + group).tolist()), Sampling(12, temperature),
                hashed_seed("mismatch", group, index), group, 0, index)
        for group in range(3)
        for index in range(4)
    ]  # fmt: skip
    rollouts = []
    for number, (request, sample) in enumerate(
        zip(requests, KVLoopEngine(module, stop_ids={STOP}).generate(requests), strict=True)
    ):
        told = tuple(logprob + shift(number, token) for token, logprob in enumerate(sample.logprobs))
        rollout = Rollout(request, replace(sample, logprobs=told), "", 0.0)
        rollout.advantage_T = draws.normal(size=len(told))
        if number % 2:
            rollout.advantage_T[np.arange(len(told)) % 3 != 0] = 0.0
        rollouts.append(rollout)
    return [Group(Problem("p", "a", "h"), group, 0, rollouts[4 * group : 4 * group + 4]) for group in range(3)]


def told_mismatch(module: torch.nn.Module, groups: Sequence[Group], **training: object) -> float | None:
    policy = SimpleNamespace(module=module, shape=ModelShape(1000, 2, 16))
    learner = TorchLearner(policy, TrainingSpec.model_validate(training))
    return learner.backward(groups, Work(Meter(), Clock())).sampler_mismatch


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_our_sampler_and_trainer_agree_and_a_planted_shift_is_found(
    module: torch.nn.Module, temperature: float
) -> None:
    agreed = told_mismatch(module, sampled_groups(module, temperature), temperature=temperature)
    assert agreed is not None and agreed < 1e-5
    shifted = sampled_groups(module, temperature, lambda rollout, token: 0.25 * (-1) ** (rollout + token))
    assert told_mismatch(module, shifted, temperature=temperature) == pytest.approx(0.25, abs=1e-5)


def test_a_sampler_at_another_temperature_is_found(module: torch.nn.Module) -> None:
    found = told_mismatch(module, sampled_groups(module, 0.7), temperature=1.0)
    assert found is not None and found > 0.01


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 10_000])
def test_every_trained_token_counts_alike_however_the_update_is_cut(
    module: torch.nn.Module, micro_batch_tokens: int
) -> None:
    """Rollout r's sampler is shifted by r / 10; tokens without an advantage are shifted, too, and do not count."""
    groups = sampled_groups(
        module, 1.0, lambda rollout, token: rollout / 10 if rollout % 2 == 0 or token % 3 == 0 else 9
    )
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    trained = [np.count_nonzero(rollout.advantage_T) for rollout in rollouts]
    assert len(set(trained)) > 3
    expected = sum(count * number / 10 for number, count in enumerate(trained)) / sum(trained)
    found = told_mismatch(module, groups, micro_batch_tokens=micro_batch_tokens)
    assert found == pytest.approx(expected, abs=1e-5)


def test_it_is_not_defined_of_a_nucleus_or_where_nothing_is_trained(module: torch.nn.Module) -> None:
    groups = sampled_groups(module, 1.0)
    assert told_mismatch(module, groups, top_p=0.9) is None
    for group in groups:
        for rollout in group.rollouts:
            rollout.advantage_T = np.zeros(len(rollout.sample.token_ids))
    assert told_mismatch(module, groups) is None


def test_telling_it_leaves_every_bit_of_the_gradient_as_it_was(module: torch.nn.Module) -> None:
    training = TrainingSpec(micro_batch_tokens=60)
    found = []
    for mismatch in (None, SamplerMismatch()):
        module.zero_grad()
        for rows in micro_batches(loss_rows(sampled_groups(module, 1.0), training), training.micro_batch_tokens):
            batch_loss(module, rows, 1.0, mismatch=mismatch).backward()
        found.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_run_tells_both_with_each_update(tmp_path: Path, chain_cache: Path, top_p: float) -> None:
    runs = with_cache(RunsFolder(tmp_path / "runs"), chain_cache)
    file = write_study(tmp_path, chain_study("signals", {"updates": 4}, arms=("grpo",)))
    content = Cell.read(planned(file, runs, "grpo").spec).content
    cell = write_cell(runs, {**content, "training": {**content["training"], "top_p": top_p}})
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    updates = [payload for kind, payload in fold_run(cell.path).history if kind == "update"]
    assert len(updates) == 4
    assert all(0.0 < update["entropy"] < np.log(26) for update in updates)
    told = [update["sampler_mismatch"] for update in updates]
    defined = [update["trained_tokens"] > 0 and top_p == 1.0 for update in updates]
    assert [value is not None for value in told] == defined and any(defined) == (top_p == 1.0)
    assert all(value is None or value < 1e-5 for value in told)
