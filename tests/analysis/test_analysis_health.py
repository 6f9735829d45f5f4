"""Health gates: what is declared is held against every run, and whoever fails is flagged and still counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from synthetic_study import UPDATES, SyntheticStudy, claim

from analysis.health import Health, health_of_runs
from analysis.leaderboard import leaderboard
from analysis.snapshot import Snapshot
from analysis.tables import render
from analysis.verdicts import verdicts

Open = Callable[[SyntheticStudy], Snapshot]


def flat(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
    return 0.0 if arm == "mc" else 0.1 * seed


def study(health: dict[str, float] | None, **more: object) -> SyntheticStudy:
    plan = {} if health is None else {"health": {"window_updates": 3, **health}}
    return SyntheticStudy(seeds=(1, 2), plan=plan, **more).fill(flat)


@pytest.mark.parametrize(
    ("clipped", "failed"),
    [
        ([1.0] * 9, True),
        ([0.0] * 6 + [0.6, 0.6, 0.6], True),
        ([0.0, 0.9, 0.0, 0.9, 0.0, 0.9], True),  # 0.6 over the last but one, one and last
        ([0.0, 0.0, 0.9, 0.0, 0.0, 0.9], False),
        ([0.6, 0.6], True),  # fewer updates than the window: all of them
        ([0.5] * 9, False),  # the gate is the most that it may be
    ],
)
def test_a_gate_is_failed_by_a_mean_over_so_many_updates_in_a_row(
    opened: Open, clipped: list[float], failed: bool
) -> None:
    planned = study({"clipped_share": 0.5})
    cell = planned.cell("tiny", "mc", 1)
    planned.signal(cell, clipped)
    planned.signal(planned.cell("tiny", "mc", 2), [0.0] * 9)
    assert health_of_runs(opened(planned)).failed == ({cell: ("clipped",)} if failed else {})


def test_a_cap_below_the_answers_length_is_flagged_where_it_reads_flat(opened: Open) -> None:
    """Case M9: every rollout of one arm is cut off, every reward is zero, and that looks like a result."""
    planned = study(
        {"clipped_share": 0.5, "zero_variance_share": 0.9, "verifier_errors": 0.0},
        claims=[claim("directional", "mc", "grpo")],
    )
    for seed in planned.seeds:
        planned.signal(planned.cell("tiny", "mc", seed), [1.0] * 9, variance=1.0)
        planned.signal(planned.cell("tiny", "grpo", seed), [0.1] * 9, variance=0.2)
    snapshot = opened(planned)
    board = leaderboard(snapshot)
    assert {row.arm: row.unhealthy for row in board.rows if row.currency == "updates"} == {"grpo": 0, "mc": 2}
    text = render(board, width=200)
    assert "2 unhealthy" in text
    assert "by gate: clipped (2), groups without variance (2)" in text
    (row,) = verdicts(snapshot).rows
    assert "unhealthy runs: 2" in row.flags
    assert {r.arm: r.seeds_done for r in board.rows if r.amount == UPDATES} == {"grpo": 2, "mc": 2}, "still counted"


def test_verifiers_that_raise_are_a_gate_and_not_only_zeros(opened: Open) -> None:
    """Case M10."""
    planned = study({"verifier_errors": 0.0})
    cell = planned.cell("tiny", "grpo", 2)
    planned.signal(cell, [0.0] * 5, errors=1)
    assert health_of_runs(opened(planned)).failed == {cell: ("verifier errors",)}


@pytest.mark.parametrize(
    ("gate", "signal", "failed"),
    [
        ({"entropy": 0.5}, {"entropy": [0.6] * 9}, ()),
        ({"entropy": 0.5}, {"entropy": [0.5] * 9}, ()),  # the gate is the least that it may be
        ({"entropy": 0.5}, {"entropy": [0.9, 0.9, 0.9, 0.6, 0.4, 0.4]}, ("low entropy",)),
        ({"entropy": 0.5}, {"entropy": [0.4, 0.9, 0.4, 0.9, 0.4]}, ()),  # 1.7 / 3 at the least
        ({"entropy": 0.5}, {"entropy": [0.0, 0.6]}, ("low entropy",)),  # fewer than the window: all of them
        ({"entropy": 0.5}, {"entropy": [0.0, None, 0.0, None, 0.0, 9.0]}, ("low entropy",)),
        ({"entropy": 0.5}, {"entropy": [0.6] * 4, "mismatch": [9.0] * 9}, ()),
        ({"sampler_mismatch": 0.01}, {"mismatch": [0.0, 0.0, 0.02, 0.02]}, ("sampler mismatch",)),
        ({"sampler_mismatch": 0.01}, {"mismatch": [0.01] * 9}, ()),
        ({"sampler_mismatch": 0.01, "entropy": 0.1}, {"entropy": [0.0] * 3, "mismatch": [0.5] * 3},
         ("low entropy", "sampler mismatch")),
    ],
)  # fmt: skip
def test_entropy_has_a_floor_and_mismatch_a_ceiling(
    opened: Open, gate: dict[str, float], signal: dict[str, list[float | None]], failed: tuple[str, ...]
) -> None:
    planned = study(gate)
    cell = planned.cell("tiny", "mc", 1)
    planned.signal(cell, [0.0] * max(map(len, signal.values())), **signal)
    assert health_of_runs(opened(planned)) == Health({cell: failed} if failed else {}, {})


def test_a_gate_on_a_signal_that_no_update_told_is_neither_passed_nor_failed(opened: Open) -> None:
    """A log from before the signal was recorded, and one of a run whose mismatch is never defined."""
    gates = {"clipped_share": 0.5, "entropy": 0.5, "sampler_mismatch": 0.01}
    planned = study(gates, claims=[claim("directional", "mc", "grpo")])
    older, newer, whole = (planned.cell("tiny", *one) for one in (("mc", 1), ("mc", 2), ("grpo", 1)))
    planned.signal(older, [1.0] * 9)
    planned.signal(newer, [0.0] * 9, entropy=[1.0] * 9)
    planned.signal(whole, [0.0] * 9, entropy=[1.0] * 9, mismatch=[None] * 8 + [0.0])
    snapshot = opened(planned)
    assert health_of_runs(snapshot) == Health(
        {older: ("clipped",)}, {older: ("entropy", "sampler_mismatch"), newer: ("sampler_mismatch",)}
    )
    text = " ".join(render(leaderboard(snapshot), width=200).split())
    assert "Gates neither passed nor failed: entropy not recorded (1), sampler_mismatch not recorded (2)." in text
    (row,) = verdicts(snapshot).rows
    assert row.flags == ("unhealthy runs: 1", "entropy not recorded: 1", "sampler_mismatch not recorded: 2")


def test_without_declared_gates_nothing_is_flagged(opened: Open) -> None:
    planned = study(None)
    planned.signal(planned.cell("tiny", "mc", 1), [1.0] * 9, errors=5)
    snapshot = opened(planned)
    assert health_of_runs(snapshot) == Health({}, {})
    assert "unhealthy" not in render(leaderboard(snapshot), width=200).lower()
