"""A small study that is in order."""

from __future__ import annotations

STUDY = """\
study: small
title: A study for tests
authors: [A. Author]
existing_data: none
models: [tiny-chain]
task:
  name: chain
  pool: {train: 1_000, tuning: 50, confirmatory: 50}
training:
  learning_rate: 1e-3
arms:
  grpo: {intervention: grpo}
  mc: {intervention: mc-difference, continuations: 4}
  slow:
    intervention: grpo
    training: {learning_rate: 5e-4}
baseline: grpo
seeds: {first: 101, count: 3}
budget: {generated_tokens: 240k, updates: 50}
claims:
  - id: H1
    claim: accuracy(mc) > accuracy(grpo) at 50 updates
"""
