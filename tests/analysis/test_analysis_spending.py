"""What crashes cost is shown beside what led to the weights: by whose fault, and with what is not known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from synthetic_study import SyntheticStudy

from analysis.leaderboard import leaderboard
from analysis.rank_flips import rank_flips
from analysis.snapshot import Snapshot
from analysis.spending import Spending, spending_by_arm
from analysis.tables import Result, render
from analysis.verdicts import verdicts

Open = Callable[[SyntheticStudy], Snapshot]

HEARTBEAT = 30.0


def crashed(study: SyntheticStudy, *lives: tuple[float, float, str | None, str | None]) -> SyntheticStudy:
    """One run of each arm; `lives`: start, last line, status and fault of the attempts of `mc` before its last."""
    readings = {(currency, amount): 0.5 for currency, amount, *_ in study.milestones()}
    for arm in study.arms:
        study.run(arm, study.seeds[0], readings)
    *others, last = study.rows["attempts"]  # (cell, attempt, ..., started, last_seen, last_seq, status, reason,
    study.rows["attempts"] = [  # gpu_hours, cpu_hours, heartbeat_seconds, crash)
        *others,
        *(
            (last[0], number, *last[2:13], start, seen, 9, status, "", 0.0, 0.25, HEARTBEAT, fault)
            for number, (start, seen, status, fault) in enumerate((*lives, (1000.0, 1500.0, "completed", None)))
        ),
    ]
    return study


def of_mc(snapshot: Snapshot) -> Spending:
    return spending_by_arm(snapshot)[None, "mc"]


@pytest.mark.parametrize(
    ("last_seen", "next_start", "unseen"),
    [(100.0, 900.0, HEARTBEAT), (100.0, 112.0, 12.0), (100.0, 100.0, 0.0), (100.0, 99.0, 0.0)],
)
def test_a_killed_attempt_may_have_lived_until_its_next_heartbeat_or_its_successor(
    last_seen: float, next_start: float, unseen: float, opened: Open
) -> None:
    """It is charged up to its last line. Clocks of two machines may disagree; nothing is negative."""
    lives = [(0.0, last_seen, None, "infrastructure"), (next_start, next_start + 1, "failed", "self")]
    spending = of_mc(opened(crashed(SyntheticStudy(seeds=(1,)), *lives)))
    assert spending.unseen_seconds == unseen
    assert (spending.crashes_self, spending.crashes_infrastructure) == (1, 1)


def test_spent_hours_are_those_of_all_attempts_and_algorithmic_ones_the_runs(opened: Open) -> None:
    lives = [(0.0, 100.0, None, "infrastructure"), (200.0, 300.0, "failed", "self")]
    spending = of_mc(opened(crashed(SyntheticStudy(seeds=(1,)), *lives)))
    assert (spending.spent_cpu_hours, spending.algorithmic_cpu_hours) == (3 * 0.25, 0.1)


def test_the_table_tells_crashes_by_fault_and_has_a_column_for_what_stays_charged(opened: Open) -> None:
    study = crashed(
        SyntheticStudy(seeds=(1,)), (0.0, 100.0, None, "infrastructure"), (200.0, 300.0, "failed", "self")
    )
    cell = study.cell("tiny", "mc", 1)
    study.spend(cell, "rollout", 500)
    study.spend(cell, "rollout", 30, lost="infrastructure")
    study.spend(cell, "rollout", 7, lost="self")
    text = " ".join(render(leaderboard(opened(study)), "markdown").split())
    assert "| lost by own fault | algorithmic | retraced | spent |" in text
    assert "| 7 | 507 | 30 | 537 |" in text
    assert "mc: 1 crash of its own fault; the 7 tokens lost with it stay algorithmic." in text
    assert "mc: 1 crash by the infrastructure; 30 tokens retraced, give or take 30 s unseen." in text


@pytest.mark.parametrize(
    "judge", [leaderboard, lambda snapshot: rank_flips(snapshot, np.random.default_rng(0)), verdicts]
)
def test_every_table_names_both_ledgers(judge: Callable[[Snapshot], Result], opened: Open) -> None:
    study = crashed(SyntheticStudy(seeds=(1,)))
    for arm, lost in (("mc", None), ("mc", "self"), ("grpo", "infrastructure"), ("grpo", None)):
        study.spend(study.cell("tiny", arm, 1), "rollout", 1_000, lost=lost)
    study.spend(study.cell("tiny", "mc", 1), "evaluation", 5_000)
    result = judge(opened(study))
    told = render(result, "markdown").count("generated tokens: 3,000 algorithmic, 4,000 spent")
    assert told == len(result.tables()) > 0


def test_without_a_loss_of_its_own_no_arm_has_such_a_column(opened: Open) -> None:
    study = crashed(SyntheticStudy(seeds=(1,)))
    study.spend(study.cell("tiny", "mc", 1), "rollout", 1000)
    text = render(leaderboard(opened(study)), "markdown")
    assert "lost by own fault" not in text and "crash" not in text
