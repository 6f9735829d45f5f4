"""Planted flips are found between the right points and in the right direction; absent ones are not."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from synthetic_study import TOKENS, UPDATES, SyntheticStudy

from analysis.rank_flips import FlipRow, RankFlips, rank_flips
from analysis.snapshot import Snapshot
from analysis.statistics.multiplicity import holm
from analysis.tables import render

Open = Callable[[SyntheticStudy], Snapshot]


def planted(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
    """mc flips against grpo between updates and every kind of compute; half never does."""
    truth = (
        {"grpo": 0.48, "mc": 0.55, "half": 0.30}
        if currency == "updates"
        else {"grpo": 0.80, "mc": 0.50, "half": 0.40}
    )
    luck = float(np.random.default_rng(seed).normal(0, 0.05))
    own = float(np.random.default_rng([seed, int(amount), *arm.encode()]).normal(0, 0.01))
    return truth[arm] + luck + own


def row(flips: RankFlips, a: str, b: str, currency: str = "generated_tokens") -> FlipRow:
    return next(row for row in flips.rows if (row.a, row.b, row.currency) == (a, b, currency))


def test_the_planted_flip_is_certain_in_its_direction_only(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    found = row(flips, "mc", "grpo")
    assert (found.kind, found.updates, found.updates_declared) == ("certain", UPDATES, True)
    assert found.low_updates_points < 7 < found.high_updates_points
    assert found.low_compute_points < -30 < found.high_compute_points
    assert found.resample_share == 1.0
    assert {(r.a, r.b) for r in flips.rows if r.kind != "none"} == {("mc", "grpo")}
    assert row(flips, "grpo", "mc").resample_share == 0.0


def test_with_one_point_p_is_adjusted_by_holm_over_every_pair_and_direction(
    opened: Open, generator: np.random.Generator
) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    assert len(flips.rows) == 6
    assert [r.p_adjusted for r in flips.rows] == pytest.approx(holm([r.p for r in flips.rows]))


def test_opposite_estimates_that_could_be_chance_are_possible_not_certain(
    opened: Open, generator: np.random.Generator
) -> None:
    study = SyntheticStudy(seeds=(1, 2, 3, 4))
    wobble = {1: 0.10, 2: -0.09, 3: 0.05, 4: -0.04}
    sign = {"updates": 1, "generated_tokens": -1}
    study.fill(lambda m, arm, seed, c, a: 0.5 + (sign[c] * wobble[seed] if arm == "mc" else 0.0))
    flips = rank_flips(opened(study), generator)
    assert row(flips, "mc", "grpo").kind == "possible"
    assert row(flips, "grpo", "mc").kind == "none"


def test_every_currency_with_milestones_but_updates_is_compared(opened: Open, generator: np.random.Generator) -> None:
    study = SyntheticStudy(grids={"flops": [1e9], "cpu_hours": [0.1]}).fill(planted)
    flips = rank_flips(opened(study), generator)
    assert {r.currency for r in flips.rows} == {"generated_tokens", "flops", "cpu_hours"}
    assert row(flips, "mc", "grpo", "flops").kind == "certain"


def undeclared() -> SyntheticStudy:
    """No budget in updates; within the tokens grpo makes 40 or more updates, mc 12 or 17."""
    study = SyntheticStudy(seeds=(1, 2, 3), budgets={"generated_tokens": TOKENS}, grids={"updates": [5, 10, 15, 20]})
    for seed, updates in ((1, 12.0), (2, 17.0), (3, 17.0)):
        for arm in study.arms:
            made = updates if arm == "mc" else 40.0 + seed
            grid = {
                ("updates", a): planted("", arm, seed, "updates", a) for a in (5.0, 10.0, 15.0, 20.0) if a <= made
            }
            reading = {"accuracy": planted("", arm, seed, "generated_tokens", TOKENS), "updates": made}
            study.run(arm, seed, {("generated_tokens", TOKENS): reading, **grid})
    return study


def test_undeclared_equal_updates_are_the_costlier_arms_fewest_on_the_grid_and_labelled(
    opened: Open, generator: np.random.Generator
) -> None:
    flips = rank_flips(opened(undeclared()), generator)
    found = row(flips, "mc", "grpo")
    assert (found.updates, found.updates_declared) == (10, False)
    assert "exploratory default" in render(flips, "markdown")


def test_without_any_milestone_in_updates_nothing_is_evaluable(opened: Open, generator: np.random.Generator) -> None:
    study = SyntheticStudy(budgets={"generated_tokens": TOKENS}).fill(planted)
    flips = rank_flips(opened(study), generator)
    assert {r.kind for r in flips.rows} == {"not evaluable"}
    assert flips.agreements == () and flips.grid == ()
    assert "no common number of updates" in render(flips)


def test_a_run_that_did_not_reach_a_point_makes_the_pair_not_evaluable_and_stays_in_the_family(
    opened: Open, generator: np.random.Generator
) -> None:
    study = SyntheticStudy(arms=("grpo", "mc", "half"))
    for arm in study.arms:
        for seed in study.seeds:
            points = {p: planted("", arm, seed, *p) for p in (("generated_tokens", TOKENS), ("updates", UPDATES))}
            if (arm, seed) == ("half", 101):
                del points["generated_tokens", TOKENS]
            study.run(arm, seed, points)
    flips = rank_flips(opened(study), generator)
    lost = row(flips, "half", "grpo")
    assert (lost.kind, lost.p_adjusted, lost.n_compute) == ("not evaluable", 1.0, 7)
    found = row(flips, "mc", "grpo")
    assert found.p_adjusted == pytest.approx(6 * found.p)


def test_rank_agreement_is_shown_beside_its_noise_floor(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    [agreement] = flips.agreements
    # Planted: mc > grpo > half against grpo > mc > half: one of three pairs is discordant.
    assert agreement.kendall_tau == pytest.approx(1 / 3)
    assert agreement.noise_floor == 1.0
    assert (agreement.arms, agreement.seeds) == (3, 8)


def test_the_grid_shows_where_the_flip_begins_and_marks_the_declared_point(
    opened: Open, generator: np.random.Generator
) -> None:
    def crossing(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
        """mc leads at every number of updates, and in tokens up to half the budget."""
        early = currency == "updates" or amount <= TOKENS / 2
        return planted(model, arm, seed, "updates" if early else "generated_tokens", amount)

    flips = rank_flips(opened(SyntheticStudy().fill(crossing)), generator)
    grid = {(r.updates, r.amount): r for r in flips.grid}
    assert set(grid) == {(u, t) for u in (UPDATES / 2, UPDATES) for t in (TOKENS / 2, TOKENS)}
    assert {at: r.kind for at, r in grid.items() if at[1] == TOKENS / 2} == {(25, 500): "none", (50, 500): "none"}
    assert {at: r.kind for at, r in grid.items() if at[1] == TOKENS} == {(25, 1000): "certain", (50, 1000): "certain"}
    assert [at for at, r in grid.items() if r.declared] == [(UPDATES, TOKENS)]
    assert "[+-*]" in render(flips)  # of mc - grpo, as the main table has it


def test_the_grid_has_the_main_tables_pairs_in_its_order_and_direction(
    opened: Open, generator: np.random.Generator
) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    main, _, grid = flips.tables()
    assert list(dict.fromkeys(line[0] for line in grid.rows)) == [line[0] for line in main.rows]
    # Planted, at every point: mc leads grpo in updates only, half trails both everywhere.
    expected = {"grpo - half": "++", "half - grpo": "--", "mc - grpo": "+-*", "mc - half": "++", "half - mc": "--"}
    for pair, _, *cells in grid.rows:
        assert {cell.strip("[]") for cell in cells} == {expected[pair]}
    assert "mc - grpo" in {line[0] for line in main.rows}


def test_a_summary_names_the_grid_instead_of_printing_it(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy().fill(planted)), generator)
    whole, short = (render(flips, width=200, details=details) for details in (True, False))
    assert "[+-*]" in whole and "Not shown" not in whole
    assert "[+-*]" not in short
    assert "Kendall's tau" in short
    assert "Not shown here: tiny: flips over updates and generated tokens." in short


def test_only_a_pair_that_may_flip_shows_its_share(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    shares = {line[3]: line[5] for line in flips.tables()[0].rows}
    assert shares == {"certain": "1.00", "none": "–"}


def test_the_same_generator_gives_the_same_tables(opened: Open) -> None:
    snapshot = opened(SyntheticStudy().fill(planted))
    texts = {render(rank_flips(snapshot, np.random.default_rng(3)), "json") for _ in range(2)}
    assert len(texts) == 1


def test_all_formats_hold_the_same_rows(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo", "mc", "half")).fill(planted)), generator)
    as_csv = list(csv.DictReader(io.StringIO(render(flips, "csv"))))
    as_json = json.loads(render(flips, "json"))["rows"]
    assert [(r["a"], r["b"], r["kind"]) for r in as_csv] == [(r["a"], r["b"], r["kind"]) for r in as_json]
    assert len(as_csv) == len(flips.rows)


def test_one_arm_has_nothing_to_flip_against(opened: Open, generator: np.random.Generator) -> None:
    flips = rank_flips(opened(SyntheticStudy(arms=("grpo",)).fill(planted)), generator)
    assert flips.rows == ()
    for fmt in ("terminal", "markdown"):
        text = render(flips, fmt, width=200)
        assert "Nothing can flip" in text and "study s · confirmatory" in text


def test_a_study_of_updates_alone_has_nothing_to_flip_against(opened: Open, generator: np.random.Generator) -> None:
    study = SyntheticStudy(budgets={"updates": UPDATES}).fill(planted)
    assert rank_flips(opened(study), generator).rows == ()
