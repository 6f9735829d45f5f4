"""Appends events to a log: one write per line, numbered, summed, never half a line that another could glue to.

Threads share one writer; processes may share a study's log, each with its own writer. What was appended
survives the process at once, and the machine after `sync`.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harness.events.line import encode, plain
from harness.events.reader import parse_events
from harness.events.schema import ATTEMPT_KINDS, SCHEMA, STUDY_KINDS, EventLogError

__all__ = ["EventLogError", "EventWriter"]

_KINDS: Final = frozenset(ATTEMPT_KINDS + STUDY_KINDS)


class EventWriter:
    """The writer of one log. An `EventLogError` tells of every trouble with the file."""

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, *, exclusive: bool = False
    ):
        """Opens or creates `path` and its folder. `exclusive`: the log must be new, as an attempt's is.

        An existing log is read and checked; it is continued after its last whole line, a torn tail being cut.
        """
        self.path = Path(path)
        self._clock = clock
        self._host = socket.gethostname()
        self._mutex = threading.Lock()
        self._whole_bytes = 0
        self._next_seq = 0
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
        with self._told("opened"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o644)
        try:
            with self._alone():
                self._catch_up()
            _sync_folder(self.path.parent)
        except BaseException:
            self.close()
            raise

    def append(self, kind: str, payload: Mapping[str, Any], measured: Mapping[str, Any] | None = None) -> int:
        """Writes one line and returns its sequence number. After an error the log is as it was before."""
        if kind not in _KINDS:
            raise ValueError(f"no event of kind {kind!r} in the schema")
        fields = {
            "schema": SCHEMA,
            "kind": kind,
            "payload": plain(payload),
            "measured": plain(measured or {}),
        }
        with self._mutex, self._alone():
            self._catch_up()
            envelope = {"time": self._clock(), "host": self._host, "pid": os.getpid()}
            self._write(encode({**fields, "seq": self._next_seq, "envelope": envelope}))
            self._next_seq += 1
            return self._next_seq - 1

    def sync(self) -> int:
        """Returns when everything appended is on the disk: the last sequence number there, -1 of an empty log."""
        with self._mutex, self._told("synced"):
            os.fsync(self._descriptor())
            return self._next_seq - 1

    @property
    def last_seq(self) -> int:
        """Of the last line known here; -1 of an empty log."""
        return self._next_seq - 1

    def close(self) -> None:
        """Closes the file; further appends are refused. Harmless when closed already."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        try:
            with self._told("written"):
                written = os.write(self._fd, line)
            if written < len(line):
                raise EventLogError("the log cannot be written: no room for a whole line", self.path)
        except EventLogError:
            with self._told("cut back to its last whole line"):
                os.ftruncate(self._fd, self._whole_bytes)
            raise
        self._whole_bytes += len(line)

    def _catch_up(self) -> None:
        """Reads what other processes appended since, and cuts a tail that a dead one left torn."""
        with self._told("read"):
            size = os.fstat(self._fd).st_size
            data = (
                os.pread(self._fd, size - self._whole_bytes, self._whole_bytes) if size > self._whole_bytes else b""
            )
        if size < self._whole_bytes:
            raise EventLogError(f"the log shrank from {self._whole_bytes} to {size} bytes", self.path)
        log = parse_events(data, self.path, self._whole_bytes, self._next_seq)
        if log.torn_tail:
            with self._told("cut back to its last whole line"):
                os.ftruncate(self._fd, log.whole_bytes)
        self._whole_bytes = log.whole_bytes
        self._next_seq += len(log.events)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the file against other processes; a dead one's hold ends with it."""
        with self._told("locked"):
            fcntl.flock(self._descriptor(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _descriptor(self) -> int:
        if self._fd < 0:
            raise EventLogError("the log is closed", self.path)
        return self._fd

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EventLogError(f"the log cannot be {what}: {error.strerror}", self.path) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
