"""The clock and the work door, on time sources that the test moves by hand."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

import pytest

from harness.compute.clock import Clock, Seconds, process_cpu_seconds
from harness.compute.meter import Counts, Meter
from harness.compute.work import Work


@dataclass
class HandMoved:
    wall: float = 1_000.0
    cpu: float = 50.0

    def clock(self, devices: int = 0) -> Clock:
        return Clock(devices, wall=lambda: self.wall, cpu=lambda: self.cpu)

    def passes(self, wall: float, cpu: float) -> None:
        self.wall += wall
        self.cpu += cpu


def test_only_training_time_is_charged_and_the_innermost_phase_has_the_time() -> None:
    source = HandMoved()
    clock = source.clock(devices=2)
    source.passes(5, 1)  # start-up
    with clock.phase("training"):
        source.passes(3600, 1800)
        with clock.phase("evaluation"):
            source.passes(100, 90)
        with clock.phase("checkpoint"):
            source.passes(7, 2)
        source.passes(1800, 1800)
        assert clock.charge("gpu_hours") == 2 * 1.5
    source.passes(11, 4)
    assert clock.charge("gpu_hours") == 3.0
    assert clock.charge("cpu_hours") == 1.0
    assert clock.seconds("evaluation") == Seconds(100, 90)
    assert clock.seconds("checkpoint") == Seconds(7, 2)
    assert clock.seconds("idle") == Seconds(16, 5)


def test_a_phase_ends_when_its_work_raises() -> None:
    source = HandMoved()
    clock = source.clock()
    with pytest.raises(RuntimeError), clock.phase("training"):
        source.passes(3, 2)
        raise RuntimeError
    source.passes(100, 100)
    assert clock.seconds("training") == Seconds(3, 2)


def test_down_time_between_attempts_costs_nothing() -> None:
    source = HandMoved()
    first = source.clock(devices=1)
    with first.phase("training"):
        source.passes(3600, 1800)
        saved = json.loads(json.dumps(first.state()))
        source.passes(60, 60)  # lost with the crash
    source.wall, source.cpu = 10.0, 0.5  # another machine, days later
    second = source.clock(devices=1)
    second.load_state(saved)
    assert second.charge("gpu_hours") == 1.0
    with second.phase("training"):
        source.passes(1800, 900)
    assert second.charge("gpu_hours") == 1.5
    assert second.charge("cpu_hours") == 0.75
    assert second.seconds("training") == Seconds(1800, 900)  # of this attempt alone
    assert second.state() == {"training": {"wall_seconds": 5400.0, "cpu_seconds": 2700.0}}


def test_seconds_by_kind_are_drained_once() -> None:
    clock = HandMoved().clock()
    clock.credit("rollout", Seconds(2, 1))
    clock.credit("rollout", Seconds(3, 2))
    assert clock.drain() == {"rollout": Seconds(5, 3)}
    assert clock.drain() == {}


def test_a_heartbeat_that_reads_while_a_phase_begins_does_not_end_it() -> None:
    """The reader is held in the middle of its reading, for as long as the other thread would need to get past it."""
    source = HandMoved()
    reading, entered = threading.Event(), threading.Event()

    def wall() -> float:
        if threading.current_thread() is not threading.main_thread():
            reading.set()
            entered.wait(0.2)
        return source.wall

    clock = Clock(devices=1, wall=wall, cpu=lambda: source.cpu)
    heartbeat = threading.Thread(target=lambda: clock.charge("gpu_hours"))
    with clock.phase("training"):
        source.passes(1.0, 1.0)
        heartbeat.start()
        assert reading.wait(10)
        with clock.phase("evaluation"):
            entered.set()
            heartbeat.join()
            source.passes(100.0, 100.0)
        source.passes(1.0, 1.0)
    assert clock.seconds("evaluation").wall_seconds == 100
    assert clock.seconds("training").wall_seconds == 2


def test_currencies_without_a_clock_are_refused() -> None:
    with pytest.raises(ValueError, match="flops"):
        HandMoved().clock().charge("flops")


def test_the_default_sources_measure_this_process() -> None:
    clock = Clock()
    with clock.phase("training"):
        until = process_cpu_seconds() + 0.05
        while process_cpu_seconds() < until:
            pass
        time.sleep(0.05)
    training = clock.seconds("training")
    assert 0.05 <= training.cpu_seconds < training.wall_seconds


def test_work_books_its_kind_flops_and_time_even_when_it_raises() -> None:
    source = HandMoved()
    clock, meter = source.clock(), Meter()
    work = Work(meter, clock)
    with work.run("policy_train", flops=600):
        source.passes(4, 3)
    with pytest.raises(MemoryError), work.run("critic", flops=50):
        source.passes(1, 1)
        raise MemoryError
    assert meter.drain() == {"policy_train": Counts(flops=600), "critic": Counts(flops=50)}
    assert clock.drain() == {"policy_train": Seconds(4, 3), "critic": Seconds(1, 1)}
