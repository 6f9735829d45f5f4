"""The command line: which commands there are, and how trouble is told.

Commands parse, call and print; they hold no logic and import late, so that `plan` is instant. Exit status: 0, 1 (the
study says no: a cell failed, cells remain), 2 (bad input, told in one line each).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from analysis.errors import AnalysisError
from harness.cli.care import cancel, reap, retry
from harness.cli.complaints import problem_of
from harness.cli.judgement import curves, flips, leaderboard, verdicts
from harness.cli.records import collect, samples
from harness.cli.studies import check, lock, plan
from harness.cli.sweeps import sweep
from harness.cli.watching import log, status, watch
from harness.errors import InputError
from harness.events.schema import EventLogError

COMMANDS: Final[tuple[Callable[..., Any], ...]] = (
    *(check, plan, lock),
    *(sweep, status, watch, cancel, retry, reap),
    *(log, samples, collect),
    *(leaderboard, flips, verdicts, curves),
)
"""In the order in which the help lists them."""


def _version(wanted: bool) -> None:
    if wanted:
        from harness import __version__

        print(f"isobudget {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Settle which training intervention is better at equal compute: one preregistration, from plan to verdict."""


def _app() -> typer.Typer:
    made = typer.Typer(name="isobudget", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
    made.callback()(options)
    for command in COMMANDS:
        made.command()(command)
    return made


app: Final = _app()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line; never shows a traceback for bad input."""
    try:
        code = app(arguments, prog_name="isobudget", standalone_mode=False)
    except InputError as error:
        code = _refused(*error.problems)
    except TyperException as error:  # an option or argument that cannot be
        code = _refused(*filter(None, [problem_of(error)]))
    except OSError as error:  # a full disk, a file where a folder is due
        code = _refused(f"{error.filename}: {error.strerror}" if error.filename else error)
    except (AnalysisError, EventLogError) as error:
        code = _refused(error)
    sys.exit(code or 0)


def _refused(*complaints: object) -> int:
    for complaint in complaints:
        print(f"isobudget: {complaint}", file=sys.stderr)
    return 2
