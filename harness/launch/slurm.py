"""A cluster under Slurm, through submitit: cells wait in job arrays, and outlive whoever submitted them.

Promises: one bounded query per interval for all jobs; refused submissions are tried again, ever later; what a job did
is read from the cell's records, and only a job that left none is asked after. Preemption and time limits are the
supervisor's (worker.py): it has the worker checkpoint, and requeues the job.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from harness.errors import InputError
from harness.launch.backend import SCHEDULER_VARIABLE, WORKER_COMMAND, Ended, worker_environment
from harness.launch.jobs import Job
from harness.launch.slurm_options import SlurmOptions
from harness.launch.worker import run_job
from harness.layout import CellFolder, RunsFolder
from harness.train.exit_codes import EXIT_INTERRUPTED
from harness.train.scheduler import SlurmQueue, client, how_it_ended, queue

QUEUED_AT_MOST: Final = 1_000
"""Jobs of one sweep in the queue at a time."""
ARRAY_AT_MOST: Final = 500
"""Tasks of one array; Slurm's own limit is 1,001 unless configured."""
WARNING_SECONDS: Final = 90
"""Before the time limit, at most: for a checkpoint."""
_FIRST_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 600.0
_TRIES_BEFORE_ANY_WAS_ACCEPTED: Final = 3


class SlurmBackend:
    """Implements `Backend`. Cells that are started together are submitted together, at the next poll."""

    workers = QUEUED_AT_MOST

    def __init__(
        self,
        runs: RunsFolder,
        options: SlurmOptions,
        gpus_per_cell: int = 0,
        command: Sequence[str] = WORKER_COMMAND,
        slurm_queue: SlurmQueue | None = None,
    ):
        if shutil.which("sbatch") is None:
            raise InputError("there is no Slurm here", "a machine with sbatch, or --backend local", "--backend")
        self._runs = runs
        self._options = options
        self._gpus = gpus_per_cell
        self._command = command
        self._queue = slurm_queue or queue()
        self._folder = runs.root / "slurm"
        self._to_submit: list[tuple[Job, int]] = []
        self._running: dict[Job, str] = {}
        self._wanted: signal.Signals | None = None
        self._asked: dict[Job, signal.Signals] = {}
        self._accepted = False
        self._refusals = 0
        self._next_try = 0.0

    @property
    def submitted(self) -> list[str]:
        """Slurm's ids of the jobs that are in its hands."""
        return list(self._running.values())

    def start(self, cell: CellFolder, threads: int, code_hash: str) -> Job:
        environment = worker_environment(self._runs, threads, code_hash)
        if self._gpus:
            del environment["CUDA_VISIBLE_DEVICES"]  # Slurm's to set
        environment[SCHEDULER_VARIABLE] = "slurm"
        job = Job.create(cell, [*self._command, str(cell.spec)], environment)
        self._to_submit.append((job, threads))
        job.record_scheduler("", time.time())
        return job

    def poll(self) -> list[Ended]:
        if self._wanted is not None:
            self._ask_all(self._wanted)
        elif self._to_submit and time.monotonic() >= self._next_try:
            self._submit()
        ended = []
        for job, slurm_job in list(self._running.items()):
            code = job.exit_code()
            unexplained = code is None or (code == EXIT_INTERRUPTED and job not in self._asked)
            if unexplained and self._queue.alive(slurm_job, job.submitted()):
                continue
            if unexplained:
                code = self._bury(job, slurm_job)
            del self._running[job]
            ended.append(Ended(job, code))
        if self._wanted is not None:
            for job, _ in self._to_submit:
                job.record_exit(EXIT_INTERRUPTED)
                ended.append(Ended(job, EXIT_INTERRUPTED))
            self._to_submit.clear()
        return ended

    def interrupt(self) -> None:
        self._wanted = signal.SIGTERM

    def kill(self) -> None:
        self._wanted = signal.SIGKILL

    def _bury(self, job: Job, slurm_job: str) -> int | None:
        """Records why a job left the queue that said nothing of its end, or only that it was asked to stop."""
        code = job.exit_code()  # again: the queue's answer may be younger than the first look
        if code not in (None, EXIT_INTERRUPTED):
            return code
        if job in self._asked:
            job.record_exit(EXIT_INTERRUPTED)
            return EXIT_INTERRUPTED
        state = how_it_ended(slurm_job)
        code = -signal.SIGKILL if code is None else code
        job.record_exit(code, out_of_memory=state == "OUT_OF_MEMORY", scheduler_state=state)
        return code

    def _submit(self) -> None:
        threads = self._to_submit[0][1]
        batch = [job for job, needed in self._to_submit if needed == threads][:ARRAY_AT_MOST]
        executor = self._executor(threads, len(batch))
        try:
            submitted = executor.map_array(run_job, [str(job.path) for job in batch])
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            self._put_off(error)
            return
        self._accepted, self._refusals = True, 0
        for job, handle in zip(batch, submitted, strict=True):
            self._running[job] = str(handle.job_id)
            job.record_scheduler(str(handle.job_id), time.time(), str(handle.paths.submission_file))
        self._to_submit = [entry for entry in self._to_submit if entry[0] not in self._running]

    def _put_off(self, error: Exception) -> None:
        """Tries again later; a first submission that is refused again and again is the user's to mend."""
        said = [line for line in str(error).splitlines() if line.strip()]
        reason = said[-1].strip() if said else type(error).__name__
        self._refusals += 1
        if not self._accepted and self._refusals >= _TRIES_BEFORE_ANY_WAS_ACCEPTED:
            for job, _ in self._to_submit:
                job.record_exit(EXIT_INTERRUPTED)
            raise InputError(f"sbatch refuses: {reason}", "see the options --partition, --account and --sbatch")
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (self._refusals - 1))
        self._next_try = time.monotonic() + pause
        print(f"isobudget: sbatch refuses ({reason}); trying again in {pause:.0f} s", file=sys.stderr, flush=True)

    def _executor(self, threads: int, tasks: int) -> submitit.SlurmExecutor:
        options = self._options
        self._folder.mkdir(parents=True, exist_ok=True)
        executor = submitit.SlurmExecutor(folder=self._folder, python=sys.executable)
        free = (options.max_parallel or tasks) - (len(self._running) if options.max_parallel else 0)
        executor.update_parameters(
            job_name="isobudget",
            cpus_per_task=threads,
            array_parallelism=max(1, free),
            signal_delay_s=_warning_seconds(options.time_minutes),
            time=options.time_minutes,  # None, unless asked for submitit would set five minutes
            wckey="isobudget",
            additional_parameters={"requeue": True, **options.sbatch},
            **{
                name: value
                for name, value in (
                    ("partition", options.partition),
                    ("account", options.account),
                    ("gpus_per_node", self._gpus or None),
                )
                if value is not None
            },
        )
        return executor

    def _ask_all(self, what: signal.Signals) -> None:
        new = [job for job in self._running if self._asked.get(job) != what]
        if not new:
            return
        for job in new:
            self._asked[job] = what
            job.ask(what)
        ids = [self._running[job] for job in new]
        pending = [] if what == signal.SIGKILL else ["--state=PENDING"]
        client(["scancel", *pending, *ids])


def _warning_seconds(time_minutes: int | None) -> int:
    """How long before its limit a job is warned: a quarter of a short one, since Slurm may be a minute early."""
    return WARNING_SECONDS if time_minutes is None else min(WARNING_SECONDS, 60 * time_minutes // 4)
