"""A study for GPUs, on the scripted instrument: it computes nothing on them, and is charged for having them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import finished, isobudget, started
from support.studies import FLIP, chain_study, write_study
from support.sweeps import cell_folders, folded

from harness.events.reader import read_events
from harness.layout import RunsFolder

BUDGET_HOURS = 5e-4
"""1.8 seconds: more than a first update takes, even on a busy machine."""
LARGE_UPDATES = {"prompts_per_update": 8, "group_size": 16, "checkpoint_every_updates": 100}
"""So that not many fit in."""
STUDY = replace(FLIP, study="gpu-hours", seeds=2, problems=50)


def write(folder: Path, **changes: object) -> Path:
    values = {"budget": {"gpu_hours": BUDGET_HOURS}, "device": "cuda", "claims": []}
    values["training"] = {**STUDY.content()["training"], **LARGE_UPDATES}
    return STUDY.write(folder, **{**values, **changes})


def test_gpu_hours_are_charged_end_runs_and_are_ranked(tmp_path: Path) -> None:
    file, runs = write(tmp_path), RunsFolder(tmp_path / "runs")
    process = started(
        *("sweep", file, "--runs", runs.root, "--workers", 3), CUDA_VISIBLE_DEVICES="0,1", TMPDIR=str(tmp_path)
    )
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert "no more than 2 cells at once" in ran.err
    found = folded(runs)
    assert len(found) == 4
    for run in found.values():
        assert run.status == "completed" and run.updates >= 1
        assert run.charge["gpu_hours"] > BUDGET_HOURS
        # One device x the wall time of training, which is no less than that of the work in it.
        seconds = sum(row["wall_seconds"] for kind, row in run.algorithmic.items() if kind != "evaluation")
        assert run.charge["gpu_hours"] >= seconds / 3600
    for cell in cell_folders(runs):
        begun = read_events(cell.events(1)).events[0].payload
        assert (begun["device"], begun["cells_at_once"], begun["device_shared"]) == ("cuda", 2, False)
    board = isobudget("leaderboard", STUDY.study, "--runs", runs.root).out
    assert "gpu-hours" in board.lower().replace("gpu_hours", "gpu-hours").replace("gpu hours", "gpu-hours")
    assert "read from a clock" in board


def test_gpu_hours_on_the_cpu_are_refused_before_anything_is_launched(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path / "runs")
    ran = isobudget("sweep", write(tmp_path, device="cpu"), "--runs", runs.root)
    assert ran.code == 2
    (line,) = ran.complaints()
    assert "budget: a budget in gpu_hours, and runs on the CPU; add `device: cuda`, or give cpu_hours" in line
    ran = isobudget("check", write(tmp_path, device="cpu", budget={"updates": 3}, evaluate={"gpu_hours": [0.1]}))
    assert "evaluate.gpu_hours: milestones in gpu_hours, and runs on the CPU" in ran.err
    capped = {"updates": 3, "sweep": {"total": {"gpu_hours": 1}, "ceiling": {"gpu_hours": 0.1}}}
    ran = isobudget("check", write(tmp_path, device="cpu", budget=capped))
    assert "budget: a sweep's cap in gpu_hours, and runs on the CPU" in ran.err
    assert not runs.cells.exists()


@pytest.mark.parametrize("how", [[], ["--inline"], ["--detach"]])
def test_a_sweep_for_gpus_where_there_is_none_is_one_line(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = isobudget("sweep", write(tmp_path), "--runs", tmp_path / "runs", *how)
    assert ran.code == 2
    assert "the study runs on `device: cuda`, and this machine has no GPU" in ran.complaints()[-1]
    assert not RunsFolder(tmp_path / "runs").cells.exists()


def test_real_training_tells_of_a_gpu_that_torch_does_not_find(tmp_path: Path, chain_cache: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch finds a GPU here, so that nothing is missing")
    file = write_study(tmp_path, chain_study("needs-a-gpu", {"updates": 2}, device="cuda", seeds=[1, 2]))
    runs = RunsFolder(tmp_path / "runs").create()
    (runs.root / "cache").symlink_to(chain_cache)
    ran = finished(
        started("sweep", file, "--runs", runs.root, "--inline", CUDA_VISIBLE_DEVICES="0", TMPDIR=str(tmp_path))
    )
    assert ran.code == 1
    assert "the run needs a GPU, and torch finds none; a machine and a build of torch with CUDA" in ran.out


def test_the_device_is_part_of_a_cell_and_leaves_cells_on_the_cpu_as_they_were(tmp_path: Path) -> None:
    assert "each cell has a GPU to itself" in isobudget("plan", write(tmp_path), "--runs", tmp_path).out

    def ids(**changes: object) -> set[str]:
        file = STUDY.write(tmp_path, **changes)
        return {cell["cell"] for cell in isobudget("plan", file, "--json", "--runs", tmp_path).json()["cells"]}

    assert ids() == ids(device="cpu")
    assert not ids() & ids(device="cuda")
