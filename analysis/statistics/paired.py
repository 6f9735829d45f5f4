"""Paired t over seeds: intervals and one- or two-sided p-values of per-seed differences.

Every function works on the last axis, so that one study and a thousand simulated ones take the same path.
Promise: differences without spread, or fewer than two of them, are *degenerate*: their interval and p are
NaN, never a false certainty. Which differences may be paired is decided by whoever builds the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
Alternative = Literal["greater", "less", "two-sided"]

_NO_SPREAD = 1e-12
"""Accuracies are ratios of small integers: a smaller standard deviation is rounding, not variation."""


def _moments(differences: ArrayLike) -> tuple[int, Floats, Floats]:
    """n, the mean (...) and its standard error (...); the error is NaN where the differences are degenerate."""
    values = np.asarray(differences, dtype=np.float64)
    count = values.shape[-1]
    if count == 0:
        nothing = np.full(values.shape[:-1], np.nan)
        return 0, nothing, nothing
    mean = values.mean(axis=-1)
    if count < 2:
        return count, mean, np.full_like(mean, np.nan)
    spread = values.std(axis=-1, ddof=1)
    spread = np.where(spread <= _NO_SPREAD * np.maximum(1.0, np.abs(mean)), np.nan, spread)
    return count, mean, spread / np.sqrt(count)


def t_interval(differences: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Two-sided t interval of the mean difference.

    differences: (..., seeds), without gaps. Returns low (...) and high (...), NaN where degenerate.
    """
    count, mean, error = _moments(differences)
    if count < 2:
        return error, error
    reach = stats.t.ppf((1 + level) / 2, count - 1) * error
    return mean - reach, mean + reach


def t_p_value(differences: ArrayLike, threshold: float = 0.0, alternative: Alternative = "two-sided") -> Floats:
    """p of the paired t test that the mean difference exceeds (falls below, differs from) `threshold`.

    differences: (..., seeds), without gaps. Returns p (...), NaN where degenerate.
    """
    count, mean, error = _moments(differences)
    if count < 2:
        return error
    t = (mean - threshold) / error
    tail = {"greater": stats.t.sf, "less": stats.t.cdf}
    if alternative == "two-sided":
        return np.asarray(2 * stats.t.sf(np.abs(t), count - 1))
    return np.asarray(tail[alternative](t, count - 1))


@dataclass(frozen=True)
class PairedTest:
    """What per-seed differences say about their mean. NaN where there is nothing to say."""

    n: int
    """Complete pairs."""
    mean: float
    low: float
    high: float
    p: float
    """Two-sided, against zero."""

    @property
    def degenerate(self) -> bool:
        """A mean without an interval: one pair, or no spread."""
        return self.n > 0 and bool(np.isnan(self.low))


def paired_test(differences: ArrayLike, level: float = 0.95) -> PairedTest:
    """The paired t test of one arm pair; differences (seeds,), NaN marking incomplete pairs, which are left out."""
    complete = complete_pairs(differences)
    low, high = t_interval(complete, level)
    mean = float(complete.mean()) if complete.size else float("nan")
    return PairedTest(int(complete.size), mean, float(low), float(high), float(t_p_value(complete)))


def complete_pairs(differences: ArrayLike) -> Floats:
    """differences (seeds,) without the incomplete (NaN) pairs."""
    values = np.asarray(differences, dtype=np.float64)
    return values[~np.isnan(values)]
