"""Runs folders without training: whole studies written through `EventWriter`, with a planted truth.

`write_study` writes a study's log and the logs of all its cells; `run_events` and `write_run` are its parts, for
tests that want one run, killed wherever they like. An uninterrupted run and a killed one come from the same
events, so their folded histories must be equal.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.events.writer import EventWriter
from harness.layout import CellFolder, RunsFolder
from harness.seeds import hashed_seed

Told = tuple[str, dict[str, Any], dict[str, Any]]
"""Kind, payload and measured values of one event."""

FLOPS_PER_TOKEN = 3e6
SECONDS_PER_TOKEN = 1e-3


@dataclass(frozen=True)
class SyntheticArm:
    """An arm whose policy has, after u updates, `accuracy(u)` as its chance to solve a problem."""

    name: str
    tokens_per_update: int
    accuracy: Callable[[int], float]
    continuation_share: float = 0.0
    """Of the tokens of an update."""


@dataclass(frozen=True)
class SyntheticStudy:
    """What `write_study` writes."""

    arms: Sequence[SyntheticArm]
    study: str = "synthetic"
    models: Sequence[str] = ("model",)
    seeds: Sequence[int] = (101, 102, 103)
    budgets: Mapping[str, int] = field(default_factory=lambda: {"generated_tokens": 2_000, "updates": 10})
    fractions: Sequence[float] = (0.5, 1.0)
    cpu_hours_grid: Sequence[float] = ()
    problems: int = 32
    checkpoint_every: int = 4
    claims: Sequence[Mapping[str, Any]] = ()
    mode: str = "exploratory"

    def milestones(self) -> list[dict[str, Any]]:
        """As a plan records them."""
        budgeted = [
            {"currency": currency, "amount": round(amount * fraction), "fraction": fraction, "budgeted": True}
            for currency, amount in self.budgets.items()
            for fraction in self.fractions
        ]
        grid = [
            {"currency": "cpu_hours", "amount": amount, "fraction": None, "budgeted": False}
            for amount in self.cpu_hours_grid
        ]
        return budgeted + grid

    def cell(self, model: str, arm: str, seed: int) -> str:
        """A cell's id: 16 hex digits, as of a planned one."""
        return f"{hashed_seed(self.study, model, arm, seed):016x}"

    def cells(self) -> list[dict[str, Any]]:
        """As a plan records them: one block for each model and seed."""
        blocks = [(model, seed) for model in self.models for seed in self.seeds]
        return [
            {
                "cell": self.cell(model, arm.name, seed),
                "model": model,
                "arm": arm.name,
                "seed": seed,
                "block": block,
                "position": position,
            }
            for block, (model, seed) in enumerate(blocks)
            for position, arm in enumerate(self.arms)
        ]

    def plan(self) -> dict[str, Any]:
        """The plan record of events/schema.py."""
        return {
            "study": self.study,
            "title": "A synthetic study",
            "question": "Is what was planted found?",
            "authors": [],
            "existing_data": "none",
            "baseline": self.arms[0].name,
            "alpha": 0.05,
            "correction": "holm",
            "charged": ["rollout", "continuation", "policy_train"],
            "budgets": dict(self.budgets),
            "milestones": self.milestones(),
            "arms": [
                {"arm": arm.name, "intervention": "scripted", "parameters": {}, "training": {}} for arm in self.arms
            ],
            "models": list(self.models),
            "seeds": list(self.seeds),
            "claims": [dict(claim) for claim in self.claims],
            "cells": self.cells(),
            "training": {},
            "task": {"name": "synthetic"},
            "evaluate": {"pool": "confirmatory", "samples": 1, "diverged_accuracy": 0.0},
        }


def write_study(runs: RunsFolder, study: SyntheticStudy, kills: Mapping[str, Sequence[int]] | None = None) -> None:
    """Writes the study's log and every cell's attempts. `kills`: cell -> see `write_run`."""
    arms = {arm.name: arm for arm in study.arms}
    with EventWriter(runs.study_log(study.study)) as log:
        log.append(
            "sweep_started",
            {
                "study": study.study,
                "mode": study.mode,
                "mode_reason": "synthetic",
                "lock_hash": None,
                "code_commit": None,
                "code_dirty": False,
                "plan": study.plan(),
            },
        )
    for cell in study.cells():
        told = run_events(study, arms[cell["arm"]], cell["seed"])
        write_run(runs, study.study, cell["cell"], told, (kills or {}).get(cell["cell"], ()), study.mode)


def run_events(study: SyntheticStudy, arm: SyntheticArm, seed: int) -> list[Told]:
    """What an uninterrupted run tells after its start, by the barrier rules (method page, section 3)."""
    run = _Run(study, arm, seed)
    while not run.ended:
        run.step()
    return run.told


