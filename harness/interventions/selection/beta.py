"""Predictions from what a run has seen: a Beta posterior of each prompt's success, discounted as the policy moves.

Whenever a prompt is trained on, with s of n rollouts solved: a <- lambda a + (1 - lambda) a0 + s, and b alike with
the n - s others (docs/method.md, section 4.5). The prior (a0, b0), from which a prompt never seen starts, is fitted
to the newest counts of all prompts seen, by moments of the beta-binomial. On prompts that never return, a posterior
is random choice: pools are finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.interventions.base import Draw, Group, Step
from harness.interventions.selection.base import Prediction, Rates, SelectionParameters, Selector
from harness.seeds import hashed_seed


class SelectBeta(Selector):
    """Keeps the prompts whose predicted success is nearest one half."""

    SOURCE = "ours: a discounted Beta-Bernoulli bandit over prompts"

    class Parameters(SelectionParameters):
        """Of the posterior."""

        discount: Annotated[float, Field(gt=0, le=1)] = 0.8
        """Lambda: what is left of earlier counts when a prompt is seen again; 1 forgets nothing."""
        estimate: Literal["mean", "thompson"] = "mean"
        """The posterior's mean, or one draw from it."""

    parameters: Parameters

    def __init__(self, parameters: Parameters):
        super().__init__(parameters)
        self._posterior: dict[int, tuple[float, float]] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        """Problem index -> (solved, rollouts), when it was last trained on."""

    def predict(self, step: Step, candidates: Sequence[Draw]) -> Prediction:
        prior = self._prior()
        a_C, b_C = np.array([self._posterior.get(draw.index, prior) for draw in candidates]).T
        if self.parameters.estimate == "thompson":
            generator = np.random.default_rng(hashed_seed(step.run_seed, "thompson", step.update))
            draws_C: Rates = generator.beta(a_C, b_C)
            return draws_C
        mean_C: Rates = a_C / (a_C + b_C)
        return mean_C
        yield  # it needs no sample; a generator all the same

    def observe(self, groups: Sequence[Group], step: Step) -> None:
        prior, kept = self._prior(), self.parameters.discount
        for group in groups:
            solved, rollouts = int(group.rewards().sum()), len(group.rollouts)
            before = self._posterior.get(group.problem_index, prior)
            a, b = (kept * old + (1 - kept) * new for old, new in zip(before, prior, strict=True))
            self._posterior[group.problem_index] = (a + solved, b + rollouts - solved)
            self._newest[group.problem_index] = (solved, rollouts)

    def _prior(self) -> tuple[float, float]:
        counts = np.array(list(self._newest.values()), dtype=np.float64).reshape(-1, 2)
        return fit_prior(counts[:, 0], counts[:, 1])

    def state(self) -> dict[str, Any]:
        return {
            "posterior": {str(problem): list(ab) for problem, ab in self._posterior.items()},
            "newest": {str(problem): list(counts) for problem, counts in self._newest.items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._posterior = {int(problem): (ab[0], ab[1]) for problem, ab in state["posterior"].items()}
        self._newest = {int(problem): (counts[0], counts[1]) for problem, counts in state["newest"].items()}


class SelectHard(SelectBeta):
    """Control: keeps the prompts that are predicted to fail most."""

    SOURCE = "ours: a control"

    def preference(self, predicted_C: Rates) -> Rates:
        return predicted_C


class SelectEasy(SelectBeta):
    """Control: keeps the prompts that are predicted to succeed most."""

    SOURCE = "ours: a control"

    def preference(self, predicted_C: Rates) -> Rates:
        return -predicted_C


class SelectRandom(SelectBeta):
    """Control: the same candidates and predictions, and prompts kept by lot."""

    SOURCE = "ours: a control"

    def preference(self, predicted_C: Rates) -> Rates:
        return np.zeros_like(predicted_C)


def fit_prior(solved_N: NDArray[np.float64], rollouts_N: NDArray[np.float64]) -> tuple[float, float]:
    """(a, b) of the Beta that success rates of N prompts come from, by moments of the beta-binomial.

    With mean m and n rollouts of each prompt (their mean number, where it differs), the variance of observed rates is
    m (1 - m) (1/n + (1 - 1/n) rho), rho = 1 / (a + b + 1). rho is held within [.05, .9]: fewer than two prompts, or
    outcomes all alike, tell no spread, and then it is 1/3, as of Beta(1, 1), around the smoothed mean.
    """
    m = (solved_N.sum() + 1) / (rollouts_N.sum() + 2)
    rho, raw = 1 / 3, solved_N.sum() / max(rollouts_N.sum(), 1)
    if len(solved_N) >= 2 and 0 < raw < 1 and rollouts_N.mean() > 1:
        n = rollouts_N.mean()
        share = (solved_N / rollouts_N).var(ddof=1) / (raw * (1 - raw))
        rho, m = float(np.clip((share - 1 / n) / (1 - 1 / n), 0.05, 0.9)), raw
    size = 1 / rho - 1
    return float(m * size), float((1 - m) * size)
