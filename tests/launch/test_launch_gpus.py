"""GPUs: found, given out one to a cell, and never twice, whichever sweep asks. None is needed here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_helpers import FACTS, FakePlan, folder_of, plan_of

from harness.errors import InputError
from harness.launch import gpus as gpu_module
from harness.launch.backends import Wanted, make_backend
from harness.launch.gpus import one_of, visible_gpus
from harness.launch.jobs import jobs
from harness.launch.local import LocalBackend
from harness.launch.sweep import SweepOptions, sweep
from harness.layout import RunsFolder

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks of this test only: others may run beside it."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    tempfile.tempdir = None


def nvidia_smi_lists(folder: Path, *ids: str) -> None:
    """A program of that name, as the driver's own prints."""
    lines = [f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: {gpu})" for number, gpu in enumerate(ids)]
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nprint({chr(10).join(lines)!r})\n")
    program.chmod(0o755)


def test_gpus_are_those_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-8932f937,")
    assert visible_gpus() == ["2", "GPU-8932f937"]
    for hidden in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert visible_gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,3,-1,0")
    assert visible_gpus() == ["3", "1"], "CUDA sees none after an invalid one"


def test_gpus_are_those_that_the_driver_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == []
    nvidia_smi_lists(tmp_path, "GPU-a1", "GPU-b2")
    assert visible_gpus() == ["0", "1"]


def test_a_gpu_is_one_by_whatever_name_and_equal_numbers_may_be_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nvidia_smi_lists(tmp_path, "GPU-a1", "GPU-b2")
    with one_of(["1"], lambda: True) as held:
        assert held is not None
        for name in ("1", "GPU-b2", "GPU-b"):
            with one_of([name], lambda: True) as other:
                assert other is None
        nvidia_smi_lists(tmp_path, "GPU-c3", "GPU-d4")  # in another container, or another Slurm job
        with one_of(["1"], lambda: True) as other:
            assert other is not None and other[0] == "1"


def test_a_gpu_is_held_by_one_and_the_next_waits_or_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "_LOOK_SECONDS", 0.0)
    with one_of(["0", "1"], lambda: True) as first, one_of(["0", "1"], lambda: True) as second:
        assert first is not None and second is not None
        assert (first[0], second[0]) == ("0", "1")
        with one_of(["0", "1"], lambda: True) as third:
            assert third is None
    with one_of(["1", "0"], lambda: True) as free:
        assert free is not None and free[0] == "1"


def test_a_gpu_stays_held_while_a_worker_that_inherited_it_lives() -> None:
    with one_of(["0"], lambda: True) as held:
        assert held is not None
        worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(held[1],))
    with one_of(["0"], lambda: True) as other:
        assert other is None
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    with one_of(["0"], lambda: True) as other:
        assert other is not None


def test_cells_that_run_at_once_have_a_gpu_each(tmp_path: Path) -> None:
    runs, plan = RunsFolder(tmp_path / "runs"), plan_of(*[["complete"]] * 6, pace_seconds=0.1)
    assert set(gpus_given(runs, plan)) == {"4", "7"}


def test_a_gpu_that_another_sweep_gave_to_a_cell_is_not_given_again(tmp_path: Path) -> None:
    runs, plan = RunsFolder(tmp_path / "runs"), plan_of(*[["complete"]] * 3, pace_seconds=0.1)
    with one_of(["4"], lambda: True) as held:
        assert held is not None
        assert gpus_given(runs, plan) == ["7"] * 3
    told = [job.stderr.read_text() for cell in plan.cells for job in jobs(folder_of(runs, cell))]
    assert "isobudget: waits for a GPU: other cells have 4,7\n" in told


def gpus_given(runs: RunsFolder, plan: FakePlan) -> list[str]:
    """To each cell of the plan, swept two at a time on GPUs 4 and 7."""
    backend = LocalBackend(runs, 2, WORKER, gpus=["4", "7"])
    result = sweep(plan, runs, backend, SweepOptions(poll_seconds=0.05), facts=FACTS, code_hash=lambda: "code")
    assert (result.completed, result.failed) == (len(plan.cells), 0)
    given = []
    for cell in plan.cells:
        (began,) = folder_of(runs, cell).path.glob("began-*")
        environment = json.loads(began.read_text())
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "numbers are those of nvidia-smi"
        given.append(environment["CUDA_VISIBLE_DEVICES"])
    return given


def test_no_more_cells_at_once_than_gpus_and_whoever_wanted_more_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("harness.launch.backends.default_workers", lambda threads: 16 // threads)
    runs = RunsFolder(tmp_path)
    assert make_backend("local", runs, Wanted(1, "cuda", 1)).workers == 1
    assert make_backend("local", runs, Wanted(1, "cuda")).workers == 2
    assert make_backend("local", runs, Wanted(16, "cuda")).workers == 1, "no more than the cores allow"
    assert make_backend("local", runs, Wanted(1, "cpu", 8)).workers == 8
    assert capsys.readouterr().err == ""
    assert make_backend("local", runs, Wanted(1, "cuda", 8)).workers == 2
    assert capsys.readouterr().err == "isobudget: no more than 2 cells at once: each has a GPU to itself\n"


def test_a_study_for_gpus_is_refused_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InputError, match=r"`device: cuda`, and this machine has no GPU"):
        make_backend("local", RunsFolder(tmp_path), Wanted(1, "cuda"))
    assert "CUDA_VISIBLE_DEVICES" in os.environ
