"""The study file's reference is fresh, and what its head says of studies, errors and numbers is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_pages import DOCS, ROOT, blocks

from harness.errors import InputError
from harness.study.load import load_study
from harness.study.numbers import parse_number
from harness.study.reference import REFERENCE_PATH, reference_text
from harness.study.schema import Study

PAGE = DOCS / "study-file.md"


def write(folder: Path, text: str) -> Path:
    path = folder / "preregistrations" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_the_page_is_what_the_schema_says_now():
    assert REFERENCE_PATH == PAGE
    assert PAGE.read_text(encoding="utf-8") == reference_text(), "run python -m harness.study.reference"


def test_every_key_and_every_arm_and_task_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    schema = Study.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, value in part["properties"].items():
            assert f"\n- `{key}` (" in text
            assert " ".join(value["description"].split())[:40] in " ".join(text.split())


def test_the_whole_study_is_in_order(tmp_path):
    loaded = load_study(write(tmp_path, blocks(PAGE, "yaml")[0]))
    assert loaded.budgets == {"generated_tokens": 240_000, "updates": 50}
    assert [claim.id for claim in loaded.claims] == ["H1"]


def test_the_errors_shown_are_the_errors_told(tmp_path, monkeypatch):
    text = blocks(PAGE, "yaml")[0]
    for right, wrong in [("learning_rate", "learing_rate"), ("baseline: grpo", "baseline: gpro"), ("24,", "24.5,")]:
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load_study("preregistrations/mine.yaml")
    shown = blocks(PAGE, "text")[0]
    assert shown.splitlines() == [f"isobudget: {problem}" for problem in caught.value.problems]


def test_numbers_are_read_as_the_table_says():
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 7
    for written, meant in rows:
        number = parse_number(written)
        assert number == float(meant)
        assert isinstance(number, int) == ("." not in meant)


def test_the_budget_named_on_the_page_is_there():
    assert (ROOT / "budgets" / "laptop.yaml").is_file()
    assert "`budgets/laptop.yaml`" in PAGE.read_text(encoding="utf-8")
