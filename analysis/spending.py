"""What each arm spent, by kind of work: algorithmic (the path that led to the weights) and spent (all attempts).

Kinds stay apart; work redone after a crash is `retraced`, the difference of the two totals. Totals are over all
runs of an arm, whole runs, whatever budget a table reads them at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.snapshot import Snapshot
from analysis.tables import HOURS_NOTE, Table, count


@dataclass(frozen=True)
class Spending:
    """Of all runs of one arm. `algorithmic`, `spent` and `retraced` are of the charged kinds."""

    runs: int
    tokens_by_kind: dict[str, int]
    """Generated tokens on the surviving path, charged or not; the kinds are all that any arm of the study has."""
    algorithmic_tokens: int
    spent_tokens: int
    retraced_tokens: int
    algorithmic_flops: float
    spent_flops: float
    spent_cpu_hours: float
    continuations: int = 0
    """Monte Carlo continuations sampled; those of states with equal prefixes once, where the arm merges them."""
    continuations_unmerged: int = 0
    """What they would have been without merging."""

    def flat(self) -> dict[str, Any]:
        """One level of names, for CSV."""
        return {
            "runs": self.runs,
            **{f"tokens_{kind}": tokens for kind, tokens in self.tokens_by_kind.items()},
            "algorithmic_tokens": self.algorithmic_tokens,
            "spent_tokens": self.spent_tokens,
            "retraced_tokens": self.retraced_tokens,
            "algorithmic_flops": self.algorithmic_flops,
            "spent_flops": self.spent_flops,
            "spent_cpu_hours": self.spent_cpu_hours,
            "continuations": self.continuations,
            "continuations_unmerged": self.continuations_unmerged,
        }


def spending_by_arm(snapshot: Snapshot) -> dict[tuple[str | None, str], Spending]:
    """Keys (model, arm), and (None, arm) over all models. Every planned arm has an entry."""
    cells = snapshot.planned[["cell", "model", "arm"]].drop_duplicates("cell")
    ledger = snapshot.ledger.merge(cells, on="cell")
    started = set(snapshot.runs["cell"])
    with_tokens = ledger.loc[ledger["generated_tokens"] > 0, "kind"]
    kinds = sorted(set(with_tokens), key=lambda kind: (kind not in snapshot.study.charged, kind))
    found: dict[tuple[str | None, str], Spending] = {}
    for arm in snapshot.arm_names:
        for model in (None, *snapshot.models):
            rows, mine = ledger[ledger["arm"] == arm], cells[cells["arm"] == arm]
            if model is not None:
                rows, mine = rows[rows["model"] == model], mine[mine["model"] == model]
            surviving = rows["surviving"].eq(True)
            charged = rows["kind"].isin(snapshot.study.charged)
            by_kind = rows[surviving].groupby("kind")["generated_tokens"].sum()
            algorithmic, spent = rows[surviving & charged], rows[charged]
            told = snapshot.notes[snapshot.notes["cell"].isin(mine["cell"])].groupby("note")["total"].sum()
            tokens, all_tokens = int(algorithmic["generated_tokens"].sum()), int(spent["generated_tokens"].sum())
            found[model, arm] = Spending(
                runs=sum(cell in started for cell in mine["cell"]),
                tokens_by_kind={kind: int(by_kind.get(kind, 0)) for kind in kinds},
                algorithmic_tokens=tokens,
                spent_tokens=all_tokens,
                retraced_tokens=all_tokens - tokens,
                algorithmic_flops=float(algorithmic["flops"].sum()),
                spent_flops=float(spent["flops"].sum()),
                spent_cpu_hours=float(spent["cpu_seconds"].sum()) / 3600,
                continuations=int(told.get("continuations", 0)),
                continuations_unmerged=int(told.get("continuations_unmerged", 0)),
            )
    return found


def spending_table(spent: Mapping[tuple[str, str], Spending]) -> list[Table]:
    """What the arms spent, one table per model; keys (model, arm)."""
    tables = []
    for model in dict.fromkeys(model for model, _ in spent):
        arms = {arm: spending for (name, arm), spending in spent.items() if name == model}
        kinds = list(next(iter(arms.values())).tokens_by_kind)
        rows = tuple(
            (
                arm,
                str(spending.runs),
                *(count(spending.tokens_by_kind[kind]) for kind in kinds),
                count(spending.algorithmic_tokens),
                count(spending.retraced_tokens),
                count(spending.spent_tokens),
                f"{spending.algorithmic_flops:.3g}",
                f"{spending.spent_cpu_hours:.3g}",
            )
            for arm, spending in arms.items()
        )
        columns = ("arm", "runs", *kinds, "algorithmic", "retraced", "spent", "FLOPs", "CPU-hours")
        note = "Generated tokens by kind, whole runs; algorithmic and spent hold the charged kinds only."
        merged = [
            f"{arm}: {spending.continuations:,} continuations; {spending.continuations_unmerged:,} if equal prefixes "
            "did not share theirs."
            for arm, spending in arms.items()
            if spending.continuations_unmerged
        ]
        tables.append(Table(f"{model}: what the runs spent", columns, rows, (note, *merged, HOURS_NOTE)))
    return tables
