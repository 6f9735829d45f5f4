"""Watching a sweep and caring for its cells from another shell: with real workers, of the scripted instrument."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import finished, isobudget, started
from support.short_warm_start import with_cache
from support.studies import FLIP, chain_study, write_study
from support.sweeps import cell_folders, folded, updates_told

from harness.launch.jobs import jobs
from harness.launch.overview import CellView, Overview
from harness.launch.progress import MOST_BARS, RunningCell, summed_up
from harness.layout import CellFolder, RunsFolder
from harness.train.lease import Holder, Lease
from harness.train.processes import Process


def long_study(folder: Path, updates: int = 4_000) -> Path:
    """A second or several for each of two cells."""
    return replace(FLIP, study="long", seeds=1, problems=20).write(folder, claims=[], budget={"updates": updates})


def wait_for_an_update(runs: RunsFolder) -> CellFolder:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        cells = cell_folders(runs) if runs.cells.is_dir() else []
        for cell in cells:
            if updates_told(cell):
                return cell
        time.sleep(0.05)
    raise AssertionError("no cell told of an update")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, chain_cache: Path) -> tuple[Path, RunsFolder]:
    """A sweep of two cells that both need a GPU that torch does not find."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch finds a GPU here, so that the cells would not fail")
    folder = tmp_path_factory.mktemp("failed")
    file = write_study(folder, chain_study("needy", {"updates": 2}, arms=("grpo",), device="cuda"))
    runs = with_cache(RunsFolder(folder / "runs"), chain_cache)
    process = started("sweep", file, "--runs", runs.root, CUDA_VISIBLE_DEVICES="0", TMPDIR=str(folder))
    assert finished(process).code == 1
    return file, runs


def test_the_log_of_a_failed_cell_shows_what_its_worker_said_and_where(failed: tuple[Path, RunsFolder]) -> None:
    """Case L4."""
    _, runs = failed
    cell = cell_folders(runs)[0]
    ran = isobudget("log", cell.path.name, "--runs", runs.root)
    assert ran.code == 0
    assert "needy" in ran.out and "failed" in ran.out
    assert f"attempt 1: {time.strftime('%Y')}" in ran.out and str(cell.events(1)) in ran.out
    assert "launch 1: exit code 2" in ran.out and str(jobs(cell)[0].path) in ran.out
    assert "  isobudget: the run needs a GPU, and torch finds none" in ran.out.splitlines()[-1]
    told = isobudget("log", cell.path.name, "--runs", runs.root, "--json").json()
    assert told["status"] == "failed" and told["attempts"][0]["status"] == "failed"


def test_failed_cells_are_launched_again_once_somebody_asks(failed: tuple[Path, RunsFolder]) -> None:
    file, runs = failed
    cell = cell_folders(runs)[0]
    assert "1 failed cells are launched again" in isobudget("retry", file, cell.path.name, "--runs", runs.root).out
    told = isobudget("status", file, "--runs", runs.root, "--json").json()
    assert told["counts"] == {"failed": 1, "interrupted": 1}
    (marked,) = (entry for entry in told["cells"] if entry["status"] == "interrupted")
    assert marked["reason"].startswith("to be retried: the run needs a GPU")
    process = started("sweep", file, "--runs", runs.root, CUDA_VISIBLE_DEVICES="0", TMPDIR=str(file.parent))
    assert finished(process).code == 1
    assert sorted(len(jobs(cell)) for cell in cell_folders(runs)) == [1, 2]


def test_a_sweep_is_cancelled_from_another_shell_and_goes_on_later(tmp_path: Path) -> None:
    file, runs = long_study(tmp_path), RunsFolder(tmp_path / "runs")
    process = started("sweep", file, "--runs", runs.root, "--workers", 2)
    wait_for_an_update(runs)
    told = isobudget("status", file, "--runs", runs.root)
    assert "running" in told.out and "charged so far: " in told.out
    ran = isobudget("cancel", file, "--runs", runs.root)
    assert f"process {process.pid} on " in ran.out and "was asked to end" in ran.out
    assert finished(process).code == 1
    assert isobudget("status", file, "--runs", runs.root, "--json").json()["counts"] == {"interrupted": 2}
    watched = isobudget("watch", file, "--runs", runs.root, "--every", 0.1)
    assert (watched.code, "2 interrupted" in watched.out) == (1, True), "nobody works on it, so nothing to wait for"
    assert isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report").code == 0
    assert {run.updates for run in folded(runs).values()} == {4_000}
    assert {run.lost_self == run.retraced == {} for run in folded(runs).values()} == {True}


