"""How a line of an older schema version becomes one of ours: one function per version, applied in turn.

A log is never rewritten. A version newer than ours is refused, since what it means is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.events.schema import SCHEMA

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: Final[dict[int, Upcaster]] = {}
"""From a schema version to the function that makes the fields of a line those of the next version."""


def upcast(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a line in our schema version; a ValueError when its version is not known."""
    version = fields.get("schema")
    if type(version) is not int or version < 1:
        raise ValueError(f"schema version {version!r} is none; versions 1 to {SCHEMA} are read")
    if version > SCHEMA:
        raise ValueError(f"schema version {version} is newer than {SCHEMA}, the newest known here; update isobudget")
    for older in range(version, SCHEMA):
        fields = UPCASTERS[older](fields)
    return fields
