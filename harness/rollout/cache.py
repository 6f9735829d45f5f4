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

    `keys` and `values` are views of the columns in use, as transformers expects them. `most_columns`: what the
    layer will ever hold; no more is reserved.
    """

    def __init__(self, most_columns: int) -> None:
        super().__init__()
        self._most_columns = most_columns
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends columns and returns all keys and values."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            columns = max(end, min(end + max(GROWTH_COLUMNS, end // 2), self._most_columns))
            self._reserve(key_states, value_states, start, columns)
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
        assert self._buffers is not None
        used = self.get_seq_length() - first_column
        keys, values = (buffer[:, :, first_column:].index_select(0, rows) for buffer in self._buffers)
        self._buffers = (keys, values)
        self.keys, self.values = keys[:, :, :used], values[:, :, :used]


class GrowingCache(Cache):  # type: ignore[misc]
    """One `GrowingLayer` per layer of the model."""

    def __init__(self, layers: int, most_columns: int):
        super().__init__(layers=[GrowingLayer(most_columns) for _ in range(layers)])

    def take(self, rows: Tensor, first_column: int = 0) -> None:
        """`GrowingLayer.take` on every layer: shares prefixes out to rows, or compacts the batch."""
        for layer in self.layers:
            layer.take(rows, first_column)


def head_size(config: Any) -> int:
    """Width of one attention head; most configurations leave it to be derived."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def position_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of one position of one row, all layers together."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head_size(config) * dtype.itemsize)


def left_padding_mask(padding: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Additive mask, (rows, 1, 1, columns): the lowest finite number over each row's `padding` first columns."""
    hidden = torch.arange(columns, device=padding.device) < padding[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=padding.device)
    return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None, None, :]
