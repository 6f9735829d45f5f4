"""What a study file may say: one model, a docstring under each field, strict types, unknown keys refused.

Tasks and interventions bring their own parameters from their registries, so that each arm is checked (and
completed by editors) against the intervention it names. What the values mean together is checks.py's.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError, to_jsonable_python
from pydantic_core import core_schema as core

from harness.compute.kinds import CHARGED_BY_DEFAULT, CURRENCIES, KINDS, Device, Kind
from harness.errors import brief
from harness.interventions.registry import INTERVENTIONS
from harness.interventions.selection.base import SelectionParameters
from harness.interventions.selection.registry import SELECTORS
from harness.layout import SAFE_NAME
from harness.models.presets import PRESETS
from harness.study.numbers import as_written
from harness.study.suggest import did_you_mean
from harness.study.training import EvaluateSpec, Natural, Positive, Spec, TrainingSpec, WordOr, added_later
from harness.tasks.pools import TaskSpec
from harness.tasks.registry import TASKS

NAME_PATTERN: Final = f"^{SAFE_NAME}$"
MAX_SEED: Final = 2**53
"""Seeds stay whole in every JSON reader."""
MAX_SEEDS: Final = 10_000


def _without_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise PydanticCustomError("repeated", f"{', '.join(repeated)} given more than once; give each one once")
    return values


Exclusion = Literal["infrastructure-crash-before-first-evaluation", "verifier-outage", "corrupt-log"]
Text = Annotated[str, BeforeValidator(as_written), Field(min_length=1)]
Name = Annotated[str, BeforeValidator(as_written), Field(pattern=NAME_PATTERN)]
Unique = AfterValidator(_without_repeats)
AboveZero = Annotated[float, Field(gt=0)]


def _known_preset(name: str | None) -> str | None:
    if name is not None and name not in PRESETS:
        right = f"{did_you_mean(name, PRESETS)}; for a folder, write {{name: ..., folder: ...}}"
        raise PydanticCustomError(
            "preset", "there is no preset {name}; {right}", {"name": repr(brief(name)), "right": right}
        )
    return name


class ExistingData(Spec):
    """What the authors had seen when they wrote the study."""

    pilot: Text | None = None
    """Runs that shaped the study: setting, seeds, what they suggested."""
    seen: Text | None = None
    """Results of this very question that the authors know, their own or others'."""

    @model_validator(mode="after")
    def _says_something(self) -> ExistingData:
        if self.pilot is None and self.seen is None:
            raise PydanticCustomError(
                "empty", "nothing is said; give `pilot` or `seen`, or write existing_data: none"
            )
        return self


class Model(Spec):
    """A policy to start from."""

    name: Name
    """How tables call it."""
    preset: Annotated[Text | None, AfterValidator(_known_preset)] = None
    """A model that this project can make by itself."""
    folder: Text | None = None
    """A folder saved by transformers (configuration, safetensors, tokenizer), relative to the study file."""

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if (self.preset is None) == (self.folder is None):
            raise PydanticCustomError("source", "a model needs `preset` or `folder`, and not both; give one of them")
        return self


def _model_of_preset(value: object) -> object:
    value = as_written(value)
    return {"name": value, "preset": value} if isinstance(value, str) else value


_ModelInput: Any = Literal[*PRESETS] | Model


class SeedRange(Spec):
    """Consecutive seeds."""

    first: Annotated[int, Field(ge=0, le=MAX_SEED - MAX_SEEDS)]
    """The first seed."""
    count: Annotated[int, Field(gt=0, le=MAX_SEEDS)]
    """How many."""


SeedForms = WordOr[list[Annotated[int, Field(ge=0, le=MAX_SEED)]], SeedRange]


class Amounts(Spec):
    """Amounts by currency."""

    generated_tokens: Positive | None = None
    """Sampled tokens of the charged kinds of work."""
    flops: AboveZero | None = None
    """Model FLOPs of the charged kinds."""
    cpu_hours: AboveZero | None = None
    """User and system CPU time, evaluation included."""
    gpu_hours: AboveZero | None = None
    """Allocated devices x time, from the start of an attempt to its end."""

    def amounts(self) -> dict[str, float]:
        """Currency to amount, of those given."""
        return self.model_dump(exclude_none=True)


class SweepCap(Spec):
    """What a whole sweep may spend, over all attempts. Blocks are launched only while they fit in it as a whole."""

    total: Amounts = Amounts()
    """Of all arms together."""
    per_arm: Amounts = Amounts()
    """Of each arm."""
    ceiling: Amounts = Amounts()
    """Of one run, in each capped currency: beyond it the run ends, and reads `not reached` at what it did not reach.
    Where the run's only budget is in that currency it may be left out: then it is twice the budget."""
    step: Amounts = Amounts()
    """The most that one update can take, in capped currencies other than generated tokens, which are held exactly."""
    retries: Natural = 2
    """Crashes of a cell for which there is room; after one more it counts as failed."""


