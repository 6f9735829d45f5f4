"""Timing shared by the benchmarks: rivals take turns, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the printed table: the same work done by ours and by a rival."""

    name: str
    ours: str
    rival: str
    ratio: float
    """Rival's time over ours, at equal work."""
    note: str = ""


def median_seconds(rivals: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median wall seconds of each callable over `repeats` rounds, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(repeats + 1):
        for name, call in rivals.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
