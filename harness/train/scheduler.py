"""What Slurm says of jobs: whether they are still in its hands, and how they ended.

One query answers for all jobs of the user, and is asked again only after a while. Each call of a client is bounded in
time, since clients of a dead controller hang. What cannot be asked is unknown, and unknown is never taken for gone.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final

CLIENT_SECONDS: Final = 30.0
"""After which a client of Slurm counts as without an answer."""
INTERVAL_SECONDS: Final = 5.0
"""Between two queries of the queue."""


def client(arguments: Sequence[str], seconds: float = CLIENT_SECONDS) -> str | None:
    """Standard output of one of Slurm's commands; None when it is missing, fails, or takes too long."""
    try:
        done = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def own_job() -> str:
    """The Slurm job that this process runs in, as the queue names it; empty outside of any."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


class SlurmQueue:
    """The user's jobs that are pending or running. `ask` gives squeue's output, for tests."""

    def __init__(
        self, ask: Callable[[Sequence[str]], str | None] = client, interval_seconds: float = INTERVAL_SECONDS
    ):
        self._ask = ask
        self._interval_seconds = interval_seconds
        self._states: dict[str, str] = {}
        self._taken = -float("inf")
        self._asked = -float("inf")
        self.queries = 0
        """How often the scheduler was asked."""

    def state(self, job: str, submitted: float = 0.0) -> str | None:
        """PENDING, RUNNING, ... as last heard; empty: gone; None: not known (yet).

        `submitted` (Unix seconds): an answer from before it says nothing of the job.
        """
        self._refresh()
        if self._taken <= submitted:
            return None
        return self._states.get(job, "")

    def alive(self, job: str, submitted: float = 0.0) -> bool:
        """Whether the job may still run, or come to run."""
        return self.state(job, submitted) != ""

    def _refresh(self) -> None:
        now = time.time()
        if now - self._asked < self._interval_seconds:
            return
        self._asked = now
        self.queries += 1
        told = self._ask(["squeue", "--me", "--noheader", "--array", "--format=%i|%T"])
        if told is None:
            return
        self._states = dict(line.strip().split("|", 1) for line in told.splitlines() if "|" in line)
        self._taken = now


@cache
def queue() -> SlurmQueue:
    """The one view of the queue that this process keeps."""
    return SlurmQueue()


def how_it_ended(job: str, ask: Callable[[Sequence[str]], str | None] = client) -> str:
    """The state in which a job left the queue: COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, ...

    By accounting, or, where there is none, by the controller's memory; empty where neither remembers.
    """
    told = ask(["sacct", "--noheader", "--parsable2", "--allocations", "--jobs", job, "--format=State"])
    words = told.split() if told else []
    if not words:
        shown = ask(["scontrol", "show", "job", "--oneliner", job])
        words = re.findall(r"JobState=(\w+)", shown or "")
    return words[0] if words else ""


def recorded_gpu_hours(jobs: Iterable[str], ask: Callable[[Sequence[str]], str | None] = client) -> float | None:
    """GPU-hours of jobs by Slurm's records, every restart of a job included; None without accounting."""
    names = ",".join(jobs)
    if not names:
        return 0.0
    told = ask(
        [
            *("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates"),
            *("--jobs", names, "--format=ElapsedRaw,AllocTRES"),
        ]
    )
    if told is None:
        return None
    seconds = 0
    for line in told.splitlines():
        elapsed, _, resources = line.partition("|")
        gpus = re.search(r"gres/gpu=(\d+)", resources)
        seconds += int(elapsed or 0) * int(gpus[1] if gpus else 0)
    return seconds / 3600
