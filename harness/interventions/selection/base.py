"""What a selector is: it predicts how often the policy solves each candidate prompt, and ranks them by that.

Each family is one small file beside this one, and one line in the registry. Choosing, the uniform floor and the
record of what was predicted are the same for all (selected.py); accuracy is measured on the unselected pool anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.compute.kinds import Kind
from harness.interventions.base import ArmParameters, Draw, Group, Step
from harness.models.policy import Policy
from harness.rollout.protocol import Request, Sample
from harness.study.training import TrainingSpec

if TYPE_CHECKING:
    from harness.models.trainable import Trainable

Rates = NDArray[np.float64]
Prediction = Generator[list[Request], list[Sample], Rates]


class SelectionParameters(ArmParameters):
    """What every selector is told."""

    candidates: Annotated[int, Field(ge=1)]
    """Prompts drawn for each update, of which `prompts_per_update` are kept; at most the training pool."""
    uniform_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Chance of each kept prompt to be drawn uniformly from the candidates instead."""


class Selector(ABC):
    """Ranks candidate prompts."""

    Parameters: ClassVar[type[SelectionParameters]] = SelectionParameters
    KINDS: ClassVar[tuple[Kind, ...]] = ()
    """Kinds of work that it does, beside those of the arm that it selects for."""
    SOURCE: ClassVar[str]
    """Where its definition is from: a paper, or "ours"."""

    def __init__(self, parameters: Any):
        self.parameters = parameters
        """An instance of `Parameters`."""

    @classmethod
    def probes(cls, parameters: Any, training: TrainingSpec) -> tuple[int, int]:
        """(samples of one update that are drawn to choose, those of them that the kept prompts' groups reuse)."""
        return 0, 0

    def modules(self, policy: Policy) -> Mapping[str, Trainable]:
        """As an intervention's."""
        return {}

    @abstractmethod
    def predict(self, step: Step, candidates: Sequence[Draw]) -> Prediction:
        """The predicted success of each candidate, shape (C,), in [0, 1]; may ask for samples of kind `probe`."""

    def preference(self, predicted_C: Rates) -> Rates:
        """What candidates are ranked by, lowest first: how far they are from even odds."""
        return np.abs(predicted_C - 0.5)

    def observe(self, groups: Sequence[Group], step: Step) -> None:
        """Learns from the outcomes of the groups of this update; unless it says so, nothing."""
        return

    def state(self) -> dict[str, Any]:
        """What must survive a crash, as JSON values."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        if state:
            raise RuntimeError(f"{type(self).__name__} saves a state and does not load it")
