"""Every model that this project can make by itself, by the name that studies use, and the way to a cell's policy.

Light to import: builders are named here and imported when a policy is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from harness.compute.flops import ModelShape
from harness.compute.kinds import Device
from harness.errors import InputError, Problem
from harness.models.policy import Policy
from harness.study.model_folder import weights_hash
from harness.study.suggest import did_you_mean
from harness.tasks.base import Task


@dataclass(frozen=True)
class Preset:
    """A model made here."""

    builder: str
    """`module:callable`, called with task, folder of cached warm starts and device; gives a `BuiltPolicy`."""
    task: str
    """The one task that it is made for."""
    shape: ModelShape
    """What its FLOPs are computed from, told before it is built."""


PRESETS: Final[dict[str, Preset]] = {
    "tiny-chain": Preset("harness.models.tiny_chain:build", "chain", ModelShape(83_584, 2, 64)),
    "scripted": Preset("harness.models.scripted:build", "scripted", ModelShape(1_000, 1, 1)),
}


@dataclass(frozen=True)
class BuiltPolicy:
    """A policy ready to be trained, and what making it took."""

    policy: Policy
    warm_start: dict[str, Any] | None = None
    """The record of models/warm_start.py, shared by all runs that start from it; None where there was none."""


def build_policy(
    model: Mapping[str, Any], task: Task, cache: Path, folder: str | None = None, device: Device = "cpu"
) -> BuiltPolicy:
    """The policy of a cell's ``model``: ``{"preset": ...}``, or ``{"weights_hash": ...}`` of what lies in `folder`.

    `cache` is the folder that warm starts are kept in, each under its own hash. Raises InputError for a preset that
    is not known or not made for `task`, and for a folder that cannot be used or whose weights have changed.
    """
    if folder is not None:
        return BuiltPolicy(_load(Path(folder), model["weights_hash"], device))
    name = model.get("preset")
    if name not in PRESETS:
        raise InputError(Problem(f"there is no preset {name!r}", did_you_mean(str(name), PRESETS), field="models"))
    preset = PRESETS[name]
    if task.name != preset.task:
        what = f"preset {name!r} is made for task {preset.task!r}, not for {task.name!r}"
        raise InputError(Problem(what, "name a model folder, or that task", field="models"))
    module, _, builder = preset.builder.partition(":")
    return cast(BuiltPolicy, getattr(import_module(module), builder)(task, cache, device))


def _load(folder: Path, expected_hash: str, device: Device) -> Policy:
    from harness.models.folder import load_folder  # brings torch

    policy = load_folder(folder, device=device)
    if weights_hash(folder) != expected_hash:
        what = "the model has changed since the cell was planned"
        raise InputError(what, "restore it, or plan the study again", str(folder))
    return policy
