"""Whether memory ran out: what the control group counts, since a killed process cannot tell.

Both versions of control groups are read; where there is neither, nothing is known, and a kill is a kill.
"""

from __future__ import annotations

from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def out_of_memory_kills(groups: Path = _GROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Processes of this one's control group that the kernel killed for want of memory; 0 where none counts.

    `membership`: lines `number:controllers:path` (cgroups(7)); of version 2 number 0, without controllers.
    """
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines() if line.count(":") > 1]
    except OSError:
        return 0
    return sum(
        _count(groups / part / path.lstrip("/") / file)
        for number, controllers, path in lines
        for part, file, counts in (
            ("", "memory.events", number == "0" and not controllers),
            ("memory", "memory.oom_control", "memory" in controllers.split(",")),
        )
        if counts
    )


def _count(file: Path) -> int:
    try:
        return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
