"""Accuracy along each currency, as tidy frames: the values that the figures draw.

Every point is a run read at a milestone (`at_budget`), so curves and tables never disagree.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.at_budget import at_budget
from analysis.points import milestones_in
from analysis.snapshot import Snapshot
from analysis.statistics.paired import t_interval


def curves(snapshot: Snapshot) -> pd.DataFrame:
    """One row per planned cell and milestone, as `at_budget` gives them.

    Columns: model, arm, seed, currency, amount, accuracy (0 to 1), status, counted.
    """
    currencies = list(dict.fromkeys(snapshot.milestones["currency"]))
    points = [(currency, amount) for currency in currencies for amount in milestones_in(snapshot, currency)]
    columns = ["model", "arm", "seed", "currency", "amount", "accuracy", "status", "counted"]
    frames = [at_budget(snapshot, *point)[columns] for point in points]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def bands(curves: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Mean and t interval over seeds of each arm's curve: model, arm, currency, amount, mean, low, high, n.

    Only where every counted run of the arm that got anywhere on this currency has a reading: a mean over the runs
    that came further would be one over other seeds. low and high are NaN where degenerate.
    """
    rows = []
    read = curves[curves["counted"] & curves["accuracy"].notna()]
    for (model, arm, currency), arm_curves in read.groupby(["model", "arm", "currency"], sort=False):
        seeds = arm_curves["seed"].nunique()
        for amount, here in arm_curves.groupby("amount"):
            accuracy = here["accuracy"].to_numpy(float)
            if len(accuracy) == seeds:
                low, high = t_interval(accuracy, level)
                rows.append((model, arm, currency, amount, accuracy.mean(), float(low), float(high), seeds))
    columns = ["model", "arm", "currency", "amount", "mean", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("amount", "mean", "low", "high"), np.float64))
