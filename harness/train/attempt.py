"""One process's life on a cell: lease, a new attempt, its log and heartbeat, the run, its last line.

Whatever happens to a run is told in its log: it ends with `finished` and a reason, unless the process was
killed, and then the lease is found stale and the next attempt goes on from the last checkpoint.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from harness.compute.clock import Clock, Seconds
from harness.compute.kinds import KINDS, Device
from harness.compute.meter import Counts, Meter
from harness.compute.work import Work
from harness.errors import InputError
from harness.events.attempts import Fault, sound_attempts
from harness.events.costs import lost_by_own_fault
from harness.events.reader import read_events
from harness.events.writer import EventLogError, EventWriter
from harness.interventions.registry import build_intervention
from harness.layout import CellFolder, RunsFolder
from harness.models.presets import build_policy
from harness.rollout.metered import MeteredEngine
from harness.rollout.sidecar import TokenSidecar
from harness.study.cell import Cell
from harness.study.repository import code_hash
from harness.study.training import TrainingSpec
from harness.tasks.registry import build_task
from harness.train import checkpoint as checkpoints
from harness.train.ceilings import Ceilings
from harness.train.disk import fault_in
from harness.train.exit_codes import (
    EXIT_BAD_INPUT,
    EXIT_COMPLETED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_LEASE_HELD,
)
from harness.train.learner import build_learner
from harness.train.lease import HEARTBEAT_SECONDS, Lease, LeaseHeld, LeaseLost
from harness.train.modules import build_modules
from harness.train.record import RunRecord, hours_charged
from harness.train.run import Parts, Run
from harness.train.surroundings import contention, expected_code, require_one_gpu

PACKAGES: Final = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pyarrow", "reasoning-gym")
"""Recorded with each attempt: what can change a number."""


def run_cell(cell_json: Path, runs: RunsFolder, stop: Callable[[], bool] = lambda: False) -> int:
    """Works on a cell until its budgets are exhausted or `stop` says so; returns what to exit with."""
    folder = CellFolder(cell_json.absolute().parent)
    try:
        cell = Cell.read(cell_json)
        lease = Lease.acquire(folder)
    except LeaseHeld as held:
        print(f"isobudget: {held}", file=sys.stderr)
        return EXIT_LEASE_HELD
    except InputError as error:
        print(f"isobudget: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        if _completed(folder):  # a late launch of a cell that somebody else finished
            return EXIT_COMPLETED
        if _code_changed():
            print(
                "isobudget: the code changed since the sweep started; this cell is left to the next one",
                file=sys.stderr,
            )
            return EXIT_INTERRUPTED
        return _attempt(cell, folder, runs, lease, stop)
    except (EventLogError, OSError) as error:
        print(f"isobudget: the attempt's record cannot be written: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        lease.release()


def _attempt(cell: Cell, folder: CellFolder, runs: RunsFolder, lease: Lease, stop: Callable[[], bool]) -> int:
    number = (folder.attempt_numbers() or [0])[-1] + 1
    launch = _launch_facts(cell, folder)
    if launch.pop("out_of_memory_attempt", None) == number - 1 > 0:
        launch["earlier_out_of_memory"] = True
    clock, meter = Clock(devices=cell.gpus), Meter()
    checkpoint, damaged = _restored(folder, number, launch, meter, clock)
    with EventWriter(folder.events(number), exclusive=True) as events:
        measured = {"charge": hours_charged(clock), "heartbeat_seconds": HEARTBEAT_SECONDS}
        events.append("attempt_started", _started(cell, launch, number, checkpoint), measured)
        for message in damaged:
            events.append("warning", {"code": "damaged-checkpoint", "message": message})
        sidecar = TokenSidecar(folder.tokens(number))
        record = RunRecord(events, sidecar, meter, clock, cell.content["charged"])
        run: Run | None = None
        fault: Fault | None = None
        try:
            with _heartbeat(events, lease, meter, clock) as lost:
                run = _build(cell, folder, runs, number, checkpoint, record, meter, clock)
                status = run.train(stop, lost)
            reason = "asked to stop" if status == "interrupted" else run.reason
            code = EXIT_COMPLETED if status == "completed" else EXIT_INTERRUPTED
        except InputError as error:
            status, reason, code = "failed", str(error), EXIT_BAD_INPUT
            fault = fault_in(error)
        except EventLogError:
            raise
        except Exception as error:  # noqa: BLE001 - a run's end must be told, whatever ended it
            traceback.print_exc()
            status, reason, code = "failed", f"{type(error).__name__}: {error}", EXIT_FAILED
            fault = fault_in(error)
        if status == "failed":
            print(f"isobudget: {reason}", file=sys.stderr)
            record.leftover(run.updates + 1 if run else 0)
        charge = run.charge() if run else record.charge(0)
        record.finished(status, reason, charge, run.diverged if run else False, fault)
        return code


def _build(
    cell: Cell,
    folder: CellFolder,
    runs: RunsFolder,
    number: int,
    checkpoint: checkpoints.Checkpoint | None,
    record: RunRecord,
    meter: Meter,
    clock: Clock,
) -> Run:
    content = cell.content
    if "gpu_hours" in content["budgets"] and not cell.gpus:
        raise InputError("a budget in gpu_hours needs a GPU, and the cell runs on the CPU", "a budget in cpu_hours")
    if cell.gpus:
        require_one_gpu()
    _prepare_libraries(content["threads"])
    task = build_task(content["task"])
    built = build_policy(content["model"], task, runs.cache("warm-start"), cell.model_folder, cell.device)
    policy = built.policy
    training = TrainingSpec.model_validate_json(json.dumps(content["training"]))
    ceilings = Ceilings(content.get("ceilings", {}), content["charged"], lambda: record.charge(0))
    engine = MeteredEngine(policy.engine(), meter, clock, policy.shape, record.sampled, ceilings.allow)
    intervention = build_intervention(content["intervention"])
    modules = build_modules(intervention, policy, content["seed"])
    learner = build_learner(policy, training)
    if built.warm_start and checkpoint is None:
        _tell_warm_start(built.warm_start, record, meter, clock)
    parts = Parts(
        task, policy, intervention, modules, learner, engine, meter, clock, Work(meter, clock), record, ceilings
    )
    run = Run(cell, parts, number, folder.checkpoints)
    if checkpoint is not None:
        run.restore(checkpoint)
    return run


def _tell_warm_start(row: dict[str, Any], record: RunRecord, meter: Meter, clock: Clock) -> None:
    """The shared warm start enters each run's ledger as update 0; by default it is not charged."""
    counts = {name: row[name] for name in Counts.__dataclass_fields__ if name in row}
    meter.add("warm_start", Counts(**counts))
    clock.credit("warm_start", Seconds(row.get("wall_seconds", 0.0), row.get("cpu_seconds", 0.0)))
    record.ledger(0, {}, {})


