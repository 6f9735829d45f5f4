"""Where everything lies under the runs folder. The only file that spells these paths.

runs/
  cells/<cell id>/cell.json                        the planned cell, content-addressed
  cells/<cell id>/lease.json                       who works on it now (exclusive creation)
  cells/<cell id>/attempts/<n>/events.jsonl        the record of one attempt
  cells/<cell id>/attempts/<n>/tokens/*.parquet    token-id sidecar of that attempt
  cells/<cell id>/checkpoints/                     the last two checkpoints
  cells/<cell id>/launch.json                      under which study, mode and lock it was last launched
  cells/<cell id>/jobs/<n>/                        one launch: job file, standard output, exit record
  studies/<study>/events.jsonl                     the study log: locks seen, sweeps, analyses
  studies/<study>/sweep.json                       who sweeps it now (exclusive creation)
  cache/<kind>/<hash>/                             warm-started policies
  store/isobudget.duckdb, store/snapshot.duckdb    the collector's database, the readers' snapshot
  store/collector.lock                             held by the one collector at work
  reports/<study>/                                 tables and figures
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.errors import InputError, brief

SAFE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"
"""Names of studies, arms, models: safe as files on every system, and one word in a claim."""


def safe_name(name: str) -> str:
    """`name` if it can be a file name without surprises, else an InputError: names never become paths unchecked."""
    if not re.fullmatch(SAFE_NAME, name):
        raise InputError(
            f"name {brief(name)!r} cannot be used for a folder",
            "use letters, digits, dot, dash, underscore; at most 80; starting with a letter or digit",
        )
    return name


class RunsFolder:
    """The paths of one runs folder. Makes nothing by itself, except through `create`."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root).absolute()

    @classmethod
    def default(cls) -> RunsFolder:
        """``$ISOBUDGET_RUNS``, or ``runs`` in the current folder."""
        return cls(os.environ.get("ISOBUDGET_RUNS") or "runs")

    def create(self) -> RunsFolder:
        """Makes the root; an InputError when it cannot be a folder."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InputError(
                "the runs folder is a file", "name a folder with --runs or ISOBUDGET_RUNS", str(self.root)
            ) from None
        except OSError as error:
            raise InputError(
                f"the runs folder cannot be made: {error.strerror}", "name a writable folder", str(self.root)
            ) from None
        return self

    @property
    def cells(self) -> Path:
        return self.root / "cells"

    def cell(self, cell_id: str) -> Path:
        return self.cells / safe_name(cell_id)

    def study(self, study: str) -> Path:
        return self.root / "studies" / safe_name(study)

    def study_log(self, study: str) -> Path:
        return self.study(study) / "events.jsonl"

    def sweep_lock(self, study: str) -> Path:
        return self.study(study) / "sweep.json"

    def cache(self, kind: str) -> Path:
        return self.root / "cache" / safe_name(kind)

    @property
    def database(self) -> Path:
        return self.root / "store" / "isobudget.duckdb"

    @property
    def snapshot(self) -> Path:
        return self.root / "store" / "snapshot.duckdb"

    @property
    def quarantine(self) -> Path:
        """The logs that the collector does not trust, for those who never open the store."""
        return self.root / "store" / "quarantine.json"

    @property
    def collector_lock(self) -> Path:
        return self.root / "store" / "collector.lock"

    def attempt_logs(self) -> list[Path]:
        """The events of every attempt of every cell, sorted."""
        return sorted(self.cells.glob("*/attempts/[0-9]*/events.jsonl"))

    def study_logs(self) -> list[Path]:
        """The log of every study, sorted."""
        return sorted((self.root / "studies").glob("*/events.jsonl"))

    def report(self, study: str) -> Path:
        return self.root / "reports" / safe_name(study)


class CellFolder:
    """The paths of one cell."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path).absolute()

    @property
    def spec(self) -> Path:
        return self.path / "cell.json"

    @property
    def lease(self) -> Path:
        return self.path / "lease.json"

    @property
    def launch(self) -> Path:
        return self.path / "launch.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    def attempt(self, number: int) -> Path:
        return self.attempts / str(int(number))

    def events(self, number: int) -> Path:
        return self.attempt(number) / "events.jsonl"

    def tokens(self, number: int) -> Path:
        return self.attempt(number) / "tokens"

    def attempt_numbers(self) -> list[int]:
        """Attempts on disk, ascending; empty when the cell was never started."""
        if not self.attempts.is_dir():
            return []
        return sorted(int(entry.name) for entry in self.attempts.iterdir() if re.fullmatch("[0-9]+", entry.name))
