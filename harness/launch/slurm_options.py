"""What a sweep on Slurm is told: where jobs go, how long they may take. Nothing of it reaches a shell unchecked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.errors import InputError


@dataclass(frozen=True)
class SlurmOptions:
    """Where and how jobs are submitted. None of it changes a result."""

    partition: str | None = None
    account: str | None = None
    time_limit: str | None = None
    """Wall limit of one job, MINUTES, H:M:S or D-H:M:S; a longer cell goes on in another. None: the partition's."""
    max_parallel: int | None = None
    """Cells that run at once."""
    sbatch: dict[str, str] = field(default_factory=dict)
    """Further options of sbatch, by their long names."""

    def __post_init__(self) -> None:
        for what, value in {"--partition": self.partition, "--account": self.account}.items():
            if value is not None and not re.fullmatch(r"[\w.,-]+", value):
                raise InputError(f"found {value!r}", "a name of letters, digits, and . , - _", what)
        if self.time_limit is not None:
            minutes_of(self.time_limit)
        for name, value in self.sbatch.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or not re.fullmatch(r"[\w.,:/=%@+\[\]-]*", value):
                right = "KEY=VALUE, a long option of sbatch and a value without spaces, e.g. mem=16G"
                raise InputError(f"found {name}={value}", right, "--sbatch")

    @property
    def time_minutes(self) -> int | None:
        """The wall limit in whole minutes, Slurm's unit."""
        return None if self.time_limit is None else minutes_of(self.time_limit)


def minutes_of(text: str) -> int:
    """``90``, ``1:30:00`` and ``2-00:00:00`` in minutes, rounded up; an InputError for what is none of them."""
    found = re.fullmatch(r"(\d+)|(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if found is None or not re.search(r"[1-9]", text):
        raise InputError(f"found {text!r}", "minutes, H:MM:SS or D-HH:MM:SS, above nothing", "--time-limit")
    minutes, days, hours, left, seconds = (int(part or 0) for part in found.groups())
    return minutes + (days * 24 + hours) * 60 + left + math.ceil(seconds / 60)


def sbatch_options(given: Sequence[str]) -> dict[str, str]:
    """``["mem=16G", "exclusive="]`` by name; an InputError for what has no ``=``."""
    for text in given:
        if "=" not in text:
            raise InputError(f"found {text!r}", "KEY=VALUE, e.g. mem=16G", "--sbatch")
    return {name: value for name, _, value in (text.partition("=") for text in given)}
