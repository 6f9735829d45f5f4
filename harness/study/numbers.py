"""Numbers as people write them: `1_000_000`, `1e6` and `1.5M` are the integers they mean, `5e-4` is a float.

One place for study files, claims and options. A number keeps how it was written, so that a field of text can
take it as text: `695e0514` as a revision is the seven characters, not an infinite float.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_NUMBER: Final = re.compile(
    r"(?P<digits>[-+]?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+))(?:(?P<exponent>[eE](?:[-+]\d+|0|[1-9]\d*))|(?P<suffix>[kKMBT]))?",
    re.ASCII,
)
_OTHER_BASE: Final = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_SUFFIXES: Final = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_LARGEST_EXPONENT: Final = 308
"""Beyond it a float is infinite; such a text is no number."""
_LONGEST: Final = 400
"""Characters; a longer run of digits is out of range in any case."""


class WrittenInt(int):
    """An integer that remembers its spelling."""

    text: str


class WrittenFloat(float):
    """A float that remembers its spelling."""

    text: str


def as_written(value: object) -> object:
    """The text of a number where text is expected: a revision `695e0514`, an arm `007`."""
    return value.text if isinstance(value, WrittenInt | WrittenFloat) else value


def parse_number(text: str) -> WrittenInt | WrittenFloat | None:
    """The number that `text` spells, an integer whenever its value is whole; None when it spells none.

    Integers and floats of YAML 1.2's core schema, but no infinities and no NaN, with `_` between digits and
    the suffixes k, M, B, T (thousand, million, 10^9, 10^12) besides. An exponent with a leading zero needs a
    sign, as in `1e-05`: without one, as in `3e07`, the text is more likely part of a commit's hash.
    """
    if len(text) > _LONGEST:
        return None
    if _OTHER_BASE.fullmatch(text):
        value = Fraction(int(text, 0))
    elif found := _NUMBER.fullmatch(text):
        exponent = int(found["exponent"][1:]) if found["exponent"] else 0
        if abs(exponent) > _LARGEST_EXPONENT:
            return None
        value = Fraction(found["digits"]) * Fraction(10) ** exponent * _SUFFIXES.get(found["suffix"], 1)
    else:
        return None
    if abs(value) >= 10**_LARGEST_EXPONENT:
        return None
    number = WrittenInt(value) if value.denominator == 1 else WrittenFloat(value)
    number.text = text
    return number
