"""What an intervention is. Each family is one small file beside this one, and one line in the registry.

A step is a conversation: `collect` yields requests and is sent their samples, as often as it needs, and
returns the groups to train on. Then `advantages` fills in what each token is worth, and trains what modules
the intervention has. An intervention never holds an engine, its model work passes `step.work`, and the trainer
never asks which one it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from harness.compute.kinds import Kind
from harness.compute.work import Work
from harness.models.policy import Policy
from harness.rollout.protocol import Request, Sample, Sampling
from harness.seeds import hashed_seed
from harness.study.training import TrainingSpec
from harness.tasks.base import Problem, Task

if TYPE_CHECKING:
    from torch import Tensor

    from harness.models.trainable import Trainable

Advantages = NDArray[np.float64]
Conversation = Generator[list[Request], list[Sample], "list[Group]"]


@dataclass
class Rollout:
    """One completion of a problem, its outcome, and (later) the advantage of each of its T tokens."""

    request: Request
    sample: Sample
    completion: str
    reward: float
    """Outcome: 1.0 solved, 0.0 not."""
    advantage_T: Advantages | None = None
    trainable: bool = True
    """False: sampled and charged, but given no gradient."""


LossTerm = Callable[[Sequence[Rollout], "Tensor", "Tensor"], "Tensor"]
"""(B rollouts, log-probabilities of their tokens (B, T), share of each token in the loss (B, T)) -> a scalar.

The shares are 1 / D of the study's `loss_denominator`, 0 on padding, so that a term that weighs tokens by them does
not depend on how an update is cut into micro-batches: a KL penalty is ``beta * (share_BT * kl_BT).sum()``.
"""


@dataclass
class Group:
    """All rollouts of one problem in one update."""

    problem: Problem
    problem_index: int
    visit: int
    rollouts: list[Rollout]

    def rewards(self) -> NDArray[np.float64]:
        """Outcomes, shape (group size,)."""
        return np.array([rollout.reward for rollout in self.rollouts], dtype=np.float64)


@dataclass(frozen=True)
class Draw:
    """One prompt drawn for this update."""

    problem: Problem
    index: int
    """Its index in the training pool."""
    visit: int
    """How often the run drew it before."""


@dataclass(frozen=True)
class Choice:
    """One prompt that a selector kept, what it had predicted, and what came of it."""

    problem: int
    """Index in the training pool."""
    predicted: float
    """Its predicted success."""
    realised: float | None
    """Share of its group's rollouts that solved it; None where no group of it was trained on."""
    uniform: bool
    """Whether it was drawn uniformly, whatever had been predicted."""


def _no_stream(count: int) -> list[Draw]:
    raise RuntimeError("this step has no stream of prompts to draw from")