def _restored(
    folder: CellFolder, number: int, launch: Mapping[str, Any], meter: Meter, clock: Clock
) -> tuple[checkpoints.Checkpoint | None, list[str]]:
    """The checkpoint to go on from, and what cannot be trusted, one line each.

    Meter and clock become what the checkpoint has, and what the run has lost since by its own fault. A checkpoint
    whose path leads over a log that is damaged or gone is of no use: no table could follow it.
    """
    logs, troubles = sound_attempts(folder.path)
    damaged = [f"what attempt {attempt} did cannot be told: {error}" for attempt, error in troubles.items()]
    checkpoint, unsound = checkpoints.load_newest(folder.checkpoints)
    damaged += unsound
    out_of_memory = [number - 1] if launch.get("earlier_out_of_memory") else []
    try:
        origin = (checkpoint.attempt, checkpoint.seq) if checkpoint is not None else None
        work, hours = lost_by_own_fault(logs, origin, out_of_memory)
    except ValueError as error:
        damaged.append(f"checkpoint {checkpoint.name if checkpoint else ''}: {error}, so the run starts afresh")
        shutil.rmtree(folder.checkpoints)
        checkpoint = None
        work, hours = lost_by_own_fault(logs, None, out_of_memory)
    if checkpoint is not None:
        meter.load_state(checkpoint.state["meter"])
        clock.load_state(checkpoint.state["clock"])
    counted = Counts.__dataclass_fields__
    meter.carry_lost(
        {
            kind: Counts(**{name: int(row[name]) for name in counted if name in row})
            for kind, row in work.items()
            if kind in KINDS
        }
    )
    clock.carry_lost(hours)
    return checkpoint, damaged


