"""The key-value cache of the sampling loop: grows in place, and lets rows be shared out and dropped.

transformers' own dynamic cache copies itself at every token; this one reserves room ahead. It plugs into
any model that takes a transformers `Cache`, and knows nothing of what the rows are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

GROWTH_COLUMNS = 64
"""Least number of columns reserved when a layer is full; beyond it, a half of what it holds."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer, each (rows, heads, columns, head size), in buffers with spare columns.

    `keys` and `values` are views of the columns in use, as transformers expects them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends columns and returns all keys and values."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            spare = 0 if start == 0 else max(GROWTH_COLUMNS, start // 2)
            self._reserve(key_states, value_states, start, end + spare)
        assert self._buffers is not None
        keys, values = self._buffers
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def _reserve(self, key_states: Tensor, value_states: Tensor, used: int, columns: int) -> None:
        grown = []
        for states, held in ((key_states, self.keys), (value_states, self.values)):
            rows, heads, _, size = states.shape
            buffer = states.new_empty(rows, heads, columns, size)
            if used:
                buffer[:, :, :used] = held
            grown.append(buffer)
        self._buffers = (grown[0], grown[1])
        self.is_initialized = True

    def take(self, rows: Tensor, first_column: int) -> None:
        """Keeps `rows` (repeated or dropped, in this order) and the columns from `first_column` on."""
        kept = [held[:, :, first_column:].index_select(0, rows) for held in (self.keys, self.values)]
        self.keys, self.values = kept
        self._buffers = (kept[0], kept[1])


class GrowingCache(Cache):  # type: ignore[misc]
    """One `GrowingLayer` per layer of the model."""

    def __init__(self, layers: int):
        super().__init__(layers=[GrowingLayer() for _ in range(layers)])

    def take(self, rows: Tensor, first_column: int = 0) -> None:
        """`GrowingLayer.take` on every layer: shares prefixes out to rows, or compacts the batch."""
        for layer in self.layers:
            layer.take(rows, first_column)


def left_padding_mask(padding: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Additive mask, (rows, 1, 1, columns): the lowest finite number over each row's `padding` first columns."""
    hidden = torch.arange(columns, device=padding.device) < padding[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=padding.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None, None, :]
