"""What a person may do about cells, beside sweeping: have them end, have them launched again, clear after the dead.

A sweep that runs notices what its cells do; nothing here reaches into it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from harness.launch.jobs import jobs
from harness.launch.states import cell_state
from harness.layout import CellFolder, RunsFolder
from harness.train.lease import Holder, Lease, LeaseHeld, lease_state
from harness.train.scheduler import client


def stop_sweep(runs: RunsFolder, study: str) -> Holder | None:
    """Asks a study's sweep on this machine to end, as Ctrl-C does; who holds the study, None when nobody does."""
    state, holder = lease_state(runs.sweep_lock(study))
    if state != "live" or holder is None:
        return None
    if holder.process.here:
        os.kill(holder.process.pid, signal.SIGTERM)
    return holder


def stop_cells(cells: Sequence[CellFolder]) -> list[CellFolder]:
    """Asks running cells to checkpoint and end; those that were asked."""
    asked = []
    for cell in cells:
        launches = jobs(cell)
        if not launches or cell_state(cell).status != "running":
            continue
        launches[-1].ask(signal.SIGTERM)
        slurm_job = launches[-1].queued().get("job")
        if slurm_job:
            client(["scancel", "--state=PENDING", slurm_job])
        asked.append(cell)
    return asked


def retry(cells: Sequence[CellFolder]) -> list[CellFolder]:
    """Lets the next sweep launch these again, of those that failed; which ones that were."""
    failed = [cell for cell in cells if cell_state(cell).status == "failed" and jobs(cell)]
    for cell in failed:
        jobs(cell)[-1].record_retry()
    return failed


def reap(cells: Sequence[CellFolder]) -> list[tuple[CellFolder, Holder | None]]:
    """Takes away the leases of holders that are dead; the cells that are free now, and who had held them."""
    freed = []
    for cell in cells:
        state, holder = lease_state(cell.lease)
        if state != "stale":
            continue
        try:
            Lease.acquire(cell).release()
        except LeaseHeld:  # somebody was quicker, and is at work
            continue
        freed.append((cell, holder))
    return freed
