"""Work lost in a crash: by the run's own fault it stays charged, by the infrastructure's it is spent only."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from support.cells import scripted_content, write_cell
from support.faults import Faults, Killed
from support.sweeps import assert_ledger_is_the_recount, counts

from harness.events.fold import FoldedRun, fold_run
from harness.events.reader import read_events
from harness.layout import CellFolder, RunsFolder
from harness.models.scripted import ScriptedEngine
from harness.study.repository import code_hash
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED, EXIT_FAILED
from harness.train.learner import ScriptedLearner
from harness.train.surroundings import CODE_HASH_VARIABLE

UPDATE = 2 * 2 * 10
"""Tokens of one update; checkpoints are after every third."""


def failing(patch: pytest.MonkeyPatch, call: int) -> None:
    """The engine raises at its n-th call (from 1) for training."""
    sound, calls = ScriptedEngine.generate, 0

    def generate(self, requests):
        nonlocal calls
        calls += requests[0].purpose == "rollout"
        if calls == call and requests[0].purpose == "rollout":
            raise RuntimeError("CUDA out of memory")
        return sound(self, requests)

    patch.setattr(ScriptedEngine, "generate", generate)


def killed(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> CellFolder:
    """A run of ten updates that is killed behind its second checkpoint."""
    cell = write_cell(runs, scripted_content({"generated_tokens": 10 * UPDATE}))
    with monkeypatch.context() as patch:
        Faults(patch, die_at=70)
        with pytest.raises(Killed):
            run_cell(cell.spec, runs)
    return cell


def charged(run: FoldedRun) -> float:
    """Algorithmic tokens of the kinds that are charged."""
    return sum(row.get("generated_tokens", 0) for kind, row in run.algorithmic.items() if kind != "evaluation")


def test_what_an_error_costs_is_charged_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten updates fit; the sixth fails, so two are lost behind the checkpoint, and two fewer fit."""
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 10 * UPDATE}))
    with monkeypatch.context() as patch:
        failing(patch, call=6)
        assert run_cell(cell.spec, runs) == EXIT_FAILED
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert run.updates == 10 - 2
    assert run.lost_self["rollout"]["generated_tokens"] == 2 * UPDATE
    assert run.retraced == {}
    assert run.crashes == {"self": 1, "infrastructure": 0}
    # The last batch was sampled, and found the budget used up.
    assert charged(run) == run.charge["generated_tokens"] == 11 * UPDATE
    first = next(event for event in read_events(cell.events(2)).events if event.kind == "update")
    assert first.payload["charge"]["generated_tokens"] == (3 + 2 + 1) * UPDATE


def test_an_error_before_any_checkpoint_is_charged_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 10 * UPDATE}))
    with monkeypatch.context() as patch:
        failing(patch, call=3)
        run_cell(cell.spec, runs)
    run_cell(cell.spec, runs)
    assert fold_run(cell.path).updates == 10 - 2


@pytest.mark.parametrize("more", [{}, {"updates": 3}])
def test_a_run_that_lost_its_whole_budget_is_scored_as_it_is(
    more: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates fit, two batches are lost: no update is within the budget, so the policy to score is the first."""
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 2 * UPDATE - 1, **more}))
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedLearner, "backward", lambda *_: 1 / 0)
        for _ in range(2):
            assert run_cell(cell.spec, runs) == EXIT_FAILED
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert run.lost_self["rollout"]["generated_tokens"] == 2 * UPDATE
    assert run.charge["generated_tokens"] == charged(run)
    scored = [
        (milestone["currency"], milestone["amount"], payload["updates"], payload["charge"]["generated_tokens"])
        for kind, payload in run.history
        if kind == "evaluation"
        for milestone in payload["milestones"]
        if milestone["currency"] == "generated_tokens"
    ]
    assert sorted(scored) == [("generated_tokens", amount, 0, 0) for amount in (UPDATE, 2 * UPDATE - 1)]
    assert run.updates == more.get("updates", 0)


def test_the_batch_that_an_error_interrupts_is_told_and_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled whole, and no update made of it."""
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 10 * UPDATE}))
    with monkeypatch.context() as patch:
        patch.setattr(ScriptedLearner, "backward", lambda *_: 1 / 0)
        assert run_cell(cell.spec, runs) == EXIT_FAILED
    assert fold_run(cell.path).spent["rollout"]["generated_tokens"] == UPDATE
    run_cell(cell.spec, runs)
    run = fold_run(cell.path)
    assert run.updates == 10 - 1
    assert run.lost_self["rollout"]["generated_tokens"] == UPDATE


