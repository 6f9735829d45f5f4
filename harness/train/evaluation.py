"""Held-out evaluation: the whole pool, decoding pinned by the study, metered apart.

Sample seeds depend on the run seed, problem and sample index, never on the milestone or the arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.interventions.base import grade
from harness.models.policy import Policy
from harness.rollout.protocol import Engine, Request, Sampling
from harness.seeds import hashed_seed
from harness.tasks.base import Task


@dataclass(frozen=True)
class Evaluation:
    """Outcomes of one evaluation."""

    outcomes: list[int]
    """1 solved, 0 not; problem-major: all samples of problem 0 first."""
    verifier_errors: int
    graded: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Of each sample, by `id`: its completion and outcome, for the token sidecar."""

    @property
    def accuracy(self) -> float:
        """Mean outcome."""
        return sum(self.outcomes) / len(self.outcomes)


def evaluate(spec: Mapping[str, Any], policy: Policy, engine: Engine, task: Task, run_seed: int) -> Evaluation:
    """Samples and grades every problem of the pool that `spec` (a cell's `evaluate`) names."""
    decoding = spec["decoding"]
    values = {"temperature": 0.0} if decoding == "greedy" else dict(decoding)
    sampling = Sampling(max_new_tokens=spec["max_new_tokens"], **values)
    problems = task.pool(spec["pool"])
    requests = [
        Request(
            purpose="evaluation",
            prompt_ids=policy.encode(problem.prompt),
            sampling=sampling,
            seed=hashed_seed(run_seed, "evaluation", index, sample),
            problem=index,
            index=sample,
        )
        for index, problem in enumerate(problems)
        for sample in range(spec["samples"])
    ]
    outcomes, errors, graded = [], 0, {}
    for request, sample in zip(requests, engine.generate(requests), strict=True):
        completion = "".join(policy.pieces(sample.token_ids))
        outcome, raised = grade(task, problems[request.problem], completion, sample)
        outcomes.append(int(outcome))
        errors += raised
        graded[id(sample)] = (completion, outcome)
    return Evaluation(outcomes, errors, graded)
