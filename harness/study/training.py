"""The training and evaluation values that a study pins, with their defaults. One place for both readers:
the study file and the trainer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from harness.compute.kinds import Currency
from harness.study.numbers import as_written

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
DecayRate = Annotated[float, Field(ge=0, lt=1)]
PERCENTAGE = r"^[0-9]+(\.[0-9]+)?%$"
Percentage = Annotated[str, BeforeValidator(as_written), Field(pattern=PERCENTAGE)]

Word = TypeVar("Word")
Block = TypeVar("Block")
WordOr = Annotated[
    Annotated[Word, Tag("(word)")] | Annotated[Block, Tag("(mapping)")],
    Discriminator(lambda value: "(mapping)" if isinstance(value, dict | BaseModel) else "(word)"),
]
"""Either of two forms, told apart by their shape, so that an error speaks of the form that was meant."""


def added_later(default: Any) -> Any:
    """A field that came after studies were locked: left out of what is hashed while it has its default.

    So the locks and cell ids made before it stand; its default must be what the code did before.
    """
    return Field(default=default, exclude_if=lambda value: value == default)


class Spec(BaseModel):
    """A strict, frozen record of a study file: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class TrainingSpec(Spec):
    """How a policy is updated. The same for all arms, except where an arm overrides a value."""

    prompts_per_update: Positive = 8
    """Problems drawn for one update."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Rollouts of each problem (G)."""
    max_new_tokens: Positive = 64
    """A rollout's limit; a longer one is truncated, charged, and counted as clipped."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of rollouts and continuations."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of rollouts and continuations; 1 keeps the whole distribution."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 1e-3
    """Adam's, before decay and warm-up."""
    decay: Literal["none", "linear", "cosine"] = "none"
    """Of the learning rate, on the fraction spent of the budget named by `decay_over`."""
    decay_over: Currency | None = None
    """The one budget that the decay follows; required with a decay, refused without."""
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    """Updates over which the learning rate rises linearly."""
    adam_betas: Annotated[tuple[DecayRate, DecayRate], Field(strict=False)] = (0.9, 0.95)
    """Adam's decay rates of the two moments, a list of two."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's, decoupled."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are clipped to this 2-norm."""
    advantage_scale: Literal["none", "rms", "group-std"] = "group-std"
    """none; unit root mean square over the update's trained tokens; or each group's outcome standard
    deviation (Bessel's correction) plus `scale_epsilon`, a group of equal outcomes being left unscaled."""
    scale_epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the divisor of `advantage_scale`."""
    loss_denominator: Literal["token-mean", "sequence-mean", "constant"] = "token-mean"
    """token-mean: over all trained tokens of the update; sequence-mean: within a rollout, then over rollouts;
    constant: rollouts, truncated ones included, x `max_new_tokens` (Dr. GRPO)."""
    mask_truncated: bool = False
    """Whether truncated rollouts get no gradient."""
    micro_batch_tokens: Positive = 16_384
    """Padded tokens of one forward pass; changes memory, never the gradient beyond rounding."""
    checkpoint_every_updates: Positive = 25
    """Updates between checkpoints."""


class GreedyOrSampled(Spec):
    """Sampled decoding of evaluations."""

    temperature: Annotated[float, Field(gt=0)]
    """Of evaluation samples."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus of evaluation samples."""


class EvaluateSpec(Spec):
    """When and how every run is evaluated, the same for all arms."""

    at: list[Percentage] = ["25%", "50%", "75%", "100%"]
    """Fractions of each declared budget, above 0% and up to 100%."""
    generated_tokens: list[Positive] = []
    """Further absolute milestones in generated tokens."""
    updates: list[Positive] = []
    """Further absolute milestones in updates."""
    flops: list[Annotated[float, Field(gt=0)]] = []
    """Further absolute milestones in FLOPs."""
    cpu_hours: list[Annotated[float, Field(gt=0)]] = []
    """Further absolute milestones in CPU-hours."""
    gpu_hours: list[Annotated[float, Field(gt=0)]] = []
    """Further absolute milestones in GPU-hours."""
    pool: Literal["tuning", "confirmatory"] = "confirmatory"
    """The held-out pool. A study that chooses a value (a learning rate) names `tuning`."""
    decoding: WordOr[Literal["greedy"], GreedyOrSampled] = "greedy"
    """Pinned for the whole study: `greedy`, or a temperature and a nucleus."""
    samples: Positive = 1
    """Samples per problem."""
    max_new_tokens: Positive | None = None
    """A sample's limit; none: the training limit of the study (not of an arm)."""
    diverged_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """What every later milestone scores once weights are not finite."""
