"""The figure's values agree with the tables, and the same study gives the same file to the byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy import stats
from synthetic_study import TOKENS, UPDATES, SyntheticStudy

from analysis.curves import bands, curves
from analysis.errors import AnalysisError
from analysis.figures import save_curves
from analysis.leaderboard import leaderboard
from analysis.snapshot import Snapshot

Open = Callable[[SyntheticStudy], Snapshot]


def accuracy(model: str, arm: str, seed: int, currency: str, amount: float) -> float:
    return 0.3 + 0.001 * (seed * 7 % 11) + (0.1 if arm == "mc" else 0.0) + 0.2 * (amount in (TOKENS, UPDATES))


def test_curves_are_the_runs_read_at_every_milestone(opened: Open) -> None:
    found = curves(opened(SyntheticStudy(seeds=(1, 2)).fill(accuracy)))
    assert len(found) == 2 * 2 * 4
    for row in found.itertuples():
        assert row.accuracy == pytest.approx(accuracy("tiny", row.arm, row.seed, row.currency, row.amount))


def test_bands_are_mean_and_t_interval_over_seeds(opened: Open) -> None:
    study = SyntheticStudy().fill(accuracy)
    snapshot = opened(study)
    band = bands(curves(snapshot)).set_index(["arm", "currency", "amount"]).loc[("mc", "updates", UPDATES)]
    values = [accuracy("tiny", "mc", seed, "updates", UPDATES) for seed in study.seeds]
    low, high = stats.t.interval(0.95, 7, np.mean(values), stats.sem(values))
    assert (band["mean"], band["low"], band["high"]) == pytest.approx((np.mean(values), low, high))
    shown = next(row for row in leaderboard(snapshot).rows if (row.arm, row.currency) == ("mc", "updates"))
    assert band["mean"] == pytest.approx(shown.accuracy)


def test_a_mean_is_never_drawn_over_only_the_runs_that_came_further(opened: Open) -> None:
    study = SyntheticStudy(seeds=(1, 2))
    for seed in study.seeds:
        for arm in study.arms:
            far = {("generated_tokens", TOKENS): 0.9} if (arm, seed) != ("mc", 2) else {}
            study.run(arm, seed, {("generated_tokens", TOKENS / 2): 0.4, **far})
    found = bands(curves(opened(study)))
    drawn = {(row.arm, row.amount) for row in found.itertuples()}
    assert drawn == {("grpo", TOKENS / 2), ("grpo", TOKENS), ("mc", TOKENS / 2)}


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_study_gives_the_same_file_whatever_the_users_style(
    opened: Open, tmp_path: Path, suffix: str
) -> None:
    study = SyntheticStudy(seeds=(1, 2, 3), grids={"flops": [1e9, 5e10], "cpu_hours": [0.1]}).fill(accuracy)
    snapshot = opened(study)
    first = save_curves(snapshot, tmp_path / f"one{suffix}").read_bytes()
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):
        second = save_curves(snapshot, tmp_path / f"two{suffix}").read_bytes()
        assert matplotlib.rcParams["font.size"] == 30
    assert first == second
    assert len(first) > 5_000


def test_a_figure_without_data_or_in_another_format_is_refused(opened: Open, tmp_path: Path) -> None:
    snapshot = opened(SyntheticStudy(seeds=(1,)))
    with pytest.raises(AnalysisError, match="no run has been evaluated"):
        save_curves(snapshot, tmp_path / "empty.svg")
    with pytest.raises(AnalysisError, match=r"\.svg, \.png or \.pdf"):
        save_curves(snapshot, tmp_path / "figure.jpeg")
