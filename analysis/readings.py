"""A study's runs as arrays, read at any point: what flips and verdicts are computed from.

Each point is read once. A model of None means the mean over all planned models, with equal weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.at_budget import Status, accuracy_array, at_budget
from analysis.health import Health, health_of_runs
from analysis.points import Point
from analysis.snapshot import Snapshot

ALL_MODELS = "all models"
"""The name in tables of the mean over models."""


class Readings:
    """Accuracies of one study at points, remembered."""

    def __init__(self, snapshot: Snapshot):
        self.snapshot = snapshot
        self._frames: dict[tuple[str, float], pd.DataFrame] = {}
        self._arrays: dict[tuple[str | None, str, float], NDArray[np.float64]] = {}
        self._counts: dict[tuple[str, float], dict[tuple[str, str, str], int]] = {}
        self._rows = {arm: row for row, arm in enumerate(snapshot.arm_names)}

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
        key = (model, point.currency, point.amount)
        if key not in self._arrays:
            self._arrays[key] = accuracy_array(self.frame(model, point), list(self._rows), model)
        return np.asarray(self._arrays[key][[self._rows[arm] for arm in arms]])

    def differences(self, model: str | None, a: str, b: str, point: Point) -> NDArray[np.float64]:
        """(seeds,) a - b in points, NaN where either is missing."""
        first, second = self.accuracies(model, (a, b), point)
        return np.asarray(100 * (first - second))

    def count(self, model: str | None, arms: Sequence[str], point: Point, status: Status) -> int:
        """Runs of these arms with a status at a point."""
        key = (point.currency, point.amount)
        if key not in self._counts:
            frame = self.frame(None, point)
            self._counts[key] = Counter(zip(frame["model"], frame["arm"], frame["status"], strict=True))
        models = self.snapshot.models if model is None else [model]
        return sum(self._counts[key].get((name, arm, status), 0) for name in models for arm in arms)

    def missing(self, model: str | None, arms: Sequence[str], point: Point) -> int:
        """Ended runs of these arms without a reading: they failed, or did not come so far.

        Neither is missing by chance, so the other seeds cannot stand for them, in a rank or in a test.
        """
        lost: tuple[Status, ...] = ("not reached", "failed")
        return sum(self.count(model, arms, point, how) for how in lost)

    def left_out(self, model: str | None, point: Point) -> int:
        """Blocks that count for no arm at a point, because one of their cells has not come so far yet."""
        frame = self.frame(model, point)
        return int(frame.loc[~frame["counted"], "block"].nunique())

    @cached_property
    def health(self) -> Health:
        """What became of the study's health gates."""
        return health_of_runs(self.snapshot)

    def unhealthy(self, model: str | None, arms: Sequence[str]) -> int:
        """Runs of these arms that fail a health gate."""
        return sum(cell in self.health.failed for cell in self._cells(model, arms))

    def unrecorded(self, model: str | None, arms: Sequence[str]) -> dict[str, int]:
        """Signal that the study has a gate on -> runs of these arms that did not record it."""
        cells = self._cells(model, arms)
        return dict(Counter(signal for cell in cells for signal in self.health.unrecorded.get(cell, ())))

    def devices(self, model: str | None, arms: Sequence[str]) -> list[str]:
        """Types of device that these arms' runs were made on, sorted."""
        attempts = self.snapshot.attempts
        return sorted(set(attempts.loc[attempts["cell"].isin(self._cells(model, arms)), "device"].dropna()))

    def _cells(self, model: str | None, arms: Sequence[str]) -> pd.Series[str]:
        planned = self.snapshot.planned
        return planned.loc[planned["arm"].isin(arms) & ((planned["model"] == model) | (model is None)), "cell"]
