"""One study of a published snapshot, as data frames, and the label that its tables must carry.

Promise: the file is opened read-only and closed again; what is missing is an `AnalysisError`, never an empty
table. The table and column names are the ones that harness/store/tables.py documents; any DuckDB file with those
tables can be judged. Reading runs at budgets is left to `at_budget`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd

from analysis.errors import AnalysisError

_NOTES: Final = """
SELECT cell, told.key AS note, sum(CAST(told.value AS DOUBLE)) AS total
FROM updates, json_each(updates.notes) AS told
WHERE surviving AND cell IN (SELECT cell FROM planned_cells WHERE study = $study)
GROUP BY ALL ORDER BY ALL
"""


_UPDATES: Final = """
SELECT cell, update, clipped_share, zero_variance_share, verifier_errors, entropy, sampler_mismatch FROM updates
WHERE surviving AND cell IN (SELECT cell FROM planned_cells WHERE study = $study)
ORDER BY cell, update
"""


@dataclass(frozen=True)
class Label:
    """Under what promise a study's numbers were made. Shown in every table."""

    mode: str
    """confirmatory | exploratory | reproduction | replication."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.mode}: {self.reason}" if self.reason else self.mode


@dataclass(frozen=True)
class Study:
    """The preregistration, as far as judging needs it."""

    study: str
    title: str
    question: str
    baseline: str
    alpha: float
    correction: str
    mode: str
    mode_reason: str
    lock_hash: str | None
    code_commit: str | None
    charged: tuple[str, ...]
    """Kinds of work that budgets count."""
    plan: dict[str, Any]

    @property
    def diverged_accuracy(self) -> float:
        """What a milestone scores once weights are not finite."""
        return float((self.plan.get("evaluate") or {}).get("diverged_accuracy", 0.0))


@dataclass(frozen=True)
class Snapshot:
    """The frames of one study; columns as in the snapshot's tables."""

    study: Study
    planned: pd.DataFrame
    """cell, model, arm, seed, block, position: one row per planned cell."""
    arms: pd.DataFrame
    """arm, position, intervention, parameters, training; in the study's order."""
    budgets: pd.DataFrame
    """currency, amount."""
    milestones: pd.DataFrame
    """currency, amount, fraction, budgeted."""
    claims: pd.DataFrame
    """claim, position, statement, text, form (parsed); in the study's order."""
    attempts: pd.DataFrame
    """cell, attempt, mode, device, status, ...: of planned cells, whichever study started them."""
    runs: pd.DataFrame
    """cell, status, reason, attempts, updates, diverged and the charges: one row per started cell."""
    evaluations: pd.DataFrame
    """One row per (evaluation, milestone), surviving path only."""
    ledger: pd.DataFrame
    """One row per ledger event and kind; lost work (`surviving` false) says by whose fault (`lost`)."""
    updates: pd.DataFrame
    """cell, update, and the signals of health that gates are held against: surviving updates."""
    notes: pd.DataFrame
    """cell, note, total: numbers that an arm told with its updates, summed over the surviving ones."""
    quarantined: int
    """Event logs of planned cells that could not be trusted, and were left out."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], study: str | None = None) -> Snapshot:
        """Reads one study from a snapshot file; without a name, the only one that it holds."""
        where = Path(path)
        if not where.is_file():
            raise AnalysisError(
                "there is no snapshot", "run `isobudget sweep` or `isobudget collect` first", str(where)
            )
        try:
            with duckdb.connect(str(where), read_only=True) as connection:
                return _read(connection, study, str(where))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise AnalysisError(
                f"not a snapshot that this version can read ({reason})",
                "rebuild it from the event logs with `isobudget collect`",
                str(where),
            ) from error

    @property
    def label(self) -> Label:
        """The study's mode; exploratory, with the count, when some runs were made under another one, or another lock.

        Runs under another lock (of the study as it was, or of another study) may have been seen before this one.
        """
        others = self.attempts[self.attempts["mode"] != self.study.mode]
        if others.empty and self.study.mode != "exploratory" and self.study.lock_hash is not None:
            another = self.attempts["lock_hash"] != self.study.lock_hash
            others = self.attempts[another].assign(mode="under another lock")
        if others.empty:
            codes = self.attempts["code_hash"].nunique()
            mixed = f"runs were made on {codes} versions of the code" if codes > 1 else ""
            return Label(self.study.mode, "; ".join(part for part in (self.study.mode_reason, mixed) if part))
        modes = " and ".join(sorted(set(others["mode"].fillna("unlabelled"))))
        how = modes if modes == "under another lock" else f"as {modes}"
        told = f"{others['cell'].nunique()} of {self.attempts['cell'].nunique()} runs were made {how}"
        if self.study.mode == "exploratory":
            return Label("exploratory", "; ".join(part for part in (self.study.mode_reason, told) if part))
        return Label("exploratory", f"{told}, the study itself is {self.study.mode}")

    @property
    def algorithmic(self) -> pd.Series[bool]:
        """Of each row of `ledger`: whether it is on the path to the weights, or was lost by the run's own fault."""
        return self.ledger["surviving"].eq(True) | self.ledger["lost"].eq("self")

    @property
    def charged_tokens(self) -> tuple[int, int]:
        """Generated tokens of the charged kinds, over all runs: *algorithmic*, and *spent* over all attempts."""
        charged = self.ledger["kind"].isin(self.study.charged)
        tokens = self.ledger["generated_tokens"]
        return int(tokens[charged & self.algorithmic].sum()), int(tokens[charged].sum())

    @property
    def models(self) -> list[str]:
        """Planned models, in the order of the plan's blocks."""
        return list(dict.fromkeys(self.planned["model"]))

    @property
    def arm_names(self) -> list[str]:
        """Planned arms, in the study's order."""
        return list(self.arms["arm"])