@dataclass
class Step:
    """What an intervention may know of the update in hand."""

    update: int
    """The update that this step leads to, from 1."""
    draws: list[Draw]
    group_size: int
    sampling: Sampling
    run_seed: int
    policy: Policy
    task: Task
    work: Work
    """The metered door for the intervention's own forward and backward passes: `with step.work.run(kind, flops):`."""
    notes: dict[str, float] = field(default_factory=dict)
    """Numbers an intervention wants recorded with the update, e.g. how many continuations were merged."""
    graded: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Of each graded sample, by `id`: its completion and outcome, for the token sidecar."""
    verifier_errors: int = 0
    """Gradings in which the verifier raised."""
    discarded: list[Rollout] = field(default_factory=list)
    """What `discard` was told."""
    ready: dict[tuple[int, int], list[Rollout]] = field(default_factory=dict)
    """(problem index, visit) -> rollouts that were sampled to choose prompts: groups begin with them."""
    choices: list[Choice] = field(default_factory=list)
    """Of a selector, if the arm has one."""
    stream: Callable[[int], list[Draw]] = _no_stream
    """The run's stream of prompts: through `draw_more` only."""
    further: list[Draw] = field(default_factory=list)
    """What `draw_more` gave."""

    def draw_more(self, count: int) -> list[Draw]:
        """The next `count` prompts of the run's stream, beyond this update's `draws`."""
        more = self.stream(count)
        self.further.extend(more)
        return more

    def seed(self, purpose: str, problem: int, visit: int, index: int, *more: int | str) -> int:
        """The seed of one sample (science section 4): purpose, problem, visit, index, and a prefix if any."""
        return hashed_seed(self.run_seed, purpose, problem, visit, index, *more)

    def grade(self, problem: Problem, sample: Sample, prefix_ids: Sequence[int] = ()) -> tuple[str, float]:
        """(completion text, outcome) of `sample`, which continues `prefix_ids` of a completion.

        A verifier that raises scores 0 and is counted.
        """
        completion = "".join(self.policy.pieces([*prefix_ids, *sample.token_ids]))
        outcome, raised = grade(self.task, problem, completion, sample)
        self.verifier_errors += raised
        self.graded[id(sample)] = (completion, outcome)
        return completion, outcome

    def discard(self, group: Group) -> None:
        """The group was sampled and will not be trained on: its samples are charged as `discarded` instead."""
        self.discarded.extend(group.rollouts)


def grade(task: Task, problem: Problem, completion: str, sample: Sample) -> tuple[float, bool]:
    """(outcome, whether the verifier raised)."""
    try:
        return float(task.verify(problem, completion, sample.finish_reason == "stop")), False
    except Exception:  # noqa: BLE001 - whatever a verifier raises must not end a run: it is counted and shown
        return 0.0, True


class ArmParameters(BaseModel):
    """Parameters of an arm's intervention; each family that has some declares a subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Intervention(ABC):
    """What makes arms differ, and nothing else."""

    Parameters: ClassVar[type[ArmParameters]] = ArmParameters
    KINDS: ClassVar[tuple[Kind, ...]] = ("rollout", "policy_train")
    """Kinds of work that it does (compute/kinds.py), and is charged for unless the study says otherwise."""
    SOURCE: ClassVar[str]
    """Where its definition is from: a paper, or "ours" where none is followed."""
    NO_SELECTION: ClassVar[str] = ""
    """Why it cannot be combined with a selector of prompts; empty where it can."""

    def __init__(self, parameters: Any):
        self.parameters = parameters
        """An instance of `Parameters`."""

    @classmethod
    def least_update_tokens(cls, parameters: Any, training: TrainingSpec) -> int:
        """The fewest generated tokens that one update can take: a smaller budget is refused before launch.

        Unless a family says otherwise, one token for each rollout.
        """
        return training.prompts_per_update * training.group_size

    @classmethod
    def configure(cls, parameters: Any, training: TrainingSpec) -> TrainingSpec:
        """The training values of an arm, with those that this family's definition fixes; unless it says so, none.

        They show in the plan and in the cell's id. An arm whose own `training` contradicts them is refused.
        """
        return training

    def modules(self, policy: Policy) -> Mapping[str, Trainable]:
        """Value heads, critics and the like, by name, made on the policy's device.

        Asked for once, before anything else, with torch's generator seeded from the run's seed. The intervention
        trains them, in `advantages`; the trainer keeps them, with their optimisers, in checkpoints.
        """
        return {}

    @abstractmethod
    def collect(self, step: Step) -> Conversation:
        """Asks for samples and returns the groups to train on."""

    @abstractmethod
    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        """Sets `advantage_T` of every rollout, unscaled: scaling is the trainer's, and pinned in the study."""

    def loss_term(self) -> LossTerm | None:
        """What is added to this update's policy loss, if anything: asked for after `advantages`."""
        return None

    def state(self) -> dict[str, Any]:
        """What must survive a crash, as JSON values."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        if state:
            raise RuntimeError(f"{type(self).__name__} saves a state and does not load it")
