"""The second metered door: forward and backward passes outside sampling get a kind, FLOPs and time.

Training, log-probabilities, reference passes and critics run inside `Work.run`; sampling has its own door
(rollout/metered.py). Runs do not nest, or seconds would be credited twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.compute.clock import Clock
from harness.compute.kinds import Kind
from harness.compute.meter import Counts, Meter


class Work:
    """Books model work to one meter and one clock."""

    def __init__(self, meter: Meter, clock: Clock):
        self._meter = meter
        self._clock = clock

    @contextmanager
    def run(self, kind: Kind, flops: int) -> Iterator[None]:
        """Books `flops` and the seconds that pass inside to `kind`; work that raises is booked as well."""
        before = self._clock.now()
        try:
            yield
        finally:
            self._clock.credit(kind, self._clock.now() - before)
            self._meter.add(kind, Counts(flops=flops))
