"""One token from logits and a uniform: the inverse distribution function, the nucleus, greedy, and streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.rollout.draw import Uniforms, draw, nucleus
from harness.rollout.protocol import NotFinite

PROBABILITIES = [0.5, 0.25, 0.125, 0.125]


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor([[math.log(p) if p else -math.inf for p in row] for row in rows])


def chosen(u: float, temperature: float = 1.0, top_p: float = 1.0, probabilities: list[float] = PROBABILITIES) -> int:
    tokens, _ = draw(logits(probabilities), torch.tensor([u], dtype=torch.float64), temperature, top_p)
    return int(tokens[0])


@pytest.mark.parametrize(("u", "token"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (0.99, 3)])
def test_the_token_is_the_first_whose_cumulative_probability_exceeds_u(u: float, token: int) -> None:
    assert chosen(u) == token


@pytest.mark.parametrize("u", [0.0, 0.3, 0.5, 0.999999, math.nextafter(1.0, 0.0)])
def test_a_token_of_probability_zero_is_never_drawn(u: float) -> None:
    assert chosen(u, probabilities=[0.0, 0.5, 0.0, 0.5, 0.0]) in (1, 3)


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.1, 3),
    st.floats(0.05, 1),
)
def test_the_log_probability_is_that_of_the_distribution_drawn_from(
    row: list[float], u: float, temperature: float, top_p: float
) -> None:
    tokens, logprobs = draw(torch.tensor([row]), torch.tensor([u], dtype=torch.float64), temperature, top_p)
    weights = np.exp((np.array(row) - max(row)) / temperature)
    probabilities = weights / weights.sum()
    mass, kept = 0.0, []
    for token in sorted(range(len(row)), key=lambda t: (-probabilities[t], t)):
        kept.append(token)
        mass += probabilities[token]
        if mass >= top_p - 1e-12:
            break
    token = int(tokens[0])
    if abs(mass - top_p) > 1e-9 and token in kept:  # away from the nucleus' edge, where rounding decides
        assert float(logprobs[0]) == pytest.approx(
            math.log(probabilities[token] / probabilities[kept].sum()), abs=1e-9
        )
    assert probabilities[token] >= probabilities[kept[-1]] - 1e-12


def test_draws_follow_the_distribution_at_a_temperature() -> None:
    rows = 20_000
    u = torch.arange(rows, dtype=torch.float64) / rows  # an even grid: counts are exact up to one per token
    tokens, _ = draw(logits(PROBABILITIES).expand(rows, -1), u, temperature=0.5, top_p=1.0)
    squares = np.square(PROBABILITIES)
    assert np.abs(np.bincount(tokens.numpy()) / rows - squares / squares.sum()).max() <= 1 / rows


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p_lower_ids_first_among_equals() -> None:
    rows = logits([0.125, 0.25, 0.5, 0.125]).double()
    assert nucleus(rows, 0.45).tolist() == [[False, False, True, False]]
    assert nucleus(rows, 0.6).tolist() == [[False, True, True, False]]
    assert nucleus(rows, 0.8).tolist() == [[True, True, True, False]]
    assert nucleus(rows, 1e-9).tolist() == [[False, False, True, False]]


def test_greedy_takes_the_lowest_id_of_the_highest_logit_with_certainty() -> None:
    tokens, logprobs = draw(torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]), torch.zeros(2).double(), 0.0, 1.0)
    assert tokens.tolist() == [1, 0]
    assert logprobs.tolist() == [0.0, 0.0]


def test_a_row_has_the_same_uniforms_in_any_batch_also_beyond_a_block() -> None:
    steps = Uniforms.BLOCK + 10
    alone, among = Uniforms([77], steps), Uniforms([3, 77, 2**64 - 1], steps + 999)
    for step in range(steps):
        assert among.at(step)[1] == alone.at(step)[0]


def test_a_row_s_uniforms_are_the_philox_stream_of_its_seed_in_order() -> None:
    seed, steps = 2**63 + 5, 2 * Uniforms.BLOCK + 3
    uniforms = Uniforms([seed], steps)
    expected = np.random.Generator(np.random.Philox(key=seed)).random(steps)
    assert [float(uniforms.at(step)[0]) for step in range(steps)] == expected.tolist()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_logits_that_are_no_distribution_are_told_apart_from_a_crash(broken: float, top_p: float) -> None:
    with pytest.raises(NotFinite):
        draw(torch.tensor([[0.0, 1.0], [0.0, broken]]), torch.tensor([0.5, 0.5]).double(), 1.0, top_p)
