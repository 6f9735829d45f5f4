"""The sweep's own costs, against what they may be at the most: planning, launching, gathering, metering.

The rival here is a limit, so a ratio above 1 is within it. Times are of wherever it runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import Row
from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder
from harness.study.cell import Cell

PLAN_LIMIT_SECONDS = 3.0
LAUNCH_LIMIT_MILLISECONDS = 10.0
INGEST_LIMIT_SECONDS, INGEST_LIMIT_GB, AGAIN_LIMIT_SECONDS = 60.0, 1.5, 2.0
METERING_LIMIT_SHARE = 0.01


def planning(_: int) -> Iterator[Row]:
    """`isobudget plan` of 6 models x 12 arms x 30 seeds, in a process of its own, imports included."""
    arms = {f"arm-{i}": {"intervention": "mc-difference", "continuations": i + 1} for i in range(12)}
    study = {
        "study": "many",
        "title": "Many cells",
        "authors": ["A. Author"],
        "existing_data": "none",
        "models": [{"name": f"m{i}", "preset": "tiny-chain"} for i in range(6)],
        "task": {"name": "chain", "pool": {"train": 1000, "tuning": 50, "confirmatory": 50}},
        "arms": arms,
        "baseline": "arm-0",
        "seeds": {"first": 1, "count": 30},
        "budget": {"updates": 10},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "many.yaml"
        file.write_text(json.dumps(study))
        began = time.perf_counter()
        command = [sys.executable, "-m", "harness.cli", "plan", str(file), "--runs", folder]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = time.perf_counter() - began
    assert "2160 cells" in told
    yield _within("plan of 2,160 cells, imports included", seconds, PLAN_LIMIT_SECONDS, "s")


@dataclass
class _Plan:
    cells: Sequence[Cell]
    study: str = "many"
    cap: None = None

    def record(self) -> dict[str, Any]:
        return {"study": self.study}


def launching(_: int) -> Iterator[Row]:
    """A sweep of 2,000 cells that end at once, inline: what each takes beside the cell's own time."""
    from harness.launch.inline import InlineBackend
    from harness.launch.options import LaunchFacts, SweepOptions
    from harness.launch.sweep import sweep

    theirs = 0.0

    def run_cell(spec: Path, runs: RunsFolder, stop: Callable[[], bool]) -> int:
        nonlocal theirs
        began = time.perf_counter()
        with EventWriter(CellFolder(spec.parent).events(1)) as log:
            log.append("attempt_started", {"attempt": 1, "resumed_from": None})
            log.append("finished", {"status": "completed", "reason": ""})
        theirs += time.perf_counter() - began
        return 0

    cells = [
        Cell("many", "m", "a", seed, seed, 0, {"seed": seed, "threads": 1, "budgets": {"updates": 1}})
        for seed in range(2_000)
    ]
    with tempfile.TemporaryDirectory() as folder:
        runs = RunsFolder(folder)
        facts = LaunchFacts("exploratory", "a benchmark", None, None, False)
        began = time.perf_counter()
        options = SweepOptions(poll_seconds=0.0)
        result = sweep(
            _Plan(cells), runs, InlineBackend(runs, run_cell), options, facts=facts, code_hash=lambda: "code"
        )
        ours = (time.perf_counter() - began - theirs) * 1000 / len(cells)
    assert result.completed == len(cells)
    yield _within("launch bookkeeping per cell, of 2,000 inline", ours, LAUNCH_LIMIT_MILLISECONDS, "ms")


