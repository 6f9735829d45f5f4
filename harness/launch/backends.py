"""Which back ends there are. A name on the command line becomes a back end here, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.compute.kinds import Device
from harness.errors import InputError
from harness.launch.backend import Backend, default_workers
from harness.launch.gpus import visible_gpus
from harness.launch.slurm_options import SlurmOptions
from harness.layout import RunsFolder


@dataclass(frozen=True)
class Wanted:
    """What a sweep wants of a back end."""

    threads: int = 1
    """Of each cell."""
    device: Device = "cpu"
    workers: int | None = None
    """Cells at once; None: as many as there is room for."""
    slurm: SlurmOptions = field(default_factory=SlurmOptions)


def _local(runs: RunsFolder, wanted: Wanted) -> Backend:
    from harness.launch.local import LocalBackend

    gpus = _gpus_here(wanted)
    at_once = wanted.workers or default_workers(wanted.threads)
    if gpus and at_once > len(gpus):
        if wanted.workers:
            print(f"isobudget: no more than {len(gpus)} cells at once: each has a GPU to itself", file=sys.stderr)
        at_once = len(gpus)
    return LocalBackend(runs, at_once, gpus=gpus)


def _inline(runs: RunsFolder, wanted: Wanted) -> Backend:
    from harness.launch.inline import InlineBackend
    from harness.train.attempt import run_cell

    _gpus_here(wanted)
    return InlineBackend(runs, run_cell)


def _slurm(runs: RunsFolder, wanted: Wanted) -> Backend:
    from harness.launch.slurm import SlurmBackend

    return SlurmBackend(runs, wanted.slurm, gpus_per_cell=int(wanted.device == "cuda"))


def _gpus_here(wanted: Wanted) -> Sequence[str]:
    """The GPUs of this machine, for a study that runs on them; InputError where there is none."""
    gpus = visible_gpus() if wanted.device == "cuda" else []
    if wanted.device == "cuda" and not gpus:
        raise InputError("the study runs on `device: cuda`, and this machine has no GPU", "a machine with one")
    return gpus


BACKENDS: Final[dict[str, Callable[[RunsFolder, Wanted], Backend]]] = {
    "local": _local,
    "slurm": _slurm,
    "inline": _inline,
}
"""Imports wait until one is chosen: submitit and torch take seconds."""


def make_backend(name: str, runs: RunsFolder, wanted: Wanted) -> Backend:
    """The back end of this name.

    On this machine, cells on `cuda` get a GPU each, so no more run at once than there are, and whoever wanted more is
    told. InputError where there is none, or no such back end.
    """
    if name not in BACKENDS:
        raise InputError(f"no back end is called {name!r}", f"one of {', '.join(BACKENDS)}", "--backend")
    return BACKENDS[name](runs, wanted)
