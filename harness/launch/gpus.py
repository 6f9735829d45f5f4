"""Which GPU a cell gets: one to itself, whoever else of this user runs cells on this machine.

A GPU is held by a lock on a file, kept by the cell's supervisor and inherited by its worker: when both are dead it is
free again, whatever became of the sweep that launched them. The lock is by the GPU's own id where nvidia-smi tells
it: number 0 of two containers or Slurm jobs may be two GPUs, and a number and an id may be one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    return list(_ids_by_number())


def _ids_by_number() -> dict[str, str]:
    """What nvidia-smi lists; empty where it cannot be asked."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], check=False, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return {}
    return dict(re.findall(r"^GPU (\d+): .*\(UUID: (GPU-[\w-]+)\)", listed.stdout, re.MULTILINE))


@contextmanager
def one_of(gpus: Sequence[str], give_up: Callable[[], bool]) -> Iterator[tuple[str, int] | None]:
    """Holds the first of `gpus` that is free, waiting for one; yields its name and the lock's file descriptor.

    None when `give_up` said so first.
    """
    ids = _ids_by_number()
    while True:
        for gpu in gpus:
            descriptor = os.open(_lock_file(_id_of(gpu, ids)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _id_of(gpu: str, ids: Mapping[str, str]) -> str:
    """Of a GPU named by number, by id or by the beginning of one; its name where nobody knows more."""
    return ids.get(gpu) or next((found for found in ids.values() if found.startswith(gpu)), gpu)


def _lock_file(gpu_id: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"isobudget-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(gpu_id.encode()).hexdigest()[:16]}.lock"
