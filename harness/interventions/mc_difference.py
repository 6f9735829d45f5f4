"""Monte Carlo step values: the advantage of a step is how much it changed the chance to succeed.

Kazemnejad et al. 2024 (VinePPO): V(s_k), the value of the state at step boundary k, is the mean outcome of
K continuations sampled from it; A_k = V(s_k+1) - V(s_k), and the last step gets R - V(s_last), its value
being its reward. Summed over steps this is R - V(s_0). Truncated continuations are failures. Our choices:
which boundaries get a value (`every_steps`), and that a continuation may use the tokens that its rollout's
limit leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from harness.interventions.base import ArmParameters, Conversation, Group, Intervention, Rollout, Step
from harness.interventions.groups import sample_groups
from harness.rollout.protocol import Request, Sample
from harness.study.training import TrainingSpec

State = tuple[int, int, int]
"""A state to be valued: (group, rollout whose prefix it is, length of the prefix in tokens)."""


class MCDifference(Intervention):
    """A_k = V(s_k+1) - V(s_k) for each token of step k, V by Monte Carlo continuations."""

    KINDS = ("rollout", "continuation", "policy_train")
    SOURCE = "Kazemnejad et al. 2024 (VinePPO)"

    class Parameters(ArmParameters):
        """How values are estimated."""

        continuations: Annotated[int, Field(ge=1)] = 9
        """K, continuations from each state."""
        every_steps: Annotated[int, Field(ge=1)] = 1
        """Value every n-th step boundary; a step is then n of the task's steps. The prompt is always valued."""
        merge_equal_prefixes: bool = True
        """Whether states with equal prefixes share their continuations; the prompt is shared by its group."""

    parameters: Parameters

    def __init__(self, parameters: Parameters):
        super().__init__(parameters)
        self._values: dict[State, float] = {}
        self._boundaries: dict[tuple[int, int], list[int]] = {}

    @classmethod
    def least_update_tokens(cls, parameters: Parameters, training: TrainingSpec) -> int:
        """One token for each rollout and for each continuation of a prompt; a rollout of one step needs no other."""
        states = 1 if parameters.merge_equal_prefixes else training.group_size
        return training.prompts_per_update * (training.group_size + states * parameters.continuations)

    def collect(self, step: Step) -> Conversation:
        groups = yield from sample_groups(step)
        self._boundaries = {
            (g, i): self._step_ends(step, group, rollout)
            for g, group in enumerate(groups)
            for i, rollout in enumerate(group.rollouts)
        }
        states = [(g, i, length) for (g, i), ends in self._boundaries.items() for length in [0, *ends]]
        shared = {state: self._shared_with(groups, state) for state in states}
        asked = list(dict.fromkeys(shared.values()))
        requests = [
            self._request(step, groups, state, index)
            for state in asked
            for index in range(self.parameters.continuations)
        ]
        samples = iter((yield requests))
        value = {state: self._value(step, groups, state, samples) for state in asked}
        self._values = {state: value[shared[state]] for state in states}
        step.notes["continuations"] = len(requests)
        step.notes["continuations_unmerged"] = len(states) * self.parameters.continuations
        return groups

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        for g, group in enumerate(groups):
            for i, rollout in enumerate(group.rollouts):
                starts = [0, *self._boundaries[g, i]]
                values = [self._values[g, i, start] for start in starts] + [rollout.reward]
                lengths = np.diff([*starts, len(rollout.sample.token_ids)])
                rollout.advantage_T = np.repeat(np.diff(values), lengths)

    def _step_ends(self, step: Step, group: Group, rollout: Rollout) -> list[int]:
        ends = step.task.step_boundaries(group.problem, step.policy.pieces(rollout.sample.token_ids))
        return ends[self.parameters.every_steps - 1 :: self.parameters.every_steps]

    def _shared_with(self, groups: Sequence[Group], state: State) -> State:
        """The state whose continuations serve this one: the first of the group with the same prefix, if merged."""
        if not self.parameters.merge_equal_prefixes:
            return state
        g, i, length = state
        prefix = groups[g].rollouts[i].sample.token_ids[:length]
        same = (
            j
            for j, other in enumerate(groups[g].rollouts[: i + 1])
            if other.sample.token_ids[:length] == prefix and (length == 0 or length in self._boundaries[g, j])
        )
        return (g, next(same), length)

    def _request(self, step: Step, groups: Sequence[Group], state: State, index: int) -> Request:
        g, i, length = state
        group, parent = groups[g], groups[g].rollouts[i]
        prefix = parent.sample.token_ids[:length]
        digest = hashlib.sha256(",".join(map(str, prefix)).encode()).hexdigest()
        own = () if self.parameters.merge_equal_prefixes else (i,)
        return Request(
            purpose="continuation",
            prompt_ids=parent.request.prompt_ids + prefix,
            sampling=replace(step.sampling, max_new_tokens=step.sampling.max_new_tokens - length),
            seed=step.seed("continuation", group.problem_index, group.visit, index, digest, *own),
            problem=group.problem_index,
            visit=group.visit,
            index=index,
        )

    def _value(self, step: Step, groups: Sequence[Group], state: State, samples: Iterator[Sample]) -> float:
        """Mean outcome of the next K samples, each a continuation of the state's prefix."""
        g, i, length = state
        prefix = groups[g].rollouts[i].sample.token_ids[:length]
        outcomes = [
            step.grade(groups[g].problem, next(samples), prefix)[1] for _ in range(self.parameters.continuations)
        ]
        return float(np.mean(outcomes))
