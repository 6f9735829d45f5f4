"""A planned cell: what one run is made of, and the id that hashes exactly what determines its result.

Arm names, block, lock and launch settings are labels beside the content, so renaming an arm reruns nothing
and changing a learning rate reruns what it changes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from harness.compute.kinds import Device
from harness.errors import InputError
from harness.study.canonical import canonical_json

RESULT_VERSION: Final = 1
"""Raised by hand whenever a change of code can change a run's deterministic history."""


@dataclass(frozen=True)
class Milestone:
    """A point on a currency at which every run is evaluated."""

    currency: str
    amount: float
    """Tokens, hours, FLOPs or updates; an int for tokens and updates."""
    fraction: float | None = None
    """Of the declared budget; None on a declared grid."""


@dataclass(frozen=True)
class Cell:
    """One planned run: study x model x arm x seed."""

    study: str
    model: str
    arm: str
    seed: int
    block: int
    """Index of the block: all arms of one model and one seed."""
    position: int
    """Place in the block's random order of arms."""
    content: dict[str, Any]
    """What determines the result, with every default written out:

    result_version; model {preset} or {weights_hash}; task {name, pool, ...};
    intervention {name, parameters}; training (a TrainingSpec, the arm's overrides applied); seed; budgets
    {currency: amount}; milestones [{currency, amount, fraction}]; evaluate (an EvaluateSpec without `at` and
    grids); charged [kinds]; threads; device, unless it is the CPU;
    ceilings {currency: amount}, where the sweep is capped.
    """
    model_folder: str | None = None
    """Where weights with that hash lie; not part of the id."""

    @property
    def device(self) -> Device:
        """What the run computes on."""
        device: Device = self.content.get("device", "cpu")
        return device

    @property
    def gpus(self) -> int:
        """How many a run has to itself, and is charged for."""
        return int(self.device == "cuda")

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the content's canonical JSON."""
        return hashlib.sha256(canonical_json(self.content)).hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Writes cell.json, the worker's only input."""
        text = json.dumps({"id": self.id, **asdict(self)}, indent=1, sort_keys=True)
        aside = path.with_suffix(".tmp")
        aside.write_text(text + "\n")
        aside.replace(path)

    @classmethod
    def read(cls, path: Path) -> Cell:
        """Reads cell.json and checks it against its id."""
        try:
            found = json.loads(path.read_text())
            claimed = found.pop("id")
            cell = cls(**found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"not a cell file ({error})", "a cell.json written by `isobudget sweep`", str(path)
            ) from None
        if cell.id != claimed:
            raise InputError(
                f"the cell's content hashes to {cell.id}, its id says {claimed}", "plan the study again", str(path)
            )
        return cell