def _launch_facts(cell: Cell, folder: CellFolder) -> dict[str, Any]:
    """How the sweep runs (mode, lock), and what it knows of the launch before: launch.json beside the cell."""
    launch: dict[str, Any] = {"mode": "exploratory", "mode_reason": "not started by a sweep", "lock_hash": None}
    launch |= {"code_commit": None, "code_dirty": None, "study": cell.study}
    if expected_code():  # else an earlier sweep's promise would be lent to a start by hand
        with suppress(FileNotFoundError):
            launch |= json.loads(folder.launch.read_text())
    return launch


def _started(
    cell: Cell, launch: dict[str, Any], number: int, checkpoint: checkpoints.Checkpoint | None
) -> dict[str, Any]:
    """The payload of `attempt_started`."""
    return {
        "cell": cell.id,
        "attempt": number,
        **launch,
        "code_hash": code_hash(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "device": _device_name(cell.device),
        **contention(cell.device),
        "threads": cell.content["threads"],
        "resumed_from": {"attempt": checkpoint.attempt, "seq": checkpoint.seq} if checkpoint else None,
    }


def _device_name(device: Device) -> str:
    """`cpu`, or the GPU's model where torch can tell: hours compare on one kind of device only."""
    if device == "cpu":
        return "cpu"
    import torch

    return f"cuda:{torch.cuda.get_device_name()}" if torch.cuda.is_available() else "cuda"


def _completed(folder: CellFolder) -> bool:
    """Whether the newest attempt's last word is that the run is complete."""
    numbers = folder.attempt_numbers()
    if not numbers:
        return False
    log = folder.events(numbers[-1])
    try:
        events = read_events(log).events if log.exists() else []
    except EventLogError:  # tables do not believe it, either
        return False
    return bool(events) and events[-1].kind == "finished" and events[-1].payload["status"] == "completed"


def _code_changed() -> bool:
    """A cell runs the code that its sweep started with, or not at all."""
    return expected_code() not in (None, code_hash())


@contextmanager
def _heartbeat(events: EventWriter, lease: Lease, meter: Meter, clock: Clock) -> Iterator[Callable[[], bool]]:
    """Renews the lease and tells of progress from a thread; what it yields says whether the lease was lost."""
    over, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_SECONDS):
            try:
                lease.renew()
                tokens = sum(meter.total(kind).generated_tokens for kind in KINDS)
                events.append("heartbeat", {}, {"charge": hours_charged(clock), "generated_tokens": tokens})
            except LeaseLost as error:
                print(f"isobudget: {error}", file=sys.stderr)
                lost.set()
                return
            except (EventLogError, OSError) as error:  # the run itself will meet the same trouble, and tell of it
                print(f"isobudget: no heartbeat: {error}", file=sys.stderr)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield lost.is_set
    finally:
        over.set()
        thread.join()


def _prepare_libraries(threads: int) -> None:
    """Thread count and algorithms that make equal runs equal to the bit on CPU; no progress bars in job logs."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else matrix products on a GPU are not deterministic
    import torch
    from transformers.utils import logging

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    logging.disable_progress_bar()
