"""Supervised warm start: a module learns to continue prompts as a demonstrator does, once for all runs.

`Student` takes the optimiser's steps, metered like any model work. What is demonstrated, and for how long, is the
caller's; that it is done once is models/cache.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from harness.compute.clock import Clock
from harness.compute.flops import ModelShape, training_flops
from harness.compute.meter import Meter
from harness.compute.work import Work

_IGNORED: Final = -100
"""Target of a position without loss."""


@dataclass(frozen=True)
class Example:
    """One demonstration, as token ids."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    """End token included."""


@dataclass(frozen=True)
class Supervision:
    """How a student is trained: AdamW at a constant rate, clipped at norm 1."""

    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]


class Student:
    """A module (a transformers causal language model) in supervised training, with the price of it."""

    def __init__(self, module: nn.Module, shape: ModelShape, how: Supervision):
        self._module = module
        self._shape = shape
        self._optimizer = torch.optim.AdamW(
            module.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay, betas=how.betas
        )
        self._meter, self._clock = Meter(), Clock()
        self._work = Work(self._meter, self._clock)
        self.steps = self.examples = self.tokens = 0

    def step(self, batch: Sequence[Example]) -> float:
        """One optimiser step on the mean loss over completion tokens.

        Returns the share of the batch whose whole completion the module would have written greedily before the
        step: on examples not seen before, its accuracy as an imitator.
        """
        lengths = [len(example.prompt) + len(example.completion) - 1 for example in batch]
        with self._work.run("warm_start", training_flops(self._shape, lengths)):
            fed, target = _tensors(batch)
            logits = self._module(input_ids=fed).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=_IGNORED)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
            self._optimizer.step()
        self.steps += 1
        self.examples += len(batch)
        self.tokens += sum(lengths)
        copied = (logits.argmax(-1) == target) | (target == _IGNORED)
        return float(copied.all(dim=1).float().mean())

    def record(self) -> dict[str, Any]:
        """Counts and seconds of the ledger's row (nothing was sampled), steps, examples and tokens fed."""
        seconds = self._clock.drain()["warm_start"].record()
        steps = {"steps": self.steps, "examples": self.examples, "example_tokens": self.tokens}
        return {**self._meter.total("warm_start").record(), **seconds, **steps}


def _tensors(batch: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """What is fed and what is to be predicted, both (examples, longest - 1); padded on the right."""
    rows = [example.prompt + example.completion for example in batch]
    longest = max(map(len, rows))
    ids = torch.tensor([row + (0,) * (longest - len(row)) for row in rows])
    target = ids[:, 1:].clone()
    for row, example in enumerate(batch):
        target[row, : len(example.prompt) - 1] = _IGNORED
        target[row, len(rows[row]) - 1 :] = _IGNORED
    return ids[:, :-1], target


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread inside: sums are in one order, whatever the process was set to."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
