"""Which back ends there are. A name on the command line becomes a back end here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.errors import InputError
from harness.launch.backend import Backend, default_workers
from harness.layout import RunsFolder


def _local(runs: RunsFolder, workers: int) -> Backend:
    from harness.launch.local import LocalBackend

    return LocalBackend(runs, workers)


def _inline(runs: RunsFolder, workers: int) -> Backend:
    from harness.launch.inline import InlineBackend
    from harness.train.attempt import run_cell

    return InlineBackend(runs, run_cell)


BACKENDS: Final[dict[str, Callable[[RunsFolder, int], Backend]]] = {"local": _local, "inline": _inline}
"""Name -> from (runs, workers). Imports wait until one is chosen: submitit and torch take seconds."""


def make_backend(name: str, runs: RunsFolder, threads: int, workers: int | None = None) -> Backend:
    """The back end of this name; `workers` cells of `threads` threads at once, by default as cores allow."""
    if name not in BACKENDS:
        raise InputError(f"no back end is called {name!r}", f"one of {', '.join(BACKENDS)}", "--backend")
    return BACKENDS[name](runs, default_workers(threads) if workers is None else workers)
