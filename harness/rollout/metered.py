"""The first metered door: every sampled token passes here and is booked by the purpose of its request.

`MeteredEngine` is the only holder of a raw engine. It counts what came back, never what was asked for, and
hands requests and samples on to whoever keeps the record. Work outside sampling has its own door (compute/work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.compute.clock import Clock
from harness.compute.flops import ModelShape, decode_flops, forward_flops
from harness.compute.kinds import Kind
from harness.compute.meter import Counts, Meter
from harness.rollout.protocol import Engine, Request, Sample

Record = Callable[[Sequence[Request], Sequence[Sample]], None]


class MeteredEngine:
    """An `Engine` that books tokens and FLOPs to `meter` and seconds to `clock`, and tells `record`.

    `allow` is asked before anything is sampled, and raises where it must not be.
    """

    def __init__(
        self,
        engine: Engine,
        meter: Meter,
        clock: Clock,
        shape: ModelShape,
        record: Record | None = None,
        allow: Callable[[Sequence[Request]], None] = lambda requests: None,
    ):
        self._engine = engine
        self._allow = allow
        self._meter, self._clock, self._shape = meter, clock, shape
        self._record = record

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        """Samples and books. The seconds of a call with several purposes are split by tokens computed for each."""
        self._allow(requests)
        before = self._clock.now()
        samples = self._engine.generate(requests)
        passed = self._clock.now() - before

        booked: dict[Kind, Counts] = {}
        for request, sample in zip(requests, samples, strict=True):
            booked[request.purpose] = booked.get(request.purpose, Counts()) + self._price(request, sample)
        computed = {kind: _computed_tokens(counts) for kind, counts in booked.items()}
        for kind, counts in booked.items():
            self._meter.add(kind, counts)
            self._clock.credit(kind, passed * (computed[kind] / sum(computed.values())))
        if self._record is not None:
            self._record(requests, samples)
        return samples

    def discard(self, dropped: Sequence[tuple[Request, Sample]]) -> None:
        """Moves samples of this step, whose groups were dropped, from their purpose's row to `discarded`.

        With their share of that row's seconds, by tokens computed.
        """
        moved: dict[Kind, Counts] = {}
        for request, sample in dropped:
            moved[request.purpose] = moved.get(request.purpose, Counts()) + self._price(request, sample)
        for kind, counts in moved.items():
            self._clock.move(
                kind, "discarded", _computed_tokens(counts) / _computed_tokens(self._meter.pending(kind))
            )
            self._meter.move(kind, "discarded", counts)

    def _price(self, request: Request, sample: Sample) -> Counts:
        prompt, cached, sampled = len(request.prompt_ids), sample.cached_prefill_tokens, len(sample.token_ids)
        prefill = forward_flops(self._shape, prompt - cached, cached)
        return Counts(
            samples=1,
            generated_tokens=sampled,
            prefill_tokens=prompt,
            cached_prefill_tokens=cached,
            flops=prefill + decode_flops(self._shape, prompt, sampled),
        )


def _computed_tokens(counts: Counts) -> int:
    return counts.generated_tokens + counts.prefill_tokens - counts.cached_prefill_tokens
