"""This very process, one cell after the other: for a debugger, a profiler, a print. No threads are fixed and
nothing is isolated, so its hours are not comparable; an exception in a cell is not caught.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.launch.backend import Ended
from harness.launch.jobs import Job
from harness.layout import CellFolder, RunsFolder
from harness.train.surroundings import CODE_HASH_VARIABLE

RunCell = Callable[[Path, RunsFolder, Callable[[], bool]], int]
"""(cell.json, runs, whether to stop) -> exit code."""


class InlineBackend:
    """Implements `Backend`; `start` returns when the cell has ended."""

    workers = 1

    def __init__(self, runs: RunsFolder, run_cell: RunCell):
        self._runs = runs
        self._run_cell = run_cell
        self._ended: list[Ended] = []
        self._stopping = False

    def start(self, cell: CellFolder, threads: int, code_hash: str) -> Job:
        job = Job.create(cell, ["(inline)"], {CODE_HASH_VARIABLE: code_hash})
        with _in_environment(CODE_HASH_VARIABLE, code_hash):
            code = self._run_cell(cell.spec, self._runs, lambda: self._stopping)
        job.record_exit(code)
        self._ended.append(Ended(job, code))
        return job

    def poll(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def interrupt(self) -> None:
        self._stopping = True

    def kill(self) -> None:
        raise KeyboardInterrupt


@contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    """Sets a variable as a worker finds it, and leaves no trace of it to what this process does next."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