def _read(connection: duckdb.DuckDBPyConnection, name: str | None, where: str) -> Snapshot:
    known = [str(row[0]) for row in connection.execute("SELECT study FROM studies ORDER BY study").fetchall()]
    if name is None and len(known) == 1:
        name = known[0]
    if name not in known:
        what = "no study was named" if name is None else f"the snapshot has no study {name!r}"
        right = f"one of: {', '.join(known)}" if known else "run `isobudget sweep` first"
        raise AnalysisError(what, right, where)

    def frame(sql: str) -> pd.DataFrame:
        return connection.execute(sql, {"study": name}).df()

    def of_study(table: str, order: str) -> pd.DataFrame:
        return frame(f"SELECT * EXCLUDE (study) FROM {table} WHERE study = $study ORDER BY {order}")

    def of_cells(table: str, order: str, where: str = "true") -> pd.DataFrame:
        planned = "SELECT cell FROM planned_cells WHERE study = $study"
        return frame(f"SELECT * FROM {table} WHERE cell IN ({planned}) AND {where} ORDER BY {order}")

    header = frame("SELECT * FROM studies WHERE study = $study").iloc[0]
    claims = of_study("claims", "position")
    claims["form"] = [json.loads(form) for form in claims["form"]]
    return Snapshot(
        study=_study(header),
        planned=of_study("planned_cells", "block, position"),
        arms=of_study("arms", "position"),
        budgets=of_study("budgets", "currency"),
        milestones=of_study("milestones", "currency, amount"),
        claims=claims,
        attempts=of_cells("attempts", "cell, attempt"),
        runs=of_cells("runs", "cell"),
        evaluations=of_cells("evaluations", "cell, attempt, seq", "surviving"),
        ledger=of_cells("ledger", "cell, attempt, seq"),
        updates=frame(_UPDATES),
        notes=frame(_NOTES),
        quarantined=_quarantined(frame),
    )


def _quarantined(frame: Any) -> int:
    sql = """SELECT count(DISTINCT path) AS files FROM quarantine
             WHERE path LIKE 'cells/%' AND split_part(path, '/', 2) IN
                   (SELECT cell FROM planned_cells WHERE study = $study)"""
    return int(frame(sql)["files"].iloc[0])


def _study(header: pd.Series[Any]) -> Study:
    def text(key: str) -> str:
        return "" if pd.isna(header[key]) else str(header[key])

    plan = header["plan"]
    return Study(
        study=text("study"),
        title=text("title"),
        question=text("question"),
        baseline=text("baseline"),
        alpha=float(header["alpha"]),
        correction=text("correction"),
        mode=text("mode"),
        mode_reason=text("mode_reason"),
        lock_hash=text("lock_hash") or None,
        code_commit=text("code_commit") or None,
        charged=tuple(str(kind) for kind in header["charged"]),
        plan=json.loads(plan) if isinstance(plan, str) else {},
    )
