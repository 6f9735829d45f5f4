"""A network file system is told of, in the words of whoever has to do something about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import duckdb
import pytest
from support.stores import refresh
from support.synthetic_runs import SyntheticArm, SyntheticStudy, write_study

from harness.errors import InputError
from harness.layout import RunsFolder
from harness.store import database
from harness.store.collector import collect
from harness.store.file_system import network_file_system

STUDY = SyntheticStudy(arms=[SyntheticArm("a", 200, lambda updates: 0.3)], seeds=(1,))
RIGHT = "make it a link to a folder on a local disk"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        *[(kind, kind) for kind in ("nfs", "nfs4", "cifs", "lustre", "beegfs_nodev", "gpfs", "fuse.sshfs")],
        *[(kind, None) for kind in ("ext4", "xfs", "tmpfs", "overlay", "fuse.overlayfs", "btrfs")],
    ],
)
def test_the_innermost_mount_tells_the_kind(tmp_path: Path, kind: str, told: str | None) -> None:
    mounts = tmp_path / "mounts"
    place = str(tmp_path / "lab share").replace(" ", r"\040")
    mounts.write_text(f"root / zfs rw 0 0\nserver:/x {place} {kind} rw,noatime 0 0\nproc /proc proc rw 0 0\n")
    (tmp_path / "lab share" / "runs").mkdir(parents=True)
    assert network_file_system(tmp_path / "lab share" / "runs", mounts) == told
    assert network_file_system(tmp_path, mounts) is None


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "none") is None


@pytest.fixture
def on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    monkeypatch.setattr(database, "network_file_system", lambda folder: "nfs4")
    runs = RunsFolder(tmp_path)
    write_study(runs, STUDY)
    return runs


def test_a_first_collection_there_says_so_once(on_nfs: RunsFolder) -> None:
    said: list[str] = []
    for _ in range(2):
        collect(on_nfs, say=said.append)
    assert len(said) == 1 and "network file system (nfs4)" in said[0] and RIGHT in said[0]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_clear_line(
    on_nfs: RunsFolder, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(database.fcntl, "flock", refused)
    with pytest.raises(InputError, match=f"cannot be locked: its file system, nfs4, says.*{RIGHT}"):
        collect(on_nfs)


def test_a_database_that_cannot_be_locked_there_is_not_taken_for_one_in_use(
    on_nfs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh(on_nfs)

    def refused(path: Path) -> None:
        raise duckdb.IOException(f'IO Error: Could not set lock on file "{path}": No locks available')

    monkeypatch.setattr(database.duckdb, "connect", refused)
    with pytest.raises(InputError, match=f"its file system, nfs4, .*{RIGHT}"):
        collect(on_nfs)
