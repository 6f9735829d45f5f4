"""Every intervention by the name that studies use. Adding one is a file beside this and a line here."""

from __future__ import annotations

from typing import Any, Final

from harness.interventions.base import Intervention
from harness.interventions.grpo import GRPO
from harness.interventions.mc_difference import MCDifference
from harness.interventions.scripted import Scripted

INTERVENTIONS: Final[dict[str, type[Intervention]]] = {
    "grpo": GRPO,
    "mc-difference": MCDifference,
    "scripted": Scripted,
}


def build_intervention(content: dict[str, Any]) -> Intervention:
    """The intervention of a cell: ``{"name": ..., "parameters": {...}}``."""
    kind = INTERVENTIONS[content["name"]]
    return kind(kind.Parameters.model_validate(content["parameters"]))
