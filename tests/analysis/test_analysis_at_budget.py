"""Runs read at budgets: exact readings, every kind of missing one, a user's own frame, and the study's label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from synthetic_study import TOKENS, UPDATES, SyntheticStudy

from analysis.at_budget import accuracy_array, at_budget, interpolated_at
from analysis.errors import AnalysisError
from analysis.snapshot import Label, Snapshot

Open = Callable[[SyntheticStudy], Snapshot]
FULL = {("generated_tokens", TOKENS): 0.7, ("updates", UPDATES): 0.6}


def row(frame: pd.DataFrame, arm: str, seed: int) -> pd.Series:
    found = frame[(frame["arm"] == arm) & (frame["seed"] == seed)]
    assert len(found) == 1
    return found.iloc[0]


def test_a_reading_is_the_milestones_own_evaluation_with_its_over_and_undershoot(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    evaluation = {"accuracy": 0.7, "charge_after": 1040.0, "generated_tokens": 930.0, "updates": 31}
    study.run("grpo", 1, {("generated_tokens", TOKENS): evaluation, ("generated_tokens", TOKENS / 2): 0.1})
    study.run("mc", 1, FULL)
    found = row(at_budget(opened(study), "generated_tokens", TOKENS), "grpo", 1)
    assert (found["accuracy"], found["status"], found["updates"]) == (0.7, "ok", 31)
    assert (found["charge"], found["overshoot"], found["undershoot"]) == (930, 40, 70)
    assert list(found["outcomes"]) == [1, 0]


def test_every_planned_cell_has_one_row_with_its_status(opened: Open) -> None:
    study = SyntheticStudy(arms=("grpo", "mc"), seeds=(1, 2, 3, 4))
    study.run("grpo", 1, FULL)
    study.run("mc", 1, {("updates", UPDATES): 0.6})
    study.run("grpo", 2, FULL)
    study.run("mc", 2, {("updates", UPDATES): 0.6}, status="failed")
    study.run("grpo", 3, FULL)
    study.run("mc", 3, {}, status="running")
    study.run("grpo", 4, FULL)
    frame = at_budget(opened(study), "generated_tokens", TOKENS)
    assert len(frame) == 8
    assert [row(frame, "mc", seed)["status"] for seed in study.seeds] == [
        "not reached",
        "failed",
        "unfinished",
        "not run",
    ]
    assert frame.loc[frame["arm"] == "mc", "accuracy"].isna().all()
    assert (frame.loc[frame["arm"] == "grpo", "status"] == "ok").all()


def test_a_run_that_did_not_reach_the_budget_is_not_clipped_to_an_earlier_value(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    study.run("grpo", 1, FULL)
    study.run("mc", 1, {("generated_tokens", TOKENS / 2): 0.99, ("updates", UPDATES): 0.99})
    assert np.isnan(row(at_budget(opened(study), "generated_tokens", TOKENS), "mc", 1)["accuracy"])


def test_an_unfinished_block_counts_for_no_arm(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1, 2))
    study.run("grpo", 1, FULL)
    study.run("mc", 1, FULL)
    study.run("grpo", 2, FULL)
    frame = at_budget(opened(study), "generated_tokens", TOKENS)
    assert list(frame.groupby("seed")["counted"].all()) == [True, False]
    np.testing.assert_array_equal(accuracy_array(frame, ["grpo", "mc"], "tiny"), [[0.7, np.nan], [0.7, np.nan]])


def test_a_failed_run_does_not_take_the_rest_of_its_block_away(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    study.run("grpo", 1, FULL)
    study.run("mc", 1, {}, status="failed")
    frame = at_budget(opened(study), "generated_tokens", TOKENS)
    np.testing.assert_array_equal(accuracy_array(frame, ["grpo", "mc"], "tiny"), [[0.7], [np.nan]])


@pytest.mark.parametrize("recorded", [True, False])
def test_a_diverged_run_scores_the_declared_floor_at_every_later_milestone(opened: Open, recorded: bool) -> None:
    study = SyntheticStudy(seeds=(1,), floor=0.125)
    study.run("grpo", 1, FULL)
    lost = {("generated_tokens", TOKENS): {"accuracy": None, "diverged": True}} if recorded else {}
    study.run("mc", 1, {("generated_tokens", TOKENS / 2): 0.4, **lost}, diverged=True)
    snapshot = opened(study)
    found = row(at_budget(snapshot, "generated_tokens", TOKENS), "mc", 1)
    assert (found["status"], found["accuracy"]) == ("diverged", 0.125)
    before = row(at_budget(snapshot, "generated_tokens", TOKENS / 2), "mc", 1)
    assert (before["status"], before["accuracy"]) == ("ok", 0.4)


def test_of_two_evaluations_of_a_milestone_the_one_on_the_surviving_path_counts(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    cell = study.run("grpo", 1, {("generated_tokens", TOKENS): {"accuracy": 0.2, "surviving": False}})
    study.run("mc", 1, FULL)
    for attempt, accuracy in ((1, 0.3), (2, 0.4)):
        again = study.rows["evaluations"][0]
        study.add("evaluations", cell, attempt, 0, True, *again[4:12], accuracy, *again[13:])
    assert row(at_budget(opened(study), "generated_tokens", TOKENS), "grpo", 1)["accuracy"] == 0.4


def test_an_amount_that_is_no_milestone_is_refused_and_the_milestones_are_named(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    study.run("grpo", 1, FULL)
    with pytest.raises(AnalysisError, match=r"999 generated_tokens is not a milestone.*500, 1,000"):
        at_budget(opened(study), "generated_tokens", 999)


OWN = pd.DataFrame(
    [
        ("a", "m", 1, "generated_tokens", 100, 0.2),
        ("a", "m", 1, "generated_tokens", 1000, 0.6),
        ("b", "m", 1, "generated_tokens", 100, 0.4),
    ],
    columns=["arm", "model", "seed", "currency", "amount", "accuracy"],
)


def test_a_users_own_frame_is_read_the_same_way() -> None:
    frame = at_budget(OWN, "generated_tokens", 1000)
    assert list(frame["status"]) == ["ok", "not reached"]
    np.testing.assert_array_equal(accuracy_array(frame, ["a", "b"], "m"), [[0.6], [np.nan]])


def test_in_a_users_frame_a_missing_accuracy_stays_missing_unless_it_is_said_to_have_diverged() -> None:
    gap = OWN.assign(accuracy=[0.2, np.nan, 0.4])
    assert row(at_budget(gap, "generated_tokens", 1000), "a", 1)["status"] == "failed"
    lost = row(at_budget(gap.assign(diverged=[False, True, False]), "generated_tokens", 1000), "a", 1)
    assert (lost["status"], lost["accuracy"]) == ("diverged", 0.0)


def test_a_frame_without_a_needed_column_or_with_two_runs_of_one_cell_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no column seed"):
        at_budget(OWN.drop(columns="seed"), "generated_tokens", 1000)
    with pytest.raises(AnalysisError, match="more than one run of arm a, model m, seed 1"):
        at_budget(OWN.assign(run=["x", "y", "z"]), "generated_tokens", 1000)


def test_interpolation_is_linear_in_log_compute_and_never_beyond_the_ends() -> None:
    def accuracy(amount: float) -> list[float]:
        return list(interpolated_at(OWN, "generated_tokens", amount)["accuracy"])

    assert accuracy(10**2.5)[0] == pytest.approx(0.4)
    assert accuracy(100) == pytest.approx([0.2, 0.4])
    assert accuracy(1000)[0] == pytest.approx(0.6)
    assert np.isnan([*accuracy(99), *accuracy(1001), accuracy(10**2.5)[1]]).all()


def test_interpolation_in_a_snapshot_uses_the_charge_of_the_policy_evaluated(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,))
    points = [(TOKENS / 2, 0.2, 400.0), (TOKENS, 0.6, 1600.0)]
    read = {("generated_tokens", at): {"accuracy": acc, "generated_tokens": charge} for at, acc, charge in points}
    study.run("grpo", 1, read)
    found = interpolated_at(opened(study), "generated_tokens", 800)
    assert list(found.loc[found["arm"] == "grpo", "accuracy"]) == pytest.approx([0.4])
    assert found.loc[found["arm"] == "mc", "accuracy"].isna().all()


def test_over_all_models_each_seed_is_their_mean_and_a_missing_model_is_not_averaged_away(opened: Open) -> None:  # S5
    study = SyntheticStudy(arms=("grpo",), models=("x", "y"), seeds=(1, 2))
    study.run("grpo", 1, {("updates", UPDATES): 0.2}, "x")
    study.run("grpo", 1, {("updates", UPDATES): 0.6}, "y")
    study.run("grpo", 2, {("updates", UPDATES): 0.2}, "x")
    frame = at_budget(opened(study), "updates", UPDATES)
    np.testing.assert_allclose(accuracy_array(frame, ["grpo"], None), [[0.4, np.nan]])


def test_a_missing_file_a_foreign_file_and_an_unknown_study_each_give_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="there is no snapshot"):
        Snapshot.open(tmp_path / "none.duckdb")
    (tmp_path / "text.duckdb").write_text("not a database, but long enough to be looked at " * 100)
    with pytest.raises(AnalysisError, match="not a snapshot"):
        Snapshot.open(tmp_path / "text.duckdb")
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    with pytest.raises(AnalysisError, match="not a snapshot"):
        Snapshot.open(tmp_path / "other.duckdb")
    with pytest.raises(AnalysisError, match="no study 'typo'; one of: s"):
        Snapshot.open(SyntheticStudy().write(tmp_path / "ours.duckdb"), "typo")


def test_reading_leaves_the_snapshot_unlocked_and_unchanged(tmp_path: Path) -> None:
    path = SyntheticStudy().write(tmp_path / "ours.duckdb")
    before = path.read_bytes()
    Snapshot.open(path)
    assert path.read_bytes() == before
    duckdb.connect(str(path)).close()


def test_runs_made_before_the_lock_make_the_whole_study_exploratory_with_their_count(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1, 2))
    study.run("grpo", 1, FULL, mode="exploratory")
    study.run("mc", 1, FULL)
    study.run("grpo", 2, FULL)
    label = opened(study).label
    assert label == Label("exploratory", "1 of 3 runs were made as exploratory, the study itself is confirmatory")


def test_a_study_whose_runs_all_kept_its_mode_keeps_it_with_its_reason(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,), mode="reproduction", mode_reason="a lock made elsewhere")
    study.run("grpo", 1, FULL)
    assert str(opened(study).label) == "reproduction: a lock made elsewhere"


def test_an_exploratory_study_never_becomes_confirmatory_by_its_runs(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1,), mode="exploratory", mode_reason="changed since the lock")
    study.run("grpo", 1, FULL, mode="confirmatory")
    label = opened(study).label
    assert label.mode == "exploratory"
    assert label.reason == "changed since the lock; 1 of 1 runs were made as confirmatory"