def test_what_a_kill_costs_is_spent_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunsFolder(tmp_path)
    cell = killed(runs, monkeypatch)
    run_cell(cell.spec, runs)
    run = fold_run(cell.path)
    assert run.updates == 10
    assert run.lost_self == {}
    assert run.retraced["rollout"]["generated_tokens"] > 0
    assert run.crashes == {"self": 0, "infrastructure": 1}


@pytest.mark.parametrize("tells_of", [1, 0, None])
def test_evidence_that_memory_ran_out_makes_a_kill_the_runs_own_fault(
    tells_of: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_HASH_VARIABLE, "")
    runs = RunsFolder(tmp_path)
    cell = killed(runs, monkeypatch)
    saved = [event.payload["update"] for event in read_events(cell.events(1)).events if event.kind == "checkpoint"]
    lost = fold_run(cell.path).spent["rollout"]["generated_tokens"] - saved[-1] * UPDATE
    assert lost >= UPDATE
    cell.launch.write_text(json.dumps({"out_of_memory_attempt": tells_of}))
    monkeypatch.setenv(CODE_HASH_VARIABLE, code_hash())
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    if tells_of == 1:
        assert run.lost_self["rollout"]["generated_tokens"] == lost
        assert run.crashes == {"self": 1, "infrastructure": 0}
        assert run.updates == 10 - lost / UPDATE
    else:  # a launch file that an earlier launch left: nothing is known of attempt 1
        assert run.retraced["rollout"]["generated_tokens"] == lost
        assert run.crashes == {"self": 0, "infrastructure": 1}
        assert run.updates == 10


@pytest.mark.parametrize("seed", range(25))
def test_meter_and_fold_agree_whatever_went_wrong(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors and kills at random points, up to six in one run: no work is lost from sight, none counted twice."""
    draw = random.Random(seed)
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"generated_tokens": 9 * UPDATE, "updates": 4}, continuations=1))
    for _ in range(draw.randrange(1, 7)):
        with monkeypatch.context() as patch:
            Faults(patch, die_at=draw.randrange(5, 90), error=draw.choice([Killed, RuntimeError]))
            with suppress(Killed):
                run_cell(cell.spec, runs)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert run.charge["generated_tokens"] == charged(run)
    assert run.charge["flops"] == sum(
        row.get("flops", 0) for kind, row in run.algorithmic.items() if kind != "evaluation"
    )
    recounted = told_once(cell)
    assert {kind: row["generated_tokens"] for kind, row in run.spent.items() if row.get("samples")} == recounted
    for kind, row in counts(run.spent).items():
        parts = [counts(totals).get(kind, {}) for totals in (run.algorithmic, run.retraced)]
        assert row == {name: sum(part.get(name, 0) for part in parts) for name in row}
    assert_ledger_is_the_recount_of_spent(cell, run)


def told_once(cell: CellFolder) -> dict[str, int]:
    """Tokens by kind, summed over every line of every log."""
    totals: dict[str, int] = {}
    for number in cell.attempt_numbers():
        for event in read_events(cell.events(number)).events:
            rows = event.payload.get("rows", {}) if event.kind in ("ledger", "evaluation") else {}
            for kind, row in rows.items():
                if row["samples"]:
                    totals[kind] = totals.get(kind, 0) + row["generated_tokens"]
    return totals


def assert_ledger_is_the_recount_of_spent(cell: CellFolder, run: FoldedRun) -> None:
    if run.lost_self:  # the recount's surviving path leaves it out
        run.algorithmic = {
            kind: {name: row[name] - run.lost_self.get(kind, {}).get(name, 0) for name in row}
            for kind, row in run.algorithmic.items()
        }
    assert_ledger_is_the_recount(cell, run)


def test_hours_lost_by_the_runs_own_fault_stay_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunsFolder(tmp_path)
    cell = write_cell(runs, scripted_content({"updates": 8}))
    with monkeypatch.context() as patch:
        failing(patch, call=6)
        run_cell(cell.spec, runs)
    first = read_events(cell.events(1)).events
    saved = next(event.seq for event in first if event.kind == "checkpoint" and event.payload["update"] == 3)
    kept = [event.measured["charge"]["cpu_hours"] for event in first[:saved] if event.kind == "update"][-1]
    whole = first[-1].measured["charge"]["cpu_hours"]
    assert whole > kept > 0
    run_cell(cell.spec, runs)
    started = read_events(cell.events(2)).events[0].measured["charge"]["cpu_hours"]
    # The checkpoint's clock reads a little later than the line before it.
    assert started == pytest.approx(whole, rel=0.2) and started >= kept + (whole - kept) * 0.99
