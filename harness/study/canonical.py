"""Canonical JSON: one text per value, so that a hash means the content and not its spelling.

Sorted keys, no spaces, ASCII, no NaN; a float that is a whole number is written as the integer (1.0 and 1
are one value in a study file), as RFC 8785 writes it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


def canonical_json(value: Any) -> bytes:
    """The canonical JSON of plain values (dict, list, tuple, str, int, float, bool, None)."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def canonical_hash(value: Any) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
