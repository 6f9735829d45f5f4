"""Plans: blocks, orders, cells and their ids, and that planning is instant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.study.cell import Cell, Milestone
from harness.study.load import load_study
from harness.study.milestones import declared_milestones
from harness.study.plan import Plan, expected_seconds, make_plan
from harness.study.training import EvaluateSpec

Write = Callable[..., Path]
TWO_MODELS = (
    ("[tiny-chain]", "[{name: first, preset: tiny-chain}, {name: second, preset: tiny-chain}]"),
    ("id: H1", "id: H1\n    model: second"),
)


def planned(path: Path) -> Plan:
    return make_plan(load_study(path))


def ids(path: Path) -> dict[tuple[str, str, int], str]:
    return {(cell.model, cell.arm, cell.seed): cell.id for cell in planned(path).cells}


def test_blocks_hold_all_arms_of_one_model_and_seed_and_go_round_robin_over_models(write: Write) -> None:
    plan = planned(write(*TWO_MODELS))
    assert [(block.model, block.seed) for block in plan.blocks] == [
        ("first", 101), ("second", 101), ("first", 102), ("second", 102), ("first", 103), ("second", 103),
    ]  # fmt: skip
    for block in plan.blocks:
        assert sorted(cell.arm for cell in block.cells) == ["grpo", "mc", "slow"]
        assert [cell.position for cell in block.cells] == [0, 1, 2]
        assert {cell.block for cell in block.cells} == {block.index}


def test_the_order_of_arms_is_random_over_blocks_and_the_same_on_every_call(write: Write) -> None:
    path = write(("count: 3", "count: 600"))
    orders = Counter(tuple(cell.arm for cell in block.cells) for block in planned(path).blocks)
    assert len(orders) == 6
    assert min(orders.values()) > 60  # 100 expected, standard deviation 9
    assert [cell.id for cell in planned(path).cells] == [cell.id for cell in planned(path).cells]


def test_cell_ids_are_distinct_and_survive_being_written(write: Write, tmp_path: Path) -> None:
    cells = planned(write()).cells
    assert len({cell.id for cell in cells}) == 9
    cells[0].write(tmp_path / "cell.json")
    assert Cell.read(tmp_path / "cell.json") == cells[0]


def test_renaming_study_and_arms_and_adding_arms_reruns_nothing(write: Write) -> None:
    before = ids(write())
    after = ids(write(("study: small", "study: other"), ("  slow:", "  half-rate:"), ("title: A", "title: B")))
    assert set(after.values()) == set(before.values())
    more = ids(write(("  slow:", "  large: {intervention: grpo, training: {group_size: 16}}\n  slow:")))
    assert set(before.values()) < set(more.values())


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("continuations: 4", "continuations: 5", {"mc"}),
        ("learning_rate: 5e-4", "learning_rate: 4e-4", {"slow"}),
        ("learning_rate: 1e-3", "learning_rate: 2e-3", {"grpo", "mc"}),
        ("updates: 50}", "updates: 100}", {"grpo", "mc", "slow"}),
        ("train: 1_000", "train: 999", {"grpo", "mc", "slow"}),
    ],
)
def test_a_change_reruns_what_it_changes(write: Write, old: str, new: str, changed: set[str]) -> None:
    claim = ("at 50 updates", "at 100% of updates")
    before, after = ids(write(claim)), ids(write(claim, (old, new)))
    assert {arm for (model, arm, seed), cell in before.items() if after[model, arm, seed] != cell} == changed


def test_a_cell_holds_every_value_that_determines_its_result(write: Write) -> None:
    cell = next(cell for cell in planned(write()).cells if cell.arm == "slow" and cell.seed == 102)
    assert set(cell.content) == {
        "result_version", "model", "task", "intervention", "training", "seed", "budgets", "milestones", "evaluate",
        "charged", "threads",
    }  # fmt: skip
    assert cell.content["model"] == {"preset": "tiny-chain"}
    assert cell.content["intervention"] == {"name": "grpo", "parameters": {}}
    assert cell.content["training"]["learning_rate"] == 0.0005
    assert cell.content["training"]["adam_betas"] == [0.9, 0.95]
    assert cell.content["seed"] == 102
    assert cell.content["evaluate"] == {
        "pool": "confirmatory",
        "decoding": "greedy",
        "samples": 1,
        "max_new_tokens": 64,
        "diverged_accuracy": 0.0,
    }


def test_milestones_are_fractions_of_budgets_and_grids_each_once() -> None:
    evaluate = EvaluateSpec(at=["25%", "100%"], updates=[10, 50], flops=[1e9])
    assert declared_milestones(evaluate, {"updates": 50, "generated_tokens": 240_000}) == [
        Milestone("generated_tokens", 60_000, 0.25),
        Milestone("generated_tokens", 240_000, 1.0),
        Milestone("flops", 1e9, None),
        Milestone("updates", 10, None),
        Milestone("updates", 12, 0.25),  # 12.5 updates: the 12th is the last within
        Milestone("updates", 50, 1.0),
    ]


def test_the_record_is_plain_json_with_all_that_the_schema_lists(write: Write) -> None:
    record = planned(write()).record()
    assert json.loads(json.dumps(record)) == record
    assert set(record) >= {
        "study", "title", "question", "authors", "existing_data", "baseline", "alpha", "correction", "charged",
        "budgets", "milestones", "arms", "models", "seeds", "claims", "cells", "training", "task", "evaluate",
    }  # fmt: skip
    assert record["arms"][2] == {
        "arm": "slow",
        "intervention": "grpo",
        "parameters": {},
        "training": {"learning_rate": 0.0005},
    }
    assert record["milestones"][0] == {
        "currency": "generated_tokens",
        "amount": 60_000,
        "fraction": 0.25,
        "budgeted": True,
    }
    assert len(record["cells"]) == 9


def test_expected_time_is_unknown_until_every_arm_has_run(write: Write) -> None:
    cells = planned(write()).cells
    assert expected_seconds(cells, {"grpo": 10.0, "mc": 40.0}, at_once=2) is None
    # three seeds of 10 + 40 + 10 seconds on two workers
    assert expected_seconds(cells, {"grpo": 10.0, "mc": 40.0, "slow": 10.0}, at_once=2) == 90.0
    # never shorter than the longest cell
    assert expected_seconds(cells, {"grpo": 10.0, "mc": 40.0, "slow": 10.0}, at_once=100) == 40.0
    assert expected_seconds(cells[:1], {cells[0].arm: 10.0}, at_once=2) == 10.0
    assert expected_seconds([], {}, at_once=2) == 0.0


def test_planning_and_locking_import_nothing_heavy(write: Write) -> None:
    script = f"""
import sys
from harness.study.load import load_study
from harness.study.plan import make_plan
import harness.study.lock, harness.study.json_schema
make_plan(load_study({str(write())!r})).record()
heavy = {{"torch", "transformers", "pandas", "scipy", "duckdb", "pyarrow", "submitit", "reasoning_gym", "matplotlib"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
