"""The part that almost every intervention shares: sample a group for each drawn prompt, and grade it."""

from __future__ import annotations

from harness.interventions.base import Conversation, Group, Rollout, Step
from harness.rollout.protocol import Request, Sampling


def sample_groups(step: Step, sampling: Sampling | None = None) -> Conversation:
    """One `rollout` request per (drawn prompt, index in the group), asked for at once; returns graded groups."""
    sampling = sampling or step.sampling
    asked = [
        [
            Request(
                purpose="rollout",
                prompt_ids=step.policy.encode(draw.problem.prompt),
                sampling=sampling,
                seed=step.seed("rollout", draw.index, draw.visit, index),
                problem=draw.index,
                visit=draw.visit,
                index=index,
            )
            for index in range(step.group_size)
        ]
        for draw in step.draws
    ]
    samples = iter((yield [request for requests in asked for request in requests]))
    groups = []
    for draw, requests in zip(step.draws, asked, strict=True):
        rollouts = []
        for request in requests:
            sample = next(samples)
            completion, reward = step.grade(draw.problem, sample)
            rollouts.append(Rollout(request, sample, completion, reward))
        groups.append(Group(draw.problem, draw.index, draw.visit, rollouts))
    return groups
