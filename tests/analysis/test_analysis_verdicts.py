"""Each claim type decides as its table in docs/verdicts.md says, on studies with a planted truth."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from synthetic_study import TOKENS, TOKENS_POINT, UPDATES, SyntheticStudy, claim

from analysis.errors import AnalysisError
from analysis.snapshot import Snapshot
from analysis.tables import render
from analysis.verdicts import Verdict, Verdicts, verdicts

Open = Callable[[SyntheticStudy], Snapshot]
DOCUMENT = Path(__file__).parents[2] / "docs" / "verdicts.md"

SPREAD = (-1.5, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5)
"""Points around the planted difference, one per seed: mean 0, so that estimates are exact."""


def study(at_updates: float, at_tokens: float, *claims: dict[str, Any], **given: Any) -> SyntheticStudy:
    """mc - grpo is planted, in points, at each of the two points."""

    def accuracy(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
        luck = 0.01 * (seed % 3)
        planted = at_updates if currency == "updates" else at_tokens
        return 0.5 + luck + (0.01 * (planted + SPREAD[seed - 101]) if arm == "mc" else 0.0)

    return SyntheticStudy(claims=claims, **given).fill(accuracy)


def only(result: Verdicts) -> Verdict:
    [row] = result.rows
    return row


GREATER = claim("directional", "mc", "grpo", relation=">")
BY_TWO = {**GREATER, "margin_points": 2.0}
SAME = claim("equivalence", "mc", "grpo", margin_points=2.0)
FLIP = claim("rank-flip", "mc", "grpo", then=TOKENS_POINT)

CASES = [
    (GREATER, (3.0, 0.0), "supported"),
    (GREATER, (-3.0, 0.0), "contradicted"),
    (GREATER, (0.1, 0.0), "inconclusive"),
    ({**GREATER, "relation": "<"}, (-3.0, 0.0), "supported"),
    ({**GREATER, "relation": "<"}, (3.0, 0.0), "contradicted"),
    ({**GREATER, "at": TOKENS_POINT}, (0.0, 3.0), "supported"),
    (BY_TWO, (4.0, 0.0), "supported"),
    (BY_TWO, (2.1, 0.0), "inconclusive"),
    (BY_TWO, (0.2, 0.0), "equivalent"),
    (BY_TWO, (-2.1, 0.0), "contradicted"),
    ({**BY_TWO, "relation": "<"}, (-4.0, 0.0), "supported"),
    (SAME, (0.2, 0.0), "supported"),
    (SAME, (-0.2, 0.0), "supported"),
    (SAME, (1.9, 0.0), "inconclusive"),
    (SAME, (4.0, 0.0), "contradicted"),
    (SAME, (-4.0, 0.0), "contradicted"),
    (FLIP, (3.0, -3.0), "supported"),
    (FLIP, (3.0, 3.0), "contradicted"),
    (FLIP, (-3.0, -3.0), "contradicted"),
    (FLIP, (-3.0, 3.0), "contradicted"),
    (FLIP, (3.0, -0.1), "inconclusive"),
    (FLIP, (0.1, -3.0), "inconclusive"),
]


@pytest.mark.parametrize(("declared", "planted", "expected"), CASES)
def test_a_planted_truth_gets_its_verdict(
    opened: Open, declared: dict[str, Any], planted: tuple[float, float], expected: str
) -> None:
    row = only(verdicts(opened(study(*planted, declared))))
    assert (row.verdict, row.n, row.planned, row.flags) == (expected, 8, 8, ())
    assert row.estimate_points == pytest.approx(planted[declared["at"]["currency"] != "updates"])


def documented() -> dict[str, dict[str, str]]:
    """Claim type -> verdict -> p-value, of docs/verdicts.md."""
    tables: dict[str, dict[str, str]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.M)[1:]:
        rows = re.findall(r"^\| (\w+) \| (.+?) \|$", section, flags=re.M)
        if rows:
            tables[section.split()[0].lower()] = {verdict: p for verdict, p in rows if verdict != "verdict"}
    return tables


def by_document(declared: dict[str, Any], planted: tuple[float, float]) -> str:
    """The verdict that a reader of the tables comes to with scipy's tests; alpha .05, a single claim."""

    def p(differences: np.ndarray, alternative: str, threshold: float = 0.0) -> float:
        return float(stats.ttest_1samp(differences, threshold, alternative=alternative).pvalue)

    d1, d2 = (mean + np.array(SPREAD) for mean in planted)
    d = d1 if declared["at"]["currency"] == "updates" else d2
    d = -d if declared["relation"] == "<" else d
    m = declared["margin_points"]
    inside = max(p(d, "greater", -m), p(d, "less", m)) if m else 1.0
    p_values = {
        "d > m: one-sided t test": p(d, "greater", m),
        "d < m: one-sided t test": p(d, "less", m),
        "-m < d < m: the larger p of two one-sided t tests": inside,
        "d > m or d < -m: twice the smaller p of two one-sided t tests, at most 1": min(
            1.0, 2 * min(p(d, "greater", m), p(d, "less", -m))
        ),
        "d1 > 0 and d2 < 0: the larger p of two one-sided t tests (intersection-union)": max(
            p(d1, "greater"), p(d2, "less")
        ),
        "d1 < 0 or d2 > 0: twice the smaller p of two one-sided t tests, at most 1": min(
            1.0, 2 * min(p(d1, "less"), p(d2, "greater"))
        ),
        "none of these": 0.0,
    }
    table = documented()[declared["kind"]]
    return next(verdict for verdict, test in table.items() if p_values[test] <= 0.05)


