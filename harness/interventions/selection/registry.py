"""Every selector by the name that studies use. Adding one is a file beside this and a line here."""

from __future__ import annotations

from typing import Any, Final

from harness.interventions.selection.base import Selector
from harness.interventions.selection.beta import SelectBeta, SelectEasy, SelectHard, SelectRandom
from harness.interventions.selection.probe import SelectProbe
from harness.interventions.selection.value_model import SelectModel

SELECTORS: Final[dict[str, type[Selector]]] = {
    "select-beta": SelectBeta,
    "select-model": SelectModel,
    "select-probe": SelectProbe,
    "select-random": SelectRandom,
    "select-hard": SelectHard,
    "select-easy": SelectEasy,
}


def build_selector(content: dict[str, Any]) -> Selector:
    """The selector of a cell: ``{"name": ..., "parameters": {...}}``."""
    kind = SELECTORS[content["name"]]
    return kind(kind.Parameters.model_validate(content["parameters"]))
