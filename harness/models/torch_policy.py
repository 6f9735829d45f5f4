"""A causal language model of transformers with its tokenizer, as a policy.

It promises text that joins exactly, every end token that the model or its tokenizer names, and a shape to
compute FLOPs from. Prompts are encoded as they are: no special token and no chat template is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from harness.compute.flops import ModelShape
from harness.errors import InputError
from harness.rollout.cache import head_size
from harness.rollout.kv_loop import KVLoopEngine

INCOMPLETE = "\ufffd"
"""What a tokenizer decodes bytes to that are no whole character yet."""


class TorchPolicy:
    """A `Policy` (models/policy.py) over `module` (a transformers `...ForCausalLM`), moved to `device`."""

    def __init__(self, module: nn.Module, tokenizer: Any, device: str = "cpu"):
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError("the run needs a GPU, and torch finds none", "a machine and a build of torch with CUDA")
        self.module = module.to(device)
        self.tokenizer = tokenizer
        self.device = f"cuda:{torch.cuda.get_device_name(device)}" if device.startswith("cuda") else device
        self.stop_ids = _stop_ids(module, tokenizer)
        self.shape = model_shape(module)
        self._alone: dict[int, str] = {}

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Token ids of the text alone."""
        return tuple(self.tokenizer.encode(prompt, add_special_tokens=False))

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, special tokens as the empty string; joined, the text of all.

        A character spread over several tokens belongs to the token that completes it.
        """
        ids = list(token_ids)
        text = self._decode(ids)
        alone = [self._text_alone(token) for token in ids]
        return alone if "".join(alone) == text else self._pieces_in_context(ids, text)

    def _pieces_in_context(self, ids: list[int], text: str) -> list[str]:
        """Decodes growing prefixes: for tokenizers whose tokens are parts of characters, or depend on neighbours."""
        pieces, told = [], ""
        for end in range(1, len(ids) + 1):
            prefix = self._decode(ids[:end]) if end < len(ids) else text
            whole = prefix == text or not prefix.endswith(INCOMPLETE)
            so_far = prefix if whole and text.startswith(prefix) else told
            pieces.append(so_far[len(told) :])
            told = so_far
        return pieces

    def _text_alone(self, token: int) -> str:
        if token not in self._alone:
            self._alone[token] = self._decode([token])
        return self._alone[token]

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def engine(self) -> KVLoopEngine:
        """A raw engine over the weights in memory; to be given to `MeteredEngine` only."""
        return KVLoopEngine(self.module, self.stop_ids)


def _stop_ids(module: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for named in (tokenizer.eos_token_id, getattr(module.generation_config, "eos_token_id", None)):
        if named is not None:
            found.update(named if isinstance(named, Iterable) else [named])
    if not found:
        raise InputError("neither the tokenizer nor the generation config names an end token", "set eos_token_id")
    return frozenset(found)


def model_shape(module: Any) -> ModelShape:
    """Counts the weight matrices that each token is multiplied with: all two-dimensional weights outside embeddings.

    The output head is a module of its own, so it counts once, tied or not. InputError for stacked experts, of
    which a token meets only some.
    """
    parameters = 0
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            continue
        for weight in part.parameters(recurse=False):
            if weight.ndim > 2:
                raise InputError("the model stacks weights (experts or convolutions)", "use a dense decoder")
            parameters += weight.numel() if weight.ndim == 2 else 0
    config = module.config.get_text_config()
    return ModelShape(parameters, config.num_hidden_layers, config.num_attention_heads * head_size(config))
