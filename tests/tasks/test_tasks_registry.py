"""Tasks by name: light to import, checked, and tied to a revision."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import InputError
from harness.tasks.base import POOLS
from harness.tasks.registry import TASKS, build_task, task_spec

POOL = {"train": 30, "tuning": 5, "confirmatory": 5}


@pytest.mark.parametrize("module", ["harness.tasks.registry", "harness.models.presets"])
def test_registries_import_nothing_heavy(module: str) -> None:
    heavy = "{'torch', 'transformers', 'tokenizers', 'reasoning_gym', 'numpy', 'pandas'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


def test_a_resolved_task_holds_its_defaults_and_revision_and_builds_the_same_task() -> None:
    given = {"name": "chain", "pool": POOL}
    resolved = {"name": "chain", **task_spec(given).model_dump(mode="json")}
    assert resolved == {"name": "chain", "revision": 1, "pool": POOL, "steps": {"min": 3, "max": 6}}
    assert build_task(resolved).pool("train") == build_task(given).pool("train")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"name": "chian", "pool": POOL}, "task.name: there is no task 'chian'; did you mean chain"),
        ({"pool": POOL}, "there is no task None"),
        ({"name": "chain", "pool": POOL, "revision": 99}, "task.revision: the cell was planned with revision 99"),
        ({"name": "chain", "pool": {"train": 3}}, "task.pool.tuning: Field required\ntask.pool.confirmatory"),
        ({"name": "chain", "pool": POOL, "stpes": {}}, "task.stpes: Extra inputs"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(content: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as caught:
        build_task(content)
    assert told in str(caught.value)


def test_every_registered_task_builds_by_its_name() -> None:
    more = {"reasoning-gym": {"dataset": "chain_sum"}}
    for name in TASKS:
        task = build_task({"name": name, "pool": POOL, **more.get(name, {})})
        assert task.name == name
        assert {pool: len(task.pool(pool)) for pool in POOLS} == POOL


def test_the_scripted_task_is_solved_by_the_scripted_mark() -> None:
    task = build_task({"name": "scripted", "pool": POOL})
    assert len({problem.content_hash for pool in POOLS for problem in task.pool(pool)}) == 40
    problem = task.pool("train")[0]
    assert task.verify(problem, "...solved", True)
    assert not task.verify(problem, "...failed", True)
    assert not task.verify(problem, "...solved", False)
    assert task.step_boundaries(problem, [".", ".", "solved"]) == []
