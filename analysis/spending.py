"""What each arm spent, by kind of work: algorithmic (the path that led to the weights) and spent (all attempts).

Kinds stay apart. Work lost in a crash of the run's own fault (`lost_self`) stays algorithmic; lost by the
infrastructure's it is `retraced`, the difference of the two totals (docs/method.md, section 2). Totals are over all
runs of an arm, whole runs, whatever budget a table reads them at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.snapshot import Snapshot
from analysis.tables import HOURS_NOTE, Table, count


@dataclass(frozen=True)
class Spending:
    """Of all runs of one arm. `algorithmic`, `lost_self`, `spent` and `retraced` are of the charged kinds."""

    runs: int
    tokens_by_kind: dict[str, int]
    """Generated tokens on the surviving path, charged or not; the kinds are all that any arm of the study has."""
    algorithmic_tokens: int
    lost_self_tokens: int
    """Of the algorithmic ones."""
    retraced_tokens: int
    """Lost by the infrastructure's fault."""
    spent_tokens: int
    crashes_self: int
    """Attempts that ended by the run's own fault: an error, no memory left."""
    crashes_infrastructure: int
    """Attempts that were killed."""
    algorithmic_flops: float
    spent_flops: float
    algorithmic_gpu_hours: float
    spent_gpu_hours: float
    algorithmic_cpu_hours: float
    spent_cpu_hours: float
    """Of training phases, like all hours here: a killed attempt's up to its last sign of life."""
    unseen_seconds: float
    """Killed attempts may have lived so much longer, all together, in wall time."""
    continuations: int = 0
    """Monte Carlo continuations sampled; those of states with equal prefixes once, where the arm merges them."""
    continuations_unmerged: int = 0
    """What they would have been without merging."""

    def flat(self) -> dict[str, Any]:
        """One level of names, for CSV."""
        values = asdict(self)
        by_kind = {f"tokens_{kind}": tokens for kind, tokens in values.pop("tokens_by_kind").items()}
        return {"runs": values.pop("runs"), **by_kind, **values}


def spending_by_arm(snapshot: Snapshot) -> dict[tuple[str | None, str], Spending]:
    """Keys (model, arm), and (None, arm) over all models. Every planned arm has an entry."""
    cells = snapshot.planned[["cell", "model", "arm"]].drop_duplicates("cell")
    ledger = snapshot.ledger.assign(algorithmic=snapshot.algorithmic).merge(cells, on="cell")
    started = set(snapshot.runs["cell"])
    with_tokens = ledger.loc[ledger["generated_tokens"] > 0, "kind"]
    attempts = _with_unseen(snapshot.attempts)
    kinds = sorted(set(with_tokens), key=lambda kind: (kind not in snapshot.study.charged, kind))
    found: dict[tuple[str | None, str], Spending] = {}
    for arm in snapshot.arm_names:
        for model in (None, *snapshot.models):
            rows, mine = ledger[ledger["arm"] == arm], cells[cells["arm"] == arm]
            if model is not None:
                rows, mine = rows[rows["model"] == model], mine[mine["model"] == model]
            surviving, lost_self = rows["surviving"].eq(True), rows["lost"].eq("self")
            charged = rows["kind"].isin(snapshot.study.charged)
            by_kind = rows[surviving].groupby("kind")["generated_tokens"].sum()
            algorithmic, spent = rows[rows["algorithmic"] & charged], rows[charged]
            told = snapshot.notes[snapshot.notes["cell"].isin(mine["cell"])].groupby("note")["total"].sum()
            tokens, all_tokens = int(algorithmic["generated_tokens"].sum()), int(spent["generated_tokens"].sum())
            lives = attempts[attempts["cell"].isin(mine["cell"])]
            runs = snapshot.runs[snapshot.runs["cell"].isin(mine["cell"])]
            found[model, arm] = Spending(
                runs=sum(cell in started for cell in mine["cell"]),
                tokens_by_kind={kind: int(by_kind.get(kind, 0)) for kind in kinds},
                algorithmic_tokens=tokens,
                lost_self_tokens=int(rows.loc[lost_self & charged, "generated_tokens"].sum()),
                retraced_tokens=all_tokens - tokens,
                spent_tokens=all_tokens,
                crashes_self=int(lives["crash"].eq("self").sum()),
                crashes_infrastructure=int(lives["crash"].eq("infrastructure").sum()),
                algorithmic_flops=float(algorithmic["flops"].sum()),
                spent_flops=float(spent["flops"].sum()),
                algorithmic_gpu_hours=float(runs["gpu_hours"].sum()),
                spent_gpu_hours=float(lives["gpu_hours"].sum()),
                algorithmic_cpu_hours=float(runs["cpu_hours"].sum()),
                spent_cpu_hours=float(lives["cpu_hours"].sum()),
                unseen_seconds=float(lives["unseen_seconds"].sum()),
                continuations=int(told.get("continuations", 0)),
                continuations_unmerged=int(told.get("continuations_unmerged", 0)),
            )
    return found


