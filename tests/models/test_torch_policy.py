"""A transformers model as a policy: text pieces, end tokens, shape, and loading from a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from harness.errors import InputError
from harness.models.folder import load_folder
from harness.models.torch_policy import TorchPolicy, model_shape

CHARACTERS = "0123456789+-*>=, "


def character_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<end>": 1} | {character: 2 + i for i, character in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")


def byte_tokenizer(merges: list[tuple[str, str]]) -> PreTrainedTokenizerFast:
    """Byte-level BPE over all 256 bytes and the given merges (in byte-level spelling)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<end>", *alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def tiny_qwen2(vocabulary: int, seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


def character_policy() -> TorchPolicy:
    tokenizer = character_tokenizer()
    return TorchPolicy(tiny_qwen2(len(tokenizer)), tokenizer)


def byte_policy(merges: list[tuple[str, str]]) -> TorchPolicy:
    tokenizer = byte_tokenizer(merges)
    return TorchPolicy(tiny_qwen2(len(tokenizer)), tokenizer)


def test_a_prompt_is_encoded_without_special_tokens() -> None:
    assert character_policy().encode("1+2>") == tuple(2 + CHARACTERS.index(character) for character in "1+2>")


def test_pieces_of_characters_join_to_the_text_and_special_tokens_are_empty() -> None:
    policy = character_policy()
    assert policy.pieces([*policy.encode("1+2=3, 4"), 1]) == ["1", "+", "2", "=", "3", ",", " ", "4", ""]


def test_a_character_of_several_tokens_belongs_to_the_token_that_completes_it() -> None:
    policy = byte_policy([])
    pieces = policy.pieces(policy.encode("a€b"))  # the euro sign takes three bytes
    assert pieces == ["a", "", "", "€", "b"]


@pytest.mark.parametrize("text", ["naïve café ≤ 3", "數學 🙂🙂 =7", "a\n b\t", "´¨"])
def test_pieces_of_byte_level_tokens_join_to_the_text(text: str) -> None:
    policy = byte_policy([("Ġ", "=")])
    ids = policy.encode(text)
    pieces = policy.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


def test_a_cut_character_still_joins_to_what_the_tokenizer_decodes() -> None:
    policy = byte_policy([])
    for cut in range(1, len("x€y🙂".encode()) + 1):
        ids = policy.encode("x€y🙂")[:cut]
        assert "".join(policy.pieces(ids)) == bytes("x€y🙂".encode()[:cut]).decode(errors="replace")


def test_invalid_bytes_in_the_middle_lose_no_text() -> None:
    policy = byte_policy([])
    euro, letters = policy.encode("€"), policy.encode("ab")
    ids = [euro[0], letters[0], euro[1], *euro, letters[1]]
    assert "".join(policy.pieces(ids)) == bytes([0xE2, 0x61, 0x82, 0xE2, 0x82, 0xAC, 0x62]).decode(errors="replace")


def test_every_end_token_that_tokenizer_or_generation_config_names_stops() -> None:
    module, tokenizer = tiny_qwen2(len(character_tokenizer())), character_tokenizer()
    module.generation_config = GenerationConfig(eos_token_id=[0, 1])
    assert TorchPolicy(module, tokenizer).stop_ids == {0, 1}
    module.generation_config = GenerationConfig(eos_token_id=5)
    assert TorchPolicy(module, tokenizer).stop_ids == {1, 5}


def test_a_model_without_any_end_token_is_refused() -> None:
    module, tokenizer = tiny_qwen2(30), character_tokenizer()
    module.generation_config = GenerationConfig()
    tokenizer.eos_token = None
    with pytest.raises(InputError, match="end token"):
        TorchPolicy(module, tokenizer)


def test_the_shape_counts_each_weight_matrix_and_the_tied_head_once() -> None:
    vocabulary, width, feed_forward, layers = 26, 64, 128, 2
    per_layer = 4 * width * width + 3 * width * feed_forward  # attention; gate, up and down
    shape = model_shape(tiny_qwen2(vocabulary))
    assert shape.matmul_parameters == layers * per_layer + vocabulary * width
    assert (shape.layers, shape.attention_width) == (layers, width)


def saved(folder: Path) -> TorchPolicy:
    policy = character_policy()
    policy.module.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return policy


def test_a_folder_saved_by_transformers_loads_as_the_same_policy(tmp_path: Path) -> None:
    policy = saved(tmp_path)
    loaded = load_folder(tmp_path, torch.float32)
    assert loaded.encode("3*4>") == policy.encode("3*4>")
    assert loaded.stop_ids == policy.stop_ids == {1}
    assert loaded.shape == policy.shape
    assert all(
        torch.equal(a, b)
        for a, b in zip(loaded.module.state_dict().values(), policy.module.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("missing", "told"),
    [("config.json", "configuration"), ("model.safetensors", "safetensors weights"), ("tokenizer.json", "tokenizer")],
)
def test_a_folder_that_lacks_a_part_is_refused_in_one_line(tmp_path: Path, missing: str, told: str) -> None:
    saved(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(InputError, match=told) as refusal:
        load_folder(tmp_path, torch.float32)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_that_is_not_there_or_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not there"):
        load_folder(tmp_path / "nowhere", torch.float32)
    saved(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be loaded") as refusal:
        load_folder(tmp_path, torch.float32)
    assert "\n" not in str(refusal.value)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    tiny_qwen2(8).save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="19 tokens, the model embeds 8"):
        load_folder(tmp_path, torch.float32)
