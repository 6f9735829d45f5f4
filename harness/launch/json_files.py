"""Small JSON files that other processes read while we write: whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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
