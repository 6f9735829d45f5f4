"""Numbers as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.study.numbers import as_written, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000_000", 1_000_000),
        ("1e6", 1_000_000),
        ("1E+6", 1_000_000),
        ("1.5M", 1_500_000),
        ("20k", 20_000),
        ("20K", 20_000),
        ("2B", 2_000_000_000),
        ("1T", 10**12),
        ("1.0", 1),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("007", 7),
        ("1.1M", 1_100_000),  # 1.1 * 10**6 is 1100000.0000000002 in floats
        ("123456789012345678901234567890123", 123456789012345678901234567890123),
    ],
)
def test_whole_numbers_are_integers_however_they_are_written(text: str, value: int) -> None:
    number = parse_number(text)
    assert isinstance(number, int)
    assert number == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("5e-4", 0.0005), ("1e-05", 0.00001), (".5", 0.5), ("2.5", 2.5), ("-1.25", -1.25)],
)
def test_fractions_are_floats(text: str, value: float) -> None:
    number = parse_number(text)
    assert isinstance(number, float)
    assert number == value


# fmt: off
NO_NUMBERS = [
    "695e0514", "3e07", "1e400", "1e-400", "1__0", "_1", "1_", "12:30", "1,000", "1m", ".inf", ".nan", "-",
    "1e", "1e+", "--", "0b1", "0o8", "", "1 k", "9" * 5_000, "0x" + "f" * 5_000,
]
# fmt: on


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_none(text: str) -> None:
    assert parse_number(text) is None


@given(st.floats(allow_nan=False, allow_infinity=False, max_value=1e300, min_value=-1e300))
def test_floats_read_as_python_reads_them(value: float) -> None:
    text = repr(value)
    if abs(int(text.partition("e")[2] or 0)) <= 308:  # beyond it lie subnormal numbers
        number = parse_number(text)
        assert number is not None
        assert float(number) == value


def test_a_number_keeps_its_spelling_for_fields_of_text() -> None:
    assert as_written(parse_number("1_000")) == "1_000"
    assert as_written(parse_number("1e-3")) == "1e-3"
    assert as_written("text") == "text"
