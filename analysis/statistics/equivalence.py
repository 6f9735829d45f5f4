"""Two one-sided tests (TOST; Schuirmann 1987): is a difference inside a margin on both sides?

Equality is never inferred from a large p. The matching interval is the t interval at level 1 - 2 alpha.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from analysis.statistics.paired import Floats, t_p_value


def equivalence_p_value(differences: ArrayLike, margin: float) -> Floats:
    """p that the mean difference lies strictly within (-margin, margin): the larger of two one-sided p.

    differences: (..., seeds), without gaps, in the margin's unit. Returns p (...), NaN where degenerate.
    """
    _checked(margin)
    above = t_p_value(differences, -margin, "greater")
    below = t_p_value(differences, margin, "less")
    return np.maximum(above, below)


def outside_p_value(differences: ArrayLike, margin: float) -> Floats:
    """p that the mean difference lies outside [-margin, margin]: twice the smaller one-sided p, at most 1.

    differences: (..., seeds), without gaps. Returns p (...), NaN where degenerate.
    """
    _checked(margin)
    above = t_p_value(differences, margin, "greater")
    below = t_p_value(differences, -margin, "less")
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)))


def _checked(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"an equivalence margin must be positive, not {margin}")
