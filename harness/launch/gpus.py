"""Which GPU a cell gets: one to itself, whoever else of this user runs cells on this machine.

A GPU is held by a lock on a file, kept by the cell's supervisor and inherited by its worker: when both are dead it is
free again, whatever became of the sweep that launched them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

_NVIDIA_SMI_SECONDS: Final = 30
_LOOK_SECONDS: Final = 0.5
_GPU_NAME: Final = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else what nvidia-smi lists; may be none.

    As CUDA reads that variable: what comes after a name that is none, such as -1, does not count.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = (name.strip() for name in named.split(","))
        return list(dict.fromkeys(takewhile(_GPU_NAME.fullmatch, names)))
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], check=False, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"^GPU (\d+):", listed.stdout, re.MULTILINE)


@contextmanager
def one_of(gpus: Sequence[str], give_up: Callable[[], bool]) -> Iterator[tuple[str, int] | None]:
    """Holds the first of `gpus` that is free, waiting for one; yields its name and the lock's file descriptor.

    None when `give_up` said so first.
    """
    while True:
        for gpu in gpus:
            descriptor = os.open(_lock_file(gpu), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            try:
                yield gpu, descriptor
            finally:
                os.close(descriptor)  # not unlocked: a worker that lives on holds it still
            return
        if give_up():
            yield None
            return
        time.sleep(_LOOK_SECONDS)


def _lock_file(gpu: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"isobudget-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(gpu.encode()).hexdigest()[:16]}.lock"
