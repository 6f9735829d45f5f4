"""Derives the tables that readers see from the events, and publishes them as one file.

Which events survive is events/attempts.py's to say; the rest is extraction (derivations.py). The file
is written aside and renamed, so a reader sees the old one or the new one, and never waits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from harness.events.attempts import Attempt, fault_of, surviving_segments
from harness.store import derivations
from harness.store.tables import DERIVED

Rows = list[dict[str, Any]]

_SEGMENTS: Final = pa.schema([("cell", pa.string()), ("attempt", pa.int32()), ("survives_to", pa.int64())])
_FAULTS: Final = pa.schema(
    [("cell", pa.string()), ("attempt", pa.int32()), ("fault", pa.string()), ("crashed", pa.bool_())]
)
_BROKEN: Final = pa.schema([("cell", pa.string()), ("reason", pa.string())])


def build_snapshot(store: duckdb.DuckDBPyConnection, target: Path) -> None:
    """Writes the derived tables of what `store` holds to `target`, replacing it at once."""
    aside = target.with_suffix(".tmp")
    for leftover in (aside, aside.with_name(f"{aside.name}.wal")):
        leftover.unlink(missing_ok=True)
    home = store.execute("SELECT current_database()").fetchall()[0][0]
    escaped = str(aside).replace("'", "''")
    store.execute(f"ATTACH '{escaped}' AS snapshot")
    store.execute(f'USE snapshot; BEGIN; {DERIVED} COMMIT; USE "{home}"')
    store.execute("BEGIN")
    store.execute(derivations.ATTEMPTS)
    store.execute(derivations.QUARANTINE)
    segments, broken = _fold(store)
    store.register("faults", pa.Table.from_pylist(_faults(store), schema=_FAULTS))
    store.execute(derivations.CRASHES)
    store.register("segments", pa.Table.from_pylist(segments, schema=_SEGMENTS))
    store.register("broken", pa.Table.from_pylist(broken, schema=_BROKEN))
    store.execute(derivations.TOLD)
    for statement in (
        derivations.LEDGER,
        derivations.UPDATES,
        derivations.CHOICES,
        derivations.EVALUATIONS,
        derivations.RUNS,
    ):
        store.execute(statement)
    for table, rows in _studies(store).items():
        _insert(store, table, rows)
    store.execute("COMMIT")
    store.execute("DETACH snapshot")
    aside.replace(target)


def _fold(store: duckdb.DuckDBPyConnection) -> tuple[Rows, Rows]:
    """What survives of each attempt, and the cells whose path cannot be followed."""
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for cell, number, last_seq, origin, kept in store.execute(
        "SELECT cell, attempt, last_seq, resumed_attempt, resumed_seq FROM snapshot.attempts"
    ).fetchall():
        attempts[cell].append(Attempt(number, last_seq, None if origin is None else (origin, kept)))
    doubted: dict[str, dict[int, str]] = defaultdict(dict)
    for cell, number, path, reason in store.execute(
        "SELECT cell, attempt, path, quarantined FROM files WHERE log = 'attempt' AND quarantined IS NOT NULL"
    ).fetchall():
        doubted[cell][number] = f"{path} is quarantined: {reason}"
    segments: Rows = []
    broken: Rows = []
    for cell in sorted(attempts.keys() | doubted.keys()):
        known, quarantined = attempts[cell], doubted[cell]
        newest = max([attempt.number for attempt in known] + list(quarantined))
        try:
            if newest in quarantined:
                raise ValueError(quarantined[newest])
            path = surviving_segments(known)
        except ValueError as error:
            broken.append({"cell": cell, "reason": "; ".join(dict.fromkeys([str(error), *quarantined.values()]))})
            continue
        segments += [{"cell": cell, "attempt": part.attempt, "survives_to": part.last_seq} for part in path]
    return segments, broken


def _faults(store: duckdb.DuckDBPyConnection) -> Rows:
    """Whose fault the end of each attempt was, and whether it was a crash (events/attempts.py)."""
    endings = store.execute(derivations.ENDINGS).fetchall()
    newest: dict[str, int] = {}
    for cell, attempt, *_ in endings:
        newest[cell] = max(attempt, newest.get(cell, 0))
    out_of_memory = {(cell, attempt - 1) for cell, attempt, _, _, earlier in endings if earlier}
    return [
        {
            "cell": cell,
            "attempt": attempt,
            "fault": fault_of(status, told, (cell, attempt) in out_of_memory),
            "crashed": status == "failed" or (status is None and attempt != newest[cell]),
        }
        for cell, attempt, status, told, _ in endings
    ]


def _studies(store: duckdb.DuckDBPyConnection) -> dict[str, Rows]:
    """The rows of the tables that repeat each study's newest plan."""
    rows: dict[str, Rows] = {
        name: [] for name in ("studies", "budgets", "milestones", "arms", "claims", "planned_cells")
    }
    for study, payload in store.execute(derivations.SWEEPS).fetchall():
        sweep = json.loads(payload)
        plan = sweep["plan"]
        copied = {
            name: plan.get(name) for name in ("title", "question", "baseline", "alpha", "correction", "charged")
        }
        labels = {name: sweep.get(name) for name in ("mode", "mode_reason", "lock_hash", "code_commit", "code_dirty")}
        rows["studies"].append({"study": study, **copied, **labels, "plan": json.dumps(plan)})
        rows["budgets"] += [
            {"study": study, "currency": currency, "amount": float(amount)}
            for currency, amount in plan["budgets"].items()
        ]
        rows["milestones"] += [
            {
                "study": study,
                "currency": milestone["currency"],
                "amount": float(milestone["amount"]),
                "fraction": milestone.get("fraction"),
                "budgeted": milestone["budgeted"],
            }
            for milestone in plan["milestones"]
        ]
        rows["arms"] += [
            {
                "study": study,
                "arm": arm["arm"],
                "position": position,
                "intervention": arm["intervention"],
                "parameters": json.dumps(arm["parameters"]),
                "training": json.dumps(arm["training"]),
            }
            for position, arm in enumerate(plan["arms"])
        ]
        rows["claims"] += [
            {
                "study": study,
                "claim": claim["id"],
                "position": position,
                "statement": claim.get("statement"),
                "text": claim.get("text"),
                "form": json.dumps(claim),
            }
            for position, claim in enumerate(plan["claims"])
        ]
        rows["planned_cells"] += [
            {"study": study, **{name: cell[name] for name in ("cell", "model", "arm", "seed", "block", "position")}}
            for cell in plan["cells"]
        ]
    return rows


def _insert(store: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    if rows:
        store.register("frame", pa.Table.from_pylist(rows))
        store.execute(f"INSERT INTO snapshot.{table} BY NAME SELECT * FROM frame")
        store.unregister("frame")
