"""The part that almost every intervention shares: sample a group for each drawn prompt, and grade it."""

from __future__ import annotations

from harness.interventions.base import Conversation, Group, Rollout, Step
from harness.rollout.protocol import Request, Sampling


def sample_groups(step: Step, sampling: Sampling | None = None) -> Conversation:
    """One `rollout` request per (drawn prompt, index in the group), asked for at once; returns graded groups.

    Rollouts that were sampled to choose the prompt are the first of its group.
    """
    sampling = sampling or step.sampling
    ready = [step.ready.get((draw.index, draw.visit), [])[: step.group_size] for draw in step.draws]
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
            for index in range(len(ready[place]), step.group_size)
        ]
        for place, draw in enumerate(step.draws)
    ]
    samples = iter((yield [request for requests in asked for request in requests]))
    groups = []
    for draw, rollouts, requests in zip(step.draws, ready, asked, strict=True):
        for request in requests:
            sample = next(samples)
            completion, reward = step.grade(draw.problem, sample)
            rollouts.append(Rollout(request, sample, completion, reward))
        groups.append(Group(draw.problem, draw.index, draw.visit, rollouts))
    return groups
