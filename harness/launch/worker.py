"""What a scheduler runs for one launch: the worker, in a fresh process, with its threads fixed before it starts.

The only thing ever given to a scheduler is `run_job` and a path. It keeps the worker's output in the job's
folder, passes on the signals that the job was asked for, and records how the worker ended. Under Slurm, a warning of
preemption or of the time limit has the worker checkpoint, and the job is requeued: it goes on there. A job that gets
nowhere between warnings is not requeued for ever, but counts as failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from harness.launch.backend import GPUS_VARIABLE, SCHEDULER_VARIABLE
from harness.launch.gpus import one_of
from harness.launch.jobs import Job, Order
from harness.launch.memory import out_of_memory_kills
from harness.launch.tails import Progress
from harness.train.exit_codes import EXIT_INTERRUPTED
from harness.train.processes import Process
from harness.train.scheduler import client, own_job

TERMINAL_SIGNALS: Final = {signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
"""What a terminal sends to everything started from it. Workers are stopped by the sweep alone."""
_LOOK_SECONDS: Final = 0.2
_NOT_STARTED: Final = 127
_REQUEUE_TRIES: Final = 3
_FRUITLESS_STARTS: Final = 3
"""So many starts of one job in a row without a new update: its time limit is too short, and it is not requeued."""
_UNTIL_SLURM_ENDS_IT_SECONDS: Final = 120.0


def run_job(job_folder: str) -> int:
    """Runs the job's command to its end; returns, and records, its exit code (minus the signal that killed it)."""
    job = Job(Path(job_folder))
    order = job.order()
    if order is None:
        raise FileNotFoundError(f"{job_folder}: no job.json")
    stopped_before_it_started = job.asked() is not None
    kills_before = out_of_memory_kills()
    with _warnings(order) as warned:
        code = EXIT_INTERRUPTED if stopped_before_it_started else _run(job, order, warned)
    given_up = ""
    if code == EXIT_INTERRUPTED and warned and job.asked() is None:
        given_up = _no_use(job)
        if not given_up and _requeued():
            return code  # not its exit: the same job runs it again
    killed_for_memory = code == -signal.SIGKILL and out_of_memory_kills() > kills_before
    job.record_exit(code, out_of_memory=killed_for_memory, given_up=given_up)
    return code


def _environment(changes: dict[str, str | None]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SUBMITIT_")}
    merged = {**inherited, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@contextmanager
def _warnings(order: Order) -> Iterator[list[int]]:
    """Collects Slurm's warnings, if the launch is under Slurm. submitit would requeue by rules of its own."""
    received: list[int] = []
    if order.environment.get(SCHEDULER_VARIABLE) != "slurm":
        yield received
        return
    before = signal.signal(signal.SIGUSR2, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        signal.signal(signal.SIGUSR2, before)


def _no_use(job: Job) -> str:
    """Why the job would get nowhere if it were requeued; empty while its starts make updates."""
    progress = Progress(job.cell)
    progress.read()
    fruitless = job.record_start(progress.updates)
    if fruitless < _FRUITLESS_STARTS:
        return ""
    return (
        f"{fruitless} starts in a row were warned of their end before they had made one update: it needs a longer "
        "time limit, or a queue that preempts less"
    )


def _requeued() -> bool:
    """Has this Slurm job start anew later; does not return once Slurm has agreed. False: it refuses."""
    for _ in range(_REQUEUE_TRIES):
        if client(["scontrol", "requeue", own_job()]) is not None:
            time.sleep(_UNTIL_SLURM_ENDS_IT_SECONDS)
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _run(job: Job, order: Order, warned: list[int]) -> int:
    gpus = order.environment.get(GPUS_VARIABLE)
    if not gpus:
        return _start(job, order, _environment(order.environment), warned)
    told = False

    def give_up() -> bool:
        nonlocal told
        if not told:
            told = True
            with job.stderr.open("a") as stderr:
                stderr.write(f"isobudget: waits for a GPU: other cells have {gpus}\n")
        return job.asked() is not None

    with one_of(gpus.split(","), give_up) as held:
        if held is None:
            return EXIT_INTERRUPTED
        gpu, lock = held
        environment = _environment({**order.environment, "CUDA_VISIBLE_DEVICES": gpu})
        return _start(job, order, environment, warned, lock)


def _start(job: Job, order: Order, environment: dict[str, str], warned: list[int], *inherited: int) -> int:
    """Runs the worker to its end; it inherits the file descriptors."""
    with job.stdout.open("ab") as stdout, job.stderr.open("ab") as stderr, _deaf_to_the_terminal():
        try:
            worker = subprocess.Popen(
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        except OSError as error:
            stderr.write(f"{order.command[0]}: {error.strerror}\n".encode())
            return _NOT_STARTED
        job.record_worker(Process.of(worker.pid))
        with _passing_on(signal.SIGTERM, worker):
            return _wait(job, worker, warned)


def _wait(job: Job, worker: subprocess.Popen[bytes], warned: list[int]) -> int:
    sent = None
    while True:
        try:
            return worker.wait(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            asked = job.asked() or (signal.SIGTERM if warned else None)
            if asked is not None and asked != sent:
                _send(worker, asked)
                sent = asked


def _send(worker: subprocess.Popen[bytes], what: signal.Signals) -> None:
    if what == signal.SIGKILL:
        os.killpg(worker.pid, what)  # its own session: whatever it started goes with it
    else:
        worker.send_signal(what)


@contextmanager
def _passing_on(what: signal.Signals, worker: subprocess.Popen[bytes]) -> Iterator[None]:
    before = signal.signal(what, lambda *_: worker.send_signal(what))
    try:
        yield
    finally:
        signal.signal(what, before)


@contextmanager
def _deaf_to_the_terminal() -> Iterator[None]:
    """Ignores the terminal's signals here, without the worker inheriting that (handlers do not survive an exec)."""

    def ignore(number: int, frame: FrameType | None) -> None:
        pass

    before = {what: signal.signal(what, ignore) for what in TERMINAL_SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for what, handler in before.items():
            signal.signal(what, handler)
