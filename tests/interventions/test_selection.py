"""How prompts are chosen: the rule against its definition, what is charged, what is predicted, what is recorded."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.cells import write_cell
from support.faults import Faults, Killed
from support.short_warm_start import with_cache
from support.stores import refresh, rows
from support.studies import chain_study, write_study
from support.sweeps import assert_ledger_is_the_recount, counts, planned
from test_interventions import ToyEngine, step

from harness.errors import InputError
from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.interventions.base import Choice, Draw, Group, Step
from harness.interventions.registry import build_intervention
from harness.interventions.selection.beta import SelectBeta, fit_prior
from harness.interventions.selection.registry import SELECTORS
from harness.interventions.selection.selected import choose
from harness.layout import CellFolder, RunsFolder
from harness.study.cell import Cell
from harness.study.load import load_study
from harness.study.plan import make_plan
from harness.tasks.base import Problem
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED
from harness.train.run import converse

MORE = [Problem(f"more{i}", "a", f"m{i}") for i in range(5)]


def selecting(name: str, arm: str = "grpo", **parameters: object) -> dict[str, object]:
    return {"name": arm, "parameters": {}, "selection": {"name": name, "parameters": parameters}}


def collected(content: dict[str, object], update: int = 1) -> tuple[list[Group], ToyEngine, Step]:
    """One update of an arm that may draw five more prompts than the three of the update."""
    engine, it = ToyEngine(), step()
    it.update = update
    left = iter([Draw(problem, 3 + index, 0) for index, problem in enumerate(MORE)])
    it.stream = lambda count: list(itertools.islice(left, count))
    groups = converse(build_intervention(content).collect(it), engine)
    return groups, engine, it


def test_the_lowest_preferences_are_kept_and_ties_are_broken_by_lot() -> None:
    preference = np.array([0.3, 0.1, 0.1, 0.1, 0.0, 0.5])
    kept = [tuple(sorted(choose(preference, 3, 0.0, np.random.default_rng(seed))[0])) for seed in range(300)]
    assert set(kept) == {(1, 2, 4), (1, 3, 4), (2, 3, 4)}
    assert min(kept.count(each) for each in set(kept)) > 70


def test_a_uniform_share_keeps_every_prompt_in_sight() -> None:
    preference = np.arange(8.0)
    drawn = np.zeros(8)
    for seed in range(2000):
        places, uniform = choose(preference, 4, 0.25, np.random.default_rng(seed))
        assert len(set(places)) == 4
        drawn[[place for place, by_lot in zip(places, uniform, strict=True) if by_lot]] += 1
    assert abs(drawn.sum() / 2000 - 4 * 0.25) < 3 * np.sqrt(4 * 0.25 * 0.75 / 2000)
    assert (drawn > 0).all(), "the worst prompts are drawn, too"
    everything, by_lot = choose(preference, 8, 1.0, np.random.default_rng(0))
    assert sorted(everything) == list(range(8)) and all(by_lot)


def test_the_posterior_is_the_discounted_one_of_its_definition() -> None:
    """a <- lambda a + (1 - lambda) a0 + s, from a prior that is fitted anew before each update."""
    selector = SelectBeta(SelectBeta.Parameters(candidates=3, discount=0.5))
    groups, _, it = collected({"name": "grpo", "parameters": {}})
    solved = [int(group.rewards().sum()) for group in groups]
    a0, b0 = 1.0, 1.0  # nothing seen: uniform
    expected = [(a0 + s, b0 + 4 - s) for s in solved]
    selector.observe(groups, it)
    prior = fit_prior(np.array(solved, dtype=float), np.full(3, 4.0))
    second = [
        (0.5 * a + 0.5 * prior[0] + s, 0.5 * b + 0.5 * prior[1] + 4 - s)
        for (a, b), s in zip(expected, solved, strict=True)
    ]
    selector.observe(groups, it)
    told = selector.state()["posterior"]
    assert np.allclose([told[str(group.problem_index)] for group in groups], second)
    again = SelectBeta(selector.parameters)
    again.load_state(selector.state())
    with pytest.raises(StopIteration) as done:
        next(again.predict(it, it.draws))
    assert done.value.value == pytest.approx([a / (a + b) for a, b in second])


@pytest.mark.parametrize(("a", "b"), [(2.0, 3.0), (0.5, 0.5), (8.0, 2.0)])
def test_the_prior_is_recovered_from_counts_that_it_made(a: float, b: float) -> None:
    generator = np.random.default_rng(5)
    rates = generator.beta(a, b, 20_000)
    found = fit_prior(generator.binomial(8, rates).astype(float), np.full(20_000, 8.0))
    assert found == pytest.approx((a, b), rel=0.1)


@pytest.mark.parametrize("solved", [[], [3.0], [0.0, 0.0, 0.0], [8.0, 8.0]])
def test_counts_that_tell_no_spread_leave_a_wide_prior(solved: list[float]) -> None:
    a, b = fit_prior(np.array(solved), np.full(len(solved), 8.0))
    assert a > 0 and b > 0 and a + b == pytest.approx(2.0)
    assert a / (a + b) == pytest.approx((sum(solved) + 1) / (8 * len(solved) + 2))


@pytest.mark.parametrize(("name", "best"), [("select-beta", 0.5), ("select-hard", 0.1), ("select-easy", 0.9)])
def test_each_rule_prefers_what_its_name_says(name: str, best: float) -> None:
    selector = SELECTORS[name](SELECTORS[name].Parameters(candidates=3))
    predicted = np.array([0.9, 0.1, 0.5])
    assert predicted[np.argmin(selector.preference(predicted))] == best


def test_selecting_by_lot_knows_no_preference() -> None:
    selector = SELECTORS["select-random"](SELECTORS["select-random"].Parameters(candidates=3))
    assert len(set(selector.preference(np.array([0.9, 0.1, 0.5])))) == 1


def test_probes_are_asked_for_every_candidate_and_reused_in_the_groups_of_those_kept() -> None:
    groups, engine, it = collected(selecting("select-probe", candidates=8, probes=2, uniform_share=0.0))
    probes, rollouts = engine.calls
    assert len(probes) == 8 * 2 and {request.purpose for request in probes} == {"probe"}
    assert len(rollouts) == 3 * (4 - 2) and {request.purpose for request in rollouts} == {"rollout"}
    assert [len(group.rollouts) for group in groups] == [4, 4, 4]
    for group in groups:
        asked = [request for request in probes if request.problem == group.problem_index]
        assert [rollout.request for rollout in group.rollouts[:2]] == asked
    seeds = [rollout.request.seed for group in groups for rollout in group.rollouts]
    assert len(set(seeds)) == len(seeds)
    assert all(choice.predicted in (0.0, 0.5, 1.0) for choice in it.choices)


def test_what_was_predicted_and_what_came_of_it_is_told_of_every_choice() -> None:
    groups, _, it = collected(selecting("select-beta", candidates=8))
    assert [choice.problem for choice in it.choices] == [group.problem_index for group in groups]
    assert [choice.realised for choice in it.choices] == [group.rewards().mean() for group in groups]
    assert {choice.predicted for choice in it.choices} == {0.5}
    assert it.notes["candidates"] == 8 and it.notes["predicted_to_fail_share"] == 0.0
    assert isinstance(it.choices[0], Choice)


def test_with_as_many_candidates_as_prompts_the_samples_are_those_of_the_arm_alone() -> None:
    alone, _, _ = collected({"name": "grpo", "parameters": {}})
    chosen, _, _ = collected(selecting("select-beta", candidates=3))
    tokens = {group.problem_index: [r.sample.token_ids for r in group.rollouts] for group in alone}
    assert {group.problem_index: [r.sample.token_ids for r in group.rollouts] for group in chosen} == tokens


def selection_study(folder: Path, selection: object, **changes: object) -> Path:
    content = {**chain_study("selecting", {"updates": 6}, arms=("grpo",)), **changes}
    content["arms"]["chosen"] = {"intervention": "grpo", "selection": selection}
    return write_study(folder, content)


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        ({"name": "select-beta", "candidates": 3}, "3 candidates for the 4 prompts of an update; at least 4"),
        ({"name": "select-beta", "candidates": 65}, "65 candidates from a training pool of 64; at most 64"),
        ({"name": "select-probe", "candidates": 8, "probes": 0}, "selection.probes: found 0; at least 1"),
        ({"name": "select-beta", "candidates": 8, "probes": 2}, "selection.probes: unknown key"),
        ({"name": "select-bets", "candidates": 8}, "select-beta"),
        ({"name": "select-beta"}, "candidates"),
    ],
)
def test_what_cannot_choose_is_refused_with_its_line(tmp_path: Path, selection: object, told: str) -> None:
    with pytest.raises(InputError) as refused:
        load_study(selection_study(tmp_path, selection))
    assert told in str(refused.value) and str(refused.value).count("\n") == 0
    assert ":" in str(refused.value).split("selecting.yaml")[1][:2]


def test_a_selection_is_part_of_what_an_arm_is(tmp_path: Path) -> None:
    one = selection_study(tmp_path / "a", {"name": "select-beta", "candidates": 8})
    other = selection_study(tmp_path / "b", {"name": "select-beta", "candidates": 16})
    ids = [{cell.arm: cell.id for cell in make_plan(load_study(file)).cells} for file in (one, other)]
    assert ids[0]["chosen"] != ids[1]["chosen"] and ids[0]["grpo"] == ids[1]["grpo"]


def test_probes_count_against_a_budget_in_tokens(tmp_path: Path) -> None:
    """4 prompts x 4 rollouts, 8 of them reused of the 32 probes, 8 tokens each at the least: a chain of two steps."""
    selection = {"name": "select-probe", "candidates": 16, "probes": 2}
    file = selection_study(tmp_path, selection, budget={"generated_tokens": 100})
    with pytest.raises(InputError, match=r"short of one update of arm 'chosen'.*takes (\d+)") as refused:
        load_study(file)
    shortest = load_study(selection_study(tmp_path / "b", selection)).study.task.least_answer_tokens()
    assert f"takes {(32 + 16 - 8) * shortest}" in str(refused.value)


def chosen_cell(folder: Path, cache: Path, name: str, **parameters: object) -> tuple[CellFolder, RunsFolder]:
    runs = with_cache(RunsFolder(folder), cache)
    file = selection_study(folder, {"name": name, "candidates": 12, **parameters})
    return write_cell(runs, Cell.read(planned(file, runs, "chosen").spec).content), runs


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_a_selecting_run_is_the_same_after_a_kill_and_its_ledger_is_the_recount(
    tmp_path: Path, chain_cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cell, runs = chosen_cell(tmp_path / "whole", chain_cache, name)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    whole = fold_run(cell.path)
    assert_ledger_is_the_recount(cell, whole)
    if name == "select-model":
        assert whole.algorithmic["probe"]["flops"] > 0 and not whole.algorithmic["probe"]["generated_tokens"]
    assert ("probe" in whole.algorithmic) == bool(SELECTORS[name].KINDS)

    other, runs = chosen_cell(tmp_path / "killed", chain_cache, name)
    lines = [event.kind for event in read_events(cell.events(1)).events]
    after = [place for place, kind in enumerate(lines) if kind == "update"][4]
    with monkeypatch.context() as patch:
        Faults(patch, die_at=2 * after + 12)
        with pytest.raises(Killed):
            run_cell(other.spec, runs)
    assert run_cell(other.spec, runs) == EXIT_COMPLETED
    assert len(other.attempt_numbers()) == 2
    assert read_events(other.events(2)).events[0].payload["resumed_from"] is not None
    again = fold_run(other.path)
    assert again.history == whole.history and counts(again.algorithmic) == counts(whole.algorithmic)
    refresh(runs)
    told = rows(
        runs, "SELECT update, problem, predicted, realised, uniform FROM choices WHERE surviving ORDER BY ALL"
    )
    expected = [
        (event["update"], *(choice[key] for key in ("problem", "predicted", "realised", "uniform")))
        for event in (payload for kind, payload in whole.history if kind == "update")
        for choice in event["choices"]
    ]
    assert sorted(told) == sorted(expected) and len(told) == 6 * 4


def test_a_study_names_it_in_one_line(tmp_path: Path) -> None:
    line = yaml.safe_load(
        "{intervention: mc-difference, continuations: 2, selection: {name: select-beta, candidates: 8}}"
    )
    content = chain_study("selecting", {"updates": 6}, arms=("grpo",))
    content["arms"]["chosen"] = line
    arms = {cell.arm: cell.content for cell in make_plan(load_study(write_study(tmp_path, content))).cells}
    assert arms["chosen"]["intervention"]["selection"]["name"] == "select-beta"
