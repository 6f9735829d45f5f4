"""This machine, through submitit's local executor: one supervised process per cell.

Promises that a launch outlives the sweep that made it, that Ctrl-C in a terminal reaches no worker by itself,
and that submitit is given `run_job` and a path, nothing else. When submitit's supervisor is killed, its
worker may live on: the cell's lease then keeps it from being doubled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

import submitit

from harness.launch.backend import WORKER_COMMAND, Ended, worker_environment
from harness.launch.jobs import Job
from harness.launch.worker import TERMINAL_SIGNALS, run_job
from harness.layout import CellFolder, RunsFolder
from harness.train.processes import Process

_NO_TIMEOUT_MINUTES: Final = 10 * 365 * 24 * 60
"""submitit wants a time limit (its default is minutes); a budget is never a deadline, so: ten years."""


class LocalBackend:
    """Implements `Backend`. `gpus`: of which each worker gets one to itself; none for cells on the CPU.

    `command` is followed by the cell's path; another one is for tests.
    """

    def __init__(
        self, runs: RunsFolder, workers: int, command: Sequence[str] = WORKER_COMMAND, gpus: Sequence[str] = ()
    ):
        self.workers = workers
        self._runs = runs
        self._command = command
        self._gpus = gpus
        self._running: dict[Job, submitit.LocalJob[int]] = {}
        self._leaving: list[submitit.LocalJob[int]] = []
        self._wanted: signal.Signals | None = None
        self._asked: dict[Job, signal.Signals] = {}

    def start(self, cell: CellFolder, threads: int, code_hash: str) -> Job:
        environment = worker_environment(self._runs, threads, code_hash, self._gpus, self.workers)
        job = Job.create(cell, [*self._command, str(cell.spec)], environment)
        executor = submitit.LocalExecutor(folder=job.scheduler)
        executor.update_parameters(timeout_min=_NO_TIMEOUT_MINUTES)
        # Blocked signals stay blocked in what is started meanwhile: the terminal's reach the sweep only.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            submitted = executor.submit(run_job, str(job.path))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._running[job] = submitted
        job.record_supervisor(Process.of(int(submitted.job_id)))
        return job

    def poll(self) -> list[Ended]:
        ended = []
        for job, submitted in list(self._running.items()):
            if self._wanted is not None and self._asked.get(job) != self._wanted:
                self._asked[job] = self._wanted
                _ask(job, self._wanted)
            over = submitted.done()  # asked first: what ends between the two questions has its exit recorded
            code = job.exit_code()
            if over or code is not None:
                del self._running[job]
                self._leaving.append(submitted)
                ended.append(Ended(job, code))
        self._leaving = [submitted for submitted in self._leaving if not submitted.done()]
        return ended

    def interrupt(self) -> None:
        self._wanted = signal.SIGTERM

    def kill(self) -> None:
        self._wanted = signal.SIGKILL


def _ask(job: Job, what: signal.Signals) -> None:
    """Through the job's supervisor, which also knows of a worker not yet started; directly on a full disk."""
    try:
        job.ask(what)
    except OSError:
        worker = job.worker()
        if worker is not None and worker.alive():
            os.kill(worker.pid, what)
