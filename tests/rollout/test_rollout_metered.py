"""The sampling door: what is booked, to which kind, and that nothing is counted but what came back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.compute.clock import Clock, Seconds
from harness.compute.flops import ModelShape
from harness.compute.meter import Counts, Meter
from harness.rollout.metered import MeteredEngine
from harness.rollout.protocol import Request, Sample, Sampling

SHAPE = ModelShape(matmul_parameters=100, layers=2, attention_width=8)


class Scripted:
    """Returns prepared samples, and takes 8 wall and 6 CPU seconds for it."""

    def __init__(self, samples: list[Sample]):
        self.samples = samples
        self.seconds = 0.0

    def generate(self, requests: Sequence[Request]) -> list[Sample]:
        self.seconds += 8
        return self.samples

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.seconds, cpu=lambda: 0.75 * self.seconds)


def sample(tokens: int, cached: int = 0, reason: str = "stop") -> Sample:
    return Sample((5,) * tokens, (-1.0,) * tokens, reason, cached)


def request(purpose: str, prompt: int) -> Request:
    return Request(purpose, (3,) * prompt, Sampling(50), 1, 0)


def test_tokens_that_came_back_are_booked_by_purpose_truncated_and_aborted_ones_too() -> None:
    engine = Scripted([sample(4), sample(50, 10, "length"), sample(3, 0, "aborted"), sample(7)])
    meter, clock = Meter(), engine.clock()
    requests = [request("rollout", 10), request("rollout", 10), request("rollout", 6), request("continuation", 12)]
    MeteredEngine(engine, meter, clock, SHAPE).generate(requests)
    rows = meter.drain()
    rollout, continuation = rows["rollout"], rows["continuation"]
    assert (rollout.samples, rollout.generated_tokens) == (3, 57)
    assert (rollout.prefill_tokens, rollout.cached_prefill_tokens) == (26, 10)
    assert (continuation.samples, continuation.generated_tokens, continuation.prefill_tokens) == (1, 7, 12)


def test_flops_are_those_of_every_token_fed_once() -> None:
    engine = Scripted([sample(4), sample(6, cached=10)])
    meter = Meter()
    MeteredEngine(engine, meter, engine.clock(), SHAPE).generate([request("rollout", 10), request("rollout", 10)])
    positions = [*range(10 + 4 - 1), *range(10, 10 + 6 - 1)]  # the second one's prompt was shared
    assert meter.total("rollout").flops == sum(2 * 100 + 4 * 2 * 8 * (position + 1) for position in positions)


def test_the_seconds_of_a_mixed_call_are_split_by_tokens_computed() -> None:
    engine = Scripted([sample(5), sample(10, cached=15)])
    clock = engine.clock()
    MeteredEngine(engine, Meter(), clock, SHAPE).generate([request("rollout", 25), request("continuation", 15)])
    assert clock.drain() == {"rollout": Seconds(6, 4.5), "continuation": Seconds(2, 1.5)}  # 30 and 10 tokens


def test_the_record_sees_every_request_and_its_sample_and_the_caller_gets_the_samples() -> None:
    engine = Scripted([sample(2), sample(3)])
    seen: list[tuple[Sequence[Request], Sequence[Sample]]] = []
    requests = [request("rollout", 4), request("evaluation", 4)]
    metered = MeteredEngine(engine, Meter(), engine.clock(), SHAPE, lambda *told: seen.append(told))
    assert metered.generate(requests) == engine.samples
    assert seen == [(requests, engine.samples)]


def test_an_engine_that_loses_a_sample_is_a_fault() -> None:
    engine = Scripted([sample(2)])
    meter = Meter()
    with pytest.raises(ValueError, match="shorter"):
        MeteredEngine(engine, meter, engine.clock(), SHAPE).generate([request("rollout", 4)] * 2)
    assert meter.total("rollout") == Counts()


def test_no_requests_book_nothing() -> None:
    engine = Scripted([])
    meter, clock = Meter(), engine.clock()
    assert MeteredEngine(engine, meter, clock, SHAPE).generate([]) == []
    assert meter.drain() == {} and clock.drain() == {}