def _with_unseen(attempts: pd.DataFrame) -> pd.DataFrame:
    """With `unseen_seconds`: how long an attempt that was killed may have lived after its last line.

    Until the next heartbeat would have been due, or until its successor started, whichever was earlier.
    """
    ordered = attempts.sort_values(["cell", "attempt"])
    silent = ordered.groupby("cell")["started"].shift(-1) - ordered["last_seen"]
    killed = ordered["status"].isna() & silent.notna()
    until = silent.clip(lower=0, upper=ordered["heartbeat_seconds"].fillna(np.inf))
    return ordered.assign(unseen_seconds=until.where(killed, 0.0))


def spending_table(spent: Mapping[tuple[str, str], Spending]) -> list[Table]:
    """What the arms spent, one table per model; keys (model, arm)."""
    tables = []
    for model in dict.fromkeys(model for model, _ in spent):
        arms = {arm: spending for (name, arm), spending in spent.items() if name == model}
        kinds = list(next(iter(arms.values())).tokens_by_kind)
        on_gpus = any(spending.spent_gpu_hours for spending in arms.values())
        lost_self = any(spending.lost_self_tokens for spending in arms.values())
        rows = tuple(
            (
                arm,
                str(spending.runs),
                *(count(spending.tokens_by_kind[kind]) for kind in kinds),
                *([count(spending.lost_self_tokens)] if lost_self else []),
                count(spending.algorithmic_tokens),
                count(spending.retraced_tokens),
                count(spending.spent_tokens),
                f"{spending.algorithmic_flops:.3g}",
                *([f"{spending.spent_gpu_hours:.3g}"] if on_gpus else []),
                f"{spending.spent_cpu_hours:.3g}",
            )
            for arm, spending in arms.items()
        )
        hours = ("GPU-hours", "CPU-hours") if on_gpus else ("CPU-hours",)
        lost = ("lost by own fault",) if lost_self else ()
        columns = ("arm", "runs", *kinds, *lost, "algorithmic", "retraced", "spent", "FLOPs", *hours)
        note = (
            "Generated tokens by kind, whole runs; algorithmic and spent hold the charged kinds only. FLOPs are "
            "algorithmic, hours spent."
        )
        merged = [
            f"{arm}: {spending.continuations:,} continuations; {spending.continuations_unmerged:,} if equal prefixes "
            "did not share theirs."
            for arm, spending in arms.items()
            if spending.continuations_unmerged
        ]
        notes = (note, *merged, *_crash_notes(arms), HOURS_NOTE)
        tables.append(Table(f"{model}: what the runs spent", columns, rows, notes))
    return tables


def _crash_notes(arms: Mapping[str, Spending]) -> list[str]:
    """Of the arms that had any: crashes by whose fault, what they cost, and what is not known."""
    notes = []
    for arm, spending in arms.items():
        if spending.crashes_self:
            notes.append(
                f"{arm}: {_times(spending.crashes_self)} of its own fault; the {spending.lost_self_tokens:,} tokens "
                "lost with it stay algorithmic."
            )
        if spending.crashes_infrastructure:
            unseen = f", give or take {spending.unseen_seconds:.0f} s unseen" if spending.unseen_seconds else ""
            notes.append(
                f"{arm}: {_times(spending.crashes_infrastructure)} by the infrastructure; "
                f"{spending.retraced_tokens:,} tokens retraced{unseen}."
            )
    return notes


def _times(crashes: int) -> str:
    return "1 crash" if crashes == 1 else f"{crashes} crashes"
