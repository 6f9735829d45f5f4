"""What an attempt tells of its surroundings: a reader of hours asks whether cells shared a device."""

from __future__ import annotations

import pytest

from harness.compute.kinds import Device
from harness.train.surroundings import CELLS_AT_ONCE_VARIABLE, contention

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
