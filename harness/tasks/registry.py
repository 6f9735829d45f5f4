"""Every task by the name that studies use. Adding one is a file beside this and a line here.

Light to import: a task's file keeps heavy libraries inside the functions that need them, so that a study can be
checked and planned in an instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

from pydantic import ValidationError

from harness.errors import InputError
from harness.errors import Problem as Trouble
from harness.study.suggest import did_you_mean
from harness.tasks.base import Task
from harness.tasks.chain import ChainSpec
from harness.tasks.pools import TaskSpec
from harness.tasks.reasoning_gym import ReasoningGymSpec
from harness.tasks.scripted import ScriptedSpec


@dataclass(frozen=True)
class TaskEntry:
    """One task that studies can name."""

    spec: type[TaskSpec]
    """Its parameters; `REVISION` there is raised when its problems or its verifier change."""
    builder: str
    """`module:callable` of what makes a Task of a spec; imported when a task is built."""


TASKS: Final[dict[str, TaskEntry]] = {
    "chain": TaskEntry(ChainSpec, "harness.tasks.chain:ChainTask"),
    "reasoning-gym": TaskEntry(ReasoningGymSpec, "harness.tasks.reasoning_gym:ReasoningGymTask"),
    "scripted": TaskEntry(ScriptedSpec, "harness.tasks.scripted:ScriptedTask"),
}


def task_spec(content: Mapping[str, Any]) -> TaskSpec:
    """The checked parameters of ``{"name": ..., "pool": {...}, ...}``, as a study or a cell gives them.

    Raises InputError for an unknown name, parameters that do not fit, or a revision that this code has left behind.
    """
    given = dict(content)
    name = given.pop("name", None)
    if name not in TASKS:
        raise InputError(Trouble(f"there is no task {name!r}", did_you_mean(str(name), TASKS), field="task.name"))
    kind = TASKS[name].spec
    revision = given.pop("revision", kind.REVISION)
    if revision != kind.REVISION:
        what = f"the cell was planned with revision {revision} of task {name}, this code has {kind.REVISION}"
        raise InputError(Trouble(what, "plan the study again", field="task.revision"))
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(
            [Trouble(each["msg"], field=".".join(["task", *map(str, each["loc"])])) for each in error.errors()]
        ) from None


def build_task(content: Mapping[str, Any]) -> Task:
    """The task of a cell's ``task``. Raises InputError, e.g. for pools that overlap or cannot be filled."""
    spec = task_spec(content)
    module, _, builder = TASKS[content["name"]].builder.partition(":")
    return cast(Task, getattr(import_module(module), builder)(spec))
