"""Canonical JSON: the number vectors are RFC 8785's own, appendix B."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.study.canonical import canonical_hash, canonical_json

RFC_8785_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555555": "333333333.3333333",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
def test_floats_are_written_as_rfc_8785_writes_them(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(value) == text.encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_as_themselves(value: float) -> None:
    assert float(canonical_json(value)) == value


def test_keys_are_sorted_by_utf16_code_units() -> None:
    # RFC 8785, section 3.2.3: the emoji's surrogate (d83d) sorts before fb33, which code points would not
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    assert list(json.loads(canonical_json(dict.fromkeys(keys, 0)))) == [
        "\r",
        "1",
        "\u0080",
        "\u00f6",
        "\u20ac",
        "\U0001f600",
        "\ufb33",
    ]


def test_order_and_spelling_do_not_change_the_hash() -> None:
    assert canonical_hash({"a": 1.0, "b": [1e6, True]}) == canonical_hash({"b": (1_000_000, True), "a": 1})


def test_different_values_have_different_hashes() -> None:
    values = [1, "1", True, None, [1], {"1": 1}, 1.5, 2**53 + 1, 2**53]
    assert len({canonical_hash(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no canonical JSON"):
        canonical_json([value])


@pytest.mark.parametrize("value", [{1: 2}, {1, 2}, b"x"])
def test_what_is_not_plain_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no canonical JSON"):
        canonical_json(value)
