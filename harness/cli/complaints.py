"""An option or argument that cannot be, in one line like other bad input: where, what was found, what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer
from typer.exceptions import TyperException

from harness.errors import Problem, brief

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_RIGHT: Final = {
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
}
"""What would be right, by pydantic's type of error; the fields are those of its context."""


def problem_of(error: TyperException) -> Problem | None:
    """What typer refused, in our words where a value is wrong, else in its own; None: it showed the help."""
    context = getattr(error, "ctx", None)
    if isinstance(error, typer.BadParameter) and (details := _details(error)) is not None:
        right, param = _right(details), error.param
        if right and param is not None:
            found = f"found {brief(str(details['input']))}"
            return Problem(found, right, field=max(param.opts, key=len))
    what = error.format_message().rstrip(".")
    if not what:
        return None
    return Problem(what, f"`{context.command_path} --help` shows what it takes" if context else "")


def _details(error: typer.BadParameter) -> ErrorDetails | None:
    """The first fault of the value, where it was one that made typer refuse it."""
    from pydantic import ValidationError

    return error.__cause__.errors()[0] if isinstance(error.__cause__, ValidationError) else None


def _right(details: ErrorDetails) -> str:
    context: dict[str, Any] = details.get("ctx", {})
    if details["type"] in _RIGHT:
        return _RIGHT[details["type"]].format(**context)
    _, one_of, choices = str(context.get("error", "")).partition(" is not one of ")
    return f"one of {choices.rstrip('.')}" if one_of else ""
