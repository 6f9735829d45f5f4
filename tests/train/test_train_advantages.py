import numpy as np
import pytest

from harness.compute.clock import Clock
from harness.compute.meter import Meter
from harness.compute.work import Work
from harness.interventions.base import Group, Rollout, Step
from harness.interventions.grpo import GRPO
from harness.rollout.protocol import Request, Sample, Sampling
from harness.study.training import TrainingSpec
from harness.tasks.base import Problem
from harness.train.advantages import scale_advantages, zero_variance_share

STEP = Step(1, [], 2, Sampling(8), 0, None, None, Work(Meter(), Clock()))


def group(*rewards: float, lengths: tuple[int, ...] | None = None) -> Group:
    lengths = lengths or tuple(2 for _ in rewards)
    request = Request("rollout", (1,), Sampling(8), 0, 0)
    rollouts = [
        Rollout(request, Sample((5,) * length, (0.0,) * length, "stop"), "", reward)
        for reward, length in zip(rewards, lengths, strict=True)
    ]
    return Group(Problem("p", "a", "h"), 0, 0, rollouts)


def advantages(groups: list[Group]) -> np.ndarray:
    return np.concatenate([rollout.advantage_T for g in groups for rollout in g.rollouts])


def test_group_std_is_the_grpo_formula_with_bessels_correction():
    groups = [group(1.0, 0.0, 0.0, 0.0)]
    GRPO(GRPO.Parameters()).advantages(groups, STEP)
    scale_advantages(groups, TrainingSpec(advantage_scale="group-std"))
    # mean 1/4, variance (9/16 + 3/16) / 3 = 1/4, so (3/4, -1/4) / (1/2)
    assert advantages(groups)[::2] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_rms_is_one_over_all_trained_tokens_of_the_update():
    groups = [group(1.0, 0.0, lengths=(1, 5)), group(1.0, 1.0, lengths=(3, 2))]
    GRPO(GRPO.Parameters()).advantages(groups, STEP)
    scale_advantages(groups, TrainingSpec(advantage_scale="rms"))
    assert np.sqrt(np.mean(advantages(groups) ** 2)) == pytest.approx(1.0, abs=1e-4)


def test_none_leaves_advantages_alone_and_equal_outcomes_give_zeros_under_every_scale():
    groups = [group(1.0, 0.0)]
    GRPO(GRPO.Parameters()).advantages(groups, STEP)
    scale_advantages(groups, TrainingSpec(advantage_scale="none"))
    assert advantages(groups).tolist() == [0.5, 0.5, -0.5, -0.5]
    for scale in ("none", "rms", "group-std"):
        alike = [group(1.0, 1.0, 1.0)]
        GRPO(GRPO.Parameters()).advantages(alike, STEP)
        scale_advantages(alike, TrainingSpec(advantage_scale=scale))
        assert not advantages(alike).any()


def test_zero_variance_share_counts_groups_with_equal_outcomes():
    assert zero_variance_share([group(1, 1), group(0, 0), group(1, 0), group(0, 1)]) == 0.5


def test_a_forgotten_advantage_is_an_error_not_a_zero():
    with pytest.raises(RuntimeError, match="one advantage per token"):
        scale_advantages([group(1.0, 0.0)], TrainingSpec(advantage_scale="rms"))


def test_step_values_of_a_group_of_equal_outcomes_are_left_unscaled_by_group_std():
    alike, mixed = group(1.0, 1.0), group(1.0, 0.0)
    for rollouts in (alike.rollouts, mixed.rollouts):
        for rollout in rollouts:
            rollout.advantage_T = np.array([0.25, -0.5])
    scale_advantages([alike, mixed], TrainingSpec(advantage_scale="group-std"))
    assert advantages([alike]).tolist() == [0.25, -0.5] * 2
    assert advantages([mixed]) == pytest.approx(np.array([0.25, -0.5] * 2) / np.sqrt(0.5), rel=1e-5)


def test_masked_rollouts_are_no_part_of_the_update_whose_root_mean_square_is_one():
    groups = [group(1.0, 0.0)]
    kept, cut = groups[0].rollouts
    kept.advantage_T, cut.advantage_T = np.array([2.0, 2.0]), np.array([100.0, 100.0])
    cut.sample = type(cut.sample)(cut.sample.token_ids, cut.sample.logprobs, "length")
    scale_advantages(groups, TrainingSpec(advantage_scale="rms", mask_truncated=True))
    assert kept.advantage_T == pytest.approx([1.0, 1.0], rel=1e-5)
