"""Imports point down the table of CONTRIBUTING.md, read from there and from the source of every module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted([*(ROOT / "harness").rglob("*.py"), *(ROOT / "analysis").rglob("*.py")])

LEAVES = {"harness", "harness.errors", "harness.layout", "harness.seeds"}
"""Below everything: exceptions, paths, seeds (and the version)."""

PLAIN_VALUES = {
    "harness.study.training",
    "harness.study.cell",
    "harness.study.canonical",
    "harness.study.numbers",
    "harness.study.suggest",
    "harness.study.caps",
    "harness.study.milestones",
    "harness.study.model_folder",
    "harness.study.repository",
}
"""What defines plain values (a cell, training values, a hash of files or of the code, how a number is read): used
from below, and therefore itself allowed no more than its like, the leaves and the currencies."""


def table() -> dict[str, int]:
    """Folder, e.g. `harness.store`, to its row; lower rows have higher numbers."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    folders = [re.findall(r"`([a-z/]+)/`", row.split("|")[1]) for row in rows]
    return {name.replace("/", "."): number for number, names in enumerate(folders) for name in names}


ROWS = table()


def imported(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports, also within functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            below = [f"{module}.{alias.name}" for alias in node.names if is_module(f"{module}.{alias.name}")]
            names = below or [module]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # a registry's `module:callable`, imported when it is needed
            names = [name for name in re.findall(r"^([a-z_.]+):\w+$", node.value) if is_module(name)]
        yield from (name for name in names if name.partition(".")[0] in ("harness", "analysis"))


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def row(module: str) -> int:
    parts = module.split(".")
    return ROWS["analysis"] if parts[0] == "analysis" else ROWS[".".join(parts[:2])]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def forbidden(path: Path) -> list[str]:
    """Imports of a file that point up."""
    mine = name_of(path)
    if mine in LEAVES:
        return [name for name in imported(path) if name not in LEAVES]
    if mine in PLAIN_VALUES:
        return [name for name in imported(path) if name not in {*PLAIN_VALUES, *LEAVES, "harness.compute.kinds"}]
    harmless = LEAVES | PLAIN_VALUES if mine.startswith("harness.") else set()
    return [name for name in imported(path) if name not in harmless and row(name) < row(mine)]


def test_every_folder_of_code_has_its_row() -> None:
    folders = {path.parent for path in MODULES if path.parent not in (ROOT / "harness", ROOT / "analysis")}
    packages = {name_of(path) for path in folders if path.parent == ROOT / "harness"}
    assert packages | {"analysis"} == {name for name in ROWS if name.startswith(("harness", "analysis"))}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward(path: Path) -> None:
    assert forbidden(path) == []


def test_the_record_needs_the_standard_library_only() -> None:
    files = sorted((ROOT / "harness" / "events").glob("*.py"))
    assert len(files) >= 8
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in found:
                ours = name == "harness.events" or name.startswith("harness.events.")
                assert ours or name.partition(".")[0] in sys.stdlib_module_names, f"{path}: {name}"


def test_the_check_sees_an_import_that_points_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden in a function, for types, or in a registry's text: each is found."""
    hidden = (
        "def later():\n    from harness.train.run import Run\n",
        "if TYPE_CHECKING:\n    from harness.train import run\n",
        "import harness.train.run\n",
        "BUILDER = 'harness.train.run:Run'\n",
    )
    path = ROOT / "harness" / "store" / "somewhere.py"
    for text in hidden:
        monkeypatch.setattr(Path, "read_text", lambda _, text=text: text)
        assert forbidden(path) == ["harness.train.run"]
