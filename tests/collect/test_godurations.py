"""Durations and booleans in the notation of Go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.godurations import format_promql_duration, parse_bool, parse_duration, parse_positive_duration

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5m", 30.0),
        ("5.m", 300.0),
        ("+5m", 300.0),
        ("-1m", -60.0),
        ("100ms", 0.1),
        ("10us", 1e-5),
        ("10\u00b5s", 1e-5),
        ("10\u03bcs", 1e-5),
        ("7ns", 7e-9),
        ("0", 0.0),
        ("+0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("1m1h", 3660.0),
        ("1h1h", 7200.0),
        ("0.3333333333333333333h", 1200.0),
        ("9223372036854775807ns", 9223372036.854775807),
        ("-9223372036854775808ns", -9223372036.854775808),
        ("2562047h47m16.854775807s", 9223372036.854775807),
    ],
)
def test_go_durations(text, seconds):
    """A duration has numbers with units, in any order, after one optional sign."""
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


WITHOUT_A_UNIT = ["60", "1h30", "1\n", "00"]
UNKNOWN_UNITS = ["1d", "1w", "5 m", "5m ", "1H", "1M", "1mss", "1e3s", "0x1s", "1,5h"]
NO_NUMBERS = ["", " 5m", "m", "s1", ".", "-", "+", ".s", "-.s", "1.2.3s", "--1s", "1s-1s", "\u0665m", "inf", "nan"]
TOO_LONG = ["9223372036854775808ns", "-9223372036854775809ns", "2562048h", "1" * 400 + "s"]


@pytest.mark.parametrize("text", [*WITHOUT_A_UNIT, *UNKNOWN_UNITS, *NO_NUMBERS, *TOO_LONG])
def test_what_go_refuses_is_an_error(text):
    """The message has the text, shortened."""
    with pytest.raises(ValueError, match=r"duration|unit|long") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 200


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text):
    """The parser raises no exception but ValueError."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert abs(seconds) <= 2**63 / 1e9


PARTS = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5)


@settings(deadline=None)
@given(PARTS, st.booleans())
def test_the_parts_add_up(parts, negative):
    """A duration is the sum of its parts, in any order."""
    text = ("-" if negative else "") + "".join(f"{number}{unit}" for number, unit in parts)
    expected = sum(number * UNITS[unit] for number, unit in parts)
    assert parse_duration(text) == pytest.approx(-expected if negative else expected, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(st.integers(1, 10**9))
def test_promql_text_means_the_same_seconds(seconds):
    """Reading the PromQL text back gives the same duration; a day of PromQL has 24 hours."""
    text = format_promql_duration(float(seconds))
    read = int(text[:-1]) * 86_400 if text.endswith("d") else parse_duration(text)
    assert read == seconds


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
def test_promql_text_is_never_below_a_second(seconds):
    """PromQL refuses a range of zero."""
    text = format_promql_duration(seconds)
    assert int(text[:-1]) >= 1
    assert text[-1] in "smhd"


@pytest.mark.parametrize(("seconds", "text"), [(86_400.5, "86400s"), (90.25, "90s"), (1.999, "1s"), (0.5, "1s")])
def test_promql_text_of_a_fraction_is_in_whole_seconds(seconds, text):
    """A fraction is cut and not rounded, as in the original."""
    assert format_promql_duration(seconds) == text


def test_a_positive_duration_is_above_zero():
    """Zero and negative durations are refused."""
    assert parse_positive_duration("10m") == 600
    for text in ("0", "0s", "-1m"):
        with pytest.raises(ValueError, match="not above zero"):
            parse_positive_duration(text)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", "yes", "Yes", "YES"])
def test_words_for_true(text):
    """The words are those of pflag and of the original's ConfigMaps."""
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", "no", "No", "NO"])
def test_words_for_false(text):
    """The words are those of pflag and of the original's ConfigMaps."""
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["", "on", "2", "tRUE", " true", "true ", "enabled", "nope", "y" * 1000])
def test_anything_else_is_no_boolean(text):
    """Any other text is an error, and not false."""
    with pytest.raises(ValueError, match="not a boolean"):
        parse_bool(text)
