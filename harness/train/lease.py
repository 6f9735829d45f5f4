"""The exclusive right to work on a cell (or to sweep a study): a file that names its holder.

At most one of any number of processes and threads wins a lease. A holder on this machine is asked for by
process id and start time, so that a dead one is known at once; one elsewhere by its heartbeat, the file's
modification time, and, under Slurm, by its job: dead is who is silent and whose job is gone. Waiting for a lease is
left to the caller.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from harness.layout import CellFolder
from harness.train.processes import Process
from harness.train.scheduler import own_job, queue

LeaseState = Literal["free", "live", "stale"]

STALE_AFTER_SECONDS: Final = 900.0
"""A holder on another machine whose last heartbeat is older than this counts as dead."""
HEARTBEAT_SECONDS: Final = 30.0
"""How often a holder renews."""
_BEING_WRITTEN_SECONDS: Final = 5.0
"""A lease without content is one just being written, or, when older, one whose writer died."""


@dataclass(frozen=True)
class Holder:
    """Who has a lease."""

    process: Process
    token: str
    """Random: tells two leases of one process apart."""
    acquired: float
    """Unix seconds."""
    job: str = ""
    """The Slurm job that it runs in; empty outside of any."""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.acquired))
        job = f" (Slurm job {self.job})" if self.job else ""
        return f"process {self.process.pid} on {self.process.host}{job} since {since}"


class LeaseHeld(Exception):
    """Somebody else has the lease. `holder` is None when it is just being written."""

    def __init__(self, path: Path, holder: Holder | None):
        self.holder = holder
        super().__init__(f"{path}: held by {holder or 'a process that has not signed yet'}")


class LeaseLost(Exception):
    """The lease was ours and is not any more: whoever took it took us for dead, so the work must stop."""


class Lease:
    """A lease that we hold. Made by `acquire` or `acquire_file`."""

    def __init__(self, path: Path, holder: Holder):
        self.path = path
        self.holder = holder

    @classmethod
    def acquire(cls, cell: CellFolder, stale_after_seconds: float = STALE_AFTER_SECONDS) -> Lease:
        """The cell's lease, free or taken over from a dead holder; `LeaseHeld` when its holder lives."""
        return cls.acquire_file(cell.lease, stale_after_seconds)

    @classmethod
    def acquire_file(cls, path: Path, stale_after_seconds: float = STALE_AFTER_SECONDS) -> Lease:
        """The same for a lease kept in any file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lease = cls(path, Holder(Process.current(), uuid.uuid4().hex, time.time(), own_job()))
        with _alone(path):
            found, holder = lease_state(path, stale_after_seconds)
            if found == "live":
                raise LeaseHeld(path, holder)
            if found == "stale":
                path.unlink()
            try:
                lease._create()
            except FileExistsError:  # only where the file system ignores locks
                raise LeaseHeld(path, lease_state(path, stale_after_seconds)[1]) from None
        return lease

    def renew(self) -> None:
        """A heartbeat; `LeaseLost` when somebody else holds the lease, or nobody does."""
        if not self._ours():
            raise LeaseLost(f"{self.path}: taken over by {_read(self.path) or 'nobody'}")
        os.utime(self.path)

    def release(self) -> None:
        """Gives the lease back if it is still ours; harmless otherwise."""
        with _alone(self.path):
            if self._ours():
                self.path.unlink()

    def _ours(self) -> bool:
        found = _read(self.path)
        return found is not None and found.token == self.holder.token

    def _create(self) -> None:
        holder = self.holder
        signed = {"token": holder.token, "acquired": holder.acquired, "job": holder.job}
        content = json.dumps({**asdict(holder.process), **signed}).encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            self.path.unlink()
            raise
        finally:
            os.close(descriptor)


def state(cell: CellFolder, stale_after_seconds: float = STALE_AFTER_SECONDS) -> LeaseState:
    """Whether a worker could take the cell now: free, live (somebody works on it), or stale (its holder is dead)."""
    return lease_state(cell.lease, stale_after_seconds)[0]


def lease_state(path: Path, stale_after_seconds: float = STALE_AFTER_SECONDS) -> tuple[LeaseState, Holder | None]:
    """State and holder of the lease in `path`; changes nothing, waits for nothing."""
    try:
        silent_seconds = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return "free", None
    holder = _read(path)
    if holder is None:
        return ("live" if silent_seconds < _BEING_WRITTEN_SECONDS else "stale"), None
    if holder.process.here:
        alive = holder.process.alive()
    else:
        alive = silent_seconds <= stale_after_seconds or bool(holder.job and queue().alive(holder.job))
    return ("live" if alive else "stale"), holder


def _read(path: Path) -> Holder | None:
    try:
        found = json.loads(path.read_bytes())
        token, acquired, job = found.pop("token"), found.pop("acquired"), found.pop("job", "")
        return Holder(Process(**found), token, acquired, job)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Only one process or thread at a time judges and changes a lease; a dead one's turn ends with it.

    Without it, one that judged a lease stale could remove the fresh lease of another that was quicker.
    """
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
