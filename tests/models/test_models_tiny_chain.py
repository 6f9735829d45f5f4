"""The warm-started model of the chain task: its size, its words, its determinism, and what it must not have seen."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from harness.compute.flops import training_flops
from harness.models.tiny_chain import RECORD, Recipe, build, demonstrations, new_module, new_tokenizer
from harness.rollout.metered import MeteredEngine
from harness.seeds import hashed_seed
from harness.tasks.chain import ChainSpec, ChainTask, Steps, problem_of
from harness.tasks.pools import PoolSizes

SHORT = replace(Recipe(), mastered=0.0, window=2, faulty_steps=2, batch_size=4)


@pytest.fixture(scope="module")
def task() -> ChainTask:
    return ChainTask(ChainSpec(pool=PoolSizes(train=100, tuning=20, confirmatory=20)))


def weights(folder: Path) -> bytes:
    (saved,) = folder.glob("*/model.safetensors")
    return saved.read_bytes()


def test_it_has_84_288_parameters_and_26_tokens() -> None:
    tokenizer = new_tokenizer()
    module = new_module(Recipe(), tokenizer)
    assert sum(weight.numel() for weight in module.parameters()) == 84_288
    assert len(tokenizer) == 26
    assert float(module.get_input_embeddings().weight.detach().std()) == pytest.approx(0.2, rel=0.1)


def test_prompts_are_one_token_a_character_and_unknown_characters_are_an_error() -> None:
    tokenizer = new_tokenizer()
    text = "8-6+0*3      >620236=6"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    with pytest.raises(Exception, match=r"(?i)unk"):
        tokenizer.encode("x")


def test_a_short_warm_start_is_the_same_to_the_bit_whatever_the_process_drew_before(
    task: ChainTask, tmp_path: Path
) -> None:
    for name, disturbance in (("first", 1), ("second", 2)):
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        build(task, tmp_path / name, recipe=SHORT)
        assert torch.equal(torch.get_rng_state(), before)
    assert weights(tmp_path / "first") == weights(tmp_path / "second")
    build(task, tmp_path / "third", recipe=replace(SHORT, seed=9))
    assert weights(tmp_path / "third") != weights(tmp_path / "first")


def test_the_record_prices_every_example_and_claims_no_sample(task: ChainTask, tmp_path: Path) -> None:
    built = build(task, tmp_path, recipe=SHORT)
    assert built.warm_start is not None
    phases = [("clean", {}, 2), ("faulty", SHORT.error_rates, 2)]
    lengths = [
        len(example.prompt) + len(example.completion) - 1
        for phase, rates, steps in phases
        for example in islice(demonstrations(task, SHORT, new_tokenizer(), phase, rates), steps * 4)
    ]
    told = built.warm_start
    assert told["flops"] == training_flops(built.policy.shape, lengths)
    assert (told["steps"], told["examples"], told["example_tokens"]) == (4, 16, sum(lengths))
    assert told["samples"] == told["generated_tokens"] == told["prefill_tokens"] == 0
    assert told["cpu_seconds"] > 0
    assert build(task, tmp_path, recipe=SHORT).warm_start == told  # from the cache, not made again


def test_no_held_out_problem_is_ever_demonstrated() -> None:
    whole = ChainTask(ChainSpec(pool=PoolSizes(train=20, tuning=140, confirmatory=140), steps=Steps(min=1, max=1)))
    tokenizer = new_tokenizer()
    shown = {
        tokenizer.decode(each.prompt) for each in islice(demonstrations(whole, SHORT, tokenizer, "clean", {}), 2_000)
    }
    assert shown == {problem.prompt for problem in whole.pool("train")}  # the 300 problems less the 280 held out


def test_examples_end_with_the_end_token_and_teach_the_right_answer(task: ChainTask) -> None:
    tokenizer = new_tokenizer()
    for example in islice(demonstrations(task, SHORT, tokenizer, "clean", {}), 50):
        problem = problem_of(tokenizer.decode(example.prompt).rstrip("> "), task.spec.steps)
        assert example.completion[-1] == tokenizer.eos_token_id
        assert task.verify(problem, tokenizer.decode(example.completion[:-1]), True)


def test_a_task_that_is_never_mastered_is_an_error_and_leaves_nothing(task: ChainTask, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mastered after 3 steps"):
        build(task, tmp_path, recipe=replace(SHORT, mastered=1.0, most_clean_steps=3))
    assert list(tmp_path.glob("**/*.safetensors")) == []


BUILD = """
import sys
from dataclasses import replace
from pathlib import Path
from harness.models.tiny_chain import Recipe, build
from harness.tasks.chain import ChainSpec, ChainTask
from harness.tasks.pools import PoolSizes
recipe = replace(Recipe(), mastered=0.0, window=2, faulty_steps=2, batch_size=4)
task = ChainTask(ChainSpec(pool=PoolSizes(train=100, tuning=20, confirmatory=20)))
print(build(task, Path(sys.argv[1]), recipe=recipe).warm_start["cpu_seconds"])
"""


@pytest.mark.slow
def test_four_cells_that_start_at_once_share_one_warm_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = {process.communicate(timeout=200)[0] for process in running}
    assert len(told) == 1  # all four read the seconds of the same one
    assert len(list(tmp_path.glob(f"*/{RECORD}"))) == 1


@pytest.mark.slow
def test_the_start_knows_how_but_often_errs(tmp_path: Path) -> None:
    """Sampled and greedy accuracy over 300 problems, within what a start for reinforcement learning needs."""
    from harness.compute.clock import Clock
    from harness.compute.meter import Meter
    from harness.rollout.protocol import Request, Sampling

    task = ChainTask(ChainSpec(pool=PoolSizes(train=2_000, tuning=300, confirmatory=300)))
    built = build(task, tmp_path)
    policy = built.policy
    engine = MeteredEngine(policy.engine(), Meter(), Clock(), policy.shape)
    problems = task.pool("train")[:300]

    def accuracy(temperature: float, samples: int) -> float:
        requests = [
            Request("evaluation", policy.encode(problem.prompt), Sampling(24, temperature), hashed_seed(i, k), i)
            for i, problem in enumerate(problems)
            for k in range(samples)
        ]
        solved = [
            task.verify(
                problems[request.problem], "".join(policy.pieces(sample.token_ids)), sample.finish_reason == "stop"
            )
            for request, sample in zip(requests, engine.generate(requests), strict=True)
        ]
        return sum(solved) / len(solved)

    assert 0.08 <= accuracy(1.0, 8) <= 0.25
    assert 0.15 <= accuracy(0.0, 1) <= 0.60
    assert built.warm_start is not None
    assert built.warm_start["clean_accuracy"] >= 0.95
