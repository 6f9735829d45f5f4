"""A disk that refuses is the infrastructure's fault; a damaged log costs the run its work, and no more."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
import torch
from support.cells import scripted_content, write_cell
from support.faults import Faults, Killed

from harness.errors import InputError
from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.layout import CellFolder, RunsFolder
from harness.rollout.sidecar import TokenSidecar
from harness.train import checkpoint as checkpoints
from harness.train.attempt import run_cell
from harness.train.disk import fault_in
from harness.train.exit_codes import EXIT_BAD_INPUT, EXIT_COMPLETED, EXIT_FAILED

UPDATE = 2 * 2 * 10
"""Tokens of one update; checkpoints are after every third."""


def cell_of(runs: RunsFolder) -> CellFolder:
    return write_cell(runs, scripted_content({"generated_tokens": 10 * UPDATE}))


def undisturbed(tmp_path: Path) -> list[object]:
    runs = RunsFolder(tmp_path / "undisturbed")
    cell = cell_of(runs)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    return fold_run(cell.path).history


def refusing(patch: pytest.MonkeyPatch, owner: object, name: str, call: int, number: int = errno.ENOSPC) -> None:
    """The disk refuses from the n-th call on, from 1."""
    sound, calls = getattr(owner, name), 0

    def touch(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise OSError(number, os.strerror(number))
        return sound(*args)

    patch.setattr(owner, name, touch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_samples_that_the_disk_refuses_are_counted_as_spent_and_never_charged(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fifth batch is sampled whole, and cannot be kept: with the fourth it is lost behind the checkpoint."""
    runs = RunsFolder(tmp_path)
    cell = cell_of(runs)
    with monkeypatch.context() as patch:
        refusing(patch, TokenSidecar, "_place", call=5, number=number)
        assert run_cell(cell.spec, runs) == EXIT_BAD_INPUT
    last = read_events(cell.events(1)).events[-1]
    assert (last.payload["status"], last.payload["fault"]) == ("failed", "infrastructure")
    assert fold_run(cell.path).spent["rollout"]["generated_tokens"] == 5 * UPDATE
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert run.crashes == {"self": 0, "infrastructure": 1}
    assert run.lost_self == {}
    assert run.retraced["rollout"]["generated_tokens"] == 2 * UPDATE
    assert run.history == undisturbed(tmp_path)


def test_a_checkpoint_that_the_disk_refuses_is_the_infrastructures_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunsFolder(tmp_path)
    cell = cell_of(runs)
    with monkeypatch.context() as patch:
        refusing(patch, checkpoints, "_sync", call=6)
        assert run_cell(cell.spec, runs) == EXIT_FAILED
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    run = fold_run(cell.path)
    assert (run.crashes, run.lost_self) == ({"self": 0, "infrastructure": 1}, {})
    assert run.history == undisturbed(tmp_path)


def test_tensors_that_do_not_fit_on_the_disk_are_told_as_the_disks_refusal(tmp_path: Path) -> None:
    """They are written by a library that has errors of its own. A file size limit stands for the disk."""
    checkpoint = checkpoints.Checkpoint(checkpoints.name_of(1, 1), 1, 0, {}, {"weights": torch.zeros(100_000)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as refused:
            checkpoints.save(tmp_path, checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fault_in(refused.value) == "infrastructure"
    assert checkpoints.load_newest(tmp_path) == (None, [])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory"),
        InputError("x", "y"),
        FileNotFoundError(errno.ENOENT, "gone"),
    ],
)
def test_any_other_error_is_the_runs_own_fault(error: Exception) -> None:
    assert fault_in(error) is None


def test_a_run_whose_log_was_damaged_starts_afresh_and_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint is of no use: no table could follow the path that leads to it."""
    runs = RunsFolder(tmp_path)
    cell = cell_of(runs)
    with monkeypatch.context() as patch:
        Faults(patch, die_at=70)
        with pytest.raises(Killed):
            run_cell(cell.spec, runs)
    log = cell.events(1)
    sound = log.read_bytes()
    log.write_bytes(sound.replace(b'"update":2', b'"update":9', 1))
    assert log.read_bytes() != sound
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    started, *warnings = read_events(cell.events(2)).events[:3]
    assert started.payload["resumed_from"] is None
    told = [event.payload["message"] for event in warnings]
    assert "what attempt 1 did cannot be told" in told[0] and "checksum does not match" in told[0]
    assert "attempt 1, which has no record, so the run starts afresh" in told[1]
    log.rename(log.with_suffix(".damaged"))
    assert fold_run(cell.path).history == undisturbed(tmp_path)


def test_a_finished_run_whose_log_was_damaged_is_run_again_when_it_is_launched(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    cell = cell_of(runs)
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    log = cell.events(1)
    log.write_bytes(log.read_bytes().replace(b'"update":2', b'"update":9', 1))
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    assert cell.attempt_numbers() == [1, 2]
    assert run_cell(cell.spec, runs) == EXIT_COMPLETED
    assert cell.attempt_numbers() == [1, 2], "the second attempt is sound, and there is nothing more to do"
