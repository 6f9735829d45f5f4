"""Small JSON files that other processes read while we write: whole or not at all."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replaces `path`. After an OSError (a full disk) what was there before is still there."""
    aside = path.with_suffix(".tmp")
    try:
        aside.write_text(json.dumps(content))
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The content; None when there is no such file, or no JSON object in it."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """The content as the dataclass that it was written from; None as `read_json`.

    An InputError where its keys are not the fields: somebody else wrote it, or another version.
    """
    found = read_json(path)
    if found is None:
        return None
    due = {field.name for field in fields(kind)}
    wrong = [f"{word} {', '.join(map(repr, sorted(keys)))}" for word, keys in _differences(set(found), due) if keys]
    if wrong:
        raise InputError("; ".join(wrong), f"{', '.join(sorted(due))}, or no such file", str(path))
    return kind(**found)


def _differences(found: set[str], due: set[str]) -> tuple[tuple[str, set[str]], ...]:
    return ("unknown key", found - due), ("missing key", due - found)
