"""The text format. The parser of prometheus_client is the reference."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wva.sim.prometheus.exposition import ExpositionError, SampleLine, lines, lines_since, parse_series


def _parsed(page: str) -> list[tuple[dict[str, str], float, int | None]]:
    return [(parse_series(line.series), line.value, line.timestamp_ms) for line in lines(page)]


def test_label_values_may_hold_what_looks_like_syntax():
    """Braces, commas, equals signs, hashes, escapes and line separators of Unicode are text inside quotes."""
    text = 'm{a="}{,=#",b="\\"\\\\\\n",c="\u2028 x" } 1.5 1700000000123'
    assert _parsed(text) == [({"__name__": "m", "a": "}{,=#", "b": '"\\\n', "c": "\u2028 x"}, 1.5, 1_700_000_000_123)]


def test_comments_and_blank_lines_carry_nothing():
    """HELP, TYPE, comments and empty lines give no samples."""
    assert _parsed("# HELP m x\n# TYPE m gauge\n\n   \n# EOF\n") == []


@pytest.mark.parametrize(
    ("text", "value"), [("NaN", math.nan), ("+Inf", math.inf), ("-Inf", -math.inf), ("1e-7", 1e-7), ("0x10", None)]
)
def test_values(text: str, value: float | None):
    """The parser reads numbers as Go prints them. It refuses hexadecimal ones, which no target exposes."""
    if value is None:
        with pytest.raises(ExpositionError):
            _parsed(f"m {text}")
    else:
        ((_, parsed, _),) = _parsed(f"m {text}")
        assert parsed == value or (math.isnan(parsed) and math.isnan(value))


@pytest.mark.parametrize(
    "page",
    [
        "m",
        "m 1 2 3",
        "m one",
        "m 1 1.5",
        '{a="b"} 1',
        "m{a=b} 1",
        'm{a="b" c="d"} 1',
        'm{a="b",a="c"} 1',
        'm{1a="b"} 1',
        'm{a="b" 1',
        "not a page {",
        "m} 1",
    ],
)
def test_malformed_page_is_refused(page: str):
    """A line that is not in the format is an error, not a skipped line."""
    with pytest.raises(ExpositionError):
        _parsed(page)


_label_values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_numbers = st.floats(allow_nan=False)


@given(st.lists(st.tuples(_label_values, _label_values, _numbers), max_size=8, unique_by=lambda row: row[:2]))
def test_agrees_with_the_library(rows: list[tuple[str, str, float]]):
    """The parser reads a page of the client library as the library itself reads it."""
    registry = CollectorRegistry()
    gauge = Gauge("g", "help with } and {", ["a", "b"], registry=registry)
    counter = Counter("c", "help", ["a", "b"], registry=registry)
    histogram = Histogram("h", "help", ["a", "b"], registry=registry)
    for a, b, value in rows:
        gauge.labels(a, b).set(value)
        counter.labels(a, b).inc(abs(value))
        histogram.labels(a, b).observe(value)
    page = generate_latest(registry).decode()
    reference = [
        ({"__name__": sample.name, **sample.labels}, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    assert repr([(labels, value) for labels, value, _ in _parsed(page)]) == repr(reference)


def test_what_a_page_says_again_is_not_parsed_again():
    """A line of the page before is the same object; a new or changed one is parsed; one that is gone does not come."""
    before = dict(lines_since('a{x="1"} 1\nb 2\ngone 3\n', {}))
    after = dict(lines_since('# TYPE a counter\na{x="1"} 1\n b 4\nc 5\n\n', before))
    assert [tuple(line) for line in after.values()] == [('a{x="1"}', 1.0, None), ("b", 4.0, None), ("c", 5.0, None)]
    assert after['a{x="1"} 1'] is before['a{x="1"} 1']
    assert all(isinstance(line, SampleLine) for line in after.values())


def test_a_malformed_line_is_refused_also_beside_known_ones():
    """What the page before had does not save a page."""
    before = dict(lines_since("a 1\n", {}))
    with pytest.raises(ExpositionError):
        list(lines_since("a 1\nb x\n", before))
