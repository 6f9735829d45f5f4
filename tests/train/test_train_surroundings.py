"""What an attempt tells of its surroundings: a reader of hours asks whether cells shared a device."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.studies import FLIP
from support.sweeps import planned

from harness.compute.kinds import Device
from harness.events.fold import fold_run
from harness.layout import RunsFolder
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_BAD_INPUT
from harness.train.surroundings import CELLS_AT_ONCE_VARIABLE, contention, require_one_gpu

SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")


@pytest.mark.parametrize(
    ("device", "told", "slurm_job", "at_once", "shared"),
    [
        ("cpu", "4", None, 4, True),
        ("cpu", "1", None, 1, False),
        ("cpu", None, None, None, None),
        ("cpu", None, "17", None, None),
        ("cuda", "4", None, 4, False),
        ("cuda", None, "17", None, False),
        ("cuda", None, None, None, None),
    ],
)
def test_a_shared_device_is_told_from_one_of_its_own_and_from_an_unknown_one(
    device: Device,
    told: str | None,
    slurm_job: str | None,
    at_once: int | None,
    shared: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (CELLS_AT_ONCE_VARIABLE, *SLURM_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    if told is not None:
        monkeypatch.setenv(CELLS_AT_ONCE_VARIABLE, told)
    if slurm_job is not None:
        monkeypatch.setenv("SLURM_JOB_ID", slurm_job)
    assert contention(device) == {"cells_at_once": at_once, "device_shared": shared}


def test_a_slurm_job_with_more_gpus_than_are_charged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = RunsFolder(tmp_path / "runs")
    cell = planned(FLIP.write(tmp_path, device="cuda"), runs, "plain")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert run_cell(cell.spec, runs) == EXIT_BAD_INPUT
    assert "the job has 4 GPUs, and a run computes on one; one per job" in capsys.readouterr().err
    assert not fold_run(cell.path).charge.get("gpu_hours")
    for given in ("3", "GPU-8932f937", ""):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        require_one_gpu()
    for name in SLURM_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    require_one_gpu()