def test_a_detached_sweep_goes_on_is_watched_to_its_end_and_runs_its_hook(tmp_path: Path) -> None:
    file, runs = long_study(tmp_path, updates=200), RunsFolder(tmp_path / "runs")
    hook = tmp_path / "hook.py"
    hook.write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(os.environ['ISOBUDGET_STUDY'] + os.environ['ISOBUDGET_EXIT_CODE'])\n"
    )
    mark = tmp_path / "mark"
    command = f"{sys.executable} {hook} {mark}"
    ran = finished(
        started("sweep", file, "--runs", runs.root, "--detach", "--on-finish", command, "--no-report", "--json")
    )
    assert ran.code == 0, ran.err
    wait_for_an_update(runs)
    watched = finished(started("watch", file, "--runs", runs.root, "--every", 0.1))
    assert watched.code == 0, watched.err
    assert "long: 2 done" in watched.out
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mark.read_text() == "long0"
    assert '"completed": 2' in Path(ran.json()["log"]).read_text()


@pytest.mark.parametrize("command", ["no-such-program -x", "'unclosed", ""])
def test_a_hook_that_cannot_be_run_is_refused_before_anything_is_launched(tmp_path: Path, command: str) -> None:
    file, runs = long_study(tmp_path), RunsFolder(tmp_path / "runs")
    ran = isobudget("sweep", file, "--runs", runs.root, "--inline", "--on-finish", command)
    assert ran.code == 2
    assert ran.complaints()[-1].startswith(f"isobudget: --on-finish: found {command!r}")
    assert not runs.cells.exists()


def test_the_dead_are_named_and_their_cells_freed(tmp_path: Path) -> None:
    file, runs = long_study(tmp_path, updates=5), RunsFolder(tmp_path / "runs")
    assert isobudget("sweep", file, "--runs", runs.root, "--inline", "--no-report").code == 0
    mine, other = cell_folders(runs)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    dead = Process.of(child.pid)
    child.wait()
    Lease(mine.lease, Holder(dead, "token", time.time()))._create()
    Lease(other.lease, Holder(Process.of(os.getpid()), "token", time.time()))._create()
    ran = isobudget("reap", file, "--runs", runs.root)
    assert f"{mine.path.name}: was held by process {dead.pid}" in ran.out
    assert ran.out.splitlines()[-1] == "1 cells freed"
    assert not mine.lease.exists() and json.loads(other.lease.read_text())["pid"] == os.getpid()


def view(number: int, status: str, fraction: float = 0.0, reason: str = "") -> CellView:
    arm = f"a{number % 2}"
    return CellView(f"{number:016x}", f"m/{arm}/{number}", arm, status, reason, 10, fraction, {}, "")


def test_many_running_cells_are_shown_by_arm() -> None:
    few = [RunningCell(f"m/a/{seed}", 1, 0.5) for seed in range(MOST_BARS)]
    assert summed_up(few) == few
    many = [RunningCell(f"m/a{seed % 2}/{seed}", seed % 2, 0.25 + 0.5 * (seed % 2)) for seed in range(60)]
    assert summed_up(many) == [RunningCell("m/a0 (30 cells)", 0, 0.25), RunningCell("m/a1 (30 cells)", 1, 0.75)]


def test_reasons_that_differ_in_numbers_only_are_one_trouble() -> None:
    cells = [view(i, "failed", reason=f"exit code 1: line {i}") for i in range(4)] + [
        view(9, "failed", reason="other")
    ]
    told = Overview("s", cells, None)
    assert [(reason, len(group)) for reason, group in told.troubles("failed")] == [
        ("exit code 1: line 0", 4),
        ("other", 1),
    ]
    running = Overview("s", [view(i, "running", i / 10) for i in (5, 1, 3)], None)
    assert [cell.fraction for cell in running.slowest(2)] == [0.1, 0.3]
