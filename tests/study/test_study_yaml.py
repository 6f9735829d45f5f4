"""Strict YAML: meanings of scalars, positions, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import InputError
from harness.study.strict_yaml import Position, load, read, read_file


def refused(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(text, "s.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_words_that_yaml_1_1_reads_as_booleans_are_text() -> None:
    text = "{on: off, no: yes, y: n, Yes: No}"
    assert load(text, "s.yaml").value == {"on": "off", "no": "yes", "y": "n", "Yes": "No"}


def test_core_schema_scalars() -> None:
    text = "[true, false, null, ~, 1e6, 1.5M, 5e-4, 25%, .inf, 12:30:00, 2020-01-01, '5', \"true\", 695e0514]"
    assert load(text, "s.yaml").value == [
        True, False, None, None, 1_000_000, 1_500_000, 0.0005, "25%", ".inf", "12:30:00", "2020-01-01", "5", "true",
        "695e0514",
    ]  # fmt: skip


def test_keys_are_always_text() -> None:
    assert load("{1: a, true: b, 1e6: c, null: d}", "s.yaml").value == {
        "1": "a",
        "true": "b",
        "1e6": "c",
        "null": "d",
    }


def test_every_key_and_value_keeps_its_position() -> None:
    document = load("a:\n  - b: 1\n    c: [x, yy]\n", "s.yaml")
    assert document.keys["a", 0, "c"] == Position(3, 5)
    assert document.values["a", 0, "c", 1] == Position(3, 12)
    assert document.where(("a", 0, "c"), key=True) == "s.yaml:3:5"
    assert document.where(("a", 0, "missing", "deeper")) == "s.yaml:2:5"


@pytest.mark.parametrize(("text", "column"), [("c: abcdef", 6), ("c: 'abcdef'", 7), ('c: "abcdef"', 7)])
def test_an_offset_points_into_a_text_on_one_line(text: str, column: int) -> None:
    assert load(text, "s.yaml").where(("c",), 2) == f"s.yaml:1:{column}"


def test_an_offset_into_a_folded_text_points_at_its_start() -> None:
    assert load("c: >-\n  ab\n  cd\n", "s.yaml").where(("c",), 2) == "s.yaml:1:4"


def test_a_duplicate_key_is_refused_naming_both_lines() -> None:
    assert refused("alpha: 0.05\nb: 1\nalpha: 0.1\n") == [
        "s.yaml:3:1: alpha: key 'alpha' again, first on line 1; give each key once: remove one of them"
    ]


def test_duplicate_keys_are_found_in_any_mapping_and_told_all_at_once() -> None:
    assert [line.split(":")[1] for line in refused("a: {x: 1, x: 2}\nb:\n  - {y: [1], y: {z: 1}}\n")] == ["1", "3"]


def test_differently_written_keys_of_one_number_are_two_keys() -> None:
    assert load("{1: a, 01: b}", "s.yaml").value == {"1": "a", "01": "b"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: &x [1]\nb: *x\n", "s.yaml:1:4"),
        ("a: !!python/object/apply:os.system ['true']\n", "s.yaml:1:4"),
        ("a: !custom 1\n", "s.yaml:1:4"),
        ("a: !!str 1\n", "s.yaml:1:4"),
        ("&k a: 1\n", "s.yaml:1:1"),
        ("? [a, b]\n: 1\n", "s.yaml:1:3"),
        ("a: 1\n---\nb: 2\n", "s.yaml:2:1"),
    ],
)
def test_anchors_tags_odd_keys_and_further_documents_are_refused(text: str, where: str) -> None:
    assert refused(text)[0].startswith(where + ": ")


def test_merge_keys_are_plain_keys() -> None:
    assert load("<<: {a: 1}", "s.yaml").value == {"<<": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: [1, 2\nb: 3\n", "s.yaml:2:2"),
        ("a: 1\n\tb: 2\n", "s.yaml:2:1"),
        ("a: b: c\n", "s.yaml:1:5"),
        ("a: 'x\n", "s.yaml:2:1"),
        ("ab: \x01\n", "s.yaml:1:5"),
        ("a: {\n", "s.yaml:2:1"),
    ],
)
def test_syntax_errors_name_line_and_column(text: str, where: str) -> None:
    assert len(refused(text)) == 1
    assert refused(text)[0].startswith(where + ": ")


def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack() -> None:
    assert "deep" in refused("[" * 5_000 + "]" * 5_000)[0]


def test_line_ends_and_byte_order_mark_change_nothing() -> None:
    text = "a: 1\nb: |\n  two\n  lines\n"
    plain, windows = read(text, "s.yaml"), read("\ufeff" + text.replace("\n", "\r\n"), "s.yaml")
    assert windows.value == plain.value == {"a": 1, "b": "two\nlines\n"}
    assert windows.values == plain.values


def test_an_empty_file_is_nothing() -> None:
    assert load("# only a comment\n", "s.yaml").value is None


@pytest.mark.parametrize(
    ("raw", "told"), [(b"a: 1\nb: \xff\n", ":2:4: not UTF-8"), (None, ": the study file cannot be read")]
)
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, raw: bytes | None, told: str) -> None:
    path = tmp_path / "s.yaml"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read_file(path, "study file")
    assert str(caught.value).startswith(f"{path}{told}")


@pytest.mark.parametrize("text", ['a: "x\\ud800"', 'a: ["\\udfff"]', '"\\ud800": 1'])
def test_half_a_character_is_refused_before_anything_writes_it(text: str) -> None:
    assert "half a character" in refused(text)[0]


def test_digits_of_other_scripts_are_text() -> None:
    assert load("a: \u0661\u0662", "s.yaml").value == {"a": "\u0661\u0662"}
