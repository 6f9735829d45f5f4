"""An arm that chooses its prompts: any intervention, on the prompts that a selector keeps.

Each update draws candidates from the run's stream of prompts, has the selector predict their success, keeps those
that it prefers (ties in random order) and, for each kept prompt with a small chance, one drawn uniformly instead, so
that no prompt is lost sight of. What was predicted and what came of it is recorded for every choice.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.interventions.base import Choice, Conversation, Draw, Group, Intervention, LossTerm, Step
from harness.interventions.selection.base import Rates, Selector
from harness.models.policy import Policy
from harness.rollout.protocol import Request, Sample
from harness.seeds import hashed_seed

if TYPE_CHECKING:
    from harness.models.trainable import Trainable

_SELECTOR = "selector."
"""Before the names of the selector's modules."""


class Selected(Intervention):
    """`arm` on the prompts that `selector` chooses."""

    SOURCE = "ours: the composition of an arm with a selector"

    def __init__(self, arm: Intervention, selector: Selector):
        super().__init__(arm.parameters)
        self._arm, self._selector = arm, selector

    def modules(self, policy: Policy) -> Mapping[str, Trainable]:
        own = {f"{_SELECTOR}{name}": module for name, module in self._selector.modules(policy).items()}
        return {**self._arm.modules(policy), **own}

    def collect(self, step: Step) -> Conversation:
        count = len(step.draws)
        candidates = [*step.draws, *step.draw_more(self._selector.parameters.candidates - count)]
        predicted_C = yield from self._predicted(step, candidates)
        generator = np.random.default_rng(hashed_seed(step.run_seed, "selection", step.update))
        chosen, uniform = choose(
            self._selector.preference(predicted_C), count, self._selector.parameters.uniform_share, generator
        )
        step.draws = [candidates[place] for place in chosen]
        groups = yield from self._arm.collect(step)
        self._selector.observe(groups, step)
        realised = {(group.problem_index, group.visit): float(group.rewards().mean()) for group in groups}
        step.choices = [
            Choice(
                problem=candidates[place].index,
                predicted=float(predicted_C[place]),
                realised=realised.get((candidates[place].index, candidates[place].visit)),
                uniform=drawn,
            )
            for place, drawn in zip(chosen, uniform, strict=True)
        ]
        step.notes["candidates"] = len(candidates)
        step.notes["predicted_to_fail_share"] = float(np.mean(predicted_C < 0.5))
        return groups

    def _predicted(self, step: Step, candidates: Sequence[Draw]) -> Generator[list[Request], list[Sample], Rates]:
        predicted_C = yield from self._selector.predict(step, candidates)
        if predicted_C.shape != (len(candidates),) or not np.all((predicted_C >= 0) & (predicted_C <= 1)):
            raise RuntimeError(f"{type(self._selector).__name__} predicted no rate for some candidate")
        return predicted_C

    def advantages(self, groups: Sequence[Group], step: Step) -> None:
        self._arm.advantages(groups, step)

    def loss_term(self) -> LossTerm | None:
        return self._arm.loss_term()

    def state(self) -> dict[str, Any]:
        return {"arm": self._arm.state(), "selector": self._selector.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._arm.load_state(state["arm"])
        self._selector.load_state(state["selector"])


def choose(
    preference_C: Rates, count: int, uniform_share: float, generator: np.random.Generator
) -> tuple[list[int], list[bool]]:
    """(`count` distinct places among the C candidates, whether each was drawn uniformly).

    The lowest preferences, equal ones in random order; a binomial number of places goes to uniform draws from the
    rest instead.
    """
    shuffled = generator.permutation(len(preference_C))
    order = shuffled[np.argsort(preference_C[shuffled], kind="stable")]
    uniform = int(generator.binomial(count, uniform_share))
    best, rest = order[: count - uniform], order[count - uniform :]
    drawn = generator.choice(rest, size=uniform, replace=False)
    return [*map(int, best), *map(int, drawn)], [False] * len(best) + [True] * uniform
