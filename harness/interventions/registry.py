"""Every intervention by the name that studies use. Adding one is a file beside this and a line here."""

from __future__ import annotations

from typing import Any, Final

from harness.interventions.base import Intervention
from harness.interventions.grpo import GRPO
from harness.interventions.mc_difference import MCDifference
from harness.interventions.scripted import Scripted
from harness.interventions.selection.registry import build_selector
from harness.interventions.selection.selected import Selected

INTERVENTIONS: Final[dict[str, type[Intervention]]] = {
    "grpo": GRPO,
    "mc-difference": MCDifference,
    "scripted": Scripted,
}


def build_intervention(content: dict[str, Any]) -> Intervention:
    """The intervention of a cell: ``{"name": ..., "parameters": {...}}``, and `selection` alike where it selects."""
    kind = INTERVENTIONS[content["name"]]
    arm = kind(kind.Parameters.model_validate(content["parameters"]))
    return Selected(arm, build_selector(content["selection"])) if "selection" in content else arm
