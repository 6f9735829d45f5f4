"""What the reader believes: whole lines in sequence whose checksum matches, of a schema that it knows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.events import upcasters
from harness.events.checks import complaint
from harness.events.reader import parse_events, read_events
from harness.events.schema import EventLogError
from harness.events.writer import EventWriter

GOLDEN = Path(__file__).parent / "golden" / "events.v1.jsonl"


def line(number: int, **changes: Any) -> bytes:
    """A line as schema.py describes it, built without our own code."""
    fields = {
        "schema": 1,
        "seq": number,
        "kind": "warning",
        "payload": {"n": number},
        "measured": {},
        "envelope": {"time": 1.0, "host": "h", "pid": 1},
        **changes,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return json.dumps({"sum": hashlib.sha256(text.encode()).hexdigest()[:16], **fields}).encode() + b"\n"


def test_a_line_of_another_writer_is_read_whatever_its_spacing_and_order() -> None:
    log = parse_events(line(0) + line(1, payload={"x": [0.1, 1e300, "é"]}), "log")
    assert [event.seq for event in log.events] == [0, 1]
    assert log.events[1].payload == {"x": [0.1, 1e300, "é"]}


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(line(0) + line(1)[:30])
    log = read_events(path)
    assert [event.seq for event in log.events] == [0]
    assert log.whole_bytes == len(line(0))
    assert log.torn_tail == line(1)[:30]
    path.write_bytes(line(0) + line(1) + line(2)[:-1])
    further = read_events(path, log.whole_bytes, seq=1)
    assert [event.seq for event in further.events] == [1]
    assert further.whole_bytes == len(line(0) + line(1))


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (line(2), "sequence number 2 where 1 is due"),
        (line(0), "sequence number 0 where 1 is due"),
        (b'{"torn": \n', "not JSON"),
        (b"\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[1]\n", "no event"),
        (b'{"seq": 1}\n', "no event"),
        (line(1).replace(b'"n": 1', b'"n": 2'), "its checksum does not match"),
        (line(1, payload=7), "`payload` is not dict"),
        (line(1, seq=True), "`seq` is not int"),
        (line(1, schema=99), "schema version 99 is newer than 1"),
        (line(1, schema=0), "schema version 0 is none"),
        (line(1, payload={"x": float("nan")}), "JSON has no NaN"),
        (line(1, payload={"x": 0.5}).replace(b"0.5", b"1e999"), "JSON has no 1e999"),
        (line(1, payload={"x": "\udc80"}), "not text"),
        (b'{"a":' * 100_000 + b"\n", "not JSON"),
    ],
)
def test_what_is_not_the_next_event_is_refused_naming_path_and_line(tmp_path: Path, bad: bytes, told: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(0) + bad + line(2))
    with pytest.raises(EventLogError) as caught:
        read_events(path)
    assert str(caught.value).startswith(f"{path}: line 2: ")
    assert told in str(caught.value)


def test_a_missing_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="cannot be read: No such file"):
        read_events(tmp_path / "none")


@given(st.data())
def test_a_cut_log_gives_a_prefix_and_a_changed_byte_never_another_story(data: st.DataObject) -> None:
    whole = GOLDEN.read_bytes()
    events = parse_events(whole, "log").events
    cut = data.draw(st.integers(0, len(whole)))
    kept = parse_events(whole[:cut], "log")
    assert kept.events == events[: whole[:cut].count(b"\n")]
    position, flip = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(whole)
    changed[position] ^= flip
    if position == len(whole) - 1:
        assert parse_events(bytes(changed), "log").events == events[:-1]
    else:
        with pytest.raises(EventLogError):
            parse_events(bytes(changed), "log")


def test_older_lines_are_read_through_upcasters(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "schema": 2, "payload": {"number": fields["payload"]["n"]}}

    monkeypatch.setattr(upcasters, "SCHEMA", 3)
    monkeypatch.setattr(upcasters, "UPCASTERS", {1: renamed, 2: lambda fields: {**fields, "schema": 3}})
    log = parse_events(line(0) + line(1, schema=3, payload={"number": 5}), "log")
    assert [event.payload for event in log.events] == [{"number": 0}, {"number": 5}]


def test_the_golden_log_of_version_1_stays_readable() -> None:
    log = read_events(GOLDEN)
    assert log.torn_tail == b""
    assert [event.kind for event in log.events] == [
        "attempt_started", "ledger", "heartbeat", "ledger", "update", "evaluation", "checkpoint",
        "ledger", "update", "warning", "evaluation", "finished",
    ]  # fmt: skip
    assert [complaint(event) for event in log.events] == [None] * 12
    started, evaluation, diverged = log.events[0], log.events[5], log.events[8]
    assert started.payload["resumed_from"] is None
    assert started.payload["packages"] == {"torch": "2.13.0", "transformers": "5.24.0"}
    assert evaluation.payload["outcomes"] == [1, 0, 1, 1]
    assert evaluation.payload["milestones"] == [{"currency": "generated_tokens", "amount": 500, "charge_after": 612}]
    assert evaluation.measured["milestones"][0]["currency"] == "cpu_hours"
    assert diverged.payload["loss"] is None
    assert diverged.payload["diverged"] is True
    assert log.events[11].payload["charge"]["generated_tokens"] == 1224


@pytest.mark.parametrize(
    ("kind", "payload", "told"),
    [
        ("ledger", {"update": 1}, "has no `rows`"),
        ("ledger", {"update": 1, "rows": {"rollout": {"samples": 1}}}, "`rows` of `ledger`"),
        ("ledger", {"update": 1.5, "rows": {}}, "`update` of `ledger`"),
        ("attempt_started", {"cell": "c", "attempt": 1, "study": "s", "mode": "m", "resumed_from": {"attempt": 1}},
         "`resumed_from` of `attempt_started`"),
        ("finished", {"status": "completed", "updates": 1, "charge": {"generated_tokens": 1}, "diverged": False},
         "`charge` of `finished`"),
    ],
)  # fmt: skip
def test_an_event_without_what_tables_need_is_complained_about(
    tmp_path: Path, kind: str, payload: dict[str, Any], told: str
) -> None:
    with EventWriter(tmp_path / "log") as log:
        log.append(kind, payload)
    assert told in (complaint(read_events(tmp_path / "log").events[0]) or "")
