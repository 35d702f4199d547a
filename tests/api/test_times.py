"""Times of Kubernetes objects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.api.meta import format_micro_time, format_time, parse_time


def test_times_are_rfc_3339_in_utc():
    """``metav1.Time`` has seconds, and ``metav1.MicroTime`` has microseconds."""
    assert format_time(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert format_micro_time(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert format_micro_time(1_700_000_000.0) == "2023-11-14T22:13:20.000000Z"
    assert format_time(parse_time("0001-01-01T00:00:00Z")) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
        ("2023-11-14T22:13:20.250000Z", 1_700_000_000.25),
        ("2023-11-14T22:13:20", 1_700_000_000.0),
    ],
)
def test_what_is_read(text, seconds):
    """A time may have a zone and fractions. A time without a zone is in UTC."""
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "yesterday",
        "2023-13-01T00:00:00Z",
        "1700000000.5",
        "{}",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_what_is_no_time_is_none(text):
    """Zero would mean the year 1970."""
    assert parse_time(text) is None


@given(st.integers(0, 4_000_000_000))
def test_seconds_survive(seconds):
    """Writing and reading gives the same second."""
    assert parse_time(format_time(seconds)) == seconds


@given(st.text(max_size=30))
def test_no_text_raises(text):
    """Objects of other programs may have any text as a time."""
    seconds = parse_time(text)
    assert seconds is None or parse_time(format_time(seconds)) is not None
