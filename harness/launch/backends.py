"""Which back ends there are. A name on the command line becomes a back end here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from harness.compute.kinds import Device
from harness.errors import InputError
from harness.launch.backend import Backend, default_workers
from harness.launch.gpus import visible_gpus
from harness.layout import RunsFolder


def _local(runs: RunsFolder, workers: int, gpus: Sequence[str]) -> Backend:
    from harness.launch.local import LocalBackend

    return LocalBackend(runs, workers, gpus=gpus)


def _inline(runs: RunsFolder, workers: int, gpus: Sequence[str]) -> Backend:
    from harness.launch.inline import InlineBackend
    from harness.train.attempt import run_cell

    return InlineBackend(runs, run_cell)


BACKENDS: Final[dict[str, Callable[[RunsFolder, int, Sequence[str]], Backend]]] = {
    "local": _local,
    "inline": _inline,
}
"""Name -> from (runs, workers, GPUs). Imports wait until one is chosen: submitit and torch take seconds."""


def make_backend(
    name: str, runs: RunsFolder, threads: int, workers: int | None = None, device: Device = "cpu"
) -> Backend:
    """The back end of this name; `workers` cells of `threads` threads at once, by default as cores allow.

    Cells on `cuda` get a GPU each, so no more run at once than there are. InputError where there is none.
    """
    if name not in BACKENDS:
        raise InputError(f"no back end is called {name!r}", f"one of {', '.join(BACKENDS)}", "--backend")
    at_once = default_workers(threads) if workers is None else workers
    gpus = visible_gpus() if device == "cuda" else []
    if device == "cuda" and not gpus:
        raise InputError("the study runs on `device: cuda`, and this machine has no GPU", "a machine with one")
    return BACKENDS[name](runs, min(at_once, len(gpus)) if gpus else at_once, gpus)
