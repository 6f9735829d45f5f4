"""Whole runs of the scripted instrument: its truth is declared, so each number can be foretold."""

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from support.cells import scripted_content, write_cell
from support.faults import Faults, Killed

from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.layout import RunsFolder
from harness.models.scripted import ScriptedEngine, planted_accuracy
from harness.rollout.protocol import NotFinite
from harness.rollout.sidecar import recount
from harness.seeds import hashed_seed
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_BAD_INPUT, EXIT_COMPLETED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LEASE_HELD
from harness.train.learner import ScriptedLearner
from harness.train.lease import Lease

TOKENS_PER_UPDATE = 2 * 2 * 10


@pytest.fixture
def runs(tmp_path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def evaluations(folder, attempt=1):
    return [event for event in read_events(folder.events(attempt)).events if event.kind == "evaluation"]


def expected_accuracy(updates: int, gain: float, problems: int = 64, seed: int = 1) -> float:
    """The declared truth at this many updates, on the pool's problems: each solved by its own sample's seed."""
    truth = planted_accuracy(gain * updates)
    seeds = [hashed_seed(seed, "evaluation", problem, 0) for problem in range(problems)]
    return sum(hashed_seed(s, "solves") / 2**64 < truth for s in seeds) / problems


def test_accuracy_at_a_budget_is_that_of_the_last_update_whose_whole_cost_was_within_it(runs):
    budgets = {"generated_tokens": 430, "updates": 5}
    folder = write_cell(runs, scripted_content(budgets, gain=0.3))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    found = {}
    for event in evaluations(folder):
        for milestone in event.payload["milestones"]:
            found[milestone["currency"], milestone["amount"]] = (event.payload, milestone["charge_after"])
    for currency, amount in [("generated_tokens", 215), ("generated_tokens", 430), ("updates", 2), ("updates", 5)]:
        payload, after = found[currency, amount]
        updates = amount if currency == "updates" else math.floor(amount / TOKENS_PER_UPDATE)
        assert payload["updates"] == updates
        assert payload["charge"]["generated_tokens"] == updates * TOKENS_PER_UPDATE
        assert payload["accuracy"] == pytest.approx(expected_accuracy(updates, 0.3))
        if currency == "generated_tokens":
            assert after == (updates + 1) * TOKENS_PER_UPDATE  # one step's overshoot
    assert len(found) == 4


def test_a_budget_met_exactly_buys_the_update_that_meets_it(runs):
    folder = write_cell(runs, scripted_content({"generated_tokens": 10 * TOKENS_PER_UPDATE}))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    assert evaluations(folder)[-1].payload["updates"] == 10


def test_a_budget_in_updates_buys_no_further_batch(runs):
    folder = write_cell(runs, scripted_content({"updates": 4}))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    run = fold_run(folder.path)
    assert run.updates == 4
    assert run.algorithmic["rollout"]["generated_tokens"] == 4 * TOKENS_PER_UPDATE


@pytest.mark.parametrize(
    ("budgets", "updates"),
    [({"generated_tokens": 100, "updates": 9}, 9), ({"updates": 2, "generated_tokens": 300}, 7)],
)
def test_a_run_ends_when_its_last_budget_is_exhausted(runs, budgets, updates):
    folder = write_cell(runs, scripted_content(budgets))
    run_cell(folder.spec, runs)
    assert fold_run(folder.path).updates == updates


def test_continuations_have_their_own_ledger_row_and_are_charged(runs):
    content = scripted_content({"generated_tokens": 2_000}, continuations=9, continuation_tokens=10)
    folder = write_cell(runs, content)
    run_cell(folder.spec, runs)
    kinds = fold_run(folder.path).algorithmic
    assert kinds["continuation"]["generated_tokens"] == 9 * kinds["rollout"]["generated_tokens"]
    last = evaluations(folder)[-1].payload
    assert last["updates"] == 2_000 // (10 * TOKENS_PER_UPDATE)


def test_kinds_that_are_not_charged_buy_updates(runs):
    content = scripted_content({"generated_tokens": 400}, continuations=9)
    content["charged"] = [kind for kind in content["charged"] if kind != "continuation"]
    folder = write_cell(runs, content)
    run_cell(folder.spec, runs)
    assert evaluations(folder)[-1].payload["updates"] == 10


def test_equal_cells_have_equal_histories_and_other_seeds_have_not(tmp_path):
    histories = []
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        runs = RunsFolder(tmp_path / name)
        folder = write_cell(runs, scripted_content({"generated_tokens": 300}, seed=seed, gain_spread=0.2))
        run_cell(folder.spec, runs)
        histories.append(fold_run(folder.path).history)
    assert histories[0] == histories[1] != histories[2]


BUDGETS = {"generated_tokens": 320, "updates": 8}


def counted(totals):
    """What can be counted of each kind of work: all but seconds."""
    return {
        kind: {name: value for name, value in row.items() if not name.endswith("_seconds")}
        for kind, row in totals.items()
    }


def disturbed(runs, monkeypatch, die_at):
    """A run that dies at a point and goes on in new attempts until it is done."""
    folder = write_cell(runs, scripted_content(BUDGETS, continuations=1))
    with monkeypatch.context() as patch:
        Faults(patch, die_at)
        with pytest.raises(Killed):
            run_cell(folder.spec, runs)
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    return folder


def test_a_run_killed_at_any_point_folds_to_the_undisturbed_run(tmp_path, monkeypatch):
    undisturbed = RunsFolder(tmp_path / "undisturbed")
    folder = write_cell(undisturbed, scripted_content(BUDGETS, continuations=1))
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        assert run_cell(folder.spec, undisturbed) == EXIT_COMPLETED
    whole = fold_run(folder.path)
    points = range(faults.points)
    assert len(points) >= 50
    for point in points:
        again = disturbed(RunsFolder(tmp_path / f"at{point}"), monkeypatch, point)
        run = fold_run(again.path)
        assert run.history == whole.history, f"killed at point {point}"
        assert counted(run.algorithmic) == counted(whole.algorithmic)
        for surviving in (False, True):
            totals = run.algorithmic if surviving else run.spent
            counted_again = recount(again.path, surviving_only=surviving)
            sampled = {
                kind: (row["samples"], row["generated_tokens"]) for kind, row in totals.items() if row["samples"]
            }
            assert counted_again == sampled, f"killed at point {point}"
    print(f"{len(points)} kill points, every fold identical")


def test_a_stopped_run_checkpoints_and_goes_on(runs):
    folder = write_cell(runs, scripted_content(BUDGETS))
    answers = iter([False, False, True])
    assert run_cell(folder.spec, runs, lambda: next(answers)) == EXIT_INTERRUPTED
    assert fold_run(folder.path).status == "interrupted"
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    run = fold_run(folder.path)
    assert (run.status, run.updates) == ("completed", 8)
    assert not run.retraced


def test_a_cell_started_by_hand_does_not_borrow_the_promise_of_an_earlier_sweep(runs, monkeypatch):
    folder = write_cell(runs, scripted_content({"updates": 2}))
    folder.launch.write_text(json.dumps({"mode": "confirmatory", "mode_reason": "", "lock_hash": "f" * 64}))
    monkeypatch.delenv("ISOBUDGET_CODE_HASH", raising=False)
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    started = read_events(folder.events(1)).events[0].payload
    assert (started["mode"], started["mode_reason"]) == ("exploratory", "not started by a sweep")


def test_a_worker_that_lost_its_lease_leaves_the_checkpoints_to_its_successor(runs, monkeypatch):
    monkeypatch.setattr("harness.train.attempt.HEARTBEAT_SECONDS", 0.01)
    folder = write_cell(runs, scripted_content({"updates": 2}, training={"checkpoint_every_updates": 100}))
    generate = ScriptedEngine.generate

    def robbed(self, requests):
        folder.lease.unlink(missing_ok=True)
        time.sleep(0.2)
        return generate(self, requests)

    monkeypatch.setattr(ScriptedEngine, "generate", robbed)
    assert run_cell(folder.spec, runs) == EXIT_INTERRUPTED
    assert not folder.checkpoints.exists()


@pytest.mark.parametrize("gone", ["attempts/1/events.jsonl", "attempts"])
def test_a_run_whose_log_was_removed_starts_afresh(runs, gone):
    folder = write_cell(runs, scripted_content(BUDGETS))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    whole = fold_run(folder.path).history
    lost = folder.path / gone
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    assert fold_run(folder.path).history == whole


def test_somebody_elses_lease_is_respected(runs, capsys):
    folder = write_cell(runs, scripted_content(BUDGETS))
    lease = Lease.acquire(folder)
    assert run_cell(folder.spec, runs) == EXIT_LEASE_HELD
    assert not folder.attempt_numbers()
    lease.release()
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED


@pytest.mark.parametrize("purpose", ["rollout", "continuation", "evaluation"])
def test_a_policy_that_cannot_be_sampled_from_has_diverged_and_scores_the_floor(runs, monkeypatch, purpose):
    """Weights can be finite and their logits not: that is an outcome of the arm, not a crash."""
    generate = ScriptedEngine.generate

    def diverging(self, requests):
        if self._policy.skill > 0.12 and requests[0].purpose == purpose:
            raise NotFinite
        return generate(self, requests)

    monkeypatch.setattr(ScriptedEngine, "generate", diverging)
    budgets = {"generated_tokens": 10 * 2 * TOKENS_PER_UPDATE, "updates": 10}
    folder = write_cell(runs, scripted_content(budgets, continuations=1))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    run = fold_run(folder.path)
    assert (run.status, run.diverged) == ("completed", True)
    told = evaluations(folder)
    scored = [(m["currency"], m["amount"]) for event in told for m in event.payload["milestones"]]
    assert sorted(scored) == sorted((m["currency"], m["amount"]) for m in scripted_content(budgets)["milestones"])
    assert all(event.payload["diverged"] == (event.payload["updates"] > 2) for event in told)
    assert [event.payload["accuracy"] for event in told if event.payload["diverged"]] == [0.0]


@pytest.mark.parametrize("broken", [{"loss": math.nan}, {"grad_norm": math.inf}])
def test_a_loss_or_gradient_that_is_not_finite_is_told_with_its_update_and_the_run_is_an_outcome(
    runs, monkeypatch, broken
):
    backward = ScriptedLearner.backward

    def breaking(self, groups, work, term=None):
        found = backward(self, groups, work, term)
        return replace(found, **broken) if self._policy.skill > 0.12 else found

    monkeypatch.setattr(ScriptedLearner, "backward", breaking)
    folder = write_cell(runs, scripted_content({"updates": 10}))
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    run = fold_run(folder.path)
    assert (run.status, run.diverged) == ("completed", True)
    *before, last = [payload for kind, payload in run.history if kind == "update"]
    assert before and not any(payload["diverged"] for payload in before)
    assert all(payload[name] is not None for payload in before for name in ("loss", "grad_norm"))
    (name,) = broken
    assert last["diverged"] and last[name] is None
    final = evaluations(folder)[-1].payload
    assert (final["diverged"], final["accuracy"], final["milestones"][-1]["amount"]) == (True, 0.0, 10)


def test_a_crash_is_told_with_its_reason(runs, monkeypatch, capsys):
    def crash(self):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("harness.models.scripted.ScriptedPolicy.accuracy", crash)
    folder = write_cell(runs, scripted_content(BUDGETS))
    assert run_cell(folder.spec, runs) == EXIT_FAILED
    last = read_events(folder.events(1)).events[-1]
    assert (last.kind, last.payload["status"]) == ("finished", "failed")
    assert last.payload["reason"] == "ZeroDivisionError: planted"
    assert "planted" in capsys.readouterr().err


def test_a_gpu_budget_without_a_gpu_is_refused(runs):
    folder = write_cell(runs, scripted_content({"gpu_hours": 1}))
    assert run_cell(folder.spec, runs) == EXIT_BAD_INPUT
    assert "needs a GPU" in read_events(folder.events(1)).events[-1].payload["reason"]


def test_a_tampered_cell_file_is_refused(runs, capsys):
    folder = write_cell(runs, scripted_content(BUDGETS))
    spec = json.loads(folder.spec.read_text())
    spec["content"]["seed"] = 7
    folder.spec.write_text(json.dumps(spec))
    assert run_cell(folder.spec, runs) == EXIT_BAD_INPUT
    assert "its id says" in capsys.readouterr().err


def test_an_event_log_that_meets_a_full_disk_costs_one_line_and_nothing_recorded(runs):
    """A file size limit stands for the disk: the attempt stops with one clear line, and a later one completes."""
    folder = write_cell(runs, scripted_content({"updates": 40}, problems=8))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    command = [sys.executable, "-m", "harness.train", str(folder.spec)]
    environment = {**os.environ, "ISOBUDGET_RUNS": str(runs.root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env=environment, check=False)
    assert done.returncode in (EXIT_FAILED, EXIT_BAD_INPUT)
    assert "isobudget:" in done.stderr and "Traceback" not in done.stderr
    before = read_events(folder.events(1)).events
    assert before and before[0].kind == "attempt_started"
    assert run_cell(folder.spec, runs) == EXIT_COMPLETED
    assert read_events(folder.events(1)).events == before
    assert fold_run(folder.path).updates == 40
