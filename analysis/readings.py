"""A study's runs as arrays, read at any point: what flips and verdicts are computed from.

Each point is read once. A model of None means the mean over all planned models, with equal weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.at_budget import accuracy_array, at_budget
from analysis.points import Point
from analysis.snapshot import Snapshot

ALL_MODELS = "all models"
"""The name in tables of the mean over models."""


class Readings:
    """Accuracies of one study at points, remembered."""

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot
        self._frames: dict[tuple[str, float], pd.DataFrame] = {}

    @cached_property
    def models(self) -> list[str | None]:
        """Every planned model, and None (the mean over them) where there are several."""
        names: list[str | None] = list(self.snapshot.models)
        return [*names, None] if len(names) > 1 else names

    def frame(self, model: str | None, point: Point) -> pd.DataFrame:
        """The `at_budget` frame at a point, of one model or of all."""
        key = (point.currency, point.amount)
        if key not in self._frames:
            self._frames[key] = at_budget(self.snapshot, *key)
        frame = self._frames[key]
        return frame if model is None else frame[frame["model"] == model]

    def accuracies(self, model: str | None, arms: Sequence[str], point: Point) -> NDArray[np.float64]:
        """(arms, seeds) from 0 to 1, NaN where missing; see `accuracy_array`."""
        return accuracy_array(self.frame(model, point), arms, model)

    def differences(self, model: str | None, a: str, b: str, point: Point) -> NDArray[np.float64]:
        """(seeds,) a - b in points, NaN where either is missing."""
        first, second = self.accuracies(model, [a, b], point)
        return np.asarray(100 * (first - second))

    def count(self, model: str | None, arms: Sequence[str], point: Point, status: str) -> int:
        """Runs of these arms with a status at a point."""
        frame = self.frame(model, point)
        return int((frame["arm"].isin(arms) & (frame["status"] == status)).sum())

    def left_out(self, model: str | None, point: Point) -> int:
        """Blocks that count for no arm at a point, because one of their cells has not come so far yet."""
        frame = self.frame(model, point)
        return int(frame.loc[~frame["counted"], "block"].nunique())

    def devices(self, model: str | None, arms: Sequence[str]) -> list[str]:
        """Types of device that these arms' runs were made on, sorted."""
        planned = self.snapshot.planned
        mine = planned["arm"].isin(arms) & ((planned["model"] == model) | (model is None))
        attempts = self.snapshot.attempts
        return sorted(set(attempts.loc[attempts["cell"].isin(planned.loc[mine, "cell"]), "device"].dropna()))
