"""From a checked study to its blocks and cells: what a sweep will run, in which order, told before it starts.

A block is all arms of one model and one seed, in an order hashed from study, model and seed; blocks go round-robin
over models. Planning builds no model and no task, so it is instant; printing is left to the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from harness.compute.kinds import KINDS
from harness.errors import Problem
from harness.seeds import hashed_seed
from harness.study.caps import SweepCap
from harness.study.cell import RESULT_VERSION, Cell, Milestone
from harness.study.checks import arm_content
from harness.study.load import LoadedStudy
from harness.study.schema import Model


@dataclass(frozen=True)
class Block:
    """All arms of one model and one seed."""

    index: int
    model: str
    seed: int
    cells: tuple[Cell, ...]
    """In the order in which they are to be launched."""


@dataclass(frozen=True)
class Plan:
    """What a study will run."""

    loaded: LoadedStudy
    blocks: tuple[Block, ...]

    @property
    def study(self) -> str:
        """The study's name."""
        return self.loaded.name

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, block by block."""
        return tuple(cell for block in self.blocks for cell in block.cells)

    @property
    def cap(self) -> SweepCap | None:
        """On the whole sweep."""
        return self.loaded.cap

    @property
    def milestones(self) -> list[Milestone]:
        return self.loaded.milestones

    @property
    def warnings(self) -> list[Problem]:
        return self.loaded.warnings

    def record(self) -> dict[str, Any]:
        """PLAN of events/schema.py: plain values, all that the analysis needs to know of a study.

        An arm's `training` holds what the arm changes; the rest is in the study's `training`.
        """
        resolved = self.loaded.resolved
        same = (
            "study",
            "title",
            "question",
            "authors",
            "existing_data",
            "baseline",
            "alpha",
            "correction",
            "exclusions",
        )
        return {
            **{name: resolved[name] for name in (*same, "charged", "budgets", "seeds", "claims")},
            **{
                name: resolved[name]
                for name in ("training", "task", "evaluate", "threads", "device", "sweep", "health")
                if name in resolved
            },
            "study_hash": self.loaded.hash,
            "not_charged": [kind for kind in KINDS if kind not in resolved["charged"]],
            "milestones": [
                {**point, "budgeted": point["currency"] in self.loaded.budgets} for point in resolved["milestones"]
            ],
            "arms": [{"arm": name, **arm} for name, arm in resolved["arms"].items()],
            "models": [model["name"] for model in resolved["models"]],
            "cells": [
                {
                    "cell": cell.id,
                    "model": cell.model,
                    "arm": cell.arm,
                    "seed": cell.seed,
                    "block": cell.block,
                    "position": cell.position,
                }
                for cell in self.cells
            ],
        }


def make_plan(loaded: LoadedStudy) -> Plan:
    """Blocks and cells of a study."""
    study = loaded.study
    pairs = [(model, seed) for seed in study.seeds for model in study.models]
    return Plan(loaded, tuple(_block(loaded, index, model, seed) for index, (model, seed) in enumerate(pairs)))


def _block(loaded: LoadedStudy, index: int, model: Model, seed: int) -> Block:
    study = loaded.study.study

    def drawn(arm: str) -> int:
        return hashed_seed("arm-order", study, model.name, seed, arm)

    folder = str((loaded.path.absolute().parent / model.folder).resolve()) if model.folder is not None else None
    cells = (
        Cell(study, model.name, arm, seed, index, position, _content(loaded, model, arm, seed), folder)
        for position, arm in enumerate(sorted(loaded.study.arms, key=drawn))
    )
    return Block(index, model.name, seed, tuple(cells))


def _content(loaded: LoadedStudy, model: Model, arm: str, seed: int) -> dict[str, Any]:
    """What determines the result of one cell (study/cell.py)."""
    study, resolved = loaded.study, loaded.resolved
    policy = dict(resolved["models"][study.models.index(model)])
    for label in ("name", "folder"):
        policy.pop(label, None)
    return {
        "result_version": RESULT_VERSION,
        "model": policy,
        "task": study.task.model_dump(mode="json"),
        **arm_content(study, study.arms[arm]),
        "seed": seed,
        "budgets": resolved["budgets"],
        "milestones": [asdict(milestone) for milestone in loaded.milestones],
        "evaluate": resolved["evaluate"],
        "charged": resolved["charged"],
        **{name: resolved[name] for name in ("threads", "device") if name in resolved},
        **({"ceilings": loaded.cap.ceilings} if loaded.cap is not None else {}),
    }


def expected_seconds(cells: Sequence[Cell], seconds_by_arm: Mapping[str, float], at_once: int) -> float | None:
    """Expected wall time of these cells with `at_once` of them running together; None while an arm is unknown.

    `seconds_by_arm`: mean duration of earlier runs of each arm.
    """
    if not cells:
        return 0.0
    durations = [seconds_by_arm.get(cell.arm) for cell in cells]
    known = [seconds for seconds in durations if seconds is not None]
    if len(known) < len(durations):
        return None
    return max(*known, sum(known) / at_once)
