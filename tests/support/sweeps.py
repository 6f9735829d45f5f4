"""Finished sweeps, what their runs fold to, and workers that are killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from harness.events.fold import FoldedRun, fold_run
from harness.layout import CellFolder, RunsFolder
from harness.rollout.sidecar import recount
from harness.study.load import load_study
from harness.study.plan import make_plan
from support.command_line import Ran, finished, started
from support.studies import PlantedStudy


@dataclass(frozen=True)
class Swept:
    """A study that was swept through the command line, inline."""

    truth: PlantedStudy
    file: Path
    runs: RunsFolder
    ran: Ran


def folded(runs: RunsFolder) -> dict[str, FoldedRun]:
    """Cell id -> its run."""
    return {path.name: fold_run(path) for path in sorted(runs.cells.iterdir())}


def cell_folders(runs: RunsFolder) -> list[CellFolder]:
    return [CellFolder(path) for path in sorted(runs.cells.iterdir())]


def planned(file: Path, runs: RunsFolder, arm: str) -> CellFolder:
    """The first cell of an arm, put into a runs folder as a sweep would."""
    cell = next(cell for cell in make_plan(load_study(file)).cells if cell.arm == arm)
    folder = CellFolder(runs.cell(cell.id))
    folder.path.mkdir(parents=True)
    cell.write(folder.spec)
    return folder


def counts(totals: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """All but seconds, which no two runs share."""
    return {
        kind: {name: amount for name, amount in row.items() if not name.endswith("_seconds")}
        for kind, row in totals.items()
    }


def sampled(totals: dict[str, dict[str, float]]) -> dict[str, tuple[float, float]]:
    return {kind: (row["samples"], row["generated_tokens"]) for kind, row in totals.items() if row.get("samples")}


def assert_ledger_is_the_recount(cell: CellFolder, run: FoldedRun) -> None:
    assert recount(cell.path) == sampled(run.spent)
    assert recount(cell.path, surviving_only=True) == sampled(run.algorithmic)


def updates_told(cell: CellFolder) -> int:
    """Updates in the log of the newest attempt, as it is now."""
    return _newest_log(cell).count(b'"kind":"update"')


def lines_told(cell: CellFolder) -> int:
    """Lines of the log of the newest attempt, as it is now."""
    return _newest_log(cell).count(b"\n")


def _newest_log(cell: CellFolder) -> bytes:
    numbers = cell.attempt_numbers()
    log = cell.events(numbers[-1]) if numbers else None
    return log.read_bytes() if log and log.exists() else b""


def wait_for_update(cell: CellFolder, update: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    """Returns as soon as a run that `process` makes has told of this update; fails when it ends before."""
    end = time.monotonic() + seconds
    while updates_told(cell) < update:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, f"no update {update} within {seconds} s"
        time.sleep(0.002)


def kill_worker(cell: CellFolder) -> None:
    """SIGKILL to whoever holds the cell's lease."""
    os.kill(json.loads(cell.lease.read_bytes())["pid"], signal.SIGKILL)


def work(cell: CellFolder, runs: RunsFolder) -> subprocess.Popen[str]:
    """A real worker begun on the cell: `python -m harness.train cell.json`."""
    return started(cell.spec, module="harness.train", ISOBUDGET_RUNS=str(runs.root))


def work_until_killed(cell: CellFolder, runs: RunsFolder, update: int) -> None:
    """A real worker that gets a SIGKILL once it has told of this update."""
    process = work(cell, runs)
    wait_for_update(cell, update, process)
    process.kill()
    assert finished(process).code == -signal.SIGKILL
