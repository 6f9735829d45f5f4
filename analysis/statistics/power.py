"""Power of the paired t test over seeds: how many seeds a difference needs, and which one a study can see.

Exact, from the noncentral t distribution; two-sided unless said otherwise.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, stats


def paired_t_power(effect: float, seeds: int, alpha: float = 0.05, two_sided: bool = True) -> float:
    """Probability of p <= alpha when the mean difference is `effect` standard deviations; 0 below two seeds."""
    if seeds < 2:
        return 0.0
    df, shift = seeds - 1, abs(effect) * np.sqrt(seeds)
    critical = stats.t.ppf(1 - alpha / (2 if two_sided else 1), df)
    power = float(stats.nct.sf(critical, df, shift))
    if two_sided:
        # The far tail underflows to NaN where it is below 1e-12.
        power += float(np.nan_to_num(stats.nct.cdf(-critical, df, shift)))
    return power


def minimum_detectable_effect(seeds: int, alpha: float = 0.05, power: float = 0.8, two_sided: bool = True) -> float:
    """The smallest difference found with that power, in standard deviations of the per-seed differences.

    Infinite below two seeds.
    """
    if seeds < 2:
        return float("inf")
    most = 1.0
    while paired_t_power(most, seeds, alpha, two_sided) < power:
        most *= 1.5
    return float(optimize.brentq(lambda effect: paired_t_power(effect, seeds, alpha, two_sided) - power, 0.0, most))


def seeds_needed(
    difference: float, deviation: float, alpha: float = 0.05, power: float = 0.8, two_sided: bool = True
) -> int:
    """Seeds for a difference, given the standard deviation of per-seed differences in the same unit."""
    if not (difference != 0 and deviation > 0):
        raise ValueError("seeds are needed for a difference that is not zero and a deviation that is positive")
    enough = 2
    while paired_t_power(difference / deviation, enough, alpha, two_sided) < power:
        enough *= 2
    too_few = max(1, enough // 2)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if paired_t_power(difference / deviation, middle, alpha, two_sided) < power:
            too_few = middle
        else:
            enough = middle
    return enough
