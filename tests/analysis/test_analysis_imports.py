"""Judgement knows the records only by table and column names: `analysis` imports nothing of `harness`."""

from __future__ import annotations

import ast
from pathlib import Path

import analysis

ROOT = Path(analysis.__file__).parent


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of everything that a file imports, however deep the statement stands."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names.add("a dynamic import")
    return {name.partition(".")[0] for name in names}


def test_analysis_imports_nothing_of_harness_nor_of_training() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert len(files) > 10
    for path in files:
        names = imported(ast.parse(path.read_text()))
        assert not names & {"harness", "torch", "transformers", "submitit", "a dynamic import"}, path


def test_the_walk_would_see_an_import_hidden_in_a_function() -> None:
    assert imported(ast.parse("def f():\n    from harness.store import tables")) == {"harness"}
