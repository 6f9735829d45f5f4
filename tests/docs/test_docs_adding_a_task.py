"""The task of docs/adding-a-task.md keeps the contract, becomes a study's task, and the page names what exists."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs_pages import DOCS, ROOT, blocks, prose

from harness.errors import InputError
from harness.tasks.base import POOLS
from harness.tasks.pools import PoolSizes

PAGE = DOCS / "adding-a-task.md"
FILE, LINE = blocks(PAGE, "python")
SIZES = PoolSizes(train=40, tuning=10, confirmatory=20)


@pytest.fixture(scope="module")
def reverse(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("task") / "reverse.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_pools_are_filled_disjoint_and_the_same_each_time(reverse: ModuleType):
    spec = reverse.ReverseSpec(pool=SIZES, letters=3)
    task, again = reverse.ReverseTask(spec), reverse.ReverseTask(spec)
    words = {pool: [problem.answer for problem in task.pool(pool)] for pool in POOLS}
    assert {pool: len(found) for pool, found in words.items()} == {"train": 40, "tuning": 10, "confirmatory": 20}
    assert len({word for found in words.values() for word in found}) == 70
    assert all(list(task.pool(pool)) == list(again.pool(pool)) for pool in POOLS)


def test_more_problems_than_there_are_words_are_refused(reverse: ModuleType):
    with pytest.raises(InputError, match="too few distinct problems"):
        reverse.ReverseTask(reverse.ReverseSpec(pool=SIZES, letters=1))


def test_only_a_finished_completion_that_reads_backwards_is_right(reverse: ModuleType):
    task = reverse.ReverseTask(reverse.ReverseSpec(pool=SIZES))
    problem = task.pool("train")[0]
    word = problem.prompt.split()[1]
    assert task.verify(problem, word[::-1], True)
    assert not task.verify(problem, word[::-1], False)
    assert not task.verify(problem, word[::-1] + "a", True)


def test_the_file_and_the_line_make_it_a_task_of_study_files(tmp_path: Path):
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "harness" / "tasks" / "reverse.py").write_text(FILE)
    registry = tmp_path / "harness" / "tasks" / "registry.py"
    opening = "TASKS: Final[dict[str, TaskEntry]] = {\n"
    assert registry.read_text().count(opening) == 1
    imported = "from harness.tasks.reverse import ReverseSpec\n\n"
    registry.write_text(registry.read_text().replace(opening, f"{imported}{opening}{LINE}"))
    code = """
from harness.study.schema import Study
assert "Task_reverse" in Study.model_json_schema()["$defs"]
from harness.tasks.registry import build_task
task = build_task({"name": "reverse", "letters": 5, "pool": {"train": 4, "tuning": 2, "confirmatory": 2}})
assert len(task.pool("train")[0].answer) == 5
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["adding-a-task.md", "adding-an-arm.md"])
def test_names_and_paths_on_the_page_exist(page: str):
    sources = "\n".join(path.read_text() for path in [*ROOT.glob("harness/**/*.py"), *ROOT.glob("tests/**/*.py")])
    example = "\n".join(blocks(DOCS / page, "python") + blocks(DOCS / page, "yaml"))
    new = {"harness/tasks/reverse.py", "harness/interventions/greedy_baseline.py"}
    names = re.findall(r"`([^`\n]+)`", prose(DOCS / page))
    assert len(names) > 10
    for name in names:
        if re.fullmatch(r"[\w./-]+/[\w./-]*", name):
            assert name in new or (ROOT / name).exists(), name
        elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)?", name):
            word = name.rsplit(".", 1)[-1]
            assert re.search(rf"\b{word}\b", sources) or word in example, name
