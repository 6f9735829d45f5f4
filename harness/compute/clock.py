"""The clock: wall and CPU seconds of this attempt, by phase and by kind of work.

Only the training phase is charged; evaluation, checkpoints and whatever lies outside a phase are measured
beside it. Training seconds carry over from a checkpoint, and time between two attempts is never seen, so
a budget in hours is not a deadline. Readings are not deterministic: they stay out of payloads.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.compute.kinds import Currency, Kind

Phase = Literal["training", "evaluation", "checkpoint", "idle"]
SECONDS_PER_HOUR = 3600


def process_cpu_seconds() -> float:
    """User and system CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True)
class Seconds:
    """Wall and CPU seconds; they add up, and scale."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall_seconds + other.wall_seconds, self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall_seconds - other.wall_seconds, self.cpu_seconds - other.cpu_seconds)

    def __mul__(self, share: float) -> Seconds:
        return Seconds(self.wall_seconds * share, self.cpu_seconds * share)

    def record(self) -> dict[str, float]:
        """The fields by name: a measured row of the ledger (events/schema.py)."""
        return asdict(self)


class Clock:
    """Accumulates seconds of one attempt. `devices`: GPUs allocated to it, busy or not."""

    def __init__(
        self,
        devices: int = 0,
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = process_cpu_seconds,
    ):
        self._devices = devices
        self._wall, self._cpu = wall, cpu
        self._phase: Phase = "idle"
        self._by_phase: dict[Phase, Seconds] = {}
        self._by_kind: dict[Kind, Seconds] = {}
        self._carried = Seconds()
        self._lost_hours: Mapping[str, float] = {}
        self._reading = threading.RLock()
        """Heartbeats read from a thread of their own."""
        self._since = self.now()

    def now(self) -> Seconds:
        """A reading; only the difference of two readings means something."""
        return Seconds(self._wall(), self._cpu())

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Books what passes inside to `name`. Phases nest: the innermost one has the time."""
        outer = self._phase
        self._enter(name)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, name: Phase) -> None:
        with self._reading:
            now = self.now()
            self._by_phase[self._phase] = self._by_phase.get(self._phase, Seconds()) + (now - self._since)
            self._phase, self._since = name, now

    def seconds(self, phase: Phase) -> Seconds:
        """Seconds of a phase in this attempt, up to now."""
        with self._reading:
            self._enter(self._phase)
            return self._by_phase.get(phase, Seconds())

    def credit(self, kind: Kind, seconds: Seconds) -> None:
        """Books seconds to a kind of work, in addition to the phase they passed in."""
        self._by_kind[kind] = self._by_kind.get(kind, Seconds()) + seconds

    def move(self, kind: Kind, to: Kind, share: float) -> None:
        """Books a share (0 to 1) of a kind's seconds since the last drain to another kind."""
        moved = self._by_kind.get(kind, Seconds()) * share
        self._by_kind[kind] = self._by_kind.get(kind, Seconds()) - moved
        self.credit(to, moved)

    def drain(self) -> dict[Kind, Seconds]:
        """Seconds by kind since the last drain: the measured rows of one ledger line."""
        rows, self._by_kind = self._by_kind, {}
        return rows

    def charge(self, currency: Currency, lost: bool = True) -> float:
        """Cumulative `gpu_hours` (devices x wall) or `cpu_hours` of training phases, earlier attempts included.

        `lost`: with what `carry_lost` carried. Callable from another thread.
        """
        training = self._carried + self.seconds("training")
        carried = self._lost_hours.get(currency, 0.0) if lost else 0.0
        if currency == "gpu_hours":
            return carried + self._devices * training.wall_seconds / SECONDS_PER_HOUR
        if currency == "cpu_hours":
            return carried + training.cpu_seconds / SECONDS_PER_HOUR
        raise ValueError(f"the clock does not measure {currency}")

    def carry_lost(self, hours: Mapping[str, float]) -> None:
        """Charges hours, by currency, that were lost by the run's own fault; no part of `state` (see the meter's)."""
        self._lost_hours = dict(hours)

    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint: training seconds so far, earlier attempts included."""
        return {"training": (self._carried + self.seconds("training")).record()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Carries over the training seconds of the checkpoint that this attempt starts from."""
        self._carried = Seconds(**state["training"])
