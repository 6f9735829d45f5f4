"""The kinds of work that a ledger tells apart, and the currencies that a budget can be given in.

The table of kinds is section 2 of the method page (docs/method.md); they are never merged before analysis.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Kind = Literal[
    "rollout",
    "continuation",
    "discarded",
    "probe",
    "baseline",
    "policy_train",
    "logprob",
    "reference",
    "critic",
    "engine",
    "warm_start",
    "evaluation",
]
"""`retraced` is not here: it is derived when attempts are folded, never written by a running process."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

SAMPLED_KINDS: Final[tuple[Kind, ...]] = ("rollout", "continuation", "discarded", "probe", "baseline")
"""Kinds that generate tokens for training."""

CHARGED_BY_DEFAULT: Final[tuple[Kind, ...]] = (
    "rollout",
    "continuation",
    "discarded",
    "probe",
    "baseline",
    "policy_train",
    "logprob",
    "reference",
    "critic",
    "engine",
)

Currency = Literal["generated_tokens", "gpu_hours", "cpu_hours", "flops", "updates"]
CURRENCIES: Final[tuple[Currency, ...]] = get_args(Currency)

Device = Literal["cpu", "cuda"]
"""What a run computes on: the CPU, or one GPU."""

HOUR_CURRENCIES: Final[tuple[Currency, ...]] = ("gpu_hours", "cpu_hours")
"""Measured by a clock, so never part of a deterministic payload."""
