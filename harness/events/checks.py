"""What an event must hold before a store believes it: the fields of schema.py that tables are made of.

An outside trainer's log is held to the same; fields beyond these are its own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.events.schema import Event

Check = Callable[[Any], bool]


def _integer(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e308


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _outcomes(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {int} and set(value) <= {0, 1}


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _fields(required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    """An object with all of `required`, and `optional` ones as they should be where given."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(name in value and check(value[name]) for name, check in required.items())
            and all(check(value[name]) for name, check in (optional or {}).items() if name in value)
        )

    return check


def _each(check: Check) -> Check:
    """An object or a list whose values all pass."""
    return lambda value: (
        isinstance(value, dict | list) and all(map(check, value.values() if isinstance(value, dict) else value))
    )


_counts: Final = _fields(
    {"samples": _integer, "generated_tokens": _integer, "flops": _number},
    {"prefill_tokens": _integer, "cached_prefill_tokens": _integer},
)
_charge: Final = _fields({"generated_tokens": _integer, "flops": _number})
_hours: Final = _fields({}, {"gpu_hours": _or_null(_number), "cpu_hours": _or_null(_number)})
_seconds: Final[dict[str, Check]] = {"wall_seconds": _or_null(_number), "cpu_seconds": _or_null(_number)}
_milestones: Final = _each(_fields({"currency": _text, "amount": _number, "charge_after": _number}))
_share: Final = _or_null(_number)

_PLAN: Final[dict[str, Check]] = {
    "study": _text,
    "baseline": _text,
    "alpha": _number,
    "correction": _text,
    "charged": _each(_text),
    "budgets": _each(_number),
    "milestones": _each(_fields({"currency": _text, "amount": _number, "budgeted": _truth})),
    "arms": _each(_fields({"arm": _text, "intervention": _text, "parameters": _object, "training": _object})),
    "claims": _each(_fields({"id": _text})),
    "cells": _each(
        _fields(
            {
                **dict.fromkeys(("cell", "model", "arm"), _text),
                **dict.fromkeys(("seed", "block", "position"), _integer),
            }
        )
    ),
}

PAYLOAD: Final[dict[str, dict[str, Check]]] = {
    "attempt_started": {
        "cell": _text,
        "attempt": _integer,
        "study": _text,
        "mode": _text,
        "resumed_from": _or_null(_fields({"attempt": _integer, "seq": _integer})),
    },
    "ledger": {"update": _integer, "rows": _each(_counts)},
    "update": {
        "update": _integer,
        "charge": _charge,
        **dict.fromkeys(("learning_rate", "loss", "grad_norm"), _share),
        **dict.fromkeys(("reward_mean", "clipped_share", "zero_variance_share"), _share),
        "diverged": _truth,
    },
    "evaluation": {
        "updates": _integer,
        "charge": _charge,
        "milestones": _milestones,
        "outcomes": _outcomes,
        "samples_per_problem": _integer,
        "accuracy": _share,
        "diverged": _truth,
        "rows": _each(_counts),
    },
    "finished": {"status": _text, "updates": _integer, "charge": _charge, "diverged": _truth},
    "sweep_started": {"study": _text, "mode": _text, "plan": _fields(_PLAN)},
}
"""Required fields by kind; of kinds that are not here nothing is required."""

OPTIONAL: Final[dict[str, dict[str, Check]]] = {
    "attempt_started": {"earlier_out_of_memory": _truth},
    "update": dict.fromkeys(("entropy", "sampler_mismatch"), _or_null(_number)),
    "finished": {"fault": _or_null(_text)},
}
"""Fields that tables are made of where they are given."""

MEASURED: Final[dict[str, dict[str, Check]]] = {
    "attempt_started": {"charge": _hours, "heartbeat_seconds": _or_null(_number)},
    "heartbeat": {"charge": _hours},
    "ledger": {"rows": _each(_fields({}, _seconds)), "charge": _hours},
    "update": {"charge": _hours},
    "evaluation": {"milestones": _milestones, "charge": _hours, **_seconds},
    "finished": {"charge": _hours},
}
"""Measured values, all of them optional: a trainer may have no clock that it trusts."""


def complaint(event: Event) -> str | None:
    """What is wrong with an event's content, or None."""
    if not _number(event.envelope.get("time")):
        return "`envelope` has no time"
    for name, check in PAYLOAD.get(event.kind, {}).items():
        if name not in event.payload:
            return f"`{event.kind}` has no `{name}`"
        if not check(event.payload[name]):
            return f"`{name}` of `{event.kind}` is not what the schema says"
    for name, check in OPTIONAL.get(event.kind, {}).items():
        if name in event.payload and not check(event.payload[name]):
            return f"`{name}` of `{event.kind}` is not what the schema says"
    for name, check in MEASURED.get(event.kind, {}).items():
        if name in event.measured and not check(event.measured[name]):
            return f"measured `{name}` of `{event.kind}` is not what the schema says"
    return None
