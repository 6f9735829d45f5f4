"""The collector's promises: whole lines once, whatever else happens to logs, processes and disks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.stores import rebuilt, refresh, rows, tables
from support.synthetic_runs import SyntheticArm, SyntheticStudy, run_events, write_run, write_study

from harness.errors import InputError
from harness.events import upcasters
from harness.events.line import encode
from harness.events.reader import read_events
from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder
from harness.store.collector import collect, publish

STUDY = SyntheticStudy(
    arms=[SyntheticArm("a", 200, lambda updates: 0.3), SyntheticArm("b", 400, lambda updates: 0.6)], seeds=(1, 2)
)
TOLD = run_events(STUDY, STUDY.arms[0], 1)
COLLECT = "import sys; from harness.layout import RunsFolder; from harness.store.collector import collect, publish\n"


def log_of(runs: RunsFolder, cell: str, attempt: int = 1) -> Path:
    return CellFolder(runs.cell(cell)).events(attempt)


def count(runs: RunsFolder, cell: str) -> int:
    return int(rows(runs, f"SELECT count(*) FROM updates WHERE cell = '{cell}'")[0][0])


def test_each_line_is_read_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    path = log_of(runs, "c")
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    path.write_bytes(whole[:-1])
    assert refresh(runs).events == lines - 1
    assert rows(runs, "SELECT status FROM runs") == [("running",)]
    assert refresh(runs).events == 0
    path.write_bytes(whole)
    assert refresh(runs).events == 1
    assert rows(runs, "SELECT status FROM runs") == [("completed",)]
    assert collect(runs).events == 0


def test_64_writers_and_a_collector_that_keeps_on_give_what_a_rebuild_gives(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    study = SyntheticStudy(arms=STUDY.arms, seeds=range(32))
    cells = study.cells()
    assert len(cells) == 64
    write_study(runs, SyntheticStudy(arms=STUDY.arms, study="empty", seeds=()))
    done = threading.Event()
    seen = 0

    def write(number: int) -> None:
        told = run_events(study, study.arms[number % 2], number // 2)
        write_run(runs, study.study, cells[number]["cell"], told, [3 + number % 9])
        with EventWriter(runs.study_log("empty")) as log:
            log.append("analysis", {"study": "empty", "command": str(number)})

    def keep_collecting() -> None:
        nonlocal seen
        while not done.is_set():
            seen += collect(runs).events

    collector = threading.Thread(target=keep_collecting)
    collector.start()
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(write, range(64)))
    done.set()
    collector.join()
    seen += refresh(runs).events
    found = tables(runs.database), tables(runs.snapshot)
    assert len(found[0]["events"]) == seen
    assert [row[1] for row in found[1]["runs"]] == ["completed"] * 64
    assert rebuilt(runs) == found


def corrupt_checksum(whole: bytes) -> bytes:
    return whole.replace(b'"loss":', b'"loss":1', 1)


def drop_a_line(whole: bytes) -> bytes:
    lines = whole.splitlines(keepends=True)
    return b"".join(lines[:4] + lines[5:])


def put_garbage_in_the_middle(whole: bytes) -> bytes:
    lines = whole.splitlines(keepends=True)
    return b"".join([*lines[:4], b'{"half": \n', *lines[4:]])


@pytest.mark.parametrize("collected_before", [False, True])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (corrupt_checksum, "checksum does not match"),
        (drop_a_line, "sequence number 5 where 4 is due"),
        (put_garbage_in_the_middle, "line 5: not JSON"),
    ],
)
def test_a_corrupt_log_is_quarantined_and_the_others_go_on(
    tmp_path: Path, damage: Any, reason: str, collected_before: bool
) -> None:
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    sick, well = STUDY.cells()[0]["cell"], STUDY.cells()[1]["cell"]
    if collected_before:
        refresh(runs)
    path = log_of(runs, sick)
    path.write_bytes(damage(path.read_bytes()))
    report = refresh(runs)
    relative = f"cells/{sick}/attempts/1/events.jsonl"
    assert list(report.quarantined) == [relative]
    assert reason in report.quarantined[relative]
    assert [message for message in report.messages if relative in message and reason in message]
    assert rows(runs, "FROM quarantine") == [(relative, report.quarantined[relative])]
    assert (count(runs, sick), count(runs, well) > 0) == (0, True)
    status, told = rows(runs, f"SELECT status, reason FROM runs WHERE cell = '{sick}'")[0]
    assert status == "failed"
    assert reason in told
    found = tables(runs.database), tables(runs.snapshot)
    again = refresh(runs)
    assert (again.quarantined, again.events) == (report.quarantined, 0)
    assert rebuilt(runs) == found


def test_a_changed_prefix_is_quarantined_though_each_line_is_sound(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    refresh(runs)
    path = log_of(runs, "c")
    better = [
        (kind, {**payload, "reward_mean": 1.0} if kind == "update" else payload, measured)
        for kind, payload, measured in TOLD
    ]
    path.unlink()
    write_run(runs, "s", "c", better)
    report = refresh(runs)
    assert "are not those that were read before" in report.quarantined["cells/c/attempts/1/events.jsonl"]
    assert count(runs, "c") == 0


@pytest.mark.parametrize("collected_before", [False, True])
def test_a_damaged_log_that_is_restored_is_read_again(tmp_path: Path, collected_before: bool) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    if collected_before:
        refresh(runs)
    path = log_of(runs, "c")
    sound = path.read_bytes()
    path.write_bytes(corrupt_checksum(sound))
    assert len(refresh(runs).quarantined) == 1
    path.write_bytes(sound)
    report = refresh(runs)
    assert not report.quarantined
    assert report.messages == ["cells/c/attempts/1/events.jsonl is sound again, and read"]
    found = tables(runs.database), tables(runs.snapshot)
    assert found[1]["runs"]
    assert rebuilt(runs) == found


def test_a_log_with_a_changed_prefix_stays_in_quarantine_until_it_is_what_was_read(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    refresh(runs)
    path = log_of(runs, "c")
    original = path.read_bytes()
    path.unlink()
    write_run(runs, "s", "c", TOLD[1:])
    reports = [refresh(runs) for _ in range(2)]
    assert reports[0].quarantined == reports[1].quarantined != {}
    assert (len(reports[0].messages), reports[1].messages) == (1, [])
    path.write_bytes(original)
    assert not refresh(runs).quarantined
    assert count(runs, "c") > 0


def test_a_shortened_log_is_quarantined(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    refresh(runs)
    path = log_of(runs, "c")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    assert len(refresh(runs).quarantined) == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_run_whose_path_leads_through_a_quarantined_log_has_no_surviving_rows(tmp_path: Path, attempt: int) -> None:
    runs = RunsFolder(tmp_path)
    killed = next(index for index, event in enumerate(TOLD) if event[0] == "checkpoint") + 2
    write_run(runs, "s", "c", TOLD, [killed])
    path = log_of(runs, "c", attempt)
    path.write_bytes(drop_a_line(path.read_bytes()))
    refresh(runs)
    assert rows(runs, "SELECT status, attempts FROM runs") == [("failed", 2)]
    assert f"attempts/{attempt}/events.jsonl is quarantined" in rows(runs, "SELECT reason FROM runs")[0][0]
    assert rows(runs, "SELECT DISTINCT surviving FROM updates") == [(False,)]
    assert count(runs, "c") > 0


def test_a_quarantined_attempt_that_nothing_came_from_does_not_break_its_run(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD, [6])
    path = log_of(runs, "c")
    path.write_bytes(drop_a_line(path.read_bytes()))
    refresh(runs)
    assert rows(runs, "SELECT status, attempts FROM runs") == [("completed", 2)]
    assert rows(runs, "SELECT DISTINCT surviving FROM updates") == [(True,)]


def test_a_log_of_another_cell_is_quarantined(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    runs.cell("c").rename(runs.cell("copy"))
    report = refresh(runs)
    assert report.quarantined["cells/copy/attempts/1/events.jsonl"] == (
        "line 1: is not the start of attempt 1 of cell copy"
    )


def test_an_outside_trainers_event_without_its_fields_is_quarantined_not_a_row_of_nulls(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", [("update", {"update": 1, "charge": {"generated_tokens": "many"}}, {}), *TOLD])
    assert "`charge` of `update`" in refresh(runs).quarantined["cells/c/attempts/1/events.jsonl"]
    assert rows(runs, "SELECT count(*) FROM updates") == [(0,)]


def test_a_deleted_cell_leaves_the_store(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    refresh(runs)
    log_of(runs, STUDY.cells()[0]["cell"]).unlink()
    assert "is gone" in refresh(runs).messages[0]
    assert len(rows(runs, "FROM runs")) == 3
    found = tables(runs.database), tables(runs.snapshot)
    assert rebuilt(runs) == found


def test_a_collector_killed_between_batches_is_taken_up_where_it_committed(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    script = (
        COLLECT
        + """