class Budget(Spec):
    """A run ends when every budget given is exhausted."""

    generated_tokens: Positive | None = None
    """Sampled tokens of the charged kinds of work."""
    updates: Positive | None = None
    """Optimiser steps."""
    flops: AboveZero | None = None
    """Model FLOPs of the charged kinds."""
    cpu_hours: AboveZero | None = None
    """User and system CPU time in training phases."""
    gpu_hours: AboveZero | None = None
    """Allocated devices x time in training phases."""
    sweep: SweepCap | None = None
    """A cap on the whole sweep; none by default."""

    @model_validator(mode="after")
    def _not_empty(self) -> Budget:
        if not self.amounts():
            raise PydanticCustomError("empty", f"no budget is given; give at least one of {', '.join(CURRENCIES)}")
        return self

    def amounts(self) -> dict[str, float]:
        """Currency to amount, of those given."""
        return self.model_dump(exclude_none=True, exclude={"sweep"})


class HealthSpec(Spec):
    """Gates: a run whose signals pass them is flagged wherever it is counted.

    Each is the most that a mean may be, `entropy` the least.
    """

    clipped_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Rollouts that met the length limit, of an update's."""
    zero_variance_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Groups whose outcomes are all alike, of an update's."""
    verifier_errors: Annotated[float, Field(ge=0)] | None = None
    """Gradings in which the verifier raised, per update."""
    entropy: Annotated[float, Field(ge=0)] | None = added_later(None)
    """Entropy of rollouts in nats per token, estimated from what was drawn: the least that a mean may be."""
    sampler_mismatch: Annotated[float, Field(ge=0)] | None = added_later(None)
    """Mean distance in nats of sampler's and trainer's log-probabilities of trained tokens; needs a `top_p` of 1."""
    window_updates: Positive = 10
    """Updates in a row that a mean is over."""


class ClaimSpec(Spec):
    """A hypothesis: what is claimed in words, and in the grammar of claims.py."""

    id: Name
    """A short name, e.g. H1."""
    statement: str = ""
    """The claim in the authors' words."""
    claim: Text
    """The claim in testable form, e.g. `accuracy(a) > accuracy(b) at 50 updates`."""
    model: Name | None = None
    """The model it is about; required when the study has several."""


@dataclass(frozen=True)
class Selection:
    """A selector of prompts with its parameters."""

    name: str
    parameters: SelectionParameters

    def record(self) -> dict[str, Any]:
        """As a cell holds it."""
        return {"name": self.name, "parameters": self.parameters.model_dump(mode="json")}


@dataclass(frozen=True)
class Arm:
    """An intervention with its parameters, the training values that it changes, and how it chooses prompts, if so."""

    intervention: str
    parameters: BaseModel
    overrides: TrainingSpec
    """Only the fields that were given count: `model_fields_set`."""
    selection: Selection | None = None

    def training(self, base: TrainingSpec) -> TrainingSpec:
        """The study's training values with this arm's changes, and with what its family's definition fixes."""
        given = {name: getattr(self.overrides, name) for name in self.overrides.model_fields_set}
        family = INTERVENTIONS[self.intervention]
        return family.configure(self.parameters, base.model_copy(update=given))

    def changes(self, base: TrainingSpec) -> dict[str, Any]:
        """The training values that the arm gives, or that its family changes, as plain values."""
        whole, given = self.training(base), self.overrides.model_fields_set
        values = {name: getattr(whole, name) for name in TrainingSpec.model_fields}
        return {
            name: to_jsonable_python(value)
            for name, value in values.items()
            if name in given or value != getattr(base, name)
        }


def _arm_models() -> Iterable[type[BaseModel]]:
    for name, intervention in INTERVENTIONS.items():
        tag: Any = Literal[name]
        yield create_model(
            f"Arm {name}",
            __base__=intervention.Parameters,
            __doc__=intervention.__doc__,
            intervention=(tag, Field(description="What this arm does differently.")),
            training=(
                TrainingSpec,
                Field(default=TrainingSpec(), description="Training values changed in this arm."),
            ),
            selection=(
                Annotated[Selection, GetPydanticSchema(_selection_schema)] | None,
                Field(default=None, description="How this arm chooses its prompts; none: the stream's."),
            ),
        )


def _selection_models() -> Iterable[type[BaseModel]]:
    for name, selector in SELECTORS.items():
        tag: Any = Literal[name]
        yield create_model(
            f"Selection {name}",
            __base__=selector.Parameters,
            __doc__=selector.__doc__,
            name=(tag, Field(description="Which prompts are kept.")),
        )


