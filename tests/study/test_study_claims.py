"""The grammar of claims: what is read, and where an error points."""

from __future__ import annotations

import json

import pytest

from harness.study.cell import Milestone
from harness.study.claims import ClaimError, ClaimGrammar, Point

BUDGETS = {"generated_tokens": 240_000, "updates": 50, "flops": 1e12}
MILESTONES = [
    Milestone("generated_tokens", 60_000, 0.25),
    Milestone("generated_tokens", 240_000, 1.0),
    Milestone("updates", 10),
    Milestone("updates", 50, 1.0),
    Milestone("flops", 3.33e11, 0.333),
    Milestone("flops", 1e12, 1.0),
]
GRAMMAR = ClaimGrammar(["grpo", "mc-difference", "on", "50"], MILESTONES, BUDGETS)


@pytest.mark.parametrize("relation", [">", "<"])
def test_a_directional_claim(relation: str) -> None:
    claim = GRAMMAR.read(f"accuracy(mc-difference) {relation} accuracy(grpo) at 50 updates", "H1", "words", "m")
    assert claim.record() == {
        "id": "H1",
        "statement": "words",
        "text": f"accuracy(mc-difference) {relation} accuracy(grpo) at 50 updates",
        "kind": "directional",
        "a": "mc-difference",
        "b": "grpo",
        "relation": relation,
        "margin_points": 0.0,
        "at": {"currency": "updates", "amount": 50},
        "then": None,
        "model": "m",
        "sides": 1,
    }


def test_a_directional_claim_with_a_margin() -> None:
    claim = GRAMMAR.read("accuracy(grpo) > accuracy(on) by 2.5 points at 1e12 flops")
    assert (claim.kind, claim.margin_points, claim.at) == ("directional", 2.5, Point("flops", 1e12))


def test_an_equivalence_claim() -> None:
    claim = GRAMMAR.read("accuracy(grpo) = accuracy(on) within 1 point at 25% of generated_tokens")
    assert (claim.kind, claim.relation, claim.margin_points) == ("equivalence", None, 1.0)
    assert claim.at == Point("generated_tokens", 60_000)


def test_a_rank_flip() -> None:
    claim = GRAMMAR.read("rank flip from mc-difference at 50 updates to grpo at 100% of generated_tokens")
    assert (claim.kind, claim.a, claim.b, claim.relation) == ("rank-flip", "mc-difference", "grpo", None)
    assert (claim.at, claim.then) == (Point("updates", 50), Point("generated_tokens", 240_000))


@pytest.mark.parametrize("spelled", ["240_000", "240k", "2.4e5", "240000", "0.24M"])
def test_amounts_may_be_spelled_in_any_way(spelled: str) -> None:
    claim = GRAMMAR.read(f"accuracy(grpo) > accuracy(on) at {spelled} generated_tokens")
    assert claim.at == Point("generated_tokens", 240_000)
    assert isinstance(claim.at.amount, int)


def test_a_percentage_is_exact() -> None:
    assert GRAMMAR.read("accuracy(grpo) > accuracy(on) at 33.3% of flops").at == Point("flops", 3.33e11)


def test_white_space_is_free_and_arms_may_look_like_anything() -> None:
    claim = GRAMMAR.read(" accuracy( 50 )>accuracy(on)\n at  10 updates ")
    assert (claim.a, claim.b, claim.text) == ("50", "on", "accuracy( 50 )>accuracy(on) at 10 updates")


def test_records_are_plain_json() -> None:
    claim = GRAMMAR.read("rank flip from on at 10 updates to grpo at 50 updates", "H", "", None)
    assert json.loads(json.dumps(claim.record())) == claim.record()


@pytest.mark.parametrize(
    ("text", "at_word", "what", "right"),
    [
        ("accuracy(gpro) > accuracy(on) at 50 updates", "gpro", "no arm is called 'gpro'", "did you mean grpo"),
        ("accuracy(on) > accuracy(on) at 50 updates", "on) at", "compared with itself", "two arms"),
        ("accuracy(on) >= accuracy(grpo) at 50 updates", "= acc", "`accuracy`", "accuracy(A) > accuracy(B)"),
        ("accuracy(on) ! accuracy(grpo) at 50 updates", "!", "`>` or `<` or `=`", "within N points"),
        ("accurate(on) > accuracy(grpo) at 50 updates", "accurate", "`accuracy`", "rank flip from"),
        ("accuracy(on) > accuracy(grpo) until 50 updates", "until", "`by` or `at`", "at POINT"),
        ("accuracy(on) > accuracy(grpo) at many updates", "many", "a milestone", "50"),
        ("accuracy(on) > accuracy(grpo) at 50 steps", "steps", "`updates`", "POINT"),
        ("accuracy(on) > accuracy(grpo) at 20 updates", "20", "20 updates is not a declared", "100% of updates (50)"),
        ("accuracy(on) > accuracy(grpo) at 50% of updates", "50%", "50% of updates is not a declared", "10 updates"),
        ("accuracy(on) > accuracy(grpo) at 50% of cpu_hours", "50%", "no budget is given in cpu_hours", "flops"),
        ("accuracy(on) > accuracy(grpo) at 0 updates", "0", "a milestone at 0", "above 0"),
        ("accuracy(on) > accuracy(grpo) by 0 points at 50 updates", "0 p", "a margin of 0", "above 0"),
        ("accuracy(on) = accuracy(grpo) at 50 updates", "at", "`within`", "within N points"),
        ("accuracy(on) = accuracy(grpo) within 300 points at 50 updates", "300", "a margin of 300", "at most 100"),
        ("accuracy(on) > accuracy(grpo) at 50 updates or so", "or", "'or' is left over", "at POINT"),
        ("rank flip from on at 50 updates to grpo at 50 updates", "50 updates^", "the same point twice", "two"),
        ("rank flop from on at 50 updates to grpo at 10 updates", "flop", "`flip`", "rank flip from"),
    ],
)  # fmt: skip
def test_an_error_points_at_the_word_and_says_what_would_be_right(
    text: str, at_word: str, what: str, right: str
) -> None:
    with pytest.raises(ClaimError) as caught:
        GRAMMAR.read(text)
    expected = text.rindex(at_word[:-1]) if at_word.endswith("^") else text.index(at_word)
    assert caught.value.offset == expected
    assert what in caught.value.what
    assert right in caught.value.right


@pytest.mark.parametrize(
    "text", ["", "accuracy(on", "accuracy(on) > accuracy(grpo) at", "rank flip from on at 50 updates"]
)
def test_a_claim_cut_short_points_at_its_end(text: str) -> None:
    with pytest.raises(ClaimError) as caught:
        GRAMMAR.read(text)
    assert caught.value.offset == len(text)
    assert "the claim ends" in caught.value.what
