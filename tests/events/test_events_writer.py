"""The writer's promises: whole lines, in sequence, whoever appends and however it fails."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.events.reader import read_events
from harness.events.writer import EventLogError, EventWriter

WARNING = {"code": "test", "message": "a line of a study's log"}


def test_sequence_numbers_count_from_zero_and_values_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folders" / "events.jsonl"
    with EventWriter(path, clock=lambda: 12.5) as log:
        assert log.last_seq == -1
        assert log.append("warning", {"text": "ä \n \u2028", "values": [1, 2.5, None]}) == 0
        assert log.append("update", {"update": 1}, {"charge": {"cpu_hours": 0.1}}) == 1
        assert log.last_seq == 1
        assert log.sync() == 1
    first, second = read_events(path).events
    assert first.payload == {"text": "ä \n \u2028", "values": [1, 2.5, None]}
    assert first.envelope["time"] == 12.5
    assert first.envelope["pid"] == os.getpid()
    assert (second.seq, second.kind, second.measured) == (1, "update", {"charge": {"cpu_hours": 0.1}})


def test_equal_payloads_give_equal_bytes_whatever_the_order_of_keys(tmp_path: Path) -> None:
    for name, payload in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        with EventWriter(tmp_path / name, clock=lambda: 0.0) as log:
            log.append("warning", payload)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_each_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write
    with EventWriter(tmp_path / "log") as log:
        monkeypatch.setattr(os, "write", lambda fd, data: writes.append(bytes(data)) or real(fd, data))
        log.append("heartbeat", {})
        log.append("heartbeat", {})
        monkeypatch.undo()
    assert len(writes) == 2
    assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)


def test_non_finite_numbers_are_null_and_flagged_at_the_top(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as log:
        log.append("update", {"loss": math.nan, "diverged": False, "notes": {"norm": math.inf, "n": 1}}, {"s": 1.0})
        log.append("update", {"loss": 1.0, "diverged": False}, {"seconds": -math.inf})
    first, second = read_events(tmp_path / "log").events
    assert first.payload == {"loss": None, "diverged": True, "notes": {"norm": None, "n": 1}}
    assert first.measured == {"s": 1.0}
    assert second.payload == {"loss": 1.0, "diverged": False}
    assert second.measured == {"seconds": None, "diverged": True}


def test_text_that_no_encoding_holds_is_replaced_and_other_text_is_kept(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as log:
        log.append("warning", {"message": "file \udc80.bin", "code": "\U0001f600 ä \x00"})
    assert read_events(tmp_path / "log").events[0].payload == {"message": "file ?.bin", "code": "\U0001f600 ä \x00"}


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as log:

        def append_many(name: int) -> None:
            for number in range(50):
                log.append("warning", {"thread": name, "number": number})

        threads = [threading.Thread(target=append_many, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read_events(tmp_path / "log").events
    assert len(events) == 400
    for name in range(8):
        assert [e.payload["number"] for e in events if e.payload["thread"] == name] == list(range(50))


def test_processes_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = (
        "import sys; from harness.events.writer import EventWriter\n"
        "with EventWriter(sys.argv[1]) as log:\n"
        "    for number in range(100): log.append('warning', {'process': sys.argv[2], 'number': number})\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, path, str(name)]) for name in range(4)]
    assert [process.wait(60) for process in started] == [0, 0, 0, 0]
    events = read_events(path).events
    assert len(events) == 400
    for name in range(4):
        assert [e.payload["number"] for e in events if e.payload["process"] == str(name)] == list(range(100))


def test_an_attempts_log_must_be_new(tmp_path: Path) -> None:
    EventWriter(tmp_path / "log", exclusive=True).close()
    with pytest.raises(EventLogError, match=r"log: the log cannot be opened: File exists"):
        EventWriter(tmp_path / "log", exclusive=True)


def test_a_reopened_log_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with EventWriter(path) as log:
        for _ in range(3):
            log.append("warning", WARNING)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with EventWriter(path) as log:
        assert path.read_bytes() == whole[: whole.rstrip(b"\n").rindex(b"\n") + 1]
        assert log.append("warning", {"code": "after"}) == 2
    assert [event.seq for event in read_events(path).events] == [0, 1, 2]


def test_a_corrupt_log_is_not_continued_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with EventWriter(path) as log:
        for _ in range(3):
            log.append("warning", WARNING)
    corrupt = path.read_bytes().replace(b'"seq":1', b'"seq":7')
    path.write_bytes(corrupt)
    with pytest.raises(EventLogError, match="log: line 2: its checksum does not match"):
        EventWriter(path)
    assert path.read_bytes() == corrupt


def test_a_full_disk_leaves_whole_lines_only_and_the_log_goes_on_once_there_is_room(tmp_path: Path) -> None:
    script = """
import resource, sys
from harness.events.writer import EventWriter, EventLogError
log = EventWriter(sys.argv[1])
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, unlimited[1]))
written = failed = 0
for number in range(40):
    try:
        log.append("warning", {"number": number})
        written += 1
    except EventLogError as error:
        assert "\\n" not in str(error)
        failed += 1
        told = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
assert log.append("warning", {"number": "after"}) == written
print(written, failed, told, sep="|")
"""
    path = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    written, failed, told = done.stdout.strip().split("|")
    assert int(written) > 5
    assert int(written) + int(failed) == 40
    assert told.startswith(f"{path}: the log cannot be written")
    log = read_events(path)
    assert log.torn_tail == b""
    assert [event.payload["number"] for event in log.events] == [*range(int(written)), "after"]


def test_a_short_write_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with EventWriter(tmp_path / "log") as log:
        log.append("warning", WARNING)
        before = (tmp_path / "log").read_bytes()
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:20]))
        with pytest.raises(EventLogError, match="no room for a whole line"):
            log.append("warning", WARNING)
        monkeypatch.undo()
        assert (tmp_path / "log").read_bytes() == before
        assert log.append("warning", WARNING) == 1


def test_trouble_with_the_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EventLogError, match="cannot be opened"):
        EventWriter(tmp_path / "file" / "events.jsonl")
    log = EventWriter(tmp_path / "log")
    log.close()
    log.close()
    with pytest.raises(EventLogError, match="the log is closed"):
        log.append("warning", WARNING)


def test_kinds_outside_the_schema_are_refused(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as log, pytest.raises(ValueError, match="no event of kind 'updaet'"):
        log.append("updaet", {})
    assert (tmp_path / "log").read_bytes() == b""


def test_the_folder_of_events_needs_the_standard_library_only() -> None:
    script = """
import sys, json
import harness.events.writer, harness.events.reader, harness.events.fold, harness.events.checks
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    loaded = {name for name in json.loads(done.stdout) if not name.startswith("_")}
    assert loaded <= set(sys.stdlib_module_names) | {"harness"}
