"""One line of a log: from values to bytes, and back through its checksum.

Promises that what `decode` accepts is what `encode` was given, non-finite numbers apart (`plain`). Torn
tails, gaps and files are the reader's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

_SUM_KEY: Final = ',"sum":"'
_SUM_DIGITS: Final = 16


def canonical(value: Any) -> str:
    """Sorted keys, no spaces, ASCII; a ValueError for a number that JSON does not have."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def checksum(text: bytes) -> str:
    """The first 16 hex digits of the SHA-256 of a line's canonical text without `sum`."""
    return hashlib.sha256(text).hexdigest()[:_SUM_DIGITS]


def encode(fields: Mapping[str, Any]) -> bytes:
    """The bytes of one line, its line end included. `sum` sorts last, so that the text before it is what it sums."""
    text = canonical(fields)
    return f'{text[:-1]}{_SUM_KEY}{checksum(text.encode())}"}}\n'.encode()


def decode(line: bytes) -> dict[str, Any]:
    """The fields of one line (without its line end). A ValueError says what is wrong with it."""
    try:
        fields = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("sum"), str):
        raise ValueError("no event: a JSON object with a `sum` is wanted")
    if b"\\ud" in line.lower():
        _refuse_half_characters(fields)
    written = fields.pop("sum")
    tail = f'{_SUM_KEY}{written}"}}'.encode()
    as_written_by_us = line.endswith(tail) and checksum(line[: -len(tail)] + b"}") == written
    if not as_written_by_us and checksum(canonical(fields).encode()) != written:
        raise ValueError("its checksum does not match")
    return fields


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as a log can hold them: each NaN or infinity, however deep, is null, and then there is
    `diverged: true` at the top; half a surrogate pair (an undecodable file name in a message) is `?`."""
    found = False

    def clean(value: Any) -> Any:
        nonlocal found
        if isinstance(value, float) and not math.isfinite(value):
            found = True
            return None
        if isinstance(value, str):
            return value.encode(errors="replace").decode()
        if isinstance(value, Mapping):
            return {clean(key): clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        return value

    cleaned: dict[str, Any] = clean(values)
    return {**cleaned, "diverged": True} if found else cleaned


def _refuse_half_characters(fields: dict[str, Any]) -> None:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("not text (half a surrogate pair)") from None


def _finite_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


_DECODER: Final = json.JSONDecoder(parse_float=_finite_float, parse_constant=_refuse_constant)
