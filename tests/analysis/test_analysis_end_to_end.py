"""From event logs through the store to tables: a planted flip comes out, and what a crash cost stays apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.stores import refresh
from support.synthetic_runs import SyntheticArm, SyntheticStudy, write_study
from synthetic_study import claim

from analysis.leaderboard import leaderboard
from analysis.rank_flips import rank_flips
from analysis.snapshot import Snapshot
from analysis.verdicts import verdicts
from harness.layout import RunsFolder

UPDATES = {"currency": "updates", "amount": 10}
TOKENS = {"currency": "generated_tokens", "amount": 2_000}

STUDY = SyntheticStudy(
    arms=(
        SyntheticArm("grpo", 100, lambda update: 0.30 + 0.03 * update),
        SyntheticArm("mc", 1_000, lambda update: 0.30 + 0.06 * update, continuation_share=0.9),
    ),
    seeds=tuple(range(101, 107)),
    problems=400,
    claims=(
        claim("directional", "mc", "grpo", relation=">", at=UPDATES),
        claim("directional", "mc", "grpo", id="H2", relation="<", at=TOKENS),
        claim("rank-flip", "mc", "grpo", id="H3", at=UPDATES, then=TOKENS),
    ),
    mode="confirmatory",
)
"""In truth: 90 against 60 % at 10 updates; within 2,000 tokens mc makes 2 updates (42 %), grpo 20 (90 %)."""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    runs = RunsFolder(tmp_path_factory.mktemp("end-to-end") / "runs").create()
    killed = STUDY.cell("model", "mc", 101)
    write_study(runs, STUDY, kills={killed: (30,)})
    refresh(runs)
    return Snapshot.open(runs.snapshot)


def test_the_planted_accuracies_are_read_at_the_right_policies(snapshot: Snapshot) -> None:
    rows = {(row.currency, row.arm): row for row in leaderboard(snapshot).rows}
    planted = {("updates", "mc"): 0.9, ("updates", "grpo"): 0.6, ("generated_tokens", "mc"): 0.42}
    for key, accuracy in planted.items():
        # 6 seeds of 400 problems: four standard errors.
        assert rows[key].accuracy == pytest.approx(accuracy, abs=4 * np.sqrt(0.25 / 2400))
        assert (rows[key].seeds_done, rows[key].seeds_planned) == (6, 6)
    assert rows["generated_tokens", "mc"].overshoot == 1_000
    assert rows["generated_tokens", "mc"].undershoot == 0


def test_the_planted_flip_and_every_claim_are_found(snapshot: Snapshot) -> None:
    flips = rank_flips(snapshot, np.random.default_rng(0))
    assert {(row.a, row.b, row.kind) for row in flips.rows} == {("mc", "grpo", "certain"), ("grpo", "mc", "none")}
    assert [row.verdict for row in verdicts(snapshot).rows] == ["supported"] * 3
    assert flips.heading.mode == "confirmatory"


def test_work_lost_to_a_crash_is_spent_not_algorithmic(snapshot: Snapshot) -> None:
    spending: dict[str, Any] = {row.arm: row.spending for row in leaderboard(snapshot).rows}
    assert spending["grpo"].retraced_tokens == 0
    lost = spending["mc"].retraced_tokens
    assert lost > 0 and lost % 1_000 == 0
    assert spending["mc"].tokens_by_kind["continuation"] == pytest.approx(0.9 * spending["mc"].algorithmic_tokens)
