"""What the commands share: their options, and how they load, spell and print."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from harness.errors import InputError, brief
from harness.layout import RunsFolder

if TYPE_CHECKING:
    from harness.study.load import LoadedStudy


STUDIES: Final = Path("preregistrations")
"""Where studies usually lie, seen from where commands are usually given."""


class Format(StrEnum):
    """How a table is printed."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


StudyFile = Annotated[Path, typer.Argument(help="The study file (YAML).", show_default=False)]
StudyName = Annotated[str, typer.Argument(help="The study file, or the study's name.", show_default=False)]
CellId = Annotated[str, typer.Argument(help="A cell's id, or its beginning.", show_default=False)]
Runs = Annotated[
    Path | None,
    typer.Option("--runs", help="Folder of run data.  [default: $ISOBUDGET_RUNS, or runs]", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
TableFormat = Annotated[Format, typer.Option("--format", help="How to print.")]


def load(path: Path) -> LoadedStudy:
    from harness.study.load import load_study

    if path.suffix not in (".yaml", ".yml") and not os.path.exists(path):  # noqa: PTH110 - also of names too long
        raise InputError("no such file", _file_of(str(path)), brief(str(path)))
    loaded = load_study(path)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return loaded


def _file_of(name: str) -> str:
    """What to give instead of a study's name. No path is made of the name."""
    files = {file.stem: file for file in sorted(STUDIES.glob("*.yaml"))}
    return f"the study's file: {files[name]}" if name in files else "the path of a study file (YAML)"


def runs_folder(runs: Path | None) -> RunsFolder:
    folder = RunsFolder(runs) if runs is not None else RunsFolder.default()
    return folder.create() if folder.root.exists() else folder


def spelled(budgets: dict[str, float], joint: str = " and ") -> str:
    from harness.study.milestones import amount_text

    return joint.join(f"{amount_text(amount)} {currency}" for currency, amount in budgets.items())


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def plain(record: Any) -> Any:
    from dataclasses import asdict

    return asdict(record)
