"""Cells by hand: the scripted instrument, and a tiny real model, with everything that a plan would write out."""

from __future__ import annotations

from typing import Any

from harness.compute.kinds import CHARGED_BY_DEFAULT
from harness.layout import CellFolder, RunsFolder
from harness.study.cell import RESULT_VERSION, Cell
from harness.study.training import TrainingSpec


def milestones(budgets: dict[str, float], fractions: tuple[float, ...] = (0.5, 1.0)) -> list[dict[str, Any]]:
    return [
        {"currency": currency, "amount": round(amount * fraction), "fraction": fraction}
        for currency, amount in budgets.items()
        for fraction in fractions
    ]


def scripted_content(
    budgets: dict[str, float],
    *,
    training: dict[str, Any] | None = None,
    problems: int = 64,
    seed: int = 1,
    **arm: Any,
) -> dict[str, Any]:
    """The content of a scripted cell. `arm`: parameters of the scripted intervention."""
    values = TrainingSpec(
        prompts_per_update=2, group_size=2, max_new_tokens=10, checkpoint_every_updates=3, advantage_scale="none"
    )
    return {
        "result_version": RESULT_VERSION,
        "model": {"preset": "scripted"},
        "task": {
            "name": "scripted",
            "revision": 1,
            "pool": {"train": 32, "tuning": 8, "confirmatory": problems},
        },
        "intervention": {"name": "scripted", "parameters": {"gain": 0.05, **arm}},
        "training": {**values.model_dump(mode="json"), **(training or {})},
        "seed": seed,
        "budgets": budgets,
        "milestones": milestones(budgets),
        "evaluate": {
            "pool": "confirmatory",
            "decoding": "greedy",
            "samples": 1,
            "max_new_tokens": 4,
            "diverged_accuracy": 0.0,
        },
        "charged": list(CHARGED_BY_DEFAULT),
        "threads": 1,
    }


def write_cell(runs: RunsFolder, content: dict[str, Any], arm: str = "a") -> CellFolder:
    """Puts a cell into a runs folder, as the launcher would."""
    cell = Cell("study", "model", arm, content["seed"], 0, 0, content)
    folder = CellFolder(runs.cell(cell.id))
    folder.path.mkdir(parents=True, exist_ok=True)
    cell.write(folder.spec)
    return folder
