"""The shape that files and declarations tell is that of the loaded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from harness.compute.flops import ModelShape
from harness.models.presets import PRESETS
from harness.models.shapes import folder_shape
from harness.models.tiny_chain import Recipe, new_module, new_tokenizer
from harness.models.torch_policy import model_shape

SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip


def saved(folder: Path, architecture: str, shard: str = "1GB", **changes: Any) -> ModelShape:
    """Saves a random model; returns the shape it has when loaded."""
    config = getattr(transformers, f"{architecture}Config")(**changes)
    getattr(transformers, f"{architecture}ForCausalLM" if architecture != "GPT2" else "GPT2LMHeadModel")(
        config
    ).save_pretrained(folder, max_shard_size=shard)
    return model_shape(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("Qwen2", {**SMALL, "tie_word_embeddings": True}),
        ("Qwen2", {**SMALL, "tie_word_embeddings": False}),
        ("Llama", {**SMALL, "head_dim": 16}),
        ("GPT2", {"vocab_size": 40, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    ],
)
def test_a_folder_tells_the_shape_that_its_model_has(tmp_path: Path, architecture: str, changes: Any) -> None:
    assert folder_shape(tmp_path) is None
    assert saved(tmp_path, architecture, **changes) == folder_shape(tmp_path)


def test_weights_in_several_files_count_once_each(tmp_path: Path) -> None:
    whole = saved(tmp_path, "Qwen2", shard="20KB", **SMALL)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert folder_shape(tmp_path) == whole


@pytest.mark.parametrize("broken", [b"", b"\xff" * 8, (5).to_bytes(8, "little") + b"[1,2]"])
def test_a_folder_that_does_not_tell_gives_no_shape_and_no_error(tmp_path: Path, broken: bytes) -> None:
    saved(tmp_path, "Qwen2", **SMALL)
    (tmp_path / "model.safetensors").write_bytes(broken)
    assert folder_shape(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": None}))
    assert folder_shape(tmp_path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0, "head_dim": None},
        {"num_attention_heads": "two", "head_dim": None},
        {"vocab_size": "ab"},
        {"num_hidden_layers": [3]},
        {"hidden_size": 32.5},
    ],
)
def test_a_configuration_of_other_values_gives_no_shape_and_no_error(tmp_path: Path, changes: Any) -> None:
    saved(tmp_path, "Qwen2", **SMALL)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    assert folder_shape(tmp_path) is None


@pytest.mark.parametrize("shard", ["1GB", "20KB"])
def test_weights_that_the_model_is_not_loaded_from_do_not_count(tmp_path: Path, shard: str) -> None:
    loaded = saved(tmp_path, "Qwen2", shard=shard, **SMALL)
    save_file({"layers.0.attention.wq.weight": torch.zeros(32, 32)}, tmp_path / "consolidated.safetensors")
    assert folder_shape(tmp_path) == loaded


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("Mixtral", {**SMALL, "num_local_experts": 4}),  # a token meets some experts only
        ("OPT", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 16}),  # its head is narrower than its layers
    ],
)
def test_a_model_whose_files_would_tell_too_much_gives_no_shape(
    tmp_path: Path, architecture: str, changes: Any
) -> None:
    config = getattr(transformers, f"{architecture}Config")(**changes)
    getattr(transformers, f"{architecture}ForCausalLM")(config).save_pretrained(tmp_path)
    assert folder_shape(tmp_path) is None


def test_presets_declare_the_shape_that_they_have() -> None:
    assert model_shape(new_module(Recipe(), new_tokenizer())) == PRESETS["tiny-chain"].shape
