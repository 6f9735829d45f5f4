"""From a cell's model to a policy: presets for their task, folders with the weights that were planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError
from harness.models.presets import PRESETS, build_policy
from harness.models.tiny_chain import Recipe, new_module, new_tokenizer
from harness.study.model_folder import weights_hash
from harness.tasks.registry import TASKS, build_task

POOL = {"train": 10, "tuning": 5, "confirmatory": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tokenizer = new_tokenizer()
    new_module(Recipe(), tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_every_preset_is_made_for_a_task_that_exists() -> None:
    assert {preset.task for preset in PRESETS.values()} <= TASKS.keys()


def test_the_scripted_preset_needs_no_warm_start(tmp_path: Path) -> None:
    built = build_policy(
        {"name": "s", "preset": "scripted"}, build_task({"name": "scripted", "pool": POOL}), tmp_path
    )
    assert built.warm_start is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"name": "t", "preset": "tiny-chian"}, "there is no preset 'tiny-chian'; did you mean tiny-chain"),
        ({"name": "t", "preset": "tiny-chain"}, "preset 'tiny-chain' is made for task 'chain', not for 'scripted'"),
        ({"name": "t"}, "there is no preset None"),
    ],
)
def test_a_preset_that_is_unknown_or_made_for_another_task_is_refused(
    model: dict[str, str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told):
        build_policy(model, build_task({"name": "scripted", "pool": POOL}), tmp_path)


def test_a_folder_is_loaded_with_its_weights_and_refused_once_they_change(folder: Path, tmp_path: Path) -> None:
    task = build_task({"name": "chain", "pool": POOL})
    planned = {"name": "f", "weights_hash": weights_hash(folder)}
    built = build_policy(planned, task, tmp_path, str(folder))
    assert built.warm_start is None
    prompt = task.pool("train")[0].prompt
    assert "".join(built.policy.pieces(built.policy.encode(prompt))) == prompt

    new_module(Recipe(seed=5), new_tokenizer()).save_pretrained(folder)
    with pytest.raises(InputError, match="changed since the cell was planned"):
        build_policy(planned, task, tmp_path, str(folder))