import os
from harness.store import collector
collector._BATCH_EVENTS, store_batch, calls = 1, collector._store_batch, []
def die_in_the_third(store, batch):
    calls.append(1)
    if len(calls) == 3:
        execute = store.execute
        class Dying:
            register = store.register
            def execute(self, sql):
                os._exit(9) if sql == "COMMIT" else execute(sql)
        store = Dying()
    return store_batch(store, batch)
collector._store_batch = die_in_the_third
collect(RunsFolder(sys.argv[1]))
"""
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path], check=False).returncode == 9
    report = refresh(runs)
    assert report.events > 0
    found = tables(runs.database), tables(runs.snapshot)
    assert report.events < len(found[0]["events"])
    assert rebuilt(runs) == found


def test_a_second_collector_says_so_and_returns_or_waits(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    runs.collector_lock.parent.mkdir(parents=True)
    said: list[str] = []
    with runs.collector_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = collect(runs, wait=False, say=said.append)
        assert (report.busy, report.events) == (True, 0)
        assert "another collector is at work" in said[0]
        assert publish(runs, wait=False, say=said.append) is False
        assert not runs.database.exists()
        waiting = threading.Thread(target=collect, args=(runs,), kwargs={"say": said.append})
        waiting.start()
        while len(said) < 3:
            time.sleep(0.01)
        assert "waiting for it" in said[2]
    waiting.join()
    refresh(runs)
    assert count(runs, "c") > 0


def test_eight_collectors_at_first_start_read_each_line_once(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    script = COLLECT + "print(collect(RunsFolder(sys.argv[1])).events); publish(RunsFolder(sys.argv[1]))"
    started = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0] * 8, outputs
    lines = sum(len(read_events(path).events) for path in [*runs.attempt_logs(), *runs.study_logs()])
    assert sorted(int(out) for out, _ in outputs) == [0] * 7 + [lines]
    found = tables(runs.database), tables(runs.snapshot)
    assert rebuilt(runs) == found


def test_logs_of_an_older_schema_are_read_through_upcasters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    path = log_of(runs, "c")
    original = [event.payload for event in read_events(path).events if event.kind == "update"]

    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        payload = {("loss" if name == "lost" else name): value for name, value in fields["payload"].items()}
        return {**fields, "schema": 2, "payload": payload}

    old = []
    for event in read_events(path).events:
        payload = {("lost" if name == "loss" else name): value for name, value in event.payload.items()}
        old.append(encode({"schema": 1, **vars(event), "payload": payload}))
    path.write_bytes(b"".join(old))
    monkeypatch.setattr(upcasters, "SCHEMA", 2)
    monkeypatch.setattr(upcasters, "UPCASTERS", {1: renamed})
    assert refresh(runs).quarantined == {}
    assert [row[0] for row in rows(runs, "SELECT loss FROM updates ORDER BY seq")] == [p["loss"] for p in original]


def test_a_log_of_a_newer_schema_is_quarantined_with_the_way_out(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_run(runs, "s", "c", TOLD)
    path = log_of(runs, "c")
    path.write_bytes(b"".join(encode({"schema": 9, **vars(event)}) for event in read_events(path).events))
    assert list(refresh(runs).quarantined.values()) == [
        "line 1: schema version 9 is newer than 1, the newest known here; update isobudget"
    ]


def test_a_runs_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(InputError, match="the runs folder is a file"):
        collect(RunsFolder(tmp_path / "runs"))
    (tmp_path / "store").write_text("")
    with pytest.raises(InputError, match="the store's folder cannot be used"):
        collect(RunsFolder(tmp_path))


def test_a_full_disk_is_told_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    script = (
        COLLECT
        + """
import resource
from harness.errors import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for action in (collect, publish):
    try:
        action(RunsFolder(sys.argv[1]))
    except InputError as error:
        print(error)
"""
    )
    for room in (0, 20_000, 400_000):
        done = subprocess.run(
            [sys.executable, "-c", script, tmp_path, str(room)],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "cannot be written" in done.stdout
        assert "Traceback" not in done.stderr
    refresh(runs)
    found = tables(runs.database), tables(runs.snapshot)
    assert len(found[1]["runs"]) == 4
    assert rebuilt(runs) == found
