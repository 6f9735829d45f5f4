"""A synthetic study written straight into the snapshot's tables: the truth that a test plants must be recovered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from harness.store.tables import DERIVED

Readings = Mapping[tuple[str, float], "float | Mapping[str, Any]"]
"""(currency, amount) -> accuracy, or the columns of that evaluation."""

TOKENS, UPDATES = 1000.0, 50.0


@dataclass
class SyntheticStudy:
    arms: Sequence[str] = ("grpo", "mc")
    models: Sequence[str] = ("tiny",)
    seeds: Sequence[int] = tuple(range(101, 109))
    budgets: Mapping[str, float] = field(default_factory=lambda: {"generated_tokens": TOKENS, "updates": UPDATES})
    grids: Mapping[str, Sequence[float]] = field(default_factory=dict)
    claims: Sequence[dict[str, Any]] = ()
    mode: str = "confirmatory"
    mode_reason: str = ""
    alpha: float = 0.05
    correction: str = "holm"
    floor: float = 0.0
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the plan record."""
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def cell(self, model: str, arm: str, seed: int) -> str:
        return f"{self.models.index(model):02d}{self.arms.index(arm):02d}{seed:06d}"

    def add(self, table: str, *values: Any) -> None:
        self.rows.setdefault(table, []).append(values)

    def run(
        self,
        arm: str,
        seed: int,
        readings: Readings,
        model: str = "tiny",
        status: str = "completed",
        diverged: bool = False,
        mode: str | None = None,
        device: str = "cpu",
    ) -> str:
        """One run with its evaluations; a milestone that is not in `readings` was not evaluated."""
        cell = self.cell(model, arm, seed)
        self.add(
            "attempts",
            cell,
            0,
            "s",
            mode or self.mode,
            "",
            "hash",
            None,
            False,
            "h",
            device,
            1,
            None,
            None,
            0,
            1,
            9,
            status,
            "",
            0.0,
            0.1,
            30.0,
            None,
        )
        self.add("runs", cell, status, "", 1, 50, diverged, 1000, 1e9, 0.0, 0.1)
        for seq, ((currency, amount), given) in enumerate(readings.items()):
            found = {"accuracy": given} if isinstance(given, float) else dict(given)
            charge = {"updates": 50.0, "generated_tokens": 950.0, "flops": 1e9, "gpu_hours": 0.0, "cpu_hours": 0.1}
            charge |= {currency: amount, **{name: found[name] for name in charge if name in found}}
            self.add(
                "evaluations", cell, found.get("attempt", 0), seq, found.get("surviving", True), currency, amount,
                found.get("charge_after", amount), charge["updates"], charge["generated_tokens"], charge["flops"],
                charge["gpu_hours"], charge["cpu_hours"], found.get("accuracy"), [1, 0], 1, 0,
                found.get("diverged", False),
            )  # fmt: skip
        return cell

    def spend(self, cell: str, kind: str, tokens: int, lost: str | None = None) -> None:
        self.add("ledger", cell, 0, 0, lost is None, lost, 1, kind, 1, tokens, 0, 0, 2.0 * tokens, 3600.0, 1800.0)

    def signal(
        self,
        cell: str,
        clipped: Sequence[float],
        variance: float = 0.0,
        errors: int = 0,
        entropy: Sequence[float | None] = (),
        mismatch: Sequence[float | None] = (),
    ) -> None:
        """Updates with these shares of clipped rollouts; of the last two, NULL beyond what is given."""
        for update, share in enumerate(clipped, 1):
            self.add(
                "updates", cell, 0, update, True, update, 0, 0.0, 0.0, 0.0, 1e-3, 0.0, 1.0, 0.5, share,
                variance, errors, *(dict(enumerate(values, 1)).get(update) for values in (entropy, mismatch)),
                10, "{}", False,
            )  # fmt: skip

    def fill(self, accuracy: Callable[[str, str, int, str, float], float]) -> SyntheticStudy:
        """Every cell completed, with `accuracy(model, arm, seed, currency, amount)` at every milestone."""
        for model in self.models:
            for arm in self.arms:
                for seed in self.seeds:
                    points = {(c, a): accuracy(model, arm, seed, c, a) for c, a, *_ in self.milestones()}
                    self.run(arm, seed, points, model)
        return self

    def milestones(self) -> list[tuple[str, float, float | None, bool]]:
        fractions = [(c, b * f, f, True) for c, b in self.budgets.items() for f in (0.5, 1.0)]
        return fractions + [(c, a, None, False) for c, amounts in self.grids.items() for a in amounts]

    def write(self, path: Path) -> Path:
        with duckdb.connect(str(path)) as connection:
            connection.execute(DERIVED)
            self.add(
                "studies", "s", "A synthetic study", "", self.arms[0], self.alpha, self.correction, self.mode,
                self.mode_reason, "hash", "commit", False, ["rollout", "continuation"],
                json.dumps({"evaluate": {"diverged_accuracy": self.floor}, **self.plan}),
            )  # fmt: skip
            for currency, amount in self.budgets.items():
                self.add("budgets", "s", currency, amount)
            for milestone in self.milestones():
                self.add("milestones", "s", *milestone)
            for position, arm in enumerate(self.arms):
                self.add("arms", "s", arm, position, "scripted", "{}", "{}")
            for position, claim in enumerate(self.claims):
                self.add("claims", "s", claim["id"], position, claim["statement"], claim["text"], json.dumps(claim))
            block = 0
            for model in self.models:
                for seed in self.seeds:
                    for position, arm in enumerate(self.arms):
                        self.add("planned_cells", "s", self.cell(model, arm, seed), model, arm, seed, block, position)
                    block += 1
            for table, rows in self.rows.items():
                marks = ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
                connection.execute(f"INSERT INTO {table} VALUES {marks}", [value for row in rows for value in row])
        return path


def claim(kind: str, a: str, b: str, **given: Any) -> dict[str, Any]:
    """A claim's record as the plan carries it."""
    at = {"currency": "updates", "amount": UPDATES}
    defaults = {
        "id": "H1",
        "statement": "",
        "text": kind,
        "relation": None,
        "margin_points": 0.0,
        "at": at,
        "then": None,
    }
    return {**defaults, "model": None, "sides": 1, "kind": kind, "a": a, "b": b, **given}


TOKENS_POINT = {"currency": "generated_tokens", "amount": TOKENS}
