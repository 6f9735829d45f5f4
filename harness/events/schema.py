"""The event log's schema, version 1. Standard library only: this folder can be copied beside any trainer.

A log is a file of JSON lines, appended to, one write per line:

    {"schema": 1, "seq": 0, "kind": "update", "payload": {...}, "measured": {...},
     "envelope": {"time": 1790000000.0, "host": "...", "pid": 1}, "sum": "..."}

`payload` is deterministic: two equal runs on CPU have equal payloads. What a clock measured is in
`measured`; who and when in `envelope`. `sum` is the first 16 hex digits of the SHA-256 of the canonical
JSON (sorted keys, no spaces, ASCII) of the line without `sum`. JSON has no NaN: a non-finite number is
written as null, however deep, with `"diverged": true` at the top of that payload (or of measured).

Kinds in an attempt's log, with the fields of their payload [and measured values in brackets]:

attempt_started  cell, attempt, study, mode, mode_reason, lock_hash|null, code_commit|null, code_dirty,
                 code_hash, packages {name: version}, device, threads, resumed_from {attempt, seq}|null,
                 cells_at_once|null (optional: of the sweep, on this machine), device_shared|null (optional:
                 whether these had the device in common),
                 earlier_out_of_memory (optional: attempt - 1 was killed for want of memory)
                 [charge {gpu_hours, cpu_hours}: what is carried over; heartbeat_seconds: between heartbeats]
heartbeat        (empty) [charge {gpu_hours, cpu_hours}, generated_tokens: all so far]
ledger           update (the update this work belongs to; 0 is the warm start), rows {kind: {samples,
                 generated_tokens, prefill_tokens, cached_prefill_tokens, flops}}, part (file name in the
                 token sidecar)|null [rows {kind: {wall_seconds, cpu_seconds}}, charge {gpu_hours, cpu_hours}]
update           update, charge {generated_tokens, flops} (cumulative algorithmic, charged kinds, after this
                 update), learning_rate, loss, grad_norm, reward_mean, clipped_share, zero_variance_share,
                 verifier_errors, trained_tokens, notes {name: number}, diverged,
                 entropy|null (optional: nats per token of the rollouts, -mean log-probability of what was drawn),
                 sampler_mismatch|null (optional: mean |log p of sampler - of trainer| in nats, over the tokens
                 trained on; null where that is not defined: top-p below 1, no token trained),
                 choices (optional, of an arm that chooses its prompts: [{problem, predicted,
                 realised|null, uniform}])
                 [charge {gpu_hours, cpu_hours}]
evaluation       updates (of the policy evaluated), pool, charge {generated_tokens, flops, updates} (of that
                 policy), milestones [{currency, amount, charge_after}] (deterministic currencies; charge_after
                 is the meter at the barrier, so charge_after - amount is the overshoot), outcomes [0|1 ...]
                 (samples x problems, problem-major: all samples of problem 0 first), samples_per_problem,
                 verifier_errors, accuracy (mean outcome), diverged, rows {"evaluation": {...}}, part (file
                 name in the token sidecar)|null
                 [milestones [...] in hours, charge {gpu_hours, cpu_hours}, wall_seconds, cpu_seconds]
                 An evaluation due only in hours has an empty `milestones` and is no part of the
                 deterministic history.
checkpoint       update, name (folder under checkpoints/), attempt, seq (last line it holds the effect of)
warning          code, message
finished         status ("completed" | "interrupted" | "failed"), reason, updates, charge {generated_tokens,
                 flops}, diverged, fault (optional, of a failure: "infrastructure" where it was not the run's own)
                 [charge {gpu_hours, cpu_hours}]

Kinds in a study's log (runs/studies/<study>/events.jsonl):

study_locked     study, lock_hash, token (random; proves that this runs folder made the lock)
sweep_started    study, mode, mode_reason, lock_hash|null, code_commit|null, code_dirty, plan (PLAN below)
sweep_finished   study, completed, failed, remaining (cell counts)
warning          code, message (e.g. "code-changed": cells were launched on after the code had changed)
analysis         study, command (a look at the data, by any command that prints results)

PLAN is `harness.study.plan.Plan.record()`: study, title, question, authors, existing_data, baseline, alpha,
correction, charged [kinds], budgets {currency: amount}, milestones [{currency, amount, fraction|null,
budgeted}], arms [{arm, intervention, parameters, training}], models [names], seeds [...], claims [parsed, see
study/claims.py], cells [{cell, model, arm, seed, block, position}], training {...}, task {...},
evaluate {...}.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = 1

ATTEMPT_KINDS: Final = (
    "attempt_started",
    "heartbeat",
    "ledger",
    "update",
    "evaluation",
    "checkpoint",
    "warning",
    "finished",
)
STUDY_KINDS: Final = ("study_locked", "sweep_started", "sweep_finished", "warning", "analysis")

HISTORY_KINDS: Final = ("ledger", "update", "evaluation", "finished")
"""What the deterministic history of a run consists of; the others tell of one process's life."""

CHARGE_KINDS: Final = ("attempt_started", "heartbeat", "ledger", "update", "finished")
"""Those whose measured `charge` is the clock's at that moment (an evaluation tells of the policy that it scores)."""


class EventLogError(Exception):
    """A log that cannot be written, or whose content cannot be trusted: one line, naming path and line."""

    def __init__(self, what: str, path: str | os.PathLike[str], line: int | None = None):
        self.what = what if line is None else f"line {line}: {what}"
        super().__init__(f"{os.fspath(path)}: {self.what}")


@dataclass(frozen=True)
class Event:
    """One whole, checked line of a log."""

    seq: int
    """Position in its log, from 0, without gaps."""
    kind: str
    payload: dict[str, Any]
    measured: dict[str, Any]
    envelope: dict[str, Any]
