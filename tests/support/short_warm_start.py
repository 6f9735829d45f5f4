"""A warm start of tiny-chain in two seconds: it knows the form of an answer, and is right one time in ten.

It is put into a cache under the name that the real one would have, so that real workers find it. If that name should
ever differ, they make the real one: slower, and as good for these tests.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.layout import RunsFolder
from harness.models.cache import cached
from harness.models.tiny_chain import RECIPE_VERSION, Recipe, build
from harness.tasks.registry import build_task, task_spec


def make_short_warm_start(task: dict[str, Any], folder: Path) -> Path:
    """A folder to be a runs folder's `cache`."""
    short = replace(Recipe(), mastered=0.0, window=1, faulty_steps=150, error_rates={})
    build(build_task(task), folder / "short", recipe=short)
    (made,) = (path for path in (folder / "short").iterdir() if path.is_dir())
    key = {
        "recipe": asdict(Recipe()),
        "version": RECIPE_VERSION,
        "task": task_spec(task).model_dump(mode="json"),
    }
    cache = folder / "cache"
    cached(
        RunsFolder(folder).cache("warm-start"), key, lambda aside: shutil.copytree(made, aside, dirs_exist_ok=True)
    )
    return cache


def with_cache(runs: RunsFolder, cache: Path) -> RunsFolder:
    """A new runs folder that uses this cache."""
    runs.root.mkdir(parents=True)
    (runs.root / "cache").symlink_to(cache)
    return runs
