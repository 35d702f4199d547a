"""Classification of the samples of a replica: only a valid, recent number is a value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collect.doubles import NOW
from wva.collect.samples import REQUESTS, SHARE, Classifier
from wva.model.metrics import Freshness, SampleState

CLASSIFIER = Classifier(NOW, Freshness())
TEXTS = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=20),
        st.floats().map(repr),
        st.integers().map(str),
        st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1", "1e3", "-0", "1e400"]),
    ),
    max_size=3,
).map(tuple)


def _kv(text, *, age_seconds=5.0):
    return CLASSIFIER.scrape((str(NOW - age_seconds),)).sample(SHARE, (text,))


def _queue(text):
    return CLASSIFIER.scrape((str(NOW),)).sample(REQUESTS, (text,))


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("0.25", 0.25), ("1", 1.0), ("5e-05", 5e-05), ("-0", 0.0)])
def test_a_recent_share_is_fresh(text, value):
    """WVA reads each notation in which Prometheus writes numbers."""
    sample = _kv(text)
    assert (sample.state, sample.value, sample.timestamp) == (SampleState.FRESH, value, NOW - 5)
    assert math.copysign(1, sample.value) == 1


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "-0.1", "1.0000001", "80", "1e400", "9" * 99, None])
def test_a_share_that_cannot_be_true_is_invalid(text):
    """An invalid share does not count as 0, which would look idle."""
    sample = _kv(text)
    assert (sample.state, sample.value) == (SampleState.INVALID, None)
    assert sample.detail


@pytest.mark.parametrize("text", ["", "x", "1_0", " 1", "\u0663", "0x1", "infinity"])
def test_only_numbers_as_prometheus_writes_them_are_numbers(text):
    """Python accepts more notations than Prometheus writes; WVA refuses those."""
    assert _kv(text).state is SampleState.INVALID


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("2.9", 2.0), ("0.5", 0.0), ("1e3", 1000.0)])
def test_a_queue_length_is_truncated_toward_zero(text, value):
    """Requests are whole numbers, and the original truncates, too."""
    assert _queue(text).value == value


@pytest.mark.parametrize("text", ["-1", "-0.5", "NaN", "+Inf", "1e10", "1e308"])
def test_a_queue_length_that_cannot_be_true_is_invalid(text):
    """A negative length is invalid and is not raised to 0."""
    assert _queue(text).state is SampleState.INVALID


def test_a_number_of_endless_digits_is_invalid():
    """No engine reports that many digits, and parsing them would take long."""
    assert _kv("0." + "1" * 1000).state is SampleState.INVALID


@pytest.mark.parametrize(
    ("age_seconds", "state"),
    [(-30, "fresh"), (0, "fresh"), (59.5, "fresh"), (60, "stale"), (299, "stale"), (300, "missing"), (1e9, "missing")],
)
def test_the_age_decides_between_fresh_stale_and_missing(age_seconds, state):
    """A sample is no longer fresh at 60 s and missing at 300 s; a clock may be 30 s ahead."""
    sample = _kv("0.5", age_seconds=age_seconds)
    assert sample.state == state
    assert (sample.value is None) == (state == "missing")


def test_a_time_in_the_future_is_invalid():
    """If the clocks differ by more than 30 s, the age is unknown."""
    sample = _kv("0.5", age_seconds=-31)
    assert sample.state is SampleState.INVALID
    assert "31 s in the future" in sample.detail


def test_a_value_without_a_time_is_missing():
    """The query still shows a value of a pod that no longer reports."""
    sample = CLASSIFIER.scrape(()).sample(SHARE, ("0.5",))
    assert sample.state is SampleState.MISSING


@pytest.mark.parametrize("time", [("NaN",), ("x",), (str(NOW), str(NOW))])
def test_a_time_that_cannot_be_read_is_invalid(time):
    """If the age is unknown, WVA does not use the value."""
    sample = CLASSIFIER.scrape(time).sample(SHARE, ("0.5",))
    assert sample.state is SampleState.INVALID


def test_two_series_for_one_pod_are_invalid_even_when_they_agree():
    """The query groups by pod, so a server that returns two series does not do what was asked."""
    sample = CLASSIFIER.scrape((str(NOW),)).sample(SHARE, ("0.5", "0.5"))
    assert sample.state is SampleState.INVALID


def test_a_missing_value_says_when_the_last_one_was():
    """The window of the query is a minute, but Prometheus still knows the time of the last sample."""
    sample = CLASSIFIER.scrape((str(NOW - 90),)).sample(SHARE, ())
    assert (sample.state, sample.detail) == (SampleState.MISSING, "last one is 90 s old")


@pytest.mark.parametrize("time", ["1e300", "-1e300", "NaN", str(NOW + 5)])
def test_an_odd_time_of_a_missing_value_is_not_shown(time):
    """The detail does not show a time that makes no sense."""
    sample = CLASSIFIER.scrape((time,)).sample(SHARE, ())
    assert sample.state is SampleState.MISSING
    assert len(sample.detail) < 30


@settings(deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([SHARE, REQUESTS]))
def test_whatever_arrives_a_value_is_finite_and_in_range(value, time, signal):
    """No text raises an exception, and a value is always a number in its range."""
    sample = CLASSIFIER.scrape(time).sample(signal, value)
    if sample.value is not None:
        assert 0 <= sample.value <= signal.range.maximum
        assert sample.value == float(value.texts[0]) or signal.whole
        assert len(value.texts) == len(time.texts) == 1
        assert NOW - float(time.texts[0]) < 300
    assert len(sample.detail) < 200


@settings(deadline=None)
@given(
    st.floats(min_value=0, max_value=1),
    st.floats(min_value=-30, max_value=1e6),
    st.floats(min_value=0, max_value=1e6),
)
def test_an_older_sample_is_never_fresher(value, age_seconds, older_by):
    """A sample only becomes staler with age."""
    order = [SampleState.FRESH, SampleState.STALE, SampleState.MISSING]
    younger, older = (_kv(repr(value), age_seconds=age) for age in (age_seconds, age_seconds + older_by))
    assert order.index(younger.state) <= order.index(older.state)


@pytest.mark.parametrize(
    ("age", "between", "state"),
    [
        (59.0, None, SampleState.FRESH),
        (61.0, None, SampleState.STALE),
        (61.0, 30.0, SampleState.STALE),
        (61.0, 60.0, SampleState.FRESH),
        (119.0, 60.0, SampleState.FRESH),
        (120.0, 60.0, SampleState.STALE),
        (299.0, 150.0, SampleState.FRESH),
        (300.0, 150.0, SampleState.MISSING),
        (310.0, 600.0, SampleState.MISSING),
    ],
)
def test_a_sample_is_fresh_for_two_scrape_intervals_of_its_pod(age, between, state):
    """Just before the next scrape the newest sample is one interval old, and two after a lost scrape."""
    assert CLASSIFIER.scrape((str(NOW - age),), between).state is state
