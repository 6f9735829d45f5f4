"""Study files for whole sweeps: the scripted instrument with a planted truth, and the smallest real training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PROMPTS, GROUP, ROLLOUT_TOKENS = 2, 2, 10


def write_study(folder: Path, content: Mapping[str, Any]) -> Path:
    """Writes ``<folder>/preregistrations/<study>.yaml``."""
    path = folder / "preregistrations" / f"{content['study']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


@dataclass(frozen=True)
class PlantedArm:
    """What one arm of the scripted instrument is declared to do."""

    gain: float
    continuations: int = 0

    @property
    def update_tokens(self) -> int:
        """What one update costs."""
        return PROMPTS * GROUP * ROLLOUT_TOKENS * (1 + self.continuations)

    def accuracy(self, updates: int) -> float:
        """The declared truth after so many updates."""
        return 0.2 + 0.7 * (1 - math.exp(-self.gain * updates))

    def updates_within(self, budget_tokens: int) -> int:
        """The last update whose whole cost is within the budget."""
        return budget_tokens // self.update_tokens


@dataclass(frozen=True)
class PlantedStudy:
    """Two arms, a budget in tokens and one in updates: who leads at either is known beforehand."""

    study: str
    plain: PlantedArm
    dense: PlantedArm
    seeds: int = 4
    problems: int = 1_000
    budget_tokens: int = 1_610
    budget_updates: int = 10
    title: str = "A planted truth"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arms(self) -> dict[str, PlantedArm]:
        return {"plain": self.plain, "dense": self.dense}

    def difference_points(self, updates: Mapping[str, int]) -> float:
        """dense - plain, in points, after so many updates of each."""
        return 100 * (self.dense.accuracy(updates["dense"]) - self.plain.accuracy(updates["plain"]))

    def within_tokens(self) -> dict[str, int]:
        """Updates of each arm within the whole budget in tokens."""
        return {name: arm.updates_within(self.budget_tokens) for name, arm in self.arms.items()}

    def write(self, folder: Path, **changes: Any) -> Path:
        return write_study(folder, {**self.content(), **changes})

    def content(self) -> dict[str, Any]:
        at_updates = f"at {self.budget_updates} updates"
        at_tokens = "at 100% of generated_tokens"
        return {
            "study": self.study,
            "title": self.title,
            "authors": ["A. Author"],
            "existing_data": "none",
            "models": ["scripted"],
            "task": {"name": "scripted", "pool": {"train": 64, "tuning": 8, "confirmatory": self.problems}},
            "training": {
                "prompts_per_update": PROMPTS,
                "group_size": GROUP,
                "max_new_tokens": ROLLOUT_TOKENS,
                "advantage_scale": "none",
                "checkpoint_every_updates": 8,
            },
            "arms": {
                name: {"intervention": "scripted", "gain": arm.gain, "continuations": arm.continuations}
                for name, arm in self.arms.items()
            },
            "baseline": "plain",
            "seeds": {"first": 101, "count": self.seeds},
            "budget": {"generated_tokens": self.budget_tokens, "updates": self.budget_updates},
            "evaluate": {"at": ["50%", "100%"], "max_new_tokens": 1},
            "claims": [
                {"id": "H1", "claim": f"accuracy(dense) > accuracy(plain) {at_updates}"},
                {"id": "H2", "claim": f"accuracy(dense) < accuracy(plain) {at_tokens}"},
                {"id": "H3", "claim": f"rank flip from dense {at_updates} to plain {at_tokens}"},
            ],
            **self.more,
        }


FLIP = PlantedStudy("planted-flip", PlantedArm(gain=0.05), PlantedArm(gain=0.1, continuations=3))
"""dense learns twice as much per update, at four times the tokens: ahead at equal updates, behind at equal tokens."""

NO_FLIP = PlantedStudy("planted-order", PlantedArm(gain=0.05), PlantedArm(gain=0.4, continuations=3))
"""dense learns eight times as much per update, at four times the tokens: ahead either way."""


def chain_study(
    study: str, budget: Mapping[str, Any], arms: Sequence[str] = ("grpo", "mc"), **changes: Any
) -> dict[str, Any]:
    """Real training of tiny-chain, as small as it gets: a limit of 7 tokens cuts every answer of three steps off."""
    known = {
        "grpo": {"intervention": "grpo"},
        "mc": {"intervention": "mc-difference", "continuations": 2, "merge_equal_prefixes": True},
    }
    return {
        "study": study,
        "title": "Real training",
        "authors": ["A. Author"],
        "existing_data": "none",
        "models": ["tiny-chain"],
        "task": CHAIN_TASK,
        "training": {
            "prompts_per_update": 4,
            "group_size": 4,
            "max_new_tokens": 7,
            "advantage_scale": "rms",
            "checkpoint_every_updates": 4,
        },
        "arms": {name: known[name] for name in arms},
        "baseline": arms[0],
        "seeds": [101, 102],
        "budget": dict(budget),
        "evaluate": {"at": ["50%", "100%"]},
        **changes,
    }


CHAIN_TASK = {
    "name": "chain",
    "steps": {"min": 2, "max": 3},
    "pool": {"train": 64, "tuning": 8, "confirmatory": 24},
}
"""One task for all tests of real training, so that they share one warm start."""
