"""General laws of PromQL. The contract tests have single numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.prometheus import Tsdb
from wva.sim.prometheus.promql import BadQueryError, EvaluationTime, ExecutionError, evaluate, parse
from wva.sim.prometheus.promql.histogram import bucket_quantile

_values = st.floats(allow_nan=True, allow_infinity=True, width=32)
_series = st.lists(st.tuples(st.integers(0, 600_000), _values), min_size=1, max_size=20, unique_by=lambda row: row[0])
_families = st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), _series, max_size=6)


def _database(families: dict) -> Tsdb:
    tsdb = Tsdb()
    for (namespace, pod), samples in families.items():
        for time_ms, value in sorted(samples):
            tsdb.append({"__name__": "m", "namespace": namespace, "pod": pod}, time_ms / 1000, value)
    return tsdb


def _ask(tsdb: Tsdb, query: str, at_ms: int):
    return evaluate(parse(query), EvaluationTime(tsdb, at_ms, at_ms, at_ms))


def _by_labels(vector) -> dict:
    return {frozenset(sample.labels.items()): sample.value for sample in vector}


def _same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(one[key], other[key], rel_tol=1e-9) or (math.isnan(one[key]) and math.isnan(other[key]))
        for key in one
    )


@given(_families, st.integers(0, 700_000))
def test_instant_value_is_the_newest_within_the_look_back(families: dict, at_ms: int):
    """The value is the newest sample of the last five minutes; their left end and the future are excluded."""
    expected = {}
    for (namespace, pod), samples in families.items():
        visible = [row for row in samples if at_ms - 300_000 < row[0] <= at_ms]
        if visible:
            expected[frozenset({("__name__", "m"), ("namespace", namespace), ("pod", pod)})] = max(visible)[1]
    assert _same(_by_labels(_ask(_database(families), "m", at_ms)), expected)


@given(_families, st.integers(0, 700_000), st.sampled_from([1, 30, 60, 300]))
def test_largest_and_smallest_over_time_ignore_nan(families: dict, at_ms: int, window: int):
    """The result is a number if the window has one, and otherwise NaN."""
    tsdb = _database(families)
    for function, pick in (("max_over_time", max), ("min_over_time", min)):
        expected = {}
        for (namespace, pod), samples in families.items():
            inside = [value for time, value in samples if at_ms - window * 1000 < time <= at_ms]
            if inside:
                numbers = [value for value in inside if not math.isnan(value)]
                expected[frozenset({("namespace", namespace), ("pod", pod)})] = pick(numbers) if numbers else math.nan
        assert _same(_by_labels(_ask(tsdb, f"{function}(m[{window}s])", at_ms)), expected)


@given(_families, st.integers(0, 700_000))
def test_grouping_by_some_labels_is_grouping_without_the_others(families: dict, at_ms: int):
    """``by`` some labels gives the same as ``without`` the others."""
    tsdb = _database(families)
    for operator in ("sum", "min", "max", "count", "avg", "group"):
        by = _by_labels(_ask(tsdb, f"{operator} by (namespace) (m)", at_ms))
        without = _by_labels(_ask(tsdb, f"{operator} without (pod) (m)", at_ms))
        assert _same(by, without)


@given(_families, st.integers(0, 700_000))
def test_set_operators_split_a_vector(families: dict, at_ms: int):
    """The results of ``and`` and ``unless`` together are the whole vector, without overlap."""
    tsdb = _database(families)
    whole = _by_labels(_ask(tsdb, "m", at_ms))
    matching = _by_labels(_ask(tsdb, 'm and on (pod) m{namespace="a"}', at_ms))
    others = _by_labels(_ask(tsdb, 'm unless on (pod) m{namespace="a"}', at_ms))
    union = _by_labels(_ask(tsdb, '(m and on (pod) m{namespace="a"}) or m', at_ms))
    assert not matching.keys() & others.keys()
    assert matching.keys() | others.keys() == whole.keys()
    assert _same(union, whole)


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=30),
    st.integers(1, 60),
    st.integers(0, 600),
    st.sampled_from([30, 60, 300]),
)
def test_rate_of_a_counter_is_never_negative_and_is_the_increase_per_second(
    counts: list[int], step: int, at: int, window: int
):
    """A counter that fell counts as restarted, so a rate is never negative."""
    tsdb = Tsdb()
    for index, count in enumerate(counts):
        tsdb.append({"__name__": "m"}, index * step, count)
    increase = _by_labels(_ask(tsdb, f"increase(m[{window}s])", at * 1000))
    rate = _by_labels(_ask(tsdb, f"rate(m[{window}s])", at * 1000))
    assert all(value >= 0 for value in increase.values())
    assert _same({key: value * window for key, value in rate.items()}, increase)


@given(st.integers(1, 1000), st.integers(1, 30))
def test_steady_counter_has_its_slope_as_rate(per_second: int, step: int):
    """Extrapolation makes the rate of a line exact, for any scrape interval."""
    tsdb = Tsdb()
    for time in range(0, 1200, step):
        tsdb.append({"__name__": "m"}, time, 10_000 + per_second * time)
    (sample,) = _ask(tsdb, "rate(m[5m])", 1000 * 1000)
    assert math.isclose(sample.value, per_second, rel_tol=1e-9)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.floats(0, 1))
def test_quantile_of_a_histogram_lies_within_its_bounds(counts: list[int], quantile: float):
    """With any observation the quantile is between zero and the last finite bound, and grows with q."""
    total = 0
    buckets = []
    for bound, count in enumerate(counts, start=1):
        total += count
        buckets.append((float(bound), float(total)))
    buckets.append((math.inf, float(total)))
    value = bucket_quantile(quantile, buckets)
    if total == 0:
        assert math.isnan(value)
    elif not math.isnan(value):
        assert 0 <= value <= len(counts)
        assert bucket_quantile(1.0, buckets) >= value


def test_stale_series_is_unseen_at_once_and_seen_before():
    """The look-back does not reach past a staleness marker, and ranges skip the marker."""
    tsdb = Tsdb()
    tsdb.append({"__name__": "m"}, 10, 1)
    tsdb.mark_stale({"__name__": "m"}, 20)
    assert _ask(tsdb, "m", 20_000) == []
    assert [sample.value for sample in _ask(tsdb, "m", 19_999)] == [1]
    assert [sample.value for sample in _ask(tsdb, "count_over_time(m[1m])", 30_000)] == [1]
    assert _ask(tsdb, "count_over_time(m[10s])", 25_000) == []


@pytest.mark.parametrize(("query", "expected"), [("topk(2, m)", [2, 1]), ("bottomk(2, m)", [1, 2])])
def test_nan_is_neither_among_the_largest_nor_the_smallest(query: str, expected: list[float]):
    """NaN comes after every number, at any place among the series."""
    tsdb = Tsdb()
    for pod, value in enumerate((math.nan, 1, math.nan, 2)):
        tsdb.append({"__name__": "m", "pod": str(pod)}, 1, value)
    assert [sample.value for sample in _ask(tsdb, query, 1000)] == expected


def test_at_modifier_fixes_the_time():
    """``@`` fixes the time of a selector for any time of the query, and an offset counts from it."""
    tsdb = Tsdb()
    for time in range(0, 100, 10):
        tsdb.append({"__name__": "m"}, time, time)
    assert [sample.value for sample in _ask(tsdb, "m @ 55 offset 10s", 90_000)] == [40]
    moment = EvaluationTime(tsdb, 90_000, 20_000, 80_000)
    assert [sample.value for sample in evaluate(parse("m @ start() + m @ end()"), moment)] == [100]


@pytest.mark.parametrize(
    "query",
    [
        "max_over_time(m[5m:])",
        "quantile(0.5, m)",
        "stddev(m)",
        'count_values("x", m)',
        "deriv(m[5m])",
        "predict_linear(m[5m], 60)",
        'm{a="b" or c="d"}',
        'm{a=~"[[:alpha:]]"}',
        "sort(m)",
    ],
)
def test_what_is_not_supported_is_refused_by_name(query: str):
    """An unsupported query is an error and never a wrong answer, even if the parser can read it."""
    with pytest.raises(BadQueryError, match="support"):
        parse(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("m * on (namespace) m", "many-to-many matching not allowed"),
        ('m * on (namespace) m{pod="x"}', "many-to-one matching must be explicit"),
        ('m * on (namespace) group_left (pod) m{pod="x"}', "grouping labels must ensure unique matches"),
        ('label_replace(m, "pod", "same", "pod", ".*")', "same labelset"),
        ('label_replace(m, "", "x", "pod", ".*")', "invalid destination label name"),
        ("topk(NaN, m)", "NaN"),
    ],
)
def test_ambiguous_data_is_an_execution_error(query: str, message: str):
    """A query fails if the data does not tell which element is meant."""
    tsdb = _database({("a", "x"): [(0, 1.0)], ("a", "y"): [(0, 2.0)]})
    with pytest.raises(ExecutionError, match=message):
        _ask(tsdb, query, 1000)


def test_number_arithmetic_follows_ieee():
    """Where Python raises an error, the result is the number of Prometheus."""
    cases = {
        "1 / 0": math.inf,
        "-1 / 0": -math.inf,
        "0 / 0": math.nan,
        "5 % 0": math.nan,
        "-5 % 3": -2.0,
        "(0 - 8) ^ 0.5": math.nan,
        "0 ^ -1": math.inf,
        "10 ^ 400": math.inf,
        "(0 - 10) ^ 401": -math.inf,
        "1 > bool 0": 1.0,
        "NaN == bool NaN": 0.0,
    }
    for query, expected in cases.items():
        assert repr(_ask(Tsdb(), query, 0)) == repr(expected), query
