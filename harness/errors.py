"""The one exception for bad input: what was found, where, and what would be right.

The command line prints it as one line and exits with 2. Faults of our own keep their traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input, printed as ``where: field: what; right``."""

    what: str
    """What was found."""
    right: str = ""
    """What would be right."""
    field: str = ""
    """Dotted path of the field, e.g. ``arms.grpo.training.learning_rate``; empty where none applies."""
    where: str = ""
    """``file:line:column`` of a text input, or a path; empty where none applies."""

    def __str__(self) -> str:
        told = f"{self.what}; {self.right}" if self.right else self.what
        return ": ".join(part for part in (self.where, self.field, told) if part)


def brief(text: str, most: int = 80) -> str:
    """What the user wrote, as messages repeat it: only the beginning where it is longer than any name may be."""
    return text if len(text) <= most else f"{text[: most - 30]}... ({len(text)} characters)"


class InputError(Exception):
    """Something given by the user cannot be used. Carries every problem found, not only the first."""

    def __init__(self, problems: Problem | Sequence[Problem] | str, right: str = "", where: str = ""):
        if isinstance(problems, str):
            problems = Problem(problems, right=right, where=where)
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