@pytest.mark.parametrize(("declared", "planted", "expected"), CASES)
def test_the_documents_tables_give_the_same_verdict(
    declared: dict[str, Any], planted: tuple[float, float], expected: str
) -> None:
    assert by_document(declared, planted) == expected


def test_default_sidedness_is_one_sided_and_two_sides_decide_later(tmp_path: Path) -> None:
    # t = .9 / (1.0351 / sqrt 8) = 2.46: one-sided .022, two-sided .043; at .8: .032 and .065.
    for planted, sides, expected in ((0.8, 1, "supported"), (0.8, 2, "inconclusive"), (0.9, 2, "supported")):
        made = study(planted, 0.0, {**GREATER, "sides": sides})
        path = made.write(tmp_path / f"{planted}-{sides}.duckdb")
        row = only(verdicts(Snapshot.open(path)))
        one_sided = stats.ttest_1samp(planted + np.array(SPREAD), 0, alternative="greater").pvalue
        assert (row.verdict, row.p) == (expected, pytest.approx(sides * one_sided))


def test_holm_counts_every_claim_of_the_plan_with_or_without_data(opened: Open) -> None:  # S1
    lost = {**GREATER, "id": "H2", "model": "a model that was never run"}
    rows = verdicts(opened(study(0.9, -5.0, GREATER, lost, {**FLIP, "id": "H3"}))).rows
    alone = stats.ttest_1samp(0.9 + np.array(SPREAD), 0, alternative="greater").pvalue
    assert [row.verdict for row in rows] == ["inconclusive", "not evaluable", "inconclusive"]
    assert rows[1].p_adjusted == 1.0
    assert rows[0].p_adjusted == rows[2].p_adjusted == pytest.approx(3 * alone)


def test_without_a_correction_each_claim_stands_alone(opened: Open) -> None:
    claims = [GREATER, {**GREATER, "id": "H2"}, {**FLIP, "id": "H3"}]
    rows = verdicts(opened(study(0.9, -5.0, *claims, correction="none"))).rows
    assert [row.verdict for row in rows] == ["supported"] * 3


def test_no_spread_over_seeds_is_not_evaluable_and_shows_its_value(opened: Open) -> None:  # S2
    made = SyntheticStudy(claims=[GREATER, {**FLIP, "id": "H2"}])
    made.fill(lambda m, arm, s, c, a: 0.75 if arm == "mc" else 0.5)
    rows = verdicts(opened(made)).rows
    assert [row.verdict for row in rows] == ["not evaluable"] * 2
    assert rows[0].estimate_points == 25
    assert "no spread" in rows[0].reason


@pytest.mark.parametrize("seeds", [0, 1])
def test_fewer_than_two_pairs_are_not_evaluable(opened: Open, seeds: int) -> None:
    made = SyntheticStudy(claims=[GREATER])
    for seed in made.seeds[:seeds]:
        for arm in made.arms:
            made.run(arm, seed, {("updates", UPDATES): 0.5 if arm == "grpo" else 0.9})
    row = only(verdicts(opened(made)))
    assert (row.verdict, row.n, row.reason) == (
        "not evaluable", seeds, f"complete pairs of seeds: {seeds}, at least 2 are needed",
    )  # fmt: skip
    assert f"interim, unfinished blocks: {8 - seeds}" in row.flags


def test_runs_that_did_not_reach_a_point_leave_the_claim_undecided_however_good_the_others(opened: Open) -> None:
    made = SyntheticStudy(claims=[{**GREATER, "at": TOKENS_POINT}])
    for seed in made.seeds:
        made.run("grpo", seed, {("generated_tokens", TOKENS): 0.3 + 0.01 * (seed % 4)})
        made.run("mc", seed, {("generated_tokens", TOKENS): 0.9} if seed > 102 else {})
    row = only(verdicts(opened(made)))
    assert (row.verdict, row.reason) == ("not evaluable", "runs that did not reach 1,000 generated tokens: 2")


