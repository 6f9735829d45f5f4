"""The arm of docs/adding-an-arm.md works as the page says: by brute force on a toy policy, and from a study file."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from docs_pages import DOCS, ROOT, blocks

from harness.compute.clock import Clock
from harness.compute.meter import Meter
from harness.compute.work import Work
from harness.interventions.base import Draw, Step
from harness.interventions.groups import sample_groups
from harness.rollout.protocol import Request, Sample, Sampling
from harness.study.training import TrainingSpec
from harness.tasks.base import Problem
from harness.train.run import converse

PAGE = DOCS / "adding-an-arm.md"
FILE, LINE = blocks(PAGE, "python")
PROBLEMS = [Problem(f"p{i}", "", f"hash {i}") for i in range(4)]
GROUP_SIZE = 5
END = 9


class ToyPolicy:
    """Token 9 ends; the others are digits."""

    def encode(self, prompt: str) -> tuple[int, ...]:
        return tuple(map(ord, prompt))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return ["" if token == END else str(token) for token in ids]


class ToyTask:
    """A completion is right when its digits add up to an odd number."""

    def verify(self, problem: Problem, completion: str, finished: bool) -> bool:
        return odd(completion)


class ToyEngine:
    """Three random digits: of the prompt alone when greedy, else of the request's seed."""

    def __init__(self) -> None:
        self.calls: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        self.calls.append(list(requests))
        return [Sample((*digits(request), END), (0.0,) * 4, "stop") for request in requests]


def digits(request: Request) -> list[int]:
    seed = request.seed if request.sampling.temperature else sum(request.prompt_ids)
    found: list[int] = np.random.default_rng(seed).integers(0, END, 3).tolist()
    return found


def odd(completion: str) -> bool:
    return sum(map(int, completion)) % 2 == 1


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("arm") / "greedy_baseline.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def step() -> Step:
    draws = [Draw(problem, index, 3) for index, problem in enumerate(PROBLEMS)]
    return Step(1, draws, GROUP_SIZE, Sampling(8), 7, ToyPolicy(), ToyTask(), Work(Meter(), Clock()))


def test_the_arm_is_complete_in_under_forty_lines():
    assert sum(bool(line.strip()) for line in FILE.splitlines()) < 40


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_an_advantage_is_the_outcome_less_the_baseline_answers_outcome(arm: ModuleType, temperature: float):
    intervention = arm.GreedyBaseline(arm.GreedyBaseline.Parameters(temperature=temperature))
    engine, asked = ToyEngine(), step()
    groups = converse(intervention.collect(asked), engine)
    intervention.advantages(groups, asked)
    rollouts, answers = engine.calls
    assert (len(rollouts), len(answers)) == (len(PROBLEMS) * GROUP_SIZE, len(PROBLEMS))
    seen = set()
    for group, answer in zip(groups, answers, strict=True):
        assert (answer.purpose, answer.problem, answer.visit) == ("baseline", group.problem_index, 3)
        assert answer.sampling == Sampling(8, temperature=temperature)
        baseline = odd("".join(map(str, digits(answer))))
        for rollout in group.rollouts:
            outcome = odd("".join(map(str, digits(rollout.request))))
            assert rollout.advantage_T is not None
            assert rollout.advantage_T.tolist() == [int(outcome) - int(baseline)] * 4
            seen.add((outcome, baseline))
    assert len({outcome for outcome, _ in seen}) == 2, "all outcomes alike: the test met no case"


def test_rollouts_are_those_of_every_arm_and_no_seed_is_used_twice(arm: ModuleType):
    engine, plain = ToyEngine(), ToyEngine()
    converse(arm.GreedyBaseline(arm.GreedyBaseline.Parameters()).collect(step()), engine)
    converse(sample_groups(step()), plain)
    assert engine.calls[0] == plain.calls[0]
    seeds = [request.seed for call in engine.calls for request in call]
    assert len(set(seeds)) == len(seeds)


def test_the_fewest_tokens_of_an_update_are_one_for_each_sample(arm: ModuleType):
    kind, engine = arm.GreedyBaseline, ToyEngine()
    converse(kind(kind.Parameters()).collect(step()), engine)
    training = TrainingSpec(prompts_per_update=len(PROBLEMS), group_size=GROUP_SIZE)
    assert kind.least_update_tokens(kind.Parameters(), training) == sum(map(len, engine.calls))


def test_the_file_and_the_line_make_it_an_arm_of_study_files(tmp_path: Path):
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "harness" / "interventions" / "greedy_baseline.py").write_text(FILE)
    registry = tmp_path / "harness" / "interventions" / "registry.py"
    opening = "INTERVENTIONS: Final[dict[str, type[Intervention]]] = {\n"
    bare = registry.read_text()
    assert bare.count(opening) == 1
    imported = "from harness.interventions.greedy_baseline import GreedyBaseline\n\n"
    registry.write_text(bare.replace(opening, f"{imported}{opening}{LINE}"))
    study = blocks(DOCS / "study-file.md", "yaml")[0].replace("arms:\n", "arms:\n" + blocks(PAGE, "yaml")[0])
    (tmp_path / "preregistrations").mkdir()
    (tmp_path / "preregistrations" / "mine.yaml").write_text(study)
    code = """
from harness.study.load import load_study
arms = load_study("preregistrations/mine.yaml").resolved["arms"]
assert arms["remax"]["parameters"] == {"temperature": 0.0}, arms
assert arms["remax-warm"]["parameters"] == {"temperature": 0.5}, arms
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
