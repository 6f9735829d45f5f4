"""When milestones are due and when a run ends: docs/method.md, section 3."""

import math

import pytest

from harness.study.cell import Milestone
from harness.train.milestones import Schedule, learning_rate_factor


def charge(tokens: float = 0, updates: int = 0, **more: float) -> dict[str, float]:
    return {"generated_tokens": tokens, "flops": 0, "gpu_hours": 0, "cpu_hours": 0, "updates": updates, **more}


def test_a_token_milestone_is_due_before_the_step_that_passes_it_and_not_at_equality():
    schedule = Schedule([Milestone("generated_tokens", 100)], {"generated_tokens": 100})
    assert schedule.due(charge(100), after_step=False) == []
    assert schedule.due(charge(101), after_step=True) == []
    assert schedule.due(charge(101), after_step=False) == [Milestone("generated_tokens", 100)]


def test_an_update_milestone_is_due_right_after_the_step_that_reaches_it():
    schedule = Schedule([Milestone("updates", 5)], {"updates": 5})
    assert schedule.due(charge(updates=5), after_step=False) == []
    assert schedule.due(charge(updates=4), after_step=True) == []
    assert schedule.due(charge(updates=5), after_step=True) == [Milestone("updates", 5)]


def test_milestones_passed_by_one_large_step_are_due_together_and_only_once():
    marks = [Milestone("generated_tokens", amount) for amount in (10, 20, 30)]
    schedule = Schedule(marks, {"generated_tokens": 30})
    assert schedule.due(charge(25), after_step=False) == marks[:2]
    assert schedule.due(charge(25), after_step=False) == []
    assert schedule.open() == marks[2:]


def test_what_passed_survives_a_checkpoint():
    marks = [Milestone("flops", 1.0), Milestone("updates", 1)]
    schedule = Schedule(marks, {"updates": 1})
    schedule.due(charge(updates=1), after_step=True)
    again = Schedule(marks, {"updates": 1}, schedule.passed)
    assert again.open() == [Milestone("flops", 1.0)]


@pytest.mark.parametrize(
    ("tokens", "updates", "over"),
    [(101, 50, True), (101, 49, False), (100, 50, False), (100, 51, False), (0, 0, False)],
)
def test_a_run_ends_when_every_budget_is_exhausted(tokens, updates, over):
    schedule = Schedule([], {"generated_tokens": 100, "updates": 50})
    assert schedule.exhausted(charge(tokens, updates)) is over


def test_decay_follows_the_fraction_spent_and_warm_up_the_updates():
    assert learning_rate_factor("none", 0.7, 0, 10) == 1.0
    assert learning_rate_factor("linear", 0.25, 0, 1) == 0.75
    assert learning_rate_factor("cosine", 0.5, 0, 1) == pytest.approx(0.5)
    assert learning_rate_factor("linear", 1.3, 0, 1) == 0.0
    assert [learning_rate_factor("none", 0, 4, update) for update in (1, 4, 5)] == pytest.approx([0.2, 0.8, 1.0])
    assert math.isclose(learning_rate_factor("cosine", 1.0, 0, 9), 0.0, abs_tol=1e-15)
