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
from launch_helpers import FACTS, folder_of, plan_of

from harness.errors import InputError
from harness.launch import gpus as gpu_module
from harness.launch.backends import Wanted, make_backend
from harness.launch.gpus import one_of, visible_gpus
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
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!{sys.executable}\nprint('GPU 0: NVIDIA H100 (UUID: GPU-a)\\nGPU 1: NVIDIA H100 (UUID: GPU-b)')\n"
    )
    program.chmod(0o755)
    assert visible_gpus() == ["0", "1"]


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
    runs = RunsFolder(tmp_path / "runs")
    plan = plan_of(*[["complete"]] * 6, pace_seconds=0.1)
    backend = LocalBackend(runs, 2, WORKER, gpus=["4", "7"])
    result = sweep(plan, runs, backend, SweepOptions(poll_seconds=0.05), facts=FACTS, code_hash=lambda: "code")
    assert (result.completed, result.failed) == (6, 0)
    given = []
    for cell in plan.cells:
        (began,) = folder_of(runs, cell).path.glob("began-*")
        given.append(json.loads(began.read_text())["CUDA_VISIBLE_DEVICES"])
    assert set(given) == {"4", "7"}


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
