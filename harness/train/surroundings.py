"""What a launcher tells its worker through the environment, beside what libraries read there.

Nothing here determines a result. What nobody told is None: a worker that was started by hand knows little.
"""

from __future__ import annotations

import os
from typing import Final

from harness.compute.kinds import Device
from harness.errors import InputError
from harness.train.scheduler import own_job

CODE_HASH_VARIABLE: Final = "ISOBUDGET_CODE_HASH"
"""The code that the cell is to run."""
CELLS_AT_ONCE_VARIABLE: Final = "ISOBUDGET_CELLS_AT_ONCE"
"""How many cells the sweep runs at once on this machine."""


def expected_code() -> str | None:
    """The hash of the code that the sweep started with."""
    return os.environ.get(CODE_HASH_VARIABLE) or None


def contention(device: Device) -> dict[str, int | bool | None]:
    """What hours may suffer from: how many cells the sweep runs at once here, and whether on this one's device.

    A GPU given out by a sweep or by Slurm is one cell's; the CPU is everybody's. Other programs are not seen.
    """
    told = os.environ.get(CELLS_AT_ONCE_VARIABLE)
    at_once = int(told) if told else None
    alone = at_once == 1 or (device == "cuda" and bool(at_once or own_job()))
    return {"cells_at_once": at_once, "device_shared": False if alone else None if at_once is None else True}


def require_one_gpu() -> None:
    """InputError where Slurm gave a job more GPUs than the one that a run computes on, and is charged for."""
    given = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if own_job() and len(given) > 1:
        right = "one per job: --sbatch without GPUs of its own, and no exclusive nodes"
        raise InputError(f"the job has {len(given)} GPUs, and a run computes on one", right)
