"""The real queries on a Prometheus that evaluates them, and the snapshots that follow."""

from __future__ import annotations

import pytest

from tests.collect.doubles import NOW
from wva.collect.snapshot import Collector
from wva.model.metrics import SampleState
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.prometheus.server import EmbeddedPrometheus

KV, QUEUE = "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"


@pytest.fixture
async def world(cluster, clock, instruments):
    """Return (embedded Prometheus, function that collects now)."""
    async with EmbeddedPrometheus(now=lambda: NOW) as prometheus:
        settings = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(settings, clock=clock, instruments=instruments) as client:
            collector = Collector(cluster.stores, prometheus=client, instruments=instruments)

            async def collect():
                snapshot = await collector.collect(NOW)
                assert snapshot.failures == ()
                return {replica.pod: replica for replica in snapshot.replicas}

            yield prometheus, collect


def _scrape(prometheus, kv, queue, *, pod="va-0", ages=(35, 20, 5), **labels):
    """Put samples of a pod at the given ages in seconds, oldest first."""
    identity = {"namespace": "ns", "model_name": "m", "pod": pod, "engine": "0", **labels}
    for age in ages:
        prometheus.tsdb.append({"__name__": KV, **identity}, NOW - age, kv)
        prometheus.tsdb.append({"__name__": QUEUE, **identity}, NOW - age, queue)


async def test_a_scraped_pod_is_fresh_with_the_age_of_its_last_scrape(cluster, world):
    """The time of a sample is that of its scrape, and not of the query."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, 0.4, 3)
    replica = (await collect())["va-0"]
    assert (replica.kv_usage.value, replica.queue_length.value) == (0.4, 3.0)
    assert replica.kv_usage.timestamp == pytest.approx(NOW - 5)
    assert replica.complete


async def test_the_hottest_engine_of_the_last_minute_counts(cluster, world):
    """Data-parallel engines give several series per pod; the highest value of the last minute counts."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, 0.9, 7, ages=(50,))
    _scrape(prometheus, 0.1, 0, ages=(5,))
    _scrape(prometheus, 0.3, 2, engine="1")
    replica = (await collect())["va-0"]
    assert (replica.kv_usage.value, replica.queue_length.value) == (0.9, 7.0)
    assert replica.complete


async def test_a_pod_that_is_no_longer_scraped_is_missing_with_its_age(cluster, world):
    """After a minute the sample is missing, and its detail has the age of the last one."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, 0.4, 3, ages=(120, 90))
    sample = (await collect())["va-0"].kv_usage
    assert (sample.state, sample.detail) == (SampleState.MISSING, "last one is 90 s old")


async def test_a_series_that_ended_is_not_believed_for_another_minute(cluster, world):
    """The query still shows a value after the staleness marker; without a time it is missing."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, 0.4, 3)
    for name in (KV, QUEUE):
        labels = {"__name__": name, "namespace": "ns", "model_name": "m", "pod": "va-0", "engine": "0"}
        prometheus.tsdb.mark_stale(labels, NOW - 1)
    replica = (await collect())["va-0"]
    assert replica.kv_usage.state is SampleState.MISSING
    assert not replica.reports


async def test_other_namespaces_and_models_do_not_leak_in(cluster, world, metric):
    """Series of another namespace or model do not count for a pod of the same name."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, 0.9, 9, namespace="ns-2")
    _scrape(prometheus, 0.8, 8, model_name="other")
    sample = (await collect())["va-0"].kv_usage
    assert (sample.state, sample.detail) == (SampleState.MISSING, 'its pods report model_name "other"')
    assert metric("wva_samples_ignored_total", cause="foreign_pod") == 0


async def test_a_nan_is_invalid(cluster, world):
    """A NaN makes the sample invalid, and does not count as 0."""
    prometheus, collect = world
    cluster.variant()
    _scrape(prometheus, float("nan"), 3)
    replica = (await collect())["va-0"]
    assert (replica.kv_usage.state, replica.queue_length.state) == (SampleState.INVALID, SampleState.FRESH)
