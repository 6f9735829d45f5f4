"""Which file system a folder lies on, as far as the store cares: databases and network file systems do not get along.

Event logs, leases and the snapshot are whole files written once or appended to, and do well on either.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mounts")
_NETWORK: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|gpfs|beegfs\w*|glusterfs|fuse\.(?!overlayfs)\w+"
)


def network_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """The type (`nfs4`, `lustre`, ...) of the network file system that holds `folder`; None for a local one.

    `mounts` lists what is mounted, as Linux does; where there is no such list, nothing is known, and None is said.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    where = Path(os.path.realpath(folder))
    holds = {Path(_unescaped(place)): kind for _, place, kind, *_ in (line.split(" ") for line in lines if line)}
    mounted = next((holds[place] for place in (where, *where.parents) if place in holds), "")
    return mounted if _NETWORK.fullmatch(mounted) else None


def _unescaped(place: str) -> str:
    """The kernel writes blanks in a path as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)
