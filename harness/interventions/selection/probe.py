"""Predictions by asking: a few rollouts of each candidate, all charged; kept prompts' groups begin with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.interventions.base import Draw, Rollout, Step
from harness.interventions.selection.base import Prediction, SelectionParameters, Selector
from harness.rollout.protocol import Request
from harness.study.training import TrainingSpec


class SelectProbe(Selector):
    """Keeps the prompts that about half of a few probe rollouts solve."""

    KINDS = ("probe",)
    SOURCE = "ours: difficulty by probing"

    class Parameters(SelectionParameters):
        """How much is asked."""

        probes: Annotated[int, Field(ge=1)] = 2
        """Probe rollouts of each candidate."""

    parameters: Parameters

    @classmethod
    def probes(cls, parameters: Parameters, training: TrainingSpec) -> tuple[int, int]:
        reused = training.prompts_per_update * min(parameters.probes, training.group_size)
        return parameters.candidates * parameters.probes, reused

    def predict(self, step: Step, candidates: Sequence[Draw]) -> Prediction:
        count = self.parameters.probes
        requests = [
            Request(
                purpose="probe",
                prompt_ids=step.policy.encode(draw.problem.prompt),
                sampling=step.sampling,
                seed=step.seed("probe", draw.index, draw.visit, index),
                problem=draw.index,
                visit=draw.visit,
                index=index,
            )
            for draw in candidates
            for index in range(count)
        ]
        samples = iter((yield requests))
        asked = iter(requests)
        for draw in candidates:
            probes = [(next(asked), next(samples)) for _ in range(count)]
            step.ready[draw.index, draw.visit] = [
                Rollout(request, sample, *step.grade(draw.problem, sample)) for request, sample in probes
            ]
        rates = [np.mean([probe.reward for probe in step.ready[draw.index, draw.visit]]) for draw in candidates]
        return np.array(rates, dtype=np.float64)
