"""A study with a planted truth, from its file to its tables: winner, difference and flip must be recovered.

The scripted model's accuracy after u updates is 0.2 + 0.7 (1 - exp(-gain u)), and what an update costs is exact, so
every number here is foretold from the declaration.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.command_line import isobudget
from support.sweeps import Swept

TOLERATED_SIGMAS = 4.0


@pytest.fixture(params=["swept_flip", "swept_order"])
def swept(request: pytest.FixtureRequest) -> Swept:
    found: Swept = request.getfixturevalue(request.param)
    return found


def table(swept: Swept, command: str) -> Any:
    ran = isobudget(command, swept.truth.study, "--runs", swept.runs.root, "--json")
    assert ran.code == 0, ran.err
    return ran.json()


def points(swept: Swept) -> dict[tuple[str, float], dict[str, int]]:
    """Every declared point, with the updates that each arm has made there."""
    truth = swept.truth
    return {
        ("updates", truth.budget_updates): dict.fromkeys(truth.arms, truth.budget_updates),
        ("generated_tokens", truth.budget_tokens): truth.within_tokens(),
    }


def tolerance_points(swept: Swept, difference_points: float) -> float:
    """Runs share problems and seeds: an outcome differs with probability |difference|, else not at all."""
    share = abs(difference_points) / 100
    samples = swept.truth.seeds * swept.truth.problems
    return TOLERATED_SIGMAS * 100 * math.sqrt(share * (1 - share) / samples)


def test_the_sweep_ends_well_and_its_report_is_on_disk(swept: Swept) -> None:
    assert swept.ran.code == 0, swept.ran.err
    assert f"{swept.truth.study}: 8 done, 0 to do" in swept.ran.out
    report = swept.runs.report(swept.truth.study)
    for name in ("leaderboard", "flips", "verdicts"):
        for suffix in ("md", "csv", "json"):
            assert (report / f"{name}.{suffix}").stat().st_size > 0
    assert (report / "curves.svg").read_text().rstrip().endswith("</svg>")


def test_winner_accuracy_and_difference_are_recovered_at_each_budget(swept: Swept) -> None:
    truth = swept.truth
    rows = table(swept, "leaderboard")["rows"]
    found = {(row["currency"], row["amount"], row["arm"]): row for row in rows}
    assert len(found) == 4
    for (currency, amount), updates in points(swept).items():
        foretold = truth.difference_points(updates)
        winner, loser = ("dense", "plain") if foretold > 0 else ("plain", "dense")
        first, last = found[currency, amount, winner], found[currency, amount, loser]
        assert (first["rank"], first["rank_low"], first["rank_high"]) == (1, 1, 1)
        assert (last["rank"], last["rank_low"], last["rank_high"]) == (2, 2, 2)
        dense = found[currency, amount, "dense"]
        assert dense["difference_points"] == pytest.approx(foretold, abs=tolerance_points(swept, foretold))
        assert (dense["difference_low_points"] > 0) if foretold > 0 else (dense["difference_high_points"] < 0)
        for name, arm in truth.arms.items():
            row = found[currency, amount, name]
            expected = arm.accuracy(updates[name])
            sigma = math.sqrt(expected * (1 - expected) / (truth.seeds * truth.problems))
            assert row["accuracy"] == pytest.approx(expected, abs=TOLERATED_SIGMAS * sigma)
            assert (row["seeds_done"], row["seeds_planned"], row["not_reached"], row["diverged"]) == (4, 4, 0, 0)


def test_overshoot_and_tokens_spent_are_exact(swept: Swept) -> None:
    truth = swept.truth
    board = table(swept, "leaderboard")
    tokens = {row["arm"]: row for row in board["rows"] if row["currency"] == "generated_tokens"}
    for name, arm in truth.arms.items():
        within = arm.updates_within(truth.budget_tokens)
        charged = (within + 1) * arm.update_tokens  # the batch that showed the budget to be exhausted
        assert tokens[name]["overshoot"] == charged - truth.budget_tokens
        assert tokens[name]["undershoot"] == truth.budget_tokens - within * arm.update_tokens
        spent = tokens[name]["spending"]
        rollouts = charged // (1 + arm.continuations)
        assert spent["tokens_by_kind"]["rollout"] == truth.seeds * rollouts
        assert spent["tokens_by_kind"]["continuation"] == truth.seeds * (charged - rollouts)
        assert spent["algorithmic_tokens"] == spent["spent_tokens"] == truth.seeds * charged  # evaluation apart
        assert spent["retraced_tokens"] == 0


def test_the_flip_is_certain_where_one_was_planted_and_absent_where_none_was(swept: Swept) -> None:
    flips = table(swept, "flips")
    kinds = {(row["a"], row["b"]): row["kind"] for row in flips["rows"]}
    planted = swept.truth.study == "planted-flip"
    assert kinds == {("dense", "plain"): "certain" if planted else "none", ("plain", "dense"): "none"}
    row = next(row for row in flips["rows"] if row["a"] == "dense")
    assert (row["updates"], row["amount"]) == (swept.truth.budget_updates, swept.truth.budget_tokens)
    assert row["updates_declared"]
    (agreement,) = flips["agreements"]
    assert agreement["kendall_tau"] == (-1.0 if planted else 1.0)
    assert agreement["noise_floor"] == 1.0


def test_the_verdicts_are_the_planted_ones(swept: Swept) -> None:
    verdicts = {row["claim"]: row["verdict"] for row in table(swept, "verdicts")["rows"]}
    planted = swept.truth.study == "planted-flip"
    claimed_at_tokens = "supported" if planted else "contradicted"
    assert verdicts == {"H1": "supported", "H2": claimed_at_tokens, "H3": claimed_at_tokens}


def test_a_second_sweep_launches_nothing(swept: Swept) -> None:
    logs = {path: path.read_bytes() for path in swept.runs.attempt_logs()}
    again = isobudget("sweep", swept.file, "--runs", swept.runs.root, "--inline", "--json")
    assert again.code == 0
    assert (again.json()["sweep"]["completed"], again.json()["sweep"]["launched"]) == (8, 0)
    told = isobudget("sweep", swept.file, "--runs", swept.runs.root, "--inline", "--no-report")
    assert f"{swept.truth.study}: 8 done, 0 to do" in told.out
    assert {path: path.read_bytes() for path in swept.runs.attempt_logs()} == logs
