"""How WVA reads numbers: which values it accepts, and what it says of the values that it refuses.

No value raises anything but a ``NumberError``.
"""

from __future__ import annotations

import math
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timing import times_as_long
from wva.numbers import FINITE, MAX_REPLICAS, REPLICAS, NumberError, Real, Whole, shown

SHARE: Final = Real(0, 1)
COUNT: Final = Whole(0, 10)
NO_NUMBERS: Final = (
    "",
    " 1",
    "1 ",
    "1\n",
    "1_0",
    "0x1",
    "+",
    "--1",
    "\u0661",
    "1\0",
    "nan",
    math.nan,
    math.inf,
    True,
    None,
)
LONG: Final = ("9" * 400, "9" * 5_000, "0" * 65, "0." + "0" * 400 + "1", 10**400, 10**5_000)
NOT_WHOLE: Final = (*NO_NUMBERS, *LONG, "3.0", "1e1", -1, 11, 3.5, 1e300, [3], {}, b"3", "9" * 30)
NOT_REAL: Final = (
    *NO_NUMBERS,
    *LONG,
    "+Inf",
    "infinity",
    "1e999",
    "-0.1",
    "1.1",
    "0x1p-2",
    "e5",
    ".",
    "1e",
    -math.inf,
    2,
)
json_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
number_texts = st.from_regex(r"[-+]?[0-9._eE+-]{0,80}", fullmatch=True)


@pytest.mark.parametrize(
    ("value", "number"), [("0", 0), ("10", 10), ("+3", 3), ("0003", 3), ("-0", 0), (7, 7), (7.0, 7), (-0.0, 0)]
)
def test_a_whole_number_is_read_from_text_and_from_json(value: object, number: int) -> None:
    """A sign and leading zeros change nothing, as in Go."""
    found = COUNT.find(value)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize("value", NOT_WHOLE, ids=range(len(NOT_WHOLE)))
def test_what_is_no_whole_number_of_the_range_is_refused(value: object) -> None:
    """WVA refuses notations that only Python accepts, and long texts, even if they mean a small number."""
    assert COUNT.find(value) is None
    with pytest.raises(NumberError):
        COUNT.read(value, key="count", in_force=0)


@pytest.mark.parametrize(
    ("value", "number"), [("0.5", 0.5), (".5", 0.5), ("1.", 1.0), ("5e-1", 0.5), ("+1E0", 1.0), (1, 1.0), (0.25, 0.25)]
)
def test_a_real_number_is_read_from_text_and_from_json(value: object, number: float) -> None:
    """WVA reads every notation that Go writes and reads."""
    found = SHARE.find(value)
    assert found == number
    assert type(found) is float


@pytest.mark.parametrize("value", NOT_REAL, ids=range(len(NOT_REAL)))
def test_what_is_no_real_number_of_the_range_is_refused(value: object) -> None:
    """WVA refuses infinity, and a number that overflows to it."""
    assert SHARE.find(value) is None
    with pytest.raises(NumberError):
        SHARE.read(value, key="share", in_force=0)


def test_a_negative_zero_becomes_a_plain_one() -> None:
    """A negative zero would show in texts, and change the sign of a quotient."""
    assert math.copysign(1.0, SHARE.find("-0.0") or 0.0) == 1.0


def test_a_minimum_can_be_left_out_of_the_range() -> None:
    """A divisor needs this, for example a duration or a threshold."""
    assert Real(0, 1, above=True).find("0") is None
    assert Real(0, 1, above=True).find("1e-300") == 1e-300


def test_an_error_names_key_value_expectation_and_what_is_in_force() -> None:
    """The error is one line, whatever the value contains."""
    with pytest.raises(NumberError) as caught:
        REPLICAS.read("9" * 400 + "\n\x1b[31m", key="autoscaling.keda.sh/paused-replicas", in_force="3")
    assert str(caught.value) == (
        f"autoscaling.keda.sh/paused-replicas: got '{'9' * 40}...', "
        "expected a whole number from 0 to 2,147,483,647; in force: 3"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SHARE, "a number from 0 to 1"),
        (Real(0, 1e9, above=True), "a number above 0 and up to 1,000,000,000"),
        (Real(0.001, 1e300), "a number from 0.001 to 1e+300"),
        (FINITE, "a number"),
        (COUNT, "a whole number from 0 to 10"),
    ],
)
def test_a_range_says_what_it_takes(kind: Real | Whole, words: str) -> None:
    """Every error and the documentation use these words."""
    assert kind.expected == words


@pytest.mark.parametrize(("number", "kept"), [(-5, 0), (7, 7), (10**30, MAX_REPLICAS)])
def test_a_whole_number_is_clamped_into_the_range(number: int, kept: int) -> None:
    """WVA cuts computed numbers, and does not refuse them."""
    assert REPLICAS.clamp(number) == kept


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a\x00b", r"'a\x00b'"),
        ("\ud800", r"'\ud800'"),
        (None, "nothing"),
        (3, "3"),
        (1 << 16_609, "a number of 16610 bits"),
        ([1], "a list"),
    ],
    ids=range(6),
)
def test_what_is_shown_is_short_and_printable(value: object, words: str) -> None:
    """WVA writes no raw text of a tenant into logs and conditions."""
    assert shown(value) == words


@given(json_values | number_texts)
def test_no_value_raises_anything_but_a_number_error(value: object) -> None:
    """Every number that is returned is within its range."""
    for kind in (COUNT, REPLICAS, SHARE, FINITE):
        found = kind.find(value)
        assert found is None or (math.isfinite(found) and kind.minimum <= found <= kind.maximum)
        if found is None:
            with pytest.raises(NumberError) as caught:
                kind.read(value, key="a", in_force="b")
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 400


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_that_go_would_write_is_read_back(number: float) -> None:
    """Go and Python write the shortest exact text."""
    assert FINITE.find(repr(number)) == number


def test_a_long_text_costs_nothing() -> None:
    """WVA checks the length first, so 16 MiB of digits take no longer than 500 digits."""

    def find(text):
        for _ in range(100):
            assert (REPLICAS.find(text), FINITE.find(text)) == (None, None)

    long, short = "9" * (16 * 1024 * 1024), "9" * 500
    assert times_as_long(lambda: find(long), lambda: find(short)) < 20