def test_hours_of_different_devices_are_not_compared(opened: Open) -> None:
    hours = {"currency": "gpu_hours", "amount": 2.0}
    made = SyntheticStudy(claims=[{**GREATER, "at": hours}, {**GREATER, "id": "H2"}], grids={"gpu_hours": [2.0]})
    for seed in made.seeds:
        for arm in made.arms:
            value = (0.8 if arm == "mc" else 0.5) + 0.001 * (seed % (3 if arm == "mc" else 5))
            device = "H200" if seed == 101 else "A100"
            made.run(arm, seed, {("gpu_hours", 2.0): value, ("updates", UPDATES): value}, device=device)
    rows = verdicts(opened(made)).rows
    assert (rows[0].verdict, rows[1].verdict) == ("not evaluable", "supported")
    assert rows[0].reason == "hours of different devices do not compare: A100, H200"


def test_a_claim_without_a_model_is_judged_on_each_seeds_mean_over_models(opened: Open) -> None:
    made = SyntheticStudy(models=("x", "y"), claims=[GREATER, {**GREATER, "id": "H2", "model": "y"}])
    shift = {"x": 4.0, "y": -2.0}
    made.fill(lambda m, arm, s, c, a: 0.5 + (0.01 * (shift[m] + SPREAD[s - 101]) if arm == "mc" else 0.0))
    overall, second = verdicts(opened(made)).rows
    assert (overall.model, overall.verdict) == ("all models", "supported")
    assert overall.estimate_points == pytest.approx(1.0)
    assert (second.model, second.verdict) == ("y", "contradicted")


def test_a_failed_run_is_not_made_good_by_the_other_seeds(opened: Open) -> None:
    made = SyntheticStudy(claims=[GREATER])
    for seed in made.seeds:
        made.run("grpo", seed, {("updates", UPDATES): 0.3 + 0.01 * (seed % 4)})
        if seed == 108:
            made.run("mc", seed, {}, status="failed")
        else:
            made.run("mc", seed, {("updates", UPDATES): 0.9 - 0.01 * (seed % 3)})
    row = only(verdicts(opened(made)))
    assert (row.verdict, row.reason) == ("not evaluable", "failed runs: 1")


def test_what_a_reader_must_know_is_flagged(opened: Open) -> None:
    made = SyntheticStudy(claims=[GREATER], mode="reproduction")
    for seed in made.seeds:
        made.run("grpo", seed, {("updates", UPDATES): 0.3 + 0.01 * (seed % 4)})
        lost = {"accuracy": None, "diverged": True}
        made.run("mc", seed, {("updates", UPDATES): lost if seed == 101 else 0.9}, diverged=seed == 101)
    row = only(verdicts(opened(made)))
    assert row.flags == ("reproduction", "diverged runs, scored at the floor: 1")
    assert (row.n, row.planned, row.seeds_in_favour) == (8, 8, 7)
    assert row.sign_p == pytest.approx(9 / 256)  # at least 7 of 8 heads


def test_an_equivalence_interval_has_the_level_of_its_test(opened: Open) -> None:
    row = only(verdicts(opened(study(0.0, 0.0, SAME))))
    reach = stats.t.ppf(0.95, 7) * np.std(SPREAD, ddof=1) / np.sqrt(8)
    assert (row.low_points, row.high_points) == pytest.approx((-reach, reach))


def test_an_unknown_kind_of_claim_is_refused(opened: Open) -> None:
    with pytest.raises(AnalysisError, match="unknown kind 'guess'"):
        verdicts(opened(study(0.0, 0.0, claim("guess", "mc", "grpo"))))


def test_every_format_shows_verdict_mode_and_reason(opened: Open) -> None:
    lost = {**GREATER, "id": "H2", "model": "absent", "text": "accuracy(mc) > accuracy(grpo) at 50 updates"}
    result = verdicts(opened(study(3.0, 0.0, GREATER, lost)))
    for fmt in ("terminal", "markdown"):
        text = render(result, fmt, width=200)
        assert "supported" in text and "study s · confirmatory" in text
        assert "H2, not evaluable: no model absent in the plan" in text
    found = json.loads(render(result, "json"))
    assert [row["verdict"] for row in found["rows"]] == ["supported", "not evaluable"]
    assert found["rows"][1]["p"] is None
    assert render(result, "csv").count("\n") == 3


def test_the_notes_open_with_what_each_claim_states(opened: Open) -> None:
    text = "accuracy(mc) > accuracy(grpo) at 50 updates"
    stated = {**GREATER, "statement": "mc beats grpo", "text": text}
    [table] = verdicts(opened(study(3.0, 0.0, stated, {**GREATER, "id": "H2", "text": text}))).tables()
    assert table.notes[:2] == (f"H1: mc beats grpo ({text})", f"H2: {text}")
    assert {"a - b", "a - b at 2nd point"} < set(table.columns)


def test_a_study_without_claims_has_an_empty_table(opened: Open) -> None:
    assert verdicts(opened(study(1.0, 1.0))).rows == ()
