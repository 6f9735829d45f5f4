"""The collector's database: one holder at a time, and nothing that only it knows.

A database that is damaged or of another layout is moved aside and begun anew; filling it again from the
events is the caller's. Readers never come here, they open the snapshot.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import duckdb

from harness.errors import InputError
from harness.events.schema import SCHEMA
from harness.layout import RunsFolder
from harness.store.file_system import network_file_system
from harness.store.tables import DERIVED, EVENTS

Say = Callable[[str], None]

LAYOUT: Final = hashlib.sha256(f"{SCHEMA}\n{EVENTS}\n{DERIVED}".encode()).hexdigest()[:16]
"""Changes with the tables, published ones included, and with the events' schema: then the store is rebuilt from the
events, not migrated."""

_DAMAGE: Final = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
_NO_ROOM: Final = ("Could not write", "No space left", "File too large", "Permission denied")
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_LOCAL_FOLDER: Final = "make it a link to a folder on a local disk; cells and their events may stay where they are"


class DamagedStore(Exception):
    """The database cannot be trusted; everything in it can be rebuilt."""


@contextmanager
def sole_collector(runs: RunsFolder, wait: bool, say: Say) -> Iterator[bool]:
    """Holds the store against other collectors. False, at once, if another one holds it and `wait` is false."""
    lock = runs.create().collector_lock
    try:
        lock.parent.mkdir(exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            f"the store's folder cannot be used: {error.strerror}", "a writable folder", str(lock.parent)
        ) from None
    if not runs.database.exists() and (kind := network_file_system(lock.parent)):
        say(f"{lock.parent} is on a network file system ({kind}): if the store fails there, {_LOCAL_FOLDER}")
    try:
        yield _locked(descriptor, wait, say, runs)
    finally:
        os.close(descriptor)


def _without_locks(runs: RunsFolder, said: str) -> InputError:
    kind = network_file_system(runs.database.parent)
    where = f"its file system, {kind}," if kind else "its file system"
    return InputError(f"the store cannot be locked: {where} says {said!r}", _LOCAL_FOLDER, str(runs.database.parent))


def _locked(descriptor: int, wait: bool, say: Say, runs: RunsFolder) -> bool:
    try:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise _without_locks(runs, os.strerror(error.errno)) from None
    say("another collector is at work on this runs folder; " + ("waiting for it" if wait else "left to it"))
    if wait:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return wait


@contextmanager
def open_database(runs: RunsFolder) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database with its tables of events. `DamagedStore` where it, or its write-ahead log, is broken."""
    with _told(runs), closing(duckdb.connect(runs.database)) as store:
        tables = {row[0] for row in store.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        if not tables:
            store.execute(f"BEGIN; {EVENTS} INSERT INTO built_by VALUES ('{LAYOUT}'); COMMIT")
        elif "built_by" not in tables or store.execute("SELECT layout FROM built_by").fetchall() != [(LAYOUT,)]:
            raise DamagedStore("it was built by another version of isobudget")
        yield store


@contextmanager
def _told(runs: RunsFolder) -> Iterator[None]:
    """Tells damage from a database that is in use elsewhere or that the disk has no room for."""
    try:
        yield
    except duckdb.Error as error:
        said = " ".join(str(error).split())
        if "Could not set lock" in said and any(os.strerror(number) in said for number in _NO_LOCKS):
            raise _without_locks(runs, said) from None
        if "Could not set lock" in said:
            raise InputError(
                f"the store is open in another program ({said})", "close it there", str(runs.database)
            ) from None
        if any(words in said for words in _NO_ROOM):
            raise InputError(
                f"the store cannot be written ({said})", "room on the disk", str(runs.database)
            ) from None
        # duckdb raises its bare base class for a block or a log entry whose checksum does not match
        if type(error) is duckdb.Error or isinstance(error, _DAMAGE):
            raise DamagedStore(said) from error
        raise


def set_aside(runs: RunsFolder) -> None:
    """Moves the database and its write-ahead log to `broken.duckdb` beside it, over an earlier one."""
    for suffix in ("", ".wal"):
        found = runs.database.with_name(runs.database.name + suffix)
        if found.exists():
            found.replace(runs.database.with_name("broken.duckdb" + suffix))
