"""Which process is meant, so that a reused process id is never taken for the one that was recorded.

A process id means something only on one boot of one machine and in one process namespace. Whether a process
elsewhere is alive cannot be asked here: that is left to heartbeats (lease.py).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process, past or present."""

    host: str
    """The machine's name, for people; a Slurm node's name where there is one."""
    boot: str
    """Boot id and process namespace; empty where the system tells neither."""
    pid: int
    start: str
    """Start time in clock ticks since boot, as the kernel spells it; empty where it does not tell."""

    @classmethod
    def current(cls) -> Process:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this id here, now."""
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        return cls(host, _boot(), pid, _state_and_start(pid)[1])

    @property
    def here(self) -> bool:
        """Whether its id can be looked up on this machine, on this boot, from this namespace."""
        if not self.boot:
            return self.host == socket.gethostname()
        return self.boot == _boot()

    def alive(self) -> bool:
        """Whether it still runs. Meaningful only when `here`."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        state, start = _state_and_start(self.pid)
        return state not in ("Z", "X") and start in ("", self.start)


def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str]:
    """State letter and start time from /proc/<pid>/stat (proc(5), fields 3 and 22); empty when it cannot be read."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return after_name[0], after_name[19]
    except (OSError, IndexError):
        return "", ""
