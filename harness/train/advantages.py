"""How advantages are scaled: pinned in the study, the same code for every arm (docs/method.md, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.interventions.base import Advantages, Group, Rollout
from harness.study.training import TrainingSpec


def advantage_of(rollout: Rollout) -> Advantages:
    """The rollout's advantages, shape (T,); a RuntimeError when the intervention set none."""
    if rollout.advantage_T is None or len(rollout.advantage_T) != len(rollout.sample.token_ids):
        raise RuntimeError("the intervention left a rollout without one advantage per token")
    return rollout.advantage_T


def trained_rollouts(groups: Sequence[Group], training: TrainingSpec) -> list[Rollout]:
    """The rollouts that get a gradient: trainable ones, without truncated ones where `mask_truncated` says so."""
    return [
        rollout
        for group in groups
        for rollout in group.rollouts
        if rollout.trainable and not (training.mask_truncated and rollout.sample.finish_reason == "length")
    ]


def scale_advantages(groups: Sequence[Group], training: TrainingSpec) -> None:
    """Scales in place as `advantage_scale` says: none, unit root mean square, or group standard deviation.

    rms is over all trained tokens of the update; group-std divides by the group's outcome standard deviation
    (Bessel's correction). `scale_epsilon` is added to either divisor. A group whose outcomes are all alike has no
    spread to divide by: it is left as it is (our choice; it matters to step values alone, group baselines give zero).
    """
    for group in groups:
        for rollout in group.rollouts:
            advantage_of(rollout)
    trained = trained_rollouts(groups, training)
    if training.advantage_scale == "rms" and trained:
        tokens = np.concatenate([advantage_of(rollout) for rollout in trained])
        divisor = float(np.sqrt(np.mean(tokens**2))) + training.scale_epsilon
        for rollout in trained:
            rollout.advantage_T = advantage_of(rollout) / divisor
    elif training.advantage_scale == "group-std":
        for group in groups:
            spread = float(group.rewards().std(ddof=1))
            for rollout in group.rollouts if spread > 0.0 else ():
                rollout.advantage_T = advantage_of(rollout) / (spread + training.scale_epsilon)


def zero_variance_share(groups: Sequence[Group]) -> float:
    """Share of groups whose outcomes are all alike: they teach a group baseline nothing."""
    return float(np.mean([np.ptp(group.rewards()) == 0.0 for group in groups]))