class _Run:
    def __init__(self, study: SyntheticStudy, arm: SyntheticArm, seed: int):
        self.study, self.arm, self.seed = study, arm, seed
        self.updates = 0
        self.tokens = 0
        self.passed: set[tuple[str, float]] = set()
        self.told: list[Told] = []
        self.ended = False

    def charge(self, tokens: int) -> dict[str, Any]:
        return {"generated_tokens": tokens, "flops": tokens * FLOPS_PER_TOKEN}

    def hours(self, tokens: int) -> dict[str, float]:
        return {"gpu_hours": 0.0, "cpu_hours": tokens * SECONDS_PER_TOKEN / 3600}

    def meter(self, currency: str) -> float:
        if currency == "updates":
            return self.updates
        return float({**self.charge(self.tokens), **self.hours(self.tokens)}[currency])

    def step(self) -> None:
        before = self.tokens
        self._collect()
        self._evaluate(before, barrier=True)
        if all(
            self.meter(name) >= amount if name == "updates" else self.meter(name) > amount
            for name, amount in self.study.budgets.items()
        ):
            return self._finish()
        self.updates += 1
        self._update()
        self._evaluate(self.tokens, barrier=False)
        if self.updates % self.study.checkpoint_every == 0:
            self.told.append(("checkpoint", {"update": self.updates, "name": f"{self.updates:06d}"}, {}))
        if set(self.study.budgets) == {"updates"} and self.updates >= self.study.budgets["updates"]:
            self._finish()
        return None

    def _collect(self) -> None:
        tokens = self.arm.tokens_per_update
        continued = round(tokens * self.arm.continuation_share)
        self.tokens += tokens
        rows = {"rollout": _row(4, tokens - continued), "policy_train": _row(0, 0, flops=tokens)}
        if continued:
            rows["continuation"] = _row(9, continued)
        seconds = {kind: {"wall_seconds": 0.5, "cpu_seconds": 0.25} for kind in rows}
        payload = {"update": self.updates + 1, "rows": rows, "part": None}
        self.told.append(("ledger", payload, {"rows": seconds, "charge": self.hours(self.tokens)}))

    def _update(self) -> None:
        payload = {
            "update": self.updates,
            "charge": self.charge(self.tokens),
            "learning_rate": 1e-3,
            "loss": 1 / self.updates,
            "grad_norm": 1.0,
            "reward_mean": self.arm.accuracy(self.updates),
            "clipped_share": 0.0,
            "zero_variance_share": 0.0,
            "verifier_errors": 0,
            "trained_tokens": self.arm.tokens_per_update,
            "notes": {},
            "choices": [{"problem": 3, "predicted": 0.5, "realised": None, "uniform": False}],
            "diverged": False,
        }
        self.told.append(("update", payload, {"charge": self.hours(self.tokens)}))

    def _evaluate(self, policy_tokens: int, barrier: bool) -> None:
        due = [
            {"currency": name, "amount": milestone["amount"], "charge_after": self.meter(name)}
            for milestone in self.study.milestones()
            if (name := milestone["currency"], milestone["amount"]) not in self.passed
            and (name != "updates") == barrier
            and (self.meter(name) > milestone["amount"] if barrier else self.meter(name) >= milestone["amount"])
        ]
        if not due:
            return
        self.passed |= {(milestone["currency"], milestone["amount"]) for milestone in due}
        draw = random.Random(hashed_seed("outcomes", self.arm.name, self.seed, self.updates))
        chance = self.arm.accuracy(self.updates)
        outcomes = [int(draw.random() < chance) for _ in range(self.study.problems)]
        payload = {
            "updates": self.updates,
            "pool": "confirmatory",
            "charge": {**self.charge(policy_tokens), "updates": self.updates},
            "milestones": [milestone for milestone in due if milestone["currency"] != "cpu_hours"],
            "outcomes": outcomes,
            "samples_per_problem": 1,
            "verifier_errors": 0,
            "accuracy": math.fsum(outcomes) / len(outcomes),
            "diverged": False,
            "rows": {"evaluation": _row(len(outcomes), 5 * len(outcomes))},
            "part": None,
        }
        measured = {
            "milestones": [milestone for milestone in due if milestone["currency"] == "cpu_hours"],
            "charge": self.hours(policy_tokens),
            "wall_seconds": 2.0,
            "cpu_seconds": 1.5,
        }
        self.told.append(("evaluation", payload, measured))

    def _finish(self) -> None:
        payload = {
            "status": "completed",
            "reason": "every budget is exhausted",
            "updates": self.updates,
            "charge": self.charge(self.tokens),
            "diverged": False,
        }
        self.told.append(("finished", payload, {"charge": self.hours(self.tokens)}))
        self.ended = True


def write_run(
    runs: RunsFolder,
    study: str,
    cell: str,
    told: Sequence[Told],
    kills: Sequence[int] = (),
    mode: str = "exploratory",
) -> None:
    """Writes a run as the attempts it took: each of `kills` is how many of `told` one attempt has led to when it
    dies; the next goes on from the last checkpoint of any, or from the start. Heartbeats fall where they fall."""
    folder = CellFolder(runs.cell(cell))
    start, resumed_from = 0, None
    for number, end in enumerate([*kills, len(told)], start=1):
        with EventWriter(folder.events(number), exclusive=True) as log:
            log.append("attempt_started", _started(study, cell, number, resumed_from, mode))
            for index, (kind, payload, measured) in enumerate(told[start:end], start=start):
                if index % 7 == number % 7:
                    log.append("heartbeat", {}, {"training_seconds": float(index)})
                if kind == "checkpoint":
                    start, resumed_from = index + 1, {"attempt": number, "seq": log.last_seq}
                log.append(kind, {**payload, **(resumed_from or {})} if kind == "checkpoint" else payload, measured)


def _started(study: str, cell: str, number: int, resumed_from: dict[str, int] | None, mode: str) -> dict[str, Any]:
    return {
        "cell": cell,
        "attempt": number,
        "study": study,
        "mode": mode,
        "mode_reason": "synthetic",
        "lock_hash": None,
        "code_commit": None,
        "code_dirty": False,
        "code_hash": "0" * 16,
        "packages": {},
        "device": "cpu",
        "threads": 1,
        "resumed_from": resumed_from,
    }


def _row(samples: int, tokens: int, flops: int | None = None) -> dict[str, Any]:
    return {
        "samples": samples,
        "generated_tokens": tokens,
        "prefill_tokens": 3 * samples,
        "cached_prefill_tokens": samples,
        "flops": (tokens if flops is None else flops) * FLOPS_PER_TOKEN,
    }
