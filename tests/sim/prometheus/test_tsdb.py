"""The time series database keeps the order of samples, marks staleness, and drops old samples."""

import math

from hypothesis import given
from hypothesis import strategies as st

from wva.sim.prometheus import Tsdb
from wva.sim.prometheus.tsdb import milliseconds

LABELS = {"__name__": "m", "pod": "p"}


def _only(tsdb: Tsdb):
    (series,) = tsdb
    return series


def test_label_sets_are_equal_whatever_their_order_and_empty_labels():
    """An empty label is an absent one, and the order of labels has no meaning."""
    tsdb = Tsdb()
    tsdb.append({"__name__": "m", "a": "1", "b": "2"}, 1, 1)
    tsdb.append({"b": "2", "a": "1", "c": "", "__name__": "m"}, 2, 2)
    assert _only(tsdb).values == [1, 2]
    assert _only(tsdb).labels == {"__name__": "m", "a": "1", "b": "2"}


def test_sample_older_than_the_last_is_refused():
    """The database refuses a sample that is older than the last, reports it, and changes nothing."""
    tsdb = Tsdb()
    assert tsdb.append(LABELS, 10, 1)
    assert not tsdb.append(LABELS, 9.999, 2)
    assert _only(tsdb).times == [10_000]


def test_second_sample_of_one_time_is_accepted_only_if_it_says_the_same():
    """The database accepts the same sample twice, NaN included, and refuses another value for the same time."""
    tsdb = Tsdb()
    tsdb.append(LABELS, 1, math.nan)
    assert tsdb.append(LABELS, 1, math.nan)
    assert not tsdb.append(LABELS, 1, 2)
    assert not tsdb.mark_stale(LABELS, 1)
    assert len(_only(tsdb).values) == 1


def test_samples_beyond_retention_go_and_empty_series_with_them():
    """Samples older than retention and empty series are dropped.

    A caller with a reference sees that its series is dropped.
    """
    tsdb = Tsdb(retention_seconds=600)
    tsdb.append({"__name__": "old"}, 0, 1)
    old = _only(tsdb)
    for time in range(0, 1201, 60):
        tsdb.append(LABELS, time, time)
    assert len(tsdb) == 1
    assert old.dropped
    assert not _only(tsdb).dropped
    assert _only(tsdb).times[0] == 600_000


def test_view_hides_series_and_shares_the_others():
    """A view hides some series and does not change the database."""
    tsdb = Tsdb()
    tsdb.append(LABELS, 1, 1)
    tsdb.append({**LABELS, "pod": "q"}, 1, 2)
    view = tsdb.less(lambda labels: labels["pod"] == "p")
    assert [series.labels["pod"] for series in view] == ["q"]
    assert len(tsdb) == 2


def test_half_a_millisecond_rounds_up():
    """Times are rounded as Prometheus rounds them, not to even."""
    assert milliseconds(0.1765) == 177
    assert milliseconds(2.5e-3) == 3


@given(st.lists(st.integers(0, 10_000), max_size=60), st.integers(1, 3600))
def test_times_stay_in_order_and_within_retention(seconds: list[int], retention_seconds: int):
    """For any samples, times ascend strictly, and none is older than retention and one minute."""
    tsdb = Tsdb(retention_seconds=retention_seconds)
    for time in seconds:
        tsdb.append(LABELS, time, 1.0)
    for series in tsdb:
        assert series.times == sorted(set(series.times))
        assert len(series.times) == len(series.values)
        newest = series.times[-1]
        assert series.times[0] >= newest - retention_seconds * 1000 - 60_000
