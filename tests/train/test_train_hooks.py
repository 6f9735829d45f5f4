"""What an intervention may bring to a run: modules of its own, a term in the loss, groups that it drops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.cells import scripted_content, write_cell
from support.faults import Faults, Killed
from support.hook_arms import HOOK_ARMS
from support.short_warm_start import with_cache
from support.studies import chain_study, write_study
from support.sweeps import assert_ledger_is_the_recount, counts, planned

from harness.events.fold import FoldedRun, fold_run
from harness.events.reader import read_events
from harness.interventions.registry import INTERVENTIONS
from harness.layout import CellFolder, RunsFolder
from harness.study.cell import Cell
from harness.train import checkpoint
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_BAD_INPUT, EXIT_COMPLETED


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in HOOK_ARMS.items():
        monkeypatch.setitem(INTERVENTIONS, name, kind)


def real_cell(folder: Path, cache: Path, arm: str) -> tuple[CellFolder, RunsFolder]:
    runs = with_cache(RunsFolder(folder), cache)
    file = write_study(folder, chain_study("hooks", {"updates": 6}, arms=("grpo",)))
    content = Cell.read(planned(file, runs, "grpo").spec).content
    return write_cell(runs, {**content, "intervention": {"name": arm, "parameters": {}}}), runs


def values_noted(cell: CellFolder) -> list[float]:
    return [
        event.payload["notes"]["value_error"]
        for attempt in cell.attempt_numbers()
        for event in read_events(cell.events(attempt)).events
        if event.kind == "update"
    ]


def test_a_value_head_learns_is_charged_as_critic_and_comes_back_from_a_checkpoint_to_the_bit(
    tmp_path: Path, chain_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, runs = real_cell(tmp_path / "whole", chain_cache, "value-head")
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    whole = fold_run(cell.path)
    errors = values_noted(cell)
    assert errors[-1] < errors[0], "the head learned nothing"
    work = whole.algorithmic["critic"]
    assert work["flops"] > 0 and work["wall_seconds"] > 0
    assert work.get("generated_tokens", 0) == 0
    saved = checkpoint.load_newest(cell.checkpoints)[0]
    assert saved is not None and {"intervention.head.model.weight", "intervention.head.optimiser.step.bias"} <= set(
        saved.tensors
    )

    other, runs = real_cell(tmp_path / "killed", chain_cache, "value-head")
    with monkeypatch.context() as patch:
        Faults(patch, die_at=2 * lines_before(cell, update=5) + 12)
        with pytest.raises(Killed):
            run_cell(other.spec, runs)
    assert run_cell(other.spec, runs) == EXIT_COMPLETED
    assert len(other.attempt_numbers()) == 2
    resumed_from = read_events(other.events(2)).events[0].payload["resumed_from"]
    assert resumed_from is not None, "died before its first checkpoint: nothing was shown"
    again = fold_run(other.path)
    assert again.history == whole.history
    assert counts(again.algorithmic) == counts(whole.algorithmic)


def lines_before(cell: CellFolder, update: int) -> int:
    """Lines of the log before the one that tells of this update."""
    events = read_events(cell.events(1)).events
    return next(i for i, e in enumerate(events) if e.kind == "update" and e.payload["update"] == update)


def test_initial_modules_follow_the_run_seed_alone(tmp_path: Path, chain_cache: Path) -> None:
    firsts = []
    for name in ("a", "b"):
        torch.manual_seed(hash(name) % 1000)  # what happened before must not matter
        cell, runs = real_cell(tmp_path / name, chain_cache, "value-head")
        run_cell(cell.spec, runs)
        firsts.append(values_noted(cell)[0])
    assert firsts[0] == firsts[1]


def test_a_loss_term_trains_rollouts_without_any_advantage(tmp_path: Path, chain_cache: Path) -> None:
    cell, runs = real_cell(tmp_path / "runs", chain_cache, "penalised")
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    updates = [payload for kind, payload in fold_run(cell.path).history if kind == "update"]
    assert all(update["trained_tokens"] == 0 and update["grad_norm"] > 0 for update in updates)
    earlier, later = (checkpoint.load(path).tensors for path in sorted(cell.checkpoints.iterdir()))
    weights = [name for name in later if name.startswith("model.")]
    assert weights and not any(torch.equal(earlier[name], later[name]) for name in weights)


def filtered(runs: RunsFolder, **budgets: float) -> tuple[CellFolder, FoldedRun]:
    content = scripted_content(budgets)
    content["intervention"] = {"name": "filtered", "parameters": {}}
    cell = write_cell(runs, content)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    return cell, fold_run(cell.path)


def test_groups_that_are_dropped_are_charged_as_discarded(tmp_path: Path) -> None:
    """Two prompts x two rollouts x ten tokens; the second group of each update is dropped."""
    cell, run = filtered(RunsFolder(tmp_path), updates=5)
    for kind in ("rollout", "discarded"):
        assert run.algorithmic[kind]["generated_tokens"] == 5 * 20
        assert run.algorithmic[kind]["samples"] == 5 * 2
        assert run.algorithmic[kind]["flops"] > 0
        assert run.algorithmic[kind]["wall_seconds"] >= 0
    assert run.charge["generated_tokens"] == 5 * 40
    assert_ledger_is_the_recount(cell, run)
    updates = [payload for kind, payload in run.history if kind == "update"]
    assert all(update["trained_tokens"] == 20 for update in updates)


def test_budgets_bind_on_what_was_discarded(tmp_path: Path) -> None:
    _, run = filtered(RunsFolder(tmp_path), generated_tokens=200)
    assert run.updates == 5


def test_no_update_within_a_budget_is_told_with_the_shortfall_and_nothing_passes_for_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One update takes 40 tokens; and any update takes longer than a tenth of a microsecond."""
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 30, "updates": 3}), arm="costly")
    assert run_cell(cell.spec, runs) == EXIT_BAD_INPUT
    told = capsys.readouterr().err
    assert "30 generated_tokens are 10 short of one update of arm 'costly'" in told
    assert not [event for event in read_events(cell.events(1)).events if event.kind == "evaluation"]
    content = scripted_content({"cpu_hours": 1e-12, "updates": 3})
    content["milestones"] = [{"currency": "cpu_hours", "amount": 1e-12, "fraction": 1.0}]
    hours = write_cell(runs, content, arm="costly")
    assert run_cell(hours.spec, runs) == EXIT_BAD_INPUT
    assert "1e-12 cpu_hours are " in capsys.readouterr().err
    assert json.loads(hours.spec.read_text())["arm"] == "costly"
