"""Sign tests: what a handful of seeds can say without assuming a distribution, and what they never can.

A discrete test has a smallest p; a claim whose alpha lies below it cannot be decided and is refused before
the lock (docs/method.md, section 7).
"""

from __future__ import annotations

from scipy import stats


def sign_test_p_value(successes: int, trials: int) -> float:
    """One-sided p of at least `successes` of `trials` pairs under a fair coin; NaN without trials.

    Ties are left out of both beforehand.
    """
    if trials == 0:
        return float("nan")
    return float(stats.binom.sf(successes - 1, trials, 0.5))


def smallest_p_value(seeds: int, two_sided: bool = True) -> float:
    """The smallest p that a sign or sign-flip permutation test of `seeds` pairs can return.

    With 3 pairs it is .25 two-sided: no data can reach .05.
    """
    return min(1.0, (2 if two_sided else 1) * 0.5**seeds)
