"""Folders that are made once, under a hash of what determines their content, however many processes ask at once.

A folder appears whole or not at all: it is filled aside, synced and renamed. Whoever asks while it is being made
waits; what a killed process left aside is removed by the next one. What goes into it is the caller's.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.study.canonical import canonical_hash


def cached(cache: Path, key: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
    """The folder in `cache` that `make` fills, made once per `key`.

    `key`: plain values that canonical JSON takes, everything that determines the content; written into the folder
    as key.json. What `make` raises is passed on, and nothing is kept.
    """
    name = canonical_hash(dict(key))[:16]
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back by the system however this process ends
        if not folder.is_dir():
            aside = cache / f"{name}.making"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            make(aside)
            (aside / "key.json").write_text(json.dumps(dict(key), indent=1, sort_keys=True) + "\n")
            for path in aside.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            aside.rename(folder)
    return folder
