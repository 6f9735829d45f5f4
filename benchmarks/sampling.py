"""Our sampling loop against transformers' `generate`, and continuations with and without a shared prefill.

One thread, float32, random weights: a Qwen2 of the example study's size whose completions are ragged (mean
about 57 tokens, at most 251), since its end token is about equally probable at every step. Lengths are
random, so speed is sampled tokens per second, and each repeat has seeds of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from statistics import mean

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.timing import Row, median_seconds
from harness.rollout.kv_loop import KVLoopEngine
from harness.rollout.protocol import Request, Sampling
from harness.seeds import hashed_seed

PAD_ID, END_ID, VOCABULARY, WIDTH = 0, 1, 26, 64
MAX_NEW_TOKENS = 251
END_PROBABILITY = 1 / 95
"""At states of average spread; those of less spread end sooner, and the mean length comes out near 57."""
GROUP_SIZE = 8


def ragged_model() -> Qwen2ForCausalLM:
    """Two layers of width 64, with an untied head: a zero row for the end token, normal rows for the others.

    With logits of standard deviation s, E[exp(logit)] = exp(s^2 / 2), so s is chosen such that
    1 / (1 + 25 exp(s^2 / 2)) = END_PROBABILITY. A normalised state of width W has the norm sqrt(W).
    """
    torch.manual_seed(hashed_seed("benchmark", "model") % 2**63)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=2 * WIDTH,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=END_ID,
            pad_token_id=PAD_ID,
        )
    ).eval()
    spread = np.sqrt(2 * np.log((1 / END_PROBABILITY - 1) / (VOCABULARY - 1)))
    with torch.no_grad():
        model.lm_head.weight.normal_(std=float(spread / np.sqrt(WIDTH)))
        model.lm_head.weight[END_ID] = 0
    return model


def prompts(rows: int, shortest: int, longest: int) -> list[tuple[int, ...]]:
    """Random prompts of random lengths, each repeated GROUP_SIZE times as in training."""
    draws = np.random.default_rng(hashed_seed("benchmark", "prompts", rows))
    groups = []
    for _ in range(rows // GROUP_SIZE):
        length = int(draws.integers(shortest, longest + 1))
        groups.append(tuple(draws.integers(END_ID + 1, VOCABULARY, size=length).tolist()))
    return [prompt for prompt in groups for _ in range(GROUP_SIZE)]


class Ours:
    """Our engine on fixed prompts; `lengths` are the completions' of every call so far."""

    def __init__(self, model: Qwen2ForCausalLM, texts: list[tuple[int, ...]], sampling: Sampling):
        self.engine = KVLoopEngine(model, [END_ID])
        self.texts, self.sampling = texts, sampling
        self.calls: Iterator[int] = count()
        self.lengths: list[int] = []

    def __call__(self) -> None:
        call = next(self.calls)
        samples = self.engine.generate(
            [
                Request("rollout", text, self.sampling, hashed_seed("benchmark", call, row), problem=row)
                for row, text in enumerate(self.texts)
            ]
        )
        self.lengths += [len(sample.token_ids) for sample in samples]


class Generate:
    """transformers' `generate` on the same prompts, padded on the left."""

    def __init__(self, model: Qwen2ForCausalLM, texts: list[tuple[int, ...]], sampling: Sampling):
        self.model, self.sampling = model, sampling
        width = max(map(len, texts))
        self.ids = torch.tensor([(PAD_ID,) * (width - len(text)) + text for text in texts])
        self.mask = (self.ids != PAD_ID).long()
        self.lengths: list[int] = []

    def __call__(self) -> None:
        output = self.model.generate(
            self.ids,
            attention_mask=self.mask,
            do_sample=True,
            temperature=self.sampling.temperature,
            top_k=0,
            max_new_tokens=self.sampling.max_new_tokens,
        )
        for row in output[:, self.ids.shape[1] :].tolist():
            self.lengths.append(row.index(END_ID) + 1 if END_ID in row else len(row))


def against_generate(repeats: int) -> list[Row]:
    """Sampled tokens per second at 64, 256 and 1024 rows."""
    model = ragged_model()
    table = []
    for rows in (64, 256, 1024):
        texts = prompts(rows, shortest=8, longest=16)
        rivals: dict[str, Ours | Generate] = {
            "ours": Ours(model, texts, Sampling(MAX_NEW_TOKENS)),
            "generate": Generate(model, texts, Sampling(MAX_NEW_TOKENS)),
        }
        seconds = median_seconds(rivals, repeats)
        speed = {name: rows * mean(rivals[name].lengths) / seconds[name] for name in rivals}
        table.append(
            Row(
                f"{rows} ragged rows against generate",
                f"{speed['ours']:,.0f} tokens/s",
                f"{speed['generate']:,.0f} tokens/s",
                speed["ours"] / speed["generate"],
                f"lengths: mean {mean(rivals['ours'].lengths):.0f} and {mean(rivals['generate'].lengths):.0f}, "
                f"longest {max(rivals['ours'].lengths)} and {max(rivals['generate'].lengths)}",
            )
        )
    return table


def shared_prefill(repeats: int, prefix_tokens: int = 512, continuations: int = 9) -> list[Row]:
    """Nine continuations of one prefix, against nine prefixes that differ in their first token: the same work but
    for the sharing."""
    model = ragged_model()
    draws = np.random.default_rng(hashed_seed("benchmark", "prefix"))
    prefix = tuple(draws.integers(END_ID + 1, VOCABULARY, size=prefix_tokens).tolist())
    table = []
    for new_tokens in (8, 16, 32, 64):
        sampling = Sampling(new_tokens)
        rivals = {
            "shared": Ours(model, [prefix] * continuations, sampling),
            "recomputed": Ours(model, [(END_ID + 1 + i, *prefix[1:]) for i in range(continuations)], sampling),
        }
        seconds = median_seconds(rivals, repeats)
        table.append(
            Row(
                f"{continuations} continuations of at most {new_tokens} tokens, {prefix_tokens}-token prefix",
                f"{1000 * seconds['shared']:.1f} ms",
                f"{1000 * seconds['recomputed']:.1f} ms",
                seconds["recomputed"] / seconds["shared"],
            )
        )
    return table
