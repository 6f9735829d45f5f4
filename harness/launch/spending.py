"""What a cell has cost so far, over all its attempts, in the currencies that a sweep can be capped in."""

from __future__ import annotations

from collections.abc import Collection

from harness.events.fold import fold_run, read_attempts
from harness.layout import CellFolder

_SECONDS_PER_HOUR = 3600


def cost_of(cell: CellFolder, charged: Collection[str], devices: int) -> tuple[int, dict[str, float]]:
    """(crashes, spent by currency) of a cell that nobody works on.

    Tokens and FLOPs of the charged kinds; CPU time of training and evaluation; GPU time of `devices` from each
    attempt's first line to its last.
    """
    logs = read_attempts(cell.path)
    run = fold_run(cell.path)
    died = bool(logs) and logs[-1].status() is None
    spent: dict[str, float] = {
        name: sum(row.get(name, 0) for kind, row in run.spent.items() if kind in charged)
        for name in ("generated_tokens", "flops")
    }
    seconds = sum(log.events[-1].envelope["time"] - log.events[0].envelope["time"] for log in logs)
    spent["gpu_hours"] = devices * seconds / _SECONDS_PER_HOUR
    cpu_seconds = sum(row.get("cpu_seconds", 0.0) for row in run.spent.values())
    spent["cpu_hours"] = cpu_seconds / _SECONDS_PER_HOUR
    return sum(run.crashes.values()) + died, spent
