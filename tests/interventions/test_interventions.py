"""What arms ask for and what they make of it, on a toy policy whose samples are drawn from their seeds."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from harness.compute.clock import Clock
from harness.compute.meter import Meter
from harness.compute.work import Work
from harness.interventions.base import Draw, Group, Step
from harness.interventions.registry import INTERVENTIONS, build_intervention
from harness.rollout.protocol import Request, Sample, Sampling
from harness.study.training import TrainingSpec
from harness.tasks.base import Problem
from harness.train.run import converse

END, COMMA = 0, 1
PROBLEMS = [Problem(f"p{i}", "a", f"h{i}") for i in range(3)]


class ToyPolicy:
    """Token 0 ends, 1 is a comma, 2 and 3 are letters."""

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(10 + byte for byte in prompt.encode())

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return ["" if token == END else ",ab"[token - 1] for token in ids]


class ToyTask:
    """A step ends after each comma; a completion with more a's than b's, and ended, is right."""

    def step_boundaries(self, problem: Problem, pieces: Sequence[str]) -> list[int]:
        return [i + 1 for i, piece in enumerate(pieces[:-1]) if piece == ","]

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        if "bbb" in completion:
            raise RuntimeError("a verifier that cannot cope")
        return finished and completion.count("a") > completion.count("b")


class ToyEngine:
    """Draws tokens from the request's seed alone, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        self.calls.append(list(requests))
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Sample:
        tokens: list[int] = []
        for token in np.random.default_rng(request.seed).integers(0, 4, request.sampling.max_new_tokens).tolist():
            tokens.append(token)
            if token == END:
                break
        return Sample(tuple(tokens), (0.0,) * len(tokens), "stop" if tokens[-1] == END else "length")


def step(run_seed: int = 1, group_size: int = 4) -> Step:
    draws = [Draw(problem, index, 0) for index, problem in enumerate(PROBLEMS)]
    return Step(1, draws, group_size, Sampling(8), run_seed, ToyPolicy(), ToyTask(), Work(Meter(), Clock()))


def run(name: str, **parameters: object) -> tuple[list[Group], ToyEngine, Step]:
    arm, engine, asked = build_intervention({"name": name, "parameters": parameters}), ToyEngine(), step()
    groups = converse(arm.collect(asked), engine)
    arm.advantages(groups, asked)
    return groups, engine, asked


def test_grpo_advantages_are_outcomes_less_the_group_mean_on_every_token():
    groups, engine, _ = run("grpo")
    assert len(engine.calls) == 1 and len(engine.calls[0]) == 12
    for group in groups:
        for rollout in group.rollouts:
            assert np.all(rollout.advantage_T == rollout.reward - group.rewards().mean())
            assert len(rollout.advantage_T) == len(rollout.sample.token_ids)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("every", [1, 2])
def test_mc_difference_telescopes_to_the_outcome_less_the_prompts_value(merge, every):
    groups, engine, _ = run("mc-difference", continuations=3, merge_equal_prefixes=merge, every_steps=every)
    continued = iter(engine.calls[1])
    prompt_value = {}
    for request in continued:  # the value of each prompt, from the requests themselves
        if request.prompt_ids == ToyPolicy().encode(PROBLEMS[request.problem].prompt):
            text = "".join(ToyPolicy().pieces(ToyEngine()._one(request).token_ids))
            sample = ToyEngine()._one(request)
            solved = "bbb" not in text and ToyTask().verify(PROBLEMS[0], text, sample.finish_reason == "stop")
            prompt_value.setdefault(request.problem, []).append(float(solved))
    steps_seen = 0
    for group in groups:
        values = np.array(prompt_value[group.problem_index]).reshape(-1, 3).mean(axis=1)
        for i, rollout in enumerate(group.rollouts):
            pieces = ToyPolicy().pieces(rollout.sample.token_ids)
            ends = ToyTask().step_boundaries(group.problem, pieces)[every - 1 :: every]
            starts = [0, *ends]
            per_step = [rollout.advantage_T[start] for start in starts]
            steps_seen = max(steps_seen, len(per_step))
            at_prompt = values[0] if merge else values[i]
            assert sum(per_step) == pytest.approx(rollout.reward - at_prompt, abs=1e-12)
            for start, end in zip(starts, [*ends, len(pieces)], strict=True):
                assert len(set(rollout.advantage_T[start:end])) == 1
    assert steps_seen > 1


def test_equal_prefixes_are_merged_as_declared_and_both_counts_are_told():
    _, merged, told = run("mc-difference", continuations=2, merge_equal_prefixes=True)
    _, unmerged, told_unmerged = run("mc-difference", continuations=2, merge_equal_prefixes=False)
    per_prefix = Counter((request.problem, request.prompt_ids) for request in merged.calls[1])
    assert set(per_prefix.values()) == {2}
    assert told.notes["continuations"] == len(merged.calls[1])
    assert told.notes["continuations_unmerged"] == len(unmerged.calls[1]) == told_unmerged.notes["continuations"]
    assert len(merged.calls[1]) < len(unmerged.calls[1])


def test_no_two_requests_of_an_update_share_a_seed():
    for merge in (True, False):
        _, engine, _ = run("mc-difference", continuations=3, merge_equal_prefixes=merge)
        seeds = [request.seed for call in engine.calls for request in call]
        assert len(set(seeds)) == len(seeds)


def test_continuations_may_use_the_tokens_that_the_rollout_limit_leaves():
    _, engine, _ = run("mc-difference", continuations=1)
    for request in engine.calls[1]:
        prompt = len(ToyPolicy().encode(PROBLEMS[request.problem].prompt))
        assert len(request.prompt_ids) - prompt + request.sampling.max_new_tokens == 8


def test_rollouts_are_the_same_in_every_arm():
    rollouts = {name: run(name, **more)[1].calls[0] for name, more in [("grpo", {}), ("mc-difference", {})]}
    assert rollouts["grpo"] == rollouts["mc-difference"]


def test_a_verifier_that_raises_scores_zero_and_is_counted():
    for seed in range(60):
        asked = step(seed, group_size=8)
        groups = converse(build_intervention({"name": "grpo", "parameters": {}}).collect(asked), ToyEngine())
        raised = [r for group in groups for r in group.rollouts if "bbb" in r.completion]
        if raised:
            assert all(rollout.reward == 0.0 for rollout in raised)
            assert asked.verifier_errors == len(raised)
            return
    pytest.fail("no sample made the verifier raise: the test met no case")


def test_the_scripted_arm_costs_exactly_what_it_declares():
    values = {"gain": 0.1, "rollout_tokens": 5, "continuations": 2, "continuation_tokens": 3}
    _, engine, _ = run("scripted", **values)
    assert [len(call) for call in engine.calls] == [12, 24]
    assert {request.sampling.max_new_tokens for request in engine.calls[1]} == {3}
    training = TrainingSpec(prompts_per_update=3, group_size=4)
    kind = INTERVENTIONS["scripted"]
    assert kind.least_update_tokens(kind.Parameters(**values), training) == 12 * 5 + 24 * 3


@pytest.mark.parametrize("name", sorted(INTERVENTIONS))
def test_unknown_parameters_are_refused(name):
    required = {"gain": 0.1} if name == "scripted" else {}
    with pytest.raises(ValidationError, match="Extra inputs"):
        build_intervention({"name": name, "parameters": {**required, "kay": 3}})
