"""Text of numbers and tables: nothing missing is shown as a number, nothing a user named breaks a format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from synthetic_study import SyntheticStudy

from analysis.errors import AnalysisError
from analysis.leaderboard import leaderboard
from analysis.snapshot import Snapshot
from analysis.tables import Heading, Table, count, interval, p_value, percent, plain, render

NAN = float("nan")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(0.5333), "53.3"),
        (percent(NAN), "–"),
        (interval(1.0, -0.5, 2.5), "+1.0 [-0.5, +2.5]"),
        (interval(1.0, NAN, NAN), "+1.0 (degenerate)"),
        (interval(NAN, NAN, NAN), "–"),
        (p_value(0.0004), "<.001"),
        (p_value(0.109), ".109"),
        (p_value(1.0), "1.000"),
        (p_value(NAN), "–"),
        (count(1_234_567), "1.23M"),
        (count(999), "999"),
        (count(0.25), "0.25"),
        (count(3e18), "3e+18"),
        (count(NAN), "–"),
    ],
)
def test_numbers_as_text(text: str, expected: str) -> None:
    assert text == expected


def test_json_has_null_where_a_number_is_not_finite() -> None:
    assert json.dumps(plain({"a": (1.0, NAN), "b": float("inf")})) == '{"a": [1.0, null], "b": null}'


@pytest.fixture
def awkward(opened: Callable[[SyntheticStudy], Snapshot]) -> Snapshot:
    """Arm names that are markup somewhere."""
    study = SyntheticStudy(arms=("on", "[bold]a|b*", 'quote",comma'))
    return opened(study.fill(lambda m, arm, seed, c, a: 0.01 * (seed % 7) + 0.1 * len(arm) % 0.9))


def test_arm_names_survive_every_format(awkward: Snapshot) -> None:
    board = leaderboard(awkward)
    assert all(arm in render(board, "terminal", width=200) for arm in awkward.arm_names)
    assert "[bold]a\\|b\\*" in render(board, "markdown")
    assert {row["arm"] for row in csv.DictReader(io.StringIO(render(board, "csv")))} == set(awkward.arm_names)
    assert {row["arm"] for row in json.loads(render(board, "json"))["rows"]} == set(awkward.arm_names)


@dataclass(frozen=True)
class Text:
    """A result of one table with this text in its only row."""

    text: str

    @property
    def heading(self) -> Heading:
        return Heading("s", "", "confirmatory", "", ("rollout",), None)

    def tables(self) -> list[Table]:
        return [Table("table", ("text",), ((self.text,),))]

    def records(self) -> list[dict[str, Any]]:
        return [{"text": self.text}]

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text}


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\nb", 'a,"b"', " a ", "a\\|b"])
def test_a_cell_of_csv_is_read_as_it_was_whatever_ends_its_lines(text: str) -> None:
    header, row = csv.reader(io.StringIO(render(Text(text), "csv"), newline=""))
    assert dict(zip(header, row, strict=True))["text"] == text


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_a_cell_of_markdown_stays_on_its_line(end: str) -> None:
    assert "| a b |\n" in render(Text(f"a{end}b"), "markdown")


def test_markdown_rows_all_have_the_columns_of_their_header(awkward: Snapshot) -> None:
    widths: list[int] = []
    for line in render(leaderboard(awkward), "markdown").splitlines():
        if line.startswith("|"):
            widths.append(line.replace("\\|", "").count("|"))
        elif widths:
            assert len(set(widths)) == 1
            widths = []


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, "charged: rollout, continuation"),
        ({"not_charged": ["evaluation", "warm_start"]}, "charged: all but evaluation, warm_start"),
        ({"not_charged": []}, "charged: all"),
    ],
)
def test_the_caption_names_the_kinds_that_are_not_charged_where_the_plan_lists_them(
    opened: Callable[[SyntheticStudy], Snapshot], plan: dict[str, Any], expected: str
) -> None:
    board = leaderboard(opened(SyntheticStudy(plan=plan).fill(lambda m, arm, seed, c, a: 0.01 * (seed % 7))))
    captions = [line for line in render(board, width=200).splitlines() if line.startswith("study s")]
    assert len(captions) == len(board.tables())
    assert all(caption.startswith(f"study s · confirmatory · {expected} · ") for caption in captions)


def test_terminal_lines_end_without_blanks(awkward: Snapshot) -> None:
    text = render(leaderboard(awkward), "terminal", width=90)
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text.endswith("\n") and not text.endswith("\n\n")


@dataclass(frozen=True)
class Noted:
    """A result of three tables, with these notes."""

    notes: tuple[tuple[str, ...], ...]

    @property
    def heading(self) -> Heading:
        return Heading("s", "", "confirmatory", "", ("rollout",), None)

    def tables(self) -> list[Table]:
        return [Table(f"table {number}", ("column",), (), notes) for number, notes in enumerate(self.notes)]

    def records(self) -> list[dict[str, Any]]:
        return []

    def to_json(self) -> dict[str, Any]:
        return {}


def test_the_terminal_prints_a_note_of_consecutive_tables_once_under_the_last_of_them() -> None:
    result = Noted((("same", "first"), ("same",), ("other",), ("same",)))
    kept = ("table 0", "table 1", "table 2", "table 3", "same", "first", "other")
    lines = [line.strip() for line in render(result).splitlines() if line.strip() in kept]
    assert lines == ["table 0", "first", "table 1", "same", "table 2", "other", "table 3", "same"]
    assert render(result, "markdown").count("same") == 3


def test_an_unknown_format_is_refused_with_the_known_ones(awkward: Snapshot) -> None:
    with pytest.raises(AnalysisError, match="terminal, markdown, csv, json"):
        render(leaderboard(awkward), "html")


def test_terminal_text_keeps_to_its_width(awkward: Snapshot) -> None:
    assert max(map(len, render(leaderboard(awkward), "terminal", width=90).splitlines())) <= 90
