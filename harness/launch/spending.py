"""What a cell has cost so far, over all its attempts, in the currencies that a sweep can be capped in."""

from __future__ import annotations

from collections.abc import Collection

from harness.compute.clock import SECONDS_PER_HOUR
from harness.events.attempts import sound_attempts
from harness.events.costs import spent_hours, spent_work
from harness.layout import CellFolder


def cost_of(cell: CellFolder, charged: Collection[str], devices: int) -> tuple[int, dict[str, float]]:
    """(crashes, spent by currency) of a cell that nobody works on.

    Tokens and FLOPs of the charged kinds; CPU time of training and evaluation; GPU time of `devices` from each
    attempt's first line to its last. What a damaged log tells is not believed, and is missing.
    """
    logs, _ = sound_attempts(cell.path)
    work = spent_work(logs)
    spent: dict[str, float] = {
        name: sum(row.get(name, 0) for kind, row in work.items() if kind in charged)
        for name in ("generated_tokens", "flops")
    }
    seconds = sum(log.events[-1].envelope["time"] - log.events[0].envelope["time"] for log in logs)
    spent["gpu_hours"] = devices * seconds / SECONDS_PER_HOUR
    evaluation_seconds = work.get("evaluation", {}).get("cpu_seconds", 0.0)
    spent["cpu_hours"] = spent_hours(logs).get("cpu_hours", 0.0) + evaluation_seconds / SECONDS_PER_HOUR
    return sum(log.status() in ("failed", None) for log in logs), spent
