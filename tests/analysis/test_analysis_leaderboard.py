"""The leaderboard recovers what was planted, and shows whatever went wrong with a run."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from synthetic_study import TOKENS, UPDATES, SyntheticStudy

from analysis.leaderboard import Leaderboard, LeaderboardRow, leaderboard
from analysis.points import Point
from analysis.snapshot import Snapshot
from analysis.tables import HOURS_NOTE, render

Open = Callable[[SyntheticStudy], Snapshot]


def noise(seed: int, arm: str) -> float:
    return float(np.random.default_rng([seed, *arm.encode()]).normal(0, 0.01))


def planted(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
    """grpo leads by 30 points at equal tokens, mc by 5 at equal updates; seeds share their luck."""
    truth = {"grpo": 0.48, "mc": 0.53} if currency == "updates" else {"grpo": 0.80, "mc": 0.50}
    luck = float(np.random.default_rng(seed).normal(0, 0.05))
    return truth.get(arm, 0.3) + luck + noise(seed, arm)


def rows_at(board: Leaderboard, currency: str, model: str = "tiny") -> list[LeaderboardRow]:
    return [row for row in board.rows if (row.currency, row.model) == (currency, model)]


def test_the_planted_winner_and_difference_are_recovered_at_each_budget(opened: Open) -> None:
    board = leaderboard(opened(SyntheticStudy().fill(planted)))
    tokens, updates = rows_at(board, "generated_tokens"), rows_at(board, "updates")
    assert [row.arm for row in tokens] == ["grpo", "mc"]
    assert [row.arm for row in updates] == ["mc", "grpo"]
    assert tokens[1].difference_low_points < -30 < tokens[1].difference_high_points
    assert updates[0].difference_low_points < 5 < updates[0].difference_high_points
    assert [(row.rank, row.rank_low, row.rank_high, row.ties) for row in tokens] == [(1, 1, 1, "a"), (2, 2, 2, "b")]


def test_the_difference_is_paired_by_seed_with_its_t_interval(opened: Open) -> None:
    study = SyntheticStudy().fill(planted)
    row = rows_at(leaderboard(opened(study)), "generated_tokens")[1]
    mc, grpo = (
        [100 * planted("tiny", arm, seed, "generated_tokens", TOKENS) for seed in study.seeds]
        for arm in ("mc", "grpo")
    )
    expected = stats.ttest_rel(mc, grpo)
    interval = expected.confidence_interval(0.95)
    assert row.difference_p == pytest.approx(expected.pvalue)
    assert (row.difference_low_points, row.difference_high_points) == pytest.approx((interval.low, interval.high))
    assert (row.pairs, row.seeds_done, row.seeds_planned) == (8, 8, 8)


def test_a_budget_is_read_before_other_points_and_a_currency_without_one_at_a_milestone_all_reached(
    opened: Open,
) -> None:
    study = SyntheticStudy(grids={"flops": [1e9, 2e9, 4e9]})
    for arm in study.arms:
        for seed in study.seeds:
            far = 4e9 if arm == "mc" else 2e9
            points = {("flops", amount): 0.5 + noise(seed, arm) for amount in (1e9, 2e9, 4e9) if amount <= far}
            study.run(arm, seed, {("generated_tokens", TOKENS): 0.5, ("updates", UPDATES): 0.5, **points})
    board = leaderboard(opened(study))
    points = list(dict.fromkeys((row.currency, row.amount, row.origin) for row in board.rows))
    assert points == [("generated_tokens", TOKENS, "budget"), ("updates", UPDATES, "budget"), ("flops", 2e9, "grid")]


def test_an_arm_that_did_not_reach_the_budget_is_shown_last_and_unranked_whatever_its_accuracy(opened: Open) -> None:
    study = SyntheticStudy(arms=("grpo", "mc", "slow"))
    for seed in study.seeds:
        for arm in ("grpo", "mc"):
            study.run(arm, seed, {("generated_tokens", TOKENS): planted("", arm, seed, "generated_tokens", TOKENS)})
        reached = {("generated_tokens", TOKENS): 0.99} if seed == 101 else {}
        study.run("slow", seed, reached)
    rows = rows_at(leaderboard(opened(study)), "generated_tokens")
    assert [row.arm for row in rows] == ["grpo", "mc", "slow"]
    assert (rows[2].rank, rows[2].not_reached, rows[2].seeds_done, rows[2].seeds_planned) == (None, 7, 1, 8)
    assert (rows[0].rank_low, rows[0].rank_high) == (1, 1)


def test_an_arm_that_failed_in_some_seeds_does_not_rank_by_the_others(opened: Open) -> None:
    study = SyntheticStudy(arms=("grpo", "fragile"), seeds=(1, 2, 3))
    for seed in (1, 2, 3):
        study.run("grpo", seed, {("updates", UPDATES): 0.5 + 0.01 * seed})
    study.run("fragile", 1, {("updates", UPDATES): 0.9})
    for seed in (2, 3):
        study.run("fragile", seed, {}, status="failed")
    rows = rows_at(leaderboard(opened(study)), "updates")
    assert [(row.arm, row.rank, row.failed) for row in rows] == [("grpo", 1, 0), ("fragile", None, 2)]


def test_a_diverged_run_is_scored_at_the_floor_counted_and_never_first(opened: Open) -> None:  # S8
    study = SyntheticStudy(seeds=(1, 2, 3))
    for seed in study.seeds:
        study.run("grpo", seed, {("updates", UPDATES): 0.5 + noise(seed, "grpo")})
        lost = {"accuracy": None, "diverged": True}
        study.run(
            "mc", seed, {("updates", UPDATES): lost if seed == 2 else 0.6 + noise(seed, "mc")}, diverged=seed == 2
        )
    rows = rows_at(leaderboard(opened(study)), "updates")
    assert [row.arm for row in rows] == ["grpo", "mc"]
    assert rows[1].diverged == 1
    assert rows[1].accuracy == pytest.approx((0.6 + noise(1, "mc") + 0.6 + noise(3, "mc")) / 3)
    assert rows[1].seeds_done == 3


def test_all_seeds_alike_show_their_value_without_false_certainty(opened: Open) -> None:  # S2
    study = SyntheticStudy().fill(lambda model, arm, seed, currency, amount: 0.75 if arm == "grpo" else 0.5)
    board = leaderboard(opened(study))
    row = rows_at(board, "updates")[1]
    assert (row.accuracy, row.difference_points) == (0.5, -25)
    assert np.isnan([row.difference_low_points, row.difference_high_points, row.difference_p]).all()
    assert (row.rank_low, row.rank_high) == (1, 2)
    text = render(board)
    assert "-25.0 (degenerate)" in text
    assert text.count("Degenerate: one seed, or no spread over seeds: no interval.") == 1


def test_two_equal_arms_share_rank_and_letter(opened: Open) -> None:  # S7
    study = SyntheticStudy(arms=("grpo", "twin", "other"))
    study.fill(
        lambda model, arm, seed, currency, amount: (0.3 if arm == "other" else 0.7) + noise(seed, arm[:0] + "x")
    )
    rows = {row.arm: row for row in rows_at(leaderboard(opened(study)), "updates")}
    assert (rows["grpo"].rank, rows["grpo"].ties) == (rows["twin"].rank, rows["twin"].ties) == (1, "a")
    assert rows["other"].rank == 3


def test_missing_cells_and_unfinished_blocks_keep_the_plans_denominator(opened: Open) -> None:  # S5
    study = SyntheticStudy()
    for seed in study.seeds[:5]:
        for arm in study.arms:
            study.run(arm, seed, {("updates", UPDATES): planted("", arm, seed, "updates", UPDATES)})
    study.run("mc", study.seeds[5], {("updates", UPDATES): 1.0})
    board = leaderboard(opened(study))
    rows = rows_at(board, "updates")
    assert [(row.seeds_done, row.seeds_planned, row.left_out) for row in rows] == [(5, 8, 3), (5, 8, 3)]
    expected = np.mean([planted("", "mc", seed, "updates", UPDATES) for seed in study.seeds[:5]])
    assert next(row for row in rows if row.arm == "mc").accuracy == pytest.approx(expected)
    text = render(board, width=200)
    assert "3 of 8 blocks are not finished" in text
    assert "3 runs in unfinished blocks" in text
    assert "Degenerate" not in text


def test_over_models_the_mean_is_per_seed_with_equal_weights(opened: Open) -> None:
    study = SyntheticStudy(models=("x", "y"))
    gap = {"x": 0.10, "y": 0.02}
    study.fill(
        lambda model, arm, seed, currency, amount: 0.5 + (gap[model] if arm == "mc" else 0.0) + noise(seed, arm)
    )
    board = leaderboard(opened(study))
    assert list(dict.fromkeys(row.model for row in board.rows)) == ["x", "y", "all models"]
    row = next(row for row in rows_at(board, "updates", "all models") if row.arm == "mc")
    shift = 100 * np.mean([noise(seed, "mc") - noise(seed, "grpo") for seed in study.seeds])
    assert row.difference_points == pytest.approx(6.0 + shift)
    assert row.pairs == 8


def test_spending_is_kept_by_kind_with_retraced_and_evaluation_apart(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1, 2)).fill(planted)
    for seed in study.seeds:
        cell = study.cell("tiny", "mc", seed)
        study.spend(cell, "rollout", 100)
        study.spend(cell, "continuation", 900)
        study.spend(cell, "evaluation", 50)
        study.spend(cell, "rollout", 30, lost="infrastructure")
        study.spend(cell, "rollout", 7, lost="self")
    spending = {row.arm: row.spending for row in leaderboard(opened(study)).rows}
    assert spending["mc"].tokens_by_kind == {"continuation": 1800, "rollout": 200, "evaluation": 100}
    assert (spending["mc"].algorithmic_tokens, spending["mc"].spent_tokens) == (2014, 2074)
    assert (spending["mc"].lost_self_tokens, spending["mc"].retraced_tokens) == (14, 60)
    assert (spending["mc"].algorithmic_flops, spending["mc"].spent_flops) == (2 * 2014, 2 * 2074)
    assert spending["grpo"].spent_tokens == 0


def test_over_and_undershoot_are_means_in_the_currency(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1, 2))
    for seed, after, charge in ((1, 1100.0, 900.0), (2, 1020.0, 960.0)):
        evaluation = {"accuracy": 0.5, "charge_after": after, "generated_tokens": charge}
        for arm in study.arms:
            study.run(arm, seed, {("generated_tokens", TOKENS): evaluation})
    board = leaderboard(opened(study), [Point("generated_tokens", TOKENS)])
    assert {(row.overshoot, row.undershoot) for row in board.rows} == {(60.0, 70.0)}
    text = render(board)
    assert "past / unused %" in text and "6.0 / 7.0" in text


def test_every_table_says_its_mode_and_charges_and_hours_carry_their_sentence(opened: Open) -> None:
    study = SyntheticStudy(grids={"cpu_hours": [0.1]}, mode="exploratory", mode_reason="no lock").fill(planted)
    board = leaderboard(opened(study))
    for fmt in ("terminal", "markdown"):
        text = render(board, fmt, width=200)
        tables = len(board.tables())
        assert text.count("study s · exploratory: no lock · charged: rollout, continuation") == tables
        # The table at cpu_hours, and what was spent; on the terminal notes of consecutive tables are printed once.
        assert text.count(HOURS_NOTE) == (1 if fmt == "terminal" else 2)
    rows = render(board, "csv").splitlines()
    assert all(line.startswith("s,exploratory,no lock,rollout continuation,") for line in rows[1:])
    assert json.loads(render(board, "json"))["heading"]["mode"] == "exploratory"
