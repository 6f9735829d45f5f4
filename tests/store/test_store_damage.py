"""The database is a cache: broken, old or in somebody's hands, what was recorded stays and readers read on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from support.stores import refresh, rows, tables
from support.synthetic_runs import SyntheticArm, SyntheticStudy, write_study

from harness.errors import InputError
from harness.layout import RunsFolder
from harness.store.collector import collect, publish
from harness.store.database import open_database

STUDY = SyntheticStudy(arms=[SyntheticArm("a", 200, lambda updates: 0.3)], seeds=(1, 2))


@pytest.fixture
def runs(tmp_path: Path) -> RunsFolder:
    folder = RunsFolder(tmp_path)
    write_study(folder, STUDY)
    refresh(folder)
    return folder


def garbage(runs: RunsFolder) -> None:
    runs.database.write_bytes(b"this is no database" * 1000)


def empty(runs: RunsFolder) -> None:
    runs.database.write_bytes(b"")


def cut(runs: RunsFolder) -> None:
    runs.database.write_bytes(runs.database.read_bytes()[:20_000])


def flipped_blocks(runs: RunsFolder) -> None:
    content = bytearray(runs.database.read_bytes())
    for position in range(3 * 4096, len(content), 997):
        content[position] ^= 255
    runs.database.write_bytes(content)


def broken_wal(runs: RunsFolder) -> None:
    """A write-ahead log of ours, as a killed collector leaves it, with a flipped byte in an entry."""
    wal = runs.database.with_name(f"{runs.database.name}.wal")
    with duckdb.connect(str(runs.database)) as store:
        store.execute("CREATE TABLE more AS SELECT range AS x FROM range(9)")
        shutil.copy(runs.database, saved := runs.database.with_name("saved"))
        content = bytearray(wal.read_bytes())
    saved.replace(runs.database)
    content[80] ^= 255
    wal.write_bytes(content)


def another_layout(runs: RunsFolder) -> None:
    with duckdb.connect(str(runs.database)) as store:
        store.execute("UPDATE built_by SET layout = 'older'")


def other_tables(runs: RunsFolder) -> None:
    runs.database.unlink()
    with duckdb.connect(str(runs.database)) as store:
        store.execute("CREATE TABLE files (path TEXT)")


@pytest.mark.parametrize("use", [collect, publish])
@pytest.mark.parametrize("damage", [garbage, empty, cut, flipped_blocks, broken_wal, another_layout, other_tables])
def test_a_database_that_cannot_be_used_is_set_aside_rebuilt_and_told(
    runs: RunsFolder, damage: Callable[[RunsFolder], None], use: Callable[..., object]
) -> None:
    before = tables(runs.database), tables(runs.snapshot)
    damage(runs)
    said: list[str] = []
    use(runs, say=said.append)
    assert [message for message in said if "rebuilt from the events" in message and "\n" not in message] == said
    assert len(said) == 1
    assert runs.database.with_name("broken.duckdb").exists()
    refresh(runs)
    assert (tables(runs.database), tables(runs.snapshot)) == before


@pytest.mark.parametrize("content", [os.urandom(3000), bytes(3000), b"garbage" * 100, b""])
def test_garbage_in_place_of_the_write_ahead_log_changes_no_table(runs: RunsFolder, content: bytes) -> None:
    before = tables(runs.database), tables(runs.snapshot)
    runs.database.with_name(f"{runs.database.name}.wal").write_bytes(content)
    refresh(runs)
    assert (tables(runs.database), tables(runs.snapshot)) == before


def test_readers_read_the_snapshot_while_the_collector_holds_its_database(runs: RunsFolder) -> None:
    script = (
        "import duckdb, sys\n"
        "print(duckdb.connect(sys.argv[1], read_only=True).execute('SELECT count(*) FROM runs').fetchone()[0])"
    )
    with open_database(runs) as store:
        store.execute("BEGIN; DELETE FROM events")
        done = subprocess.run(
            [sys.executable, "-c", script, runs.snapshot], capture_output=True, text=True, check=True
        )
    assert done.stdout.strip() == "2"


def test_an_open_reader_keeps_its_snapshot_and_a_new_one_sees_the_next(runs: RunsFolder) -> None:
    script = """
import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=True) as reader:
    print(reader.execute("SELECT count(*) FROM runs").fetchone()[0], flush=True)
    sys.stdin.readline()
    print(reader.execute("SELECT count(*) FROM runs").fetchone()[0], flush=True)
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", script, runs.snapshot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "2\n"
    write_study(runs, SyntheticStudy(arms=STUDY.arms, study="more", seeds=(3,)))
    refresh(runs)
    assert len(rows(runs, "FROM runs")) == 3
    assert reader.communicate("\n", timeout=60)[0] == "2\n"


def test_a_database_open_in_another_program_is_told_and_left_alone(runs: RunsFolder) -> None:
    script = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.readline()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, runs.database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="the store is open in another program") as caught:
        collect(runs)
    assert "\n" not in str(caught.value)
    holder.communicate("\n", timeout=60)
    assert not runs.database.with_name("broken.duckdb").exists()
    assert collect(runs).messages == []


def test_a_leftover_of_a_killed_publication_is_written_over(runs: RunsFolder) -> None:
    before = tables(runs.snapshot)
    for name in ("snapshot.tmp", "snapshot.tmp.wal"):
        runs.snapshot.with_name(name).write_bytes(b"half a snapshot")
    publish(runs)
    assert tables(runs.snapshot) == before
