"""Canonical JSON (RFC 8785): one text per value, so that a hash means the content and not its spelling.

Keys sorted by UTF-16 code units, no spaces, UTF-8, numbers as ECMAScript writes them, no NaN or infinity. Beyond
the RFC, integers above 2^53 are written out in full. 1.0 and 1 are one value.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any


def canonical_json(value: Any) -> bytes:
    """The canonical JSON of plain values (dict with text keys, list, tuple, str, int, float, bool, None)."""
    return _text(value).encode()


def canonical_hash(value: Any) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return f"{{{','.join(f'{_text(key)}:{_text(item)}' for key, item in members)}}}"
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


def _number(value: float) -> str:
    """ECMAScript's Number::toString: the shortest digits that read back, an exponent only outside 1e-6 .. 1e21."""
    if not math.isfinite(value):
        raise ValueError(f"{value} has no canonical JSON")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, decimals = mantissa.partition(".")
    digits = (whole + decimals).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + decimals) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        return sign + (digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{mantissa}e{point - 1:+d}"
