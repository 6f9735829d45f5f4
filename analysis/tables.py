"""Tables as text: one row model, rendered for the terminal, in Markdown, as CSV and as JSON.

Promise: every table says under which promise its numbers were made, what is charged, and, where it holds hours,
that hours are never the same to the bit. What the rows say is left to the results themselves.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analysis.errors import AnalysisError
from analysis.snapshot import Snapshot

HOURS_NOTE: Final = (
    "Hours are read from a clock: they are not reproducible to the bit, unlike tokens, FLOPs and updates."
)
_DEGENERATE: Final = "(degenerate)"


@dataclass(frozen=True)
class Heading:
    """What every table of a study carries."""

    study: str
    title: str
    mode: str
    mode_reason: str
    charged: tuple[str, ...]
    not_charged: tuple[str, ...] | None
    """The other kinds of work; None when the plan does not list them."""
    algorithmic_tokens: int = 0
    """Generated tokens charged to all runs together: budgets bind on these."""
    spent_tokens: int = 0
    """What all their attempts sampled, work lost to the infrastructure included: a sweep's cap binds on these."""
    notes: tuple[str, ...] = ()
    """On the data as a whole: unfinished blocks, logs left out."""

    @classmethod
    def of(cls, snapshot: Snapshot, *notes: str) -> Heading:
        """The heading of a snapshot's study; `notes` come before the ones on the data."""
        label, rest = snapshot.label, snapshot.study.plan.get("not_charged")
        algorithmic, spent = snapshot.charged_tokens
        on_data = []
        if snapshot.quarantined:
            on_data.append(f"{snapshot.quarantined} event logs could not be trusted and are left out.")
        return cls(
            study=snapshot.study.study,
            title=snapshot.study.title,
            mode=label.mode,
            mode_reason=label.reason,
            charged=snapshot.study.charged,
            not_charged=None if rest is None else tuple(rest),
            algorithmic_tokens=algorithmic,
            spent_tokens=spent,
            notes=(*notes, *on_data),
        )

    @property
    def caption(self) -> str:
        """Mode, charges and both ledgers in one line."""
        mode = f"{self.mode}: {self.mode_reason}" if self.mode_reason else self.mode
        charged = ", ".join(self.charged)
        if self.not_charged is not None:
            charged = f"all but {', '.join(self.not_charged)}" if self.not_charged else "all"
        ledgers = f"generated tokens: {self.algorithmic_tokens:,} algorithmic, {self.spent_tokens:,} spent"
        return f"study {self.study} · {mode} · charged: {charged} · {ledgers}"


@dataclass(frozen=True)
class Table:
    """One table, its cells already text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    detail: bool = False
    """True: left out where a summary is asked for."""


class Result(Protocol):
    """What can be rendered: a leaderboard, rank flips, verdicts."""

    @property
    def heading(self) -> Heading: ...

    def tables(self) -> list[Table]:
        """For people: terminal and Markdown."""

    def records(self) -> list[dict[str, Any]]:
        """For CSV: the rows with all their fields, flat."""

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""


def render(result: Result, fmt: str = "terminal", width: int | None = None, details: bool = True) -> str:
    """The result as text in one of `FORMATS`; `width` in characters, by default the terminal's.

    details: False names the tables of details instead of printing them (terminal only).
    """
    if fmt not in FORMATS:
        raise AnalysisError(f"there is no format {fmt!r}", f"one of {', '.join(FORMATS)}")
    return _terminal(result, width, details) if fmt == "terminal" else FORMATS[fmt](result)


def _terminal(result: Result, width: int | None = None, details: bool = True) -> str:
    out = io.StringIO()
    width = width or shutil.get_terminal_size(fallback=(110, 24)).columns
    console = Console(file=out, width=width, color_system=None, highlight=False, emoji=False)
    tables = result.tables()
    shown = [table for table in tables if details or not table.detail]
    for table, following in zip_longest(shown, shown[1:]):
        drawn = RichTable(
            title=Text(table.title),
            title_justify="left",
            title_style="",
            header_style="",
            box=SIMPLE_HEAD,
            collapse_padding=True,
        )
        for index, column in enumerate(table.columns):
            drawn.add_column(Text(column), justify="left" if index == 0 else "right", overflow="fold")
        for row in table.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print(drawn)
        later = following.notes if following else ()
        for line in (result.heading.caption, *(note for note in table.notes if note not in later)):
            console.print(Text(line))
        console.print()
    for table in tables:
        if table not in shown:
            console.print(Text(f"Not shown here: {table.title}."))
    for note in _closing(result):
        console.print(Text(note))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip() + "\n"


def _markdown(result: Result) -> str:
    lines = [f"## {_cell(result.heading.title or result.heading.study)}", ""]
    for table in result.tables():
        lines += [
            f"### {_cell(table.title)}",
            "",
            _row(table.columns),
            _row(["---", *["--:"] * (len(table.columns) - 1)]),
        ]
        lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
        lines += ["", f"*{_cell(result.heading.caption)}*", ""]
        lines += [line for note in table.notes for line in (_cell(note), "")]
    lines += [line for note in _closing(result) for line in (_cell(note), "")]
    return "\n".join(lines)


def _closing(result: Result) -> tuple[str, ...]:
    """Notes on the whole; without a table they carry the caption, too."""
    notes = result.heading.notes
    return notes if result.tables() else (result.heading.caption, *notes)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*")
    text = re.sub(r"\r\n|\r|\n", " ", text)
    return re.sub(r"<(?=[A-Za-z/!])", r"\<", text)  # what would be taken for HTML


def _csv(result: Result) -> str:
    heading = result.heading
    common = {
        "study": heading.study,
        "mode": heading.mode,
        "mode_reason": heading.mode_reason,
        "charged": " ".join(heading.charged),
    }
    rows = [{**common, **record} for record in result.records()]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(common)
    cells = [["" if _missing(value := row.get(name)) else value for name in columns] for row in rows]
    return _csv_line(columns) + "".join(map(_csv_line, cells))


def _csv_line(cells: Sequence[Any]) -> str:
    """One record. Written with both characters of a line end, since only cells that hold one of those are quoted."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _json(result: Result) -> str:
    return json.dumps(plain(result.to_json()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Final[dict[str, Callable[[Result], str]]] = {
    "terminal": _terminal,
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}


def plain(value: Any) -> Any:
    """`value` as JSON has it: a number that is not finite becomes null, a tuple a list."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def percent(accuracy: float) -> str:
    """An accuracy (0 to 1) in per cent, one decimal; a dash where there is none."""
    return "–" if math.isnan(accuracy) else f"{100 * accuracy:.1f}"


def interval(mean: float, low: float, high: float) -> str:
    """A difference with its interval, in points; without one, the value and the word that says so."""
    if math.isnan(mean):
        return "–"
    return f"{mean:+.1f} {_DEGENERATE}" if math.isnan(low) else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def degenerate_note(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The note that explains an `interval` without one; empty where all `rows` of cells have theirs."""
    found = any(cell.endswith(_DEGENERATE) for row in rows for cell in row)
    return ("Degenerate: one seed, or no spread over seeds: no interval.",) if found else ()


def p_value(p: float) -> str:
    """p with three decimals; a dash where there is none."""
    return "–" if math.isnan(p) else "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def count(number: float) -> str:
    """A large number, short: 1,234,567 as 1.23M; a dash where there is none."""
    if math.isnan(number):
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 1e15 > abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}" if abs(number) >= 1e15 or number != int(number) else f"{number:.0f}"