def gathering(_: int) -> Iterator[Row]:
    """2,000 runs of 300 events into the store and out to the snapshot, in a process of its own; and once more."""
    code = (
        "import json, resource, sys, time\n"
        "from harness.layout import RunsFolder\n"
        "from harness.store.collector import collect, publish\n"
        "runs, took = RunsFolder(sys.argv[1]), []\n"
        "for _ in range(2):\n"
        "    began = time.perf_counter()\n"
        "    report = collect(runs, say=lambda message: None)\n"
        "    if report.events: publish(runs)\n"
        "    took.append(time.perf_counter() - began)\n"
        "assert not report.quarantined, report.quarantined\n"
        "print(json.dumps([*took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        _write_runs(RunsFolder(folder).create(), runs=2_000, events=300)
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
        first, again, gigabytes = json.loads(done.stdout)
    yield _within("gathering 2,000 runs of 300 events, and a snapshot", first, INGEST_LIMIT_SECONDS, "s")
    yield _within("the same, resident memory at the most", gigabytes, INGEST_LIMIT_GB, "GB")
    yield _within("gathering again, with nothing new", again, AGAIN_LIMIT_SECONDS, "s")


def _write_runs(folder: RunsFolder, runs: int, events: int) -> None:
    row = {"samples": 8, "generated_tokens": 400, "prefill_tokens": 80, "cached_prefill_tokens": 40, "flops": 10**9}
    charge = {"generated_tokens": 400, "flops": 10**9}
    hours = {"gpu_hours": 0.0, "cpu_hours": 0.001}
    named = ("learning_rate", "loss", "grad_norm", "reward_mean", "clipped_share", "zero_variance_share")
    shares = dict.fromkeys(named, 0.125)
    for run in range(runs):
        cell = CellFolder(folder.cell(f"{run:016x}"))
        with EventWriter(cell.events(1)) as log:
            start = {
                "cell": cell.path.name,
                "attempt": 1,
                "study": "many",
                "mode": "exploratory",
                "resumed_from": None,
            }
            log.append("attempt_started", start)
            for update in range(1, (events - 2) // 2 + 1):
                rows = {"rollout": row, "policy_train": row}
                log.append("ledger", {"update": update, "rows": rows, "part": None}, {"rows": {}, "charge": hours})
                told = {"update": update, "charge": charge, "notes": {}, "diverged": False, **shares}
                log.append("update", told, {"charge": hours})
            end = {"status": "completed", "reason": "", "updates": update, "charge": charge, "diverged": False}
            log.append("finished", end, {"charge": hours})


def metering(_: int) -> Iterator[Row]:
    """Share of a run's CPU time in meter, clock and event log: a GRPO run of the example's setting."""
    from harness.compute.clock import Clock
    from harness.compute.meter import Meter
    from harness.study.load import load_study
    from harness.study.plan import make_plan
    from harness.train.attempt import run_cell

    example = Path(__file__).parents[1] / "preregistrations" / "dense-rewards-laptop.yaml"
    planned = next(cell for cell in make_plan(load_study(example)).cells if cell.arm == "grpo")
    content = {**planned.content, "budgets": {"updates": 40}, "milestones": []}
    with tempfile.TemporaryDirectory() as folder:
        runs = RunsFolder(folder)
        cell = Cell("many", "m", "a", planned.seed, 0, 0, content)
        home = CellFolder(runs.cell(cell.id))
        home.path.mkdir(parents=True)
        cell.write(home.spec)
        run_cell(home.spec, runs, lambda: True)  # makes the warm start
        for path in home.path.iterdir():
            if path.is_dir():
                subprocess.run(["rm", "-r", str(path)], check=True)
        watched = ((Meter, "add drain charge move"), (Clock, "credit drain charge"), (EventWriter, "append"))
        with _timed(*watched) as spent:
            before = time.process_time()
            run_cell(home.spec, runs)
            share = sum(spent) / (time.process_time() - before)
    yield _within("metering and event log, share of a run's CPU time", 100 * share, 100 * METERING_LIMIT_SHARE, "%")


@contextmanager
def _timed(*methods: tuple[type, str]) -> Iterator[list[float]]:
    """CPU seconds inside the named methods while entered; of calls within calls, the outer one's."""
    spent: list[float] = []
    depth = 0
    kept: list[tuple[type, str, Any]] = []

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            began = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1
                if depth == 0:
                    spent.append(time.thread_time() - began)

        return call

    for owner, names in methods:
        for name in names.split():
            kept.append((owner, name, getattr(owner, name)))
            setattr(owner, name, wrapped(getattr(owner, name)))
    try:
        yield spent
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _within(name: str, found: float, limit: float, unit: str) -> Row:
    return Row(name, f"{found:.2f} {unit}", f"limit {limit:g} {unit}", limit / found, "")
