"""One launch of one cell on disk: what is to be run, what it printed, how it ended.

Whatever back end started it, the record is the same small files, so that another process can tell what became
of a launch after the one that made it has died. A launch is not an attempt: it may die before its first event.
"""

from __future__ import annotations

import re
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.launch.json_files import read_json, read_record, write_json
from harness.layout import CellFolder
from harness.train.processes import Process
from harness.train.scheduler import queue


@dataclass(frozen=True)
class Order:
    """What a launch runs. Written before the start, never changed."""

    command: list[str]
    environment: dict[str, str | None]
    """Set, or (None) removed, before the command starts."""
    attempts_before: int
    """Number of the cell's newest attempt when launched; 0 when there was none."""


@dataclass(frozen=True)
class Job:
    """The folder of one launch: jobs/<n>/ of its cell."""

    path: Path

    @classmethod
    def create(cls, cell: CellFolder, command: list[str], environment: dict[str, str | None]) -> Job:
        """A new launch of the cell, numbered after the last; nothing of an earlier one is touched."""
        cell.jobs.mkdir(parents=True, exist_ok=True)
        number = max((job.number for job in jobs(cell)), default=0) + 1
        while True:
            try:
                (cell.jobs / str(number)).mkdir()
                break
            except FileExistsError:
                number += 1
        job = cls(cell.jobs / str(number))
        order = Order(command, environment, attempts_before=max(cell.attempt_numbers(), default=0))
        write_json(job.path / "job.json", asdict(order))
        return job

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def cell(self) -> CellFolder:
        """The cell that it launches."""
        return CellFolder(self.path.parent.parent)

    @property
    def stdout(self) -> Path:
        return self.path / "stdout.txt"

    @property
    def stderr(self) -> Path:
        return self.path / "stderr.txt"

    @property
    def scheduler(self) -> Path:
        """Folder of what the scheduler itself writes (submitit's job file and log)."""
        return self.path / "submitit"

    def order(self) -> Order | None:
        """What it runs; None when the launcher died before saying."""
        return read_record(self.path / "job.json", Order)

    def record_supervisor(self, supervisor: Process) -> None:
        write_json(self.path / "supervisor.json", asdict(supervisor))

    def record_worker(self, worker: Process) -> None:
        write_json(self.path / "worker.json", asdict(worker))

    def worker(self) -> Process | None:
        """The worker's process; None before it started."""
        return read_record(self.path / "worker.json", Process)

    def under_way(self) -> bool:
        """Whether its worker, or what is about to start it, runs on this machine or is in a scheduler's hands.

        Elsewhere only the lease tells.
        """
        if self.exit_code() is not None:
            return False
        slurm_job = self.queued().get("job")
        if slurm_job is not None:
            return queue().alive(slurm_job, self.submitted())
        found = (read_record(self.path / f"{who}.json", Process) for who in ("worker", "supervisor"))
        return any(process.here and process.alive() for process in found if process is not None)

    def record_scheduler(self, job: str, submitted: float, script: str = "") -> None:
        """`job`: its name in the scheduler's queue, empty before it has one; `script`: what was submitted."""
        write_json(self.path / "scheduler.json", {"job": job, "submitted": submitted, "script": script})

    def queued(self) -> dict[str, str]:
        """`job` and `script` as recorded; empty for a launch without a scheduler."""
        found = read_json(self.path / "scheduler.json") or {}
        return {name: str(found[name]) for name in ("job", "script") if found.get(name)}

    def submitted(self) -> float:
        """When it was given to a scheduler, in Unix seconds; 0 when it was not."""
        return float((read_json(self.path / "scheduler.json") or {}).get("submitted", 0.0))

    def record_start(self, updates: int) -> int:
        """Notes how far the cell was when a start of this job ended; returns how many in a row added no update.

        A job that its scheduler starts again and again has one record of this kind: `starts.json`.
        """
        known = read_json(self.path / "starts.json") or {"updates": 0, "fruitless": 0}
        fruitless = 0 if updates > known["updates"] else known["fruitless"] + 1
        write_json(self.path / "starts.json", {"updates": updates, "fruitless": fruitless})
        return fruitless

    def record_exit(
        self, code: int, out_of_memory: bool = False, scheduler_state: str = "", given_up: str = ""
    ) -> None:
        """`code`: the exit code, or minus the number of the signal that killed the worker.

        `out_of_memory`: whether there is evidence that it was killed for want of memory. `scheduler_state`: how the
        scheduler says that it ended, where the launch itself said nothing. `given_up`: why it is of no use to go on.
        """
        told = {"out_of_memory": out_of_memory, "scheduler_state": scheduler_state, "given_up": given_up}
        write_json(self.path / "exit.json", {"code": code, "time": time.time(), **told})

    def record_retry(self) -> None:
        """Somebody wants what this launch failed at tried again."""
        write_json(self.path / "retry.json", {"time": time.time()})

    def to_be_retried(self) -> bool:
        return (self.path / "retry.json").exists()

    def scheduler_state(self) -> str:
        """As recorded with its exit."""
        return str((read_json(self.path / "exit.json") or {}).get("scheduler_state", ""))

    def given_up(self) -> str:
        """As recorded with its exit."""
        return str((read_json(self.path / "exit.json") or {}).get("given_up", ""))

    def out_of_memory(self) -> bool:
        """As recorded with its exit."""
        return bool((read_json(self.path / "exit.json") or {}).get("out_of_memory"))

    def exit_code(self) -> int | None:
        """As recorded; None while it runs, and for ever when worker and supervisor died together."""
        found = read_json(self.path / "exit.json")
        return int(found["code"]) if found else None

    def ask(self, what: signal.Signals) -> None:
        """Asks the launch's supervisor, wherever it runs, to send this signal to the worker."""
        write_json(self.path / "signal.json", {"signal": int(what)})

    def asked(self) -> signal.Signals | None:
        found = read_json(self.path / "signal.json")
        return signal.Signals(found["signal"]) if found else None

    def stderr_tail(self, lines: int = 20) -> list[str]:
        """The last lines of the worker's standard error that are not blank, at most 64 KiB of them."""
        try:
            with self.stderr.open("rb") as file:
                file.seek(max(0, self.stderr.stat().st_size - 2**16))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]


def jobs(cell: CellFolder) -> list[Job]:
    """The launches of a cell, oldest first."""
    if not cell.jobs.is_dir():
        return []
    found = [Job(entry) for entry in cell.jobs.iterdir() if re.fullmatch("[0-9]+", entry.name)]
    return sorted(found, key=lambda job: job.number)
