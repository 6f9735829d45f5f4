"""Where cells run: the one interface behind which this machine, this process and a cluster stand alike.

A back end starts one cell at a time and tells which ended. What a cell did is read from its events, never from
here; retries, order and the number at once are the sweep's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.launch.jobs import Job
from harness.layout import CellFolder, RunsFolder
from harness.train.surroundings import CELLS_AT_ONCE_VARIABLE, CODE_HASH_VARIABLE

WORKER_COMMAND: Final = (sys.executable, "-m", "harness.train")
"""Followed by the path of a cell.json."""
THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Ended:
    """A launch that is over."""

    job: Job
    exit_code: int | None
    """Minus the signal that killed it; None when nobody was left to say."""


class Backend(Protocol):
    """Starts workers and tells when they ended."""

    @property
    def workers(self) -> int:
        """How many cells may run at once."""
        ...

    def start(self, cell: CellFolder, threads: int, code_hash: str) -> Job:
        """Starts a worker on the cell. May return before it runs, or after it ended."""
        ...

    def poll(self) -> list[Ended]:
        """The launches that ended since the last call. Does not wait."""
        ...

    def interrupt(self) -> None:
        """From the next `poll` on, asks every worker to checkpoint and end. Callable from a signal handler."""
        ...

    def kill(self) -> None:
        """From the next `poll` on, ends every worker at once. Callable from a signal handler."""
        ...


SCHEDULER_VARIABLE: Final = "ISOBUDGET_SCHEDULER"
"""Whose signals and time limits the launch is under, where it is under any: `slurm`."""
GPUS_VARIABLE: Final = "ISOBUDGET_GPUS"
"""Names of the GPUs of which a worker gets one, separated by commas; the worker finds it in CUDA_VISIBLE_DEVICES."""


def worker_environment(
    runs: RunsFolder, threads: int, code_hash: str, gpus: Sequence[str] = (), cells_at_once: int | None = None
) -> dict[str, str | None]:
    """What a worker finds in its environment, beside what the sweep found in its own; without `gpus`, no GPU.

    `cells_at_once`: on the worker's machine, where that is known.
    """
    return {
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "TOKENIZERS_PARALLELISM": "false" if threads == 1 else "true",
        "RAYON_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",  # some generators of problems iterate over sets
        "ISOBUDGET_RUNS": str(runs.root),
        CODE_HASH_VARIABLE: code_hash,
        CELLS_AT_ONCE_VARIABLE: str(cells_at_once) if cells_at_once else None,
        "CUDA_VISIBLE_DEVICES": "",
        **({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {}),  # numbers mean what nvidia-smi means by them
        GPUS_VARIABLE: ",".join(gpus) or None,
    }


def available_cores() -> int:
    """Cores that this process may use: its affinity, and its control group's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such group, or no quota ("max")
        return cores


def default_workers(threads: int) -> int:
    """As many cells of this many threads as the cores allow, at least one."""
    return max(1, available_cores() // threads)
