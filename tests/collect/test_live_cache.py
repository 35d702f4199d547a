"""Each key of the cache, changed in the main ConfigMap while the process runs."""

from __future__ import annotations

import pytest

from tests.collect.cache_bench import CacheBench
from tests.collect.doubles import NOW
from wva.collect.answer_cache import background_seconds
from wva.config import Inputs, load
from wva.config.load import LiveSettings
from wva.model.metrics import Freshness, SampleState
from wva.prometheus.answers import ErrorKind, PrometheusError

PREFIX = "PROMETHEUS_METRICS_CACHE_"
LONG = {"TTL": "5m", "FRESH_THRESHOLD": "10m", "UNAVAILABLE_THRESHOLD": "20m", "STALE_THRESHOLD": "10m"}


class LiveBench(CacheBench):
    """A collector whose settings come from a main ConfigMap."""

    def __init__(self, **keys):
        """Start with these keys, without their prefix."""
        super().__init__()
        given = Inputs({}, {}, {})
        self.live = LiveSettings(load(given).settings, given)
        self.take(**keys)

    def take(self, **keys):
        """Take a ConfigMap with these keys only."""
        assert self.live.take({f"{PREFIX}{key}": text for key, text in keys.items()}).problems == ()
        current = self.live.current
        self.cache, self.freshness = (
            current,
            Freshness(current.fresh_threshold, current.unavailable_threshold),
        )


async def test_a_namespace_that_spoils_answers_leaves_the_others_their_cache(monkeypatch):
    """WVA uses the kept answers of the other namespaces, and asks again for the bad one only."""
    bench = LiveBench(**LONG)
    bench.cluster.variant("bad", namespace="bad")
    answer = bench.prometheus.query

    async def query(promql, *, name, at):
        found = await answer(promql, name=name, at=at)
        if "bad" in promql:
            raise PrometheusError(ErrorKind.MALFORMED, "too large")
        return found

    monkeypatch.setattr(bench.prometheus, "query", query)
    for at in (0, 5):
        await bench.asks(at)
    for at in (10, 70):
        _, replicas = await bench.asks(at)
        assert replicas["va-0"].complete
        assert [failure.namespaces for failure in bench.failures] == [("bad",)]
        assert all('"bad"' in text for _, text, _ in bench.prometheus.queries)
        assert (bench.collector.prometheus_status(), bench.metric("wva_prometheus_up")) == (None, 1)


@pytest.mark.parametrize("change", [{"ENABLED": "false"}, {"TTL": "10s"}, {"STALE_THRESHOLD": "10s"}])
async def test_an_answer_is_used_again_no_longer(change):
    """WVA asks again if the cache is off or a limit is shorter, until the change is taken back."""
    bench = LiveBench(**LONG)
    assert await bench.asked(0)
    assert not await bench.asked(20)
    bench.take(**{**LONG, **change})
    assert [await bench.asked(at) for at in (30, 50)] == [True, True]
    bench.take(**LONG)
    assert [await bench.asked(at) for at in (60, 80)] == [True, False]


async def test_without_a_ttl_every_cycle_asks_again():
    """Without the key of the TTL, WVA asks in every cycle."""
    bench = LiveBench(**LONG)
    await bench.asked(0)
    bench.take()
    assert [await bench.asked(at) for at in (1, 2)] == [True, True]


async def test_a_shorter_cleanup_interval_forgets_sooner():
    """The cache drops answers that no cycle has used for the interval."""
    for interval, left in (("1h", 2), ("10s", 1)):
        bench = LiveBench(**LONG, CLEANUP_INTERVAL="1h")
        await bench.asked(0)
        bench.take(**LONG, CLEANUP_INTERVAL=interval)
        await bench.asked(1)
        bench.cluster.variant("other", namespace="ns-b")
        await bench.asked(20)
        assert bench.metric("wva_prometheus_cache_entries") == left


@pytest.mark.parametrize(("change", "fetched"), [({}, True), ({"FETCH_INTERVAL": "0"}, False)])
async def test_the_fetch_between_cycles_can_be_switched_off(change, fetched):
    """The fetch is due half an interval after a cycle, unless the interval is 0."""
    bench = LiveBench(**LONG)
    bench.take(**LONG, **change)
    await bench.asked(0)
    bench.prometheus.queries.clear()
    await bench.collector.refresh(NOW + 29)
    assert bool(bench.prometheus.queries) == fetched
    assert (background_seconds(bench.cache) > 0) == fetched


async def test_a_maximal_size_is_kept():
    """An answer is about up to a hundred namespaces, so 150 namespaces need two."""
    sizes = []
    for size in ("0", "1"):
        bench = LiveBench(**LONG)
        for number in range(150):
            bench.cluster.variant(f"v{number}", namespace=f"ns-{number:03}")
        bench.take(**LONG, MAX_SIZE=size)
        await bench.asked(0)
        sizes.append(bench.metric("wva_prometheus_cache_entries"))
    assert sizes == [2, 1]


async def test_age_limits_judge_kept_answers_and_new_ones():
    """The age limits of the ConfigMap decide whether a sample is fresh, stale or missing."""
    bench = LiveBench()
    states = []
    for keys in ({}, {"FRESH_THRESHOLD": "1s"}, {"FRESH_THRESHOLD": "1s", "UNAVAILABLE_THRESHOLD": "2s"}, {}):
        bench.take(**keys)
        states.append((await bench.asks(0))[1]["va-0"].kv_usage.state)
    assert states == [SampleState.FRESH, SampleState.STALE, SampleState.MISSING, SampleState.FRESH]
