"""Adjusted p-values of a family whose size comes from the plan, not from the data that arrived.

A hypothesis without data (NaN) stays in the family at p = 1, so a missing result can never make another
one significant. Holm (1979) for the declared confirmatory family, Benjamini-Hochberg (1995) for exploration.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.paired import Floats


def holm(p_values: ArrayLike, family_size: int | None = None) -> Floats:
    """Holm's step-down adjusted p: (m,) -> (m,) in the same order. Missing members are adjusted to 1.

    family_size: the number of planned hypotheses, at least m; those not given count as p = 1.
    """
    p, order, size = _family(p_values, family_size)
    factors = size - np.arange(p.size)
    adjusted = np.maximum.accumulate(p[order] * factors) if p.size else p
    return _restored(adjusted, order)


def benjamini_hochberg(p_values: ArrayLike, family_size: int | None = None) -> Floats:
    """Benjamini-Hochberg's step-up adjusted p (false discovery rate); arguments and result as `holm`."""
    p, order, size = _family(p_values, family_size)
    factors = size / np.arange(1, p.size + 1)
    # Absent hypotheses at p = 1 come last: they cap the adjusted values at 1 and change nothing else.
    adjusted = np.minimum.accumulate((p[order] * factors)[::-1])[::-1] if p.size else p
    return _restored(adjusted, order)


def _family(p_values: ArrayLike, family_size: int | None) -> tuple[Floats, np.ndarray, int]:
    p = np.asarray(p_values, dtype=np.float64)
    p = np.where(np.isnan(p), 1.0, p)
    size = p.size if family_size is None else family_size
    if size < p.size:
        raise ValueError(f"a family of {size} cannot hold {p.size} hypotheses")
    return p, np.argsort(p, kind="stable"), size


def _restored(adjusted: Floats, order: np.ndarray) -> Floats:
    result = np.empty_like(adjusted)
    result[order] = np.minimum(1.0, adjusted)
    return result
