"""Planned cells and a stand-in for the worker, for the launcher's tests.

`behave(cell.json, runs, stop)` has the signature and the exit codes of `harness.train.attempt.run_cell`. What it
does is in the cell's content: `script` lists one behaviour per launch, the last one repeated.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.events.writer import EventWriter
from harness.launch.sweep import LaunchFacts
from harness.launch.tails import last_event
from harness.layout import CellFolder, RunsFolder
from harness.study.caps import SweepCap
from harness.study.cell import Cell
from harness.train.lease import Lease, LeaseHeld

FACTS = LaunchFacts("exploratory", "not locked", None, "c0ffee", True)


@dataclass
class FakePlan:
    study: str
    cells: list[Cell]
    cap: SweepCap | None = None

    def record(self) -> dict[str, Any]:
        return {"study": self.study, "cells": [{"cell": cell.id} for cell in self.cells]}


def plan_of(*scripts: list[str], study: str = "fake", updates: int = 3, pace_seconds: float = 0.0) -> FakePlan:
    """One cell per script, all in block order; cell i has seed i."""
    cells = [
        Cell(
            study=study,
            model="m",
            arm="a",
            seed=seed,
            block=seed,
            position=0,
            content={
                "seed": seed,
                "script": script,
                "threads": 1,
                "budgets": {"updates": updates},
                "pace_seconds": pace_seconds,
            },
        )
        for seed, script in enumerate(scripts)
    ]
    return FakePlan(study, cells)


def folder_of(runs: RunsFolder, cell: Cell) -> CellFolder:
    return CellFolder(runs.cell(cell.id))


def launches(runs: RunsFolder, cell: Cell) -> int:
    """How many workers began on the cell, whatever became of them."""
    return len(list(folder_of(runs, cell).path.glob("began-*")))


def work_done(runs: RunsFolder, cell: Cell) -> int:
    """How many workers won the cell's lease."""
    return len(folder_of(runs, cell).attempt_numbers())


def study_events(runs: RunsFolder, study: str = "fake") -> list[dict[str, Any]]:
    return [json.loads(line) for line in runs.study_log(study).read_text().splitlines()]


def behave(spec: Path, runs: RunsFolder, stop: Any) -> int:
    cell = Cell.read(spec)
    folder = CellFolder(spec.parent)
    begun = len(list(folder.path.glob("began-*")))
    (folder.path / f"began-{begun}-{os.getpid()}").write_text(json.dumps(dict(os.environ)))
    script = cell.content["script"]
    behaviour = script[min(begun, len(script) - 1)]
    if behaviour == "crash-at-start":
        raise RuntimeError(f"no module named seed{cell.seed}")
    if behaviour == "killed-before-its-first-event":
        return _killed()
    try:
        lease = Lease.acquire(folder)
    except LeaseHeld:
        return 3
    try:
        if last_status(folder) == "completed":  # somebody was quicker between the launch and the lease
            return 0
        return _attempt(cell, folder, behaviour, stop)
    finally:
        lease.release()


def last_status(folder: CellFolder) -> str | None:
    numbers = folder.attempt_numbers()
    last = last_event(folder.events(numbers[-1])) if numbers else None
    return last["payload"].get("status") if last else None


def _attempt(cell: Cell, folder: CellFolder, behaviour: str, stop: Any) -> int:
    number = max(folder.attempt_numbers(), default=0) + 1
    with EventWriter(folder.events(number), exclusive=True) as log:
        log.append("attempt_started", {"cell": cell.id, "attempt": number})
        if behaviour == "wait":
            while not (folder.path / "go").exists():
                if stop():
                    return _finish(log, "interrupted", "asked to stop", 75)
                time.sleep(0.02)
        if behaviour == "deaf":
            time.sleep(600)
        updates = cell.content["budgets"]["updates"]
        for update in range(1, updates + 1):
            advanced_by_one = behaviour == "advance-one-then-killed" and update > number
            if behaviour == "advance-one-then-wait" and update > number:
                while not stop():
                    time.sleep(0.02)
                return _finish(log, "interrupted", "asked to stop", 75)
            if advanced_by_one or (behaviour == "killed" and update == updates):
                return _killed()
            log.append("update", {"update": update, "charge": {"generated_tokens": 10 * update, "flops": 1.0}})
            time.sleep(cell.content["pace_seconds"])
        log.append("evaluation", {"updates": updates, "outcomes": [1] * 5000})
        return _end(cell, log, behaviour)


def _end(cell: Cell, log: EventWriter, behaviour: str) -> int:
    match behaviour:
        case "crash-after-evaluation":
            raise RuntimeError("disk quota exceeded")
        case "fail":
            return _finish(log, "failed", f"loss is not finite at update {cell.seed}", 1)
        case "fail-otherwise":
            return _finish(log, "failed", "the verifier is out", 1)
        case "exit-1-after-results":
            return 1
    return _finish(log, "completed", "", 0)


def _finish(log: EventWriter, status: str, reason: str, code: int) -> int:
    log.append("finished", {"status": status, "reason": reason})
    return code


def _killed() -> int:
    """In a worker's process: dies. In the tests' own: what the supervisor of a killed worker records."""
    if "FAKE_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return -signal.SIGKILL