def _selection(found: Any) -> Selection:
    kind = SELECTORS[found.name].Parameters
    return Selection(found.name, kind(**{name: getattr(found, name) for name in kind.model_fields}))


def _selection_schema(_: Any, handler: GetCoreSchemaHandler) -> core.CoreSchema:
    return core.no_info_after_validator_function(_selection, handler(_one_of(_selection_models(), "name")))


def _task_models() -> Iterable[type[BaseModel]]:
    for name, entry in TASKS.items():
        tag: Any = Literal[name]
        yield create_model(
            f"Task {name}",
            __base__=entry.spec,
            __doc__=entry.spec.__doc__,
            name=(tag, Field(description="Which task.")),
        )


def _one_of(models: Iterable[type[BaseModel]], key: str) -> Any:
    return Annotated[reduce(operator.or_, models), Discriminator(key)]


ARM_FORMS: Final = _one_of(_arm_models(), "intervention")
TASK_FORMS: Final = _one_of(_task_models(), "name")


def _arm(found: Any) -> Arm:
    intervention = INTERVENTIONS[found.intervention]
    given = {name: getattr(found, name) for name in intervention.Parameters.model_fields}
    return Arm(found.intervention, intervention.Parameters(**given), found.training, found.selection)


def _arm_schema(_: Any, handler: GetCoreSchemaHandler) -> core.CoreSchema:
    return core.no_info_after_validator_function(_arm, handler(ARM_FORMS))


def _task_schema(_: Any, handler: GetCoreSchemaHandler) -> core.CoreSchema:
    return handler(TASK_FORMS)


def _seeds_schema(_: Any, handler: GetCoreSchemaHandler) -> core.CoreSchema:
    forms = handler(SeedForms)
    return core.no_info_after_validator_function(
        lambda seeds: list(range(seeds.first, seeds.first + seeds.count)) if isinstance(seeds, SeedRange) else seeds,
        forms,
    )


class Study(Spec):
    """A preregistration: the question, what is compared, what it may cost, and what is claimed beforehand."""

    study: Name
    """The study's name, also of its folder under runs/."""
    title: Text
    """One line for the head of the report."""
    question: str = ""
    """The question at length."""
    authors: Annotated[list[Text], Field(min_length=1)]
    """Who stands for the study."""
    existing_data: WordOr[Literal["none"], ExistingData]
    """What had been seen before: `none`, or a pilot and results known."""
    models: Annotated[
        list[Annotated[Model, BeforeValidator(_model_of_preset, json_schema_input_type=_ModelInput)]],
        Field(min_length=1),
    ]
    """Policies to start from: names of presets, or {name, folder}. Each is compared by itself."""
    task: Annotated[TaskSpec, GetPydanticSchema(_task_schema)]
    """The task by name, the sizes of its three disjoint pools, and its own parameters."""
    training: TrainingSpec = TrainingSpec()
    """How policies are updated, in every arm that does not say otherwise."""
    arms: Annotated[dict[Name, Annotated[Arm, GetPydanticSchema(_arm_schema)]], Field(min_length=1)]
    """What is compared: a name, an intervention with its parameters, and training values it changes."""
    baseline: Name
    """The arm that differences are taken to."""
    seeds: Annotated[list[int], GetPydanticSchema(_seeds_schema)]
    """Run seeds, shared by all arms: {first, count} or a list."""
    budget: WordOr[Name, Budget]
    """What each run may use: the name of a file in budgets/, or amounts by currency."""
    evaluate: EvaluateSpec = EvaluateSpec()
    """When and how every run is evaluated."""
    charged: Annotated[tuple[Kind, ...], Field(strict=False), Unique] = CHARGED_BY_DEFAULT
    """Kinds of work that budgets count."""
    claims: Annotated[tuple[ClaimSpec, ...], Field(strict=False)] = ()
    """The confirmatory family."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Level of the family."""
    correction: Literal["holm", "none"] = "holm"
    """For the number of claims."""
    exclusions: Annotated[tuple[Exclusion, ...], Field(strict=False), Unique] = ()
    """The only reasons for which a run may be left out or done again."""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """CPU threads of each run; part of what determines its result."""
    health: HealthSpec | None = added_later(None)
    """Gates of runs' health; none unless given."""
    device: Device = added_later("cpu")
    """What each run computes on: `cpu`, or `cuda`, one GPU to itself. Budgets in gpu_hours need `cuda`."""

    @property
    def task_name(self) -> str:
        return str(self.task.model_dump()["name"])

    def charged_in_order(self) -> list[str]:
        """Charged kinds in the order of the table of kinds."""
        return [kind for kind in KINDS if kind in self.charged]
