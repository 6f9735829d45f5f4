"""A policy from a folder saved by transformers: configuration, safetensors weights and tokenizer.

It promises that nothing is fetched and no code of the folder is run, and tells in one line what a folder lacks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from harness.errors import InputError
from harness.models.torch_policy import TorchPolicy


def load_folder(folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> TorchPolicy:
    """Loads the causal language model in `folder` with weights in `dtype`. InputError when it cannot be used."""
    _require(folder, "configuration", "config.json")
    _require(folder, "safetensors weights", "*.safetensors")
    _require(folder, "tokenizer", "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
    quiet()
    try:
        tokenizer = _tokenizer_class(folder).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        module = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise InputError(
            f"the model cannot be loaded ({first_line})",
            "give a folder saved by save_pretrained of a causal language model and its tokenizer",
            str(folder),
        ) from error
    rows = module.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens, the model embeds {rows}",
            "save the tokenizer that the model was trained with",
            str(folder),
        )
    return TorchPolicy(module, tokenizer, device)


def quiet() -> None:
    """No progress bars of transformers: standard error is for what went wrong."""
    transformers_logging.disable_progress_bar()


def _tokenizer_class(folder: Path) -> Any:
    """AutoTokenizer, except for a tokenizer saved as a plain one: AutoTokenizer would rebuild that as the class that
    goes with the model's architecture, with other tokens than the folder says."""
    settings = folder / "tokenizer_config.json"
    saved_as = json.loads(settings.read_text()).get("tokenizer_class") if settings.is_file() else None
    return PreTrainedTokenizerFast if saved_as in ("TokenizersBackend", "PreTrainedTokenizerFast") else AutoTokenizer


def _require(folder: Path, what: str, *patterns: str) -> None:
    if not folder.is_dir():
        raise InputError("the model folder is not there", "name a folder saved by save_pretrained", str(folder))
    if not any(path for pattern in patterns for path in folder.glob(pattern)):
        raise InputError(f"the model folder has no {what}", f"add {' or '.join(patterns)}", str(folder))
