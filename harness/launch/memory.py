"""Whether memory ran out: what the control group counts, since a killed process cannot tell."""

from __future__ import annotations

from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def out_of_memory_kills(groups: Path = _GROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Processes of this one's control group that the kernel killed for want of memory; 0 where none counts."""
    try:
        mine = next(line for line in membership.read_text().splitlines() if line.startswith("0::"))
        told = (groups / mine.removeprefix("0::").lstrip("/") / "memory.events").read_text()
        return next(int(line.split()[1]) for line in told.splitlines() if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
