"""The meter: exact totals by kind, rows since the last drain, and checkpoints that lose nothing."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compute.kinds import CHARGED_BY_DEFAULT, KINDS, Kind
from harness.compute.meter import Counts, Meter

amounts = st.builds(Counts, *[st.integers(0, 2**70)] * 5)
bookings = st.lists(st.tuples(st.sampled_from(get_args(Kind)), amounts), max_size=20)


def booked(entries: list[tuple[Kind, Counts]]) -> Meter:
    meter = Meter()
    for kind, counts in entries:
        meter.add(kind, counts)
    return meter


def test_each_kind_keeps_its_own_row_and_they_come_in_the_declared_order() -> None:
    meter = booked(
        [
            ("continuation", Counts(1, 5, 10, 10, 700)),
            ("rollout", Counts(1, 3, 10, 0, 400)),
            ("continuation", Counts(1, 2, 10, 0, 500)),
        ]
    )
    rows = meter.drain()
    assert list(rows) == ["rollout", "continuation"]
    assert rows["continuation"] == Counts(2, 7, 20, 10, 1200)
    assert rows["rollout"].record() == {
        "samples": 1,
        "generated_tokens": 3,
        "prefill_tokens": 10,
        "cached_prefill_tokens": 0,
        "flops": 400,
    }


def test_evaluation_is_shown_but_not_charged_and_charges_survive_a_drain() -> None:
    meter = booked([("rollout", Counts(generated_tokens=3, flops=30)), ("evaluation", Counts(generated_tokens=99))])
    meter.add("policy_train", Counts(flops=7))
    meter.drain()
    assert meter.charge("generated_tokens", CHARGED_BY_DEFAULT) == 3
    assert meter.charge("flops", CHARGED_BY_DEFAULT) == 37
    assert meter.charge("generated_tokens", ["evaluation"]) == 99
    assert meter.total("evaluation").generated_tokens == 99


def test_a_drained_meter_has_no_rows_until_more_is_booked() -> None:
    meter = booked([("rollout", Counts(generated_tokens=3))])
    meter.drain()
    assert meter.drain() == {}
    meter.add("rollout", Counts(generated_tokens=2))
    assert meter.drain() == {"rollout": Counts(generated_tokens=2)}


@pytest.mark.parametrize("currency", ["updates", "gpu_hours", "cpu_hours"])
def test_what_the_meter_does_not_count_is_refused(currency: str) -> None:
    with pytest.raises(ValueError, match=currency):
        Meter().charge(currency, KINDS)


@given(bookings, bookings)
def test_drained_rows_add_up_to_the_totals_exactly(
    first: list[tuple[Kind, Counts]], second: list[tuple[Kind, Counts]]
) -> None:
    meter = booked(first)
    rows = [meter.drain()]
    for kind, counts in second:
        meter.add(kind, counts)
    rows.append(meter.drain())
    for kind in KINDS:
        expected = sum((counts.flops for k, counts in first + second if k == kind), 0)
        assert sum(row.get(kind, Counts()).flops for row in rows) == meter.total(kind).flops == expected


@given(bookings, bookings)
def test_a_meter_resumed_from_json_goes_on_as_if_nothing_had_happened(
    before: list[tuple[Kind, Counts]], after: list[tuple[Kind, Counts]]
) -> None:
    through, resumed = booked(before), Meter()
    resumed.add("probe", Counts(samples=5))  # of a life that is dropped
    resumed.load_state(json.loads(json.dumps(booked(before).state())))
    for kind, counts in after:
        through.add(kind, counts)
        resumed.add(kind, counts)
    assert [resumed.total(kind) for kind in KINDS] == [through.total(kind) for kind in KINDS]
    assert resumed.drain() == through.drain()
