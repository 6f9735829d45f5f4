"""The JSON Schema for editors, and the studies and budgets that are shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.study.canonical import canonical_hash
from harness.study.json_schema import SCHEMA_PATH, generate_json_schema, schema_text
from harness.study.load import load_study
from harness.study.plan import make_plan
from harness.study.schema import HealthSpec
from harness.study.training import Spec, added_later

ROOT = Path(__file__).parents[2]


def test_the_schema_file_is_fresh() -> None:
    assert SCHEMA_PATH.read_text(encoding="utf-8") == schema_text(), "run python -m harness.study.json_schema"


def test_every_field_of_a_study_is_described() -> None:
    schema = generate_json_schema()
    assert set(schema["required"]) < set(schema["properties"])
    for name, part in schema["properties"].items():
        assert part.get("description"), name


def test_arms_are_completed_by_the_intervention_they_name() -> None:
    schema = generate_json_schema()
    arms = schema["properties"]["arms"]["additionalProperties"]
    form = schema["$defs"][arms["discriminator"]["mapping"]["mc-difference"].rsplit("/", 1)[1]]
    assert form["properties"]["intervention"]["const"] == "mc-difference"
    assert "continuations" in form["properties"]
    assert form["additionalProperties"] is False


def test_numbers_may_be_spelled_in_editors_as_our_reader_takes_them() -> None:
    tokens = generate_json_schema()["$defs"]["PoolSizes"]["properties"]["train"]
    (spelled,) = [form["pattern"] for form in tokens["anyOf"] if form["type"] == "string"]
    assert all(re.fullmatch(spelled, text) for text in ("1_000_000", "1e6", "1.5M", "20k"))
    assert not re.fullmatch(spelled, "many")


def test_the_example_study_is_in_order() -> None:
    loaded = load_study(ROOT / "preregistrations" / "dense-rewards-laptop.yaml")
    plan = make_plan(loaded)
    assert loaded.warnings == []
    assert len(loaded.study.arms) >= 3
    assert len(loaded.study.seeds) >= 5
    assert not set(loaded.study.seeds) & {0, 1, 2, 3, 4}, "the pilot's seeds"
    assert {"generated_tokens", "updates"} <= set(loaded.budgets)
    assert len(plan.cells) == len(loaded.study.arms) * len(loaded.study.seeds)


def test_gates_added_later_leave_the_hash_of_a_study_with_older_gates_alone() -> None:
    older = {"clipped_share": 0.5, "zero_variance_share": None, "verifier_errors": 0.0, "window_updates": 10}
    assert HealthSpec(clipped_share=0.5, verifier_errors=0.0).model_dump(mode="json") == older
    assert HealthSpec(entropy=0.1, sampler_mismatch=0.01).model_dump(mode="json")["entropy"] == 0.1


def test_a_field_added_later_is_not_hashed_while_it_has_its_default() -> None:
    class Older(Spec):
        rate: float = 1.0

    class Newer(Older):
        clip: float = added_later(0.2)

    assert canonical_hash(Newer().model_dump()) == canonical_hash(Older().model_dump())
    assert canonical_hash(Newer(clip=0.3).model_dump()) != canonical_hash(Older().model_dump())
    assert Newer.model_validate_json(Newer().model_dump_json()) == Newer()
    with pytest.raises(ValidationError):
        Newer.model_validate({"clip": "wide"})
