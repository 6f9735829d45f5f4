"""The shape of a study's model before any of it is loaded: for bounds on compute that are told while planning.

From declarations, configurations and the headers of weight files, without torch. What the loaded model says
(models/torch_policy.py) is what runs are charged by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import prod
from operator import index
from pathlib import Path
from typing import Any, Final

from harness.compute.flops import ModelShape

_NOT_EACH_TOKENS: Final = re.compile(r"embed|wte|wpe|lm_head")
"""Tensors that a token is looked up in, and the output head, which is counted apart: a tied one has no tensor."""
_MOST_HEADER_BYTES: Final = 100 * 2**20
"""Of safetensors' own reader."""
_NOT_TOLD: Final = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, StopIteration
)  # fmt: skip
"""What reading files of another form raises."""


def folder_shape(folder: Path) -> ModelShape | None:
    """The shape of the dense decoder in a model folder; None where its files do not tell it: nothing is refused here.

    Only the weights that transformers would load count: other safetensors may lie beside them.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
        weights = dict(weight for path in _weight_files(folder) for weight in _header(path))
        return _shape(config.get("text_config", config), weights)
    except _NOT_TOLD:
        return None


def _shape(config: dict[str, Any], weights: dict[str, list[int]]) -> ModelShape | None:
    def number(*names: str) -> int:
        return index(next(config[name] for name in names if config.get(name) is not None))

    hidden, heads = number("hidden_size", "n_embd"), number("num_attention_heads", "n_head")
    head = [number("vocab_size"), hidden]
    inner = [shape for name, shape in weights.items() if not _NOT_EACH_TOKENS.search(name)]
    stacked = any("expert" in name or len(shape) > 2 for name, shape in weights.items())
    if stacked or not inner or head not in weights.values():  # other embeddings are projected before the head
        return None
    matrices = sum(index(shape[0]) * index(shape[1]) for shape in inner if len(shape) == 2)
    head_size = number("head_dim") if config.get("head_dim") else hidden // heads
    return ModelShape(matrices + prod(head), number("num_hidden_layers", "n_layer"), heads * head_size)


def _weight_files(folder: Path) -> list[Path]:
    """One file, or those that the index of a sharded model names."""
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    shards = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
    return [path for path in folder.glob("*.safetensors") if path.name in shards]


def _header(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of each tensor: eight bytes of length (little-endian), then JSON (the safetensors format)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(file.read(length))
    return ((name, entry["shape"]) for name, entry in header.items() if name != "__metadata__")
