"""Both metered doors stay shut: read from the source of every module of the harness.

Sampling passes MeteredEngine, since nothing else is ever handed a raw engine. Model work passes Work.run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness

ROOT = Path(harness.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
FOLDERS_OF_ENGINES = ("rollout", "models")
"""Where raw engines are defined and made; everything else gets one from a policy, wrapped at once."""
RAW_ENGINE_MODULES = ("harness.rollout.kv_loop", "harness.rollout.cache", "harness.rollout.draw")


def folder(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def calls(tree: ast.AST, method: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def unmetered_engines(source: str) -> list[int]:
    """Lines that take a policy's engine without handing it to MeteredEngine in the same expression."""
    tree = ast.parse(source)
    wrapped = {
        id(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "MeteredEngine"
        and call.args
    }
    return [call.lineno for call in calls(tree, "engine") if id(call) not in wrapped]


def generates_past_the_meter(source: str) -> list[int]:
    """Lines that call `generate` on anything but a name or attribute called `engine`, e.g. on a model."""
    return [
        call.lineno
        for call in calls(ast.parse(source), "generate")
        if ast.unparse(call.func).split(".")[-2].lstrip("_") != "engine"
    ]


def unmetered_backwards(source: str) -> list[int]:
    """Lines that go backwards through a graph (`loss.backward()`) outside a `with work.run(...)` block."""
    tree = ast.parse(source)
    metered = {
        id(call)
        for block in ast.walk(tree)
        if isinstance(block, ast.With) and any(list(calls(item.context_expr, "run")) for item in block.items)
        for call in calls(block, "backward")
    }
    return [call.lineno for call in calls(tree, "backward") if not call.args and id(call) not in metered]


@pytest.mark.parametrize(
    ("rule", "shut", "open_door"),
    [
        (unmetered_engines, "e = MeteredEngine(policy.engine(), meter)", "engine = policy.engine()"),
        (generates_past_the_meter, "self._engine.generate(requests)", "policy.module.generate(ids)"),
        (unmetered_backwards, "with work.run('critic', 3):\n    loss.backward()", "loss.backward()"),
    ],
)
def test_the_rules_tell_a_shut_door_from_an_open_one(rule, shut: str, open_door: str) -> None:
    assert rule(shut) == []
    assert rule(open_door) == [1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_sampled_token_and_every_backward_pass_goes_through_a_metered_door(path: Path) -> None:
    source = path.read_text()
    assert unmetered_engines(source) == []
    assert generates_past_the_meter(source) == []
    assert unmetered_backwards(source) == []
    if folder(path) not in FOLDERS_OF_ENGINES:
        assert not set(imported(ast.parse(source))) & set(RAW_ENGINE_MODULES)
