"""The nearest known word to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from harness.errors import brief


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean grpo``, or all that is known when nothing is near."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1) or [name for name in names if len(word) > 2 and word in name]
    return f"did you mean {brief(near[0])}" if near else f"known here: {', '.join(map(brief, names)) or 'nothing'}"
