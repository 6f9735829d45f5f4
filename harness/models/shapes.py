"""The shape of a study's model before any of it is loaded: for bounds on compute that are told while planning.

From declarations, configurations and the headers of weight files, without torch. What the loaded model says
(models/torch_policy.py) is what runs are charged by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.compute.flops import ModelShape

_NOT_EACH_TOKENS: Final = re.compile(r"embed|wte|wpe|lm_head")
"""Tensors that a token is looked up in, and the output head, which is counted apart: a tied one has no tensor."""
_MOST_HEADER_BYTES: Final = 100 * 2**20
"""Of safetensors' own reader."""


def folder_shape(folder: Path) -> ModelShape | None:
    """The shape of the dense decoder in a model folder; None where files do not tell it (nothing is refused here)."""
    try:
        config = json.loads((folder / "config.json").read_text())
        config = config.get("text_config", config)
        hidden = config["hidden_size"] if "hidden_size" in config else config["n_embd"]
        heads = config["num_attention_heads"] if "num_attention_heads" in config else config["n_head"]
        layers = config["num_hidden_layers"] if "num_hidden_layers" in config else config["n_layer"]
        head = config["vocab_size"] * hidden
        shapes = dict(weight for path in sorted(folder.glob("*.safetensors")) for weight in _header(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    inner = [shape for name, shape in shapes.items() if not _NOT_EACH_TOKENS.search(name)]
    if not inner or any(len(shape) > 2 for shape in inner):
        return None
    matrices = sum(shape[0] * shape[1] for shape in inner if len(shape) == 2)
    return ModelShape(matrices + head, layers, heads * (config.get("head_dim") or hidden // heads))


def _header(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of each tensor: eight bytes of length (little-endian), then JSON (the safetensors format)."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(file.read(length))
    return ((name, entry["shape"]) for name, entry in header.items() if name != "__metadata__")
