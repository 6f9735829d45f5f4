"""Checkpoints that survive a crash at any point, and are loaded without executing code.

Crash rule: the log is synced first; the checkpoint is written aside, knowing the (attempt, seq) of the last
line whose effect it holds; it is synced; it is renamed; only then is it told in the log. The last two are
kept, and a damaged one is refused in favour of the one before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KEPT: Final = 2


@dataclass(frozen=True)
class Checkpoint:
    """A run between two updates."""

    name: str
    attempt: int
    seq: int
    """Last line of that attempt's log whose effect it holds; -1 when there is none."""
    state: dict[str, Any]
    """JSON values: update, meter, clock, milestones passed, prompts drawn, the intervention's state."""
    tensors: dict[str, Any]
    """Weights and optimiser state by name."""


class DamagedCheckpoint(Exception):
    """The files are not what was written."""


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes `folder/<name>` as the crash rule says, then removes all but the last two."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    aside = folder / f".{checkpoint.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    try:
        save_file(tensors, aside / "tensors.safetensors")
    except SafetensorError as error:
        if refused := re.search(r"os error (\d+)", str(error)):  # what Python's own writing would raise
            number = int(refused[1])
            raise OSError(number, os.strerror(number), str(aside)) from None
        raise
    record = {
        "attempt": checkpoint.attempt,
        "seq": checkpoint.seq,
        "state": checkpoint.state,
        "tensors_sha256": _sha256(aside / "tensors.safetensors"),
    }
    text = json.dumps(record, sort_keys=True)
    (aside / "state.json").write_text(
        json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "record": text})
    )
    for path in (aside / "tensors.safetensors", aside / "state.json", aside):
        _sync(path)
    target = folder / checkpoint.name
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    _sync(folder)
    for old in _names(folder)[:-KEPT]:
        shutil.rmtree(folder / old)
    for left in folder.glob(".*"):  # written aside by a process that died
        shutil.rmtree(left, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint; DamagedCheckpoint when a sum does not match or a file is missing."""
    from safetensors.torch import load_file

    try:
        outer = json.loads((path / "state.json").read_text())
        text = outer["record"]
        if hashlib.sha256(text.encode()).hexdigest() != outer["sha256"]:
            raise DamagedCheckpoint(f"{path}: state.json does not match its checksum")
        record = json.loads(text)
        if _sha256(path / "tensors.safetensors") != record["tensors_sha256"]:
            raise DamagedCheckpoint(f"{path}: tensors.safetensors does not match its checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{path}: {type(error).__name__}: {error}") from None
    tensors = load_file(path / "tensors.safetensors")
    return Checkpoint(path.name, record["attempt"], record["seq"], record["state"], tensors)


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest sound checkpoint, or None, and what was wrong with newer ones."""
    damaged: list[str] = []
    for name in reversed(_names(folder)):
        try:
            return load(folder / name), damaged
        except DamagedCheckpoint as error:
            damaged.append(str(error))
    return None, damaged


def name_of(attempt: int, update: int) -> str:
    """Names sort by age: a later attempt's checkpoint is newer than any of an earlier one."""
    return f"{attempt:06d}-{update:010d}"


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
