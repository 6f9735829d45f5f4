"""Any causal model saved by transformers can be named as the model, on a data set of Reasoning Gym."""

from __future__ import annotations

from pathlib import Path

from support.command_line import isobudget
from support.saved_models import save_tiny_llama
from support.studies import write_study
from support.sweeps import assert_ledger_is_the_recount, cell_folders

from harness.events.fold import fold_run
from harness.layout import RunsFolder


def test_a_saved_model_is_trained_on_a_reasoning_gym_data_set(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path / "preregistrations" / "mine")
    study = {
        "study": "own-model",
        "title": "A model of our own",
        "authors": ["A. Author"],
        "existing_data": "none",
        "models": [{"name": "mine", "folder": "mine"}],
        "task": {
            "name": "reasoning-gym",
            "dataset": "chain_sum",
            "options": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
            "pool": {"train": 32, "tuning": 4, "confirmatory": 8},
        },
        "training": {"prompts_per_update": 2, "group_size": 4, "max_new_tokens": 12, "advantage_scale": "rms"},
        "arms": {
            "grpo": {"intervention": "grpo"},
            "mc": {"intervention": "mc-difference", "continuations": 2},
        },
        "baseline": "grpo",
        "seeds": [7],
        "budget": {"updates": 3},
        "evaluate": {"at": ["100%"]},
    }
    file, runs = write_study(tmp_path, study), RunsFolder(tmp_path / "runs")
    ran = isobudget("sweep", file, "--runs", runs.root, "--inline")
    assert ran.code == 0, ran.err
    assert "own-model: 2 done, 0 to do" in ran.out
    notices = ("own-model: ", "started mine/", "done mine/", "warning: ")  # and nothing that libraries draw or say
    assert [line for line in ran.complaints() if not line.startswith(notices)] == []
    for cell in cell_folders(runs):
        run = fold_run(cell.path)
        assert (run.status, run.updates, run.diverged) == ("completed", 3, False)
        assert run.algorithmic["rollout"]["samples"] == 3 * 2 * 4
        assert_ledger_is_the_recount(cell, run)
    rows = isobudget("leaderboard", "own-model", "--runs", runs.root, "--json").json()["rows"]
    assert {(row["arm"], row["model"], row["seeds_done"]) for row in rows} == {("grpo", "mine", 1), ("mc", "mine", 1)}
    shown = isobudget("samples", cell_folders(runs)[0].path.name, "--runs", runs.root, "--kind", "rollout", "--json")
    assert all("arithmetic problem" in sample["prompt"] for sample in shown.json()["samples"])
    assert len(shown.json()["samples"]) == 20
