"""The same cell gives the same history to the bit: run again, in another folder, after a kill.

Killed are real workers (`python -m harness.train cell.json`), by SIGKILL, in the middle. What was counted must be
what the stored token ids say, exactly, for all that was spent and for the path that led to the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.command_line import isobudget
from support.short_warm_start import with_cache
from support.studies import FLIP, chain_study, write_study
from support.sweeps import (
    assert_ledger_is_the_recount,
    cell_folders,
    counts,
    folded,
    planned,
    work_until_killed,
)

from harness.events.fold import FoldedRun, fold_run
from harness.layout import CellFolder, RunsFolder
from harness.rollout.sidecar import read_samples
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED

SCRIPTED_BUDGETS = [
    {"generated_tokens": 4_000},
    {"flops": 2e7},
    {"updates": 25},
    {"generated_tokens": 3_000, "updates": 20},
]
REAL_BUDGETS = [{"generated_tokens": 3_000}, {"flops": 2.5e9}, {"updates": 7}]


def undisturbed(file: Path, runs: RunsFolder, arm: str) -> FoldedRun:
    cell = planned(file, runs, arm)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    return fold_run(cell.path)


@pytest.mark.parametrize("budget", SCRIPTED_BUDGETS, ids="-".join)
def test_a_scripted_run_is_the_same_again_and_after_a_kill(budget: dict[str, Any], tmp_path: Path) -> None:
    file = FLIP.write(tmp_path, budget=budget, claims=[])
    first = undisturbed(file, RunsFolder(tmp_path / "first"), "dense")
    second = undisturbed(file, RunsFolder(tmp_path / "second"), "dense")
    assert first.history == second.history
    runs = RunsFolder(tmp_path / "killed")
    cell = planned(file, runs, "dense")
    work_until_killed(cell, runs, update=11)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert cell.attempt_numbers() == [1, 2]
    assert run.history == first.history
    assert counts(run.algorithmic) == counts(first.algorithmic)
    assert_ledger_is_the_recount(cell, run)


def test_evaluations_at_hours_leave_the_deterministic_history_alone(tmp_path: Path) -> None:
    """When they fall due is the clock's; they are metered, recounted, and no part of what must repeat."""
    with_hours = {"at": ["50%", "100%"], "cpu_hours": [1e-6, 4e-6, 1.6e-5]}
    found = []
    for name, evaluate in (("without", {"at": ["50%", "100%"]}), ("with", with_hours)):
        runs = RunsFolder(tmp_path / name)
        file = FLIP.write(tmp_path / name, budget={"generated_tokens": 4_000}, claims=[], evaluate=evaluate)
        found.append(undisturbed(file, runs, "dense"))
    without, hours = found
    assert hours.history == without.history
    runs = RunsFolder(tmp_path / "killed")
    cell = planned(file, runs, "dense")
    work_until_killed(cell, runs, update=11)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert run.history == without.history
    assert run.algorithmic["evaluation"]["samples"] > without.algorithmic["evaluation"]["samples"]
    assert_ledger_is_the_recount(cell, run)


@pytest.mark.parametrize("budget", REAL_BUDGETS, ids="-".join)
def test_real_training_is_the_same_again_and_after_a_kill(
    budget: dict[str, Any], tmp_path: Path, chain_cache: Path
) -> None:
    """tiny-chain under mc-difference: merged prefixes, truncated samples, evaluations, and a crash."""
    file = write_study(tmp_path, chain_study("real", budget))
    first = undisturbed(file, with_cache(RunsFolder(tmp_path / "first"), chain_cache), "mc")
    second = undisturbed(file, with_cache(RunsFolder(tmp_path / "second"), chain_cache), "mc")
    assert first.updates >= 6
    assert first.history == second.history
    runs = with_cache(RunsFolder(tmp_path / "killed"), chain_cache)
    cell = planned(file, runs, "mc")
    work_until_killed(cell, runs, update=5)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert cell.attempt_numbers() == [1, 2]
    assert run.history == first.history
    assert counts(run.algorithmic) == counts(first.algorithmic)
    assert_ledger_is_the_recount(cell, run)
    assert_it_was_a_test(cell, run)


def assert_it_was_a_test(cell: CellFolder, run: FoldedRun) -> None:
    """Prefixes were merged, samples cut off and not, problems solved and not, tokens retraced, policies evaluated."""
    updates = [payload for kind, payload in run.history if kind == "update"]
    assert all(update["notes"]["continuations"] < update["notes"]["continuations_unmerged"] for update in updates)
    assert any(update["grad_norm"] > 0 for update in updates)
    samples = [sample.record for sample in read_samples(cell.path)]
    assert {sample.finish_reason for sample in samples} == {"length", "stop"}
    assert {sample.reward for sample in samples if sample.kind == "rollout"} == {0.0, 1.0}
    assert run.retraced["rollout"]["generated_tokens"] > 0
    assert run.spent["evaluation"]["generated_tokens"] > 0
    assert "warm_start" in run.spent


def test_two_sweeps_of_real_training_are_the_same_to_the_bit(tmp_path: Path, chain_cache: Path) -> None:
    file = write_study(tmp_path, chain_study("twice", {"updates": 2}, evaluate={"at": ["100%"]}))
    swept = []
    for name in ("first", "second"):
        runs = with_cache(RunsFolder(tmp_path / name), chain_cache)
        assert isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report").code == 0
        swept.append({cell: run.history for cell, run in folded(runs).items()})
        for cell in cell_folders(runs):
            assert_ledger_is_the_recount(cell, fold_run(cell.path))
    assert swept[0] == swept[1]
    assert len(swept[0]) == 4
    assert len({str(history) for history in swept[0].values()}) == 4  # seeds and arms do differ
