"""The snapshot of a cycle: its queries, its failures, and the metrics about both."""

from __future__ import annotations

import asyncio

import pytest

from tests.collect.doubles import NOW
from wva.api.variantautoscaling import Claimant
from wva.collect.snapshot import Collector
from wva.collect.variants import Claims
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.metrics import Freshness, SampleState
from wva.model.variant import VariantKey
from wva.prometheus.answers import ErrorKind, InstantVector, PrometheusError


async def test_a_snapshot_has_variants_and_replicas_in_order(cluster, prometheus, collector):
    """Variants are sorted by name, and replicas by pod."""
    cluster.variant("b", pods=2)
    cluster.variant("a", pods=1)
    for pod in ("a-0", "b-1", "b-0"):
        prometheus.put_replica(pod=pod)
    snapshot = await collector.collect(NOW)
    assert [variant.key.name for variant in snapshot.variants] == ["a", "b"]
    assert [replica.pod for replica in snapshot.replicas] == ["a-0", "b-0", "b-1"]
    assert all(replica.complete for replica in snapshot.replicas)
    assert snapshot.failures == ()


async def test_queries_are_asked_at_the_cycle_s_time(cluster, prometheus, collector):
    """All answers of a cycle are about the same time."""
    cluster.variant()
    await collector.collect(NOW)
    assert {at for _, _, at in prometheus.queries} == {NOW}


async def test_the_number_of_queries_does_not_grow_with_models(cluster, prometheus, collector):
    """WVA sends two queries, for one model as for sixty in three namespaces."""
    cluster.variant()
    prometheus.put_replica()
    await collector.collect(NOW)
    one = len(prometheus.queries)
    for index in range(60):
        cluster.variant(f"v{index}", namespace=f"ns-{index % 3}", model_id=f"m{index}")
    prometheus.queries.clear()
    await collector.collect(NOW)
    assert (one, len(prometheus.queries)) == (2, 2)


async def test_namespaces_are_asked_in_chunks(cluster, prometheus, collector):
    """The length of a query is limited: 101 namespaces take two chunks."""
    for index in range(101):
        cluster.variant(namespace=f"ns-{index}")
    await collector.collect(NOW)
    assert len(prometheus.queries) == 4


async def test_nothing_is_asked_without_an_active_variant(cluster, prometheus, collector):
    """A variant at zero has no pod that could report, so WVA sends no query; the snapshot has the variant."""
    cluster.deployment("d", replicas=0)
    cluster.va(target="d")
    snapshot = await collector.collect(NOW)
    assert len(snapshot.variants) == 1
    assert prometheus.queries == []
    assert collector.prometheus_status() is None


async def test_only_namespaces_with_active_variants_are_asked_for(cluster, prometheus, collector):
    """WVA does not query namespaces in which all variants are at zero."""
    cluster.variant(namespace="in-use")
    cluster.deployment("d", namespace="idle", replicas=0)
    cluster.va("idle", namespace="idle", target="d")
    await collector.collect(NOW)
    assert all('namespace=~"in-use"' in text for _, text, _ in prometheus.queries)


@pytest.mark.parametrize("query", ["kv_cache_usage", "queue_length"])
async def test_a_failing_query_fails_its_namespaces(cluster, prometheus, collector, metric, query):
    """If one query fails, the replicas of its namespaces have no samples."""
    cluster.variant()
    prometheus.put_replica()
    prometheus.fail(query, ErrorKind.SERVER, "Prometheus is on fire")
    snapshot = await collector.collect(NOW)
    (failure,) = snapshot.failures
    assert failure.namespaces == ("ns",)
    assert failure.message == f"query {query}: Prometheus is on fire"
    assert [replica.kv_usage.state for replica in snapshot.replicas] == [SampleState.MISSING]
    assert collector.prometheus_status() == failure.message
    assert metric("wva_prometheus_up") == 0


async def test_the_status_recovers_with_prometheus(cluster, prometheus, collector, metric):
    """Readiness depends on the last queries only."""
    cluster.variant()
    prometheus.fail("queue_length", ErrorKind.UNREACHABLE, "away")
    await collector.collect(NOW)
    prometheus.failing.clear()
    await collector.collect(NOW)
    assert collector.prometheus_status() is None
    assert metric("wva_prometheus_up") == 1


async def test_the_status_is_clear_when_nobody_is_left_to_ask_for(cluster, prometheus, collector):
    """An error about variants that are gone does not keep the controller from being ready."""
    va = cluster.variant()
    prometheus.fail("queue_length", ErrorKind.UNREACHABLE, "away")
    await collector.collect(NOW)
    cluster.stores.variant_autoscalings.delete(va)
    await collector.collect(NOW)
    assert collector.prometheus_status() is None


async def test_one_chunk_s_failure_leaves_the_others_alone(cluster, prometheus, collector, monkeypatch):
    """If the queries of one chunk fail, the replicas of the other chunk have their samples."""
    for index in range(101):
        cluster.variant(namespace=f"ns-{index:03}")
    prometheus.put_replica(namespace="ns-000")
    answer = prometheus.query

    async def fail_second_chunk(promql, *, name, at):
        if "ns-100" in promql:
            prometheus.fail(name, ErrorKind.SERVER, "overloaded")
        try:
            return await answer(promql, name=name, at=at)
        finally:
            prometheus.failing.clear()

    monkeypatch.setattr(prometheus, "query", fail_second_chunk)
    snapshot = await collector.collect(NOW)
    assert [failure.namespaces for failure in snapshot.failures] == [("ns-100",)]
    assert snapshot.replicas[0].complete


@pytest.fixture
def spoiled(prometheus, monkeypatch):
    """Return a function that makes queries of these names fail if they name the namespace ``bad``."""
    answer = prometheus.query

    def spoil(*names):
        async def query(promql, *, name, at):
            if name in names and "bad" in promql:
                raise PrometheusError(ErrorKind.MALFORMED, "the answer is too large")
            return await answer(promql, name=name, at=at)

        monkeypatch.setattr(prometheus, "query", query)

    return spoil


async def test_a_namespace_that_spoils_a_shared_answer_is_held_alone(cluster, prometheus, instruments, spoiled, metric):
    """WVA decides on all other namespaces in the same cycle, and Prometheus counts as up."""
    for name in ("bad", *(f"ns-{index}" for index in range(40))):
        cluster.variant(namespace=name)
        prometheus.put_replica(namespace=name)
    spoiled("kv_cache_usage", "queue_length", "engine_signals", "request_counts")
    collector = _asking(cluster, prometheus, instruments, engines_of=lambda _: True, retention_of=lambda _: 600.0)
    for _ in range(2):
        snapshot = await collector.collect(NOW)
        (failure,) = snapshot.failures
        assert failure.namespaces == ("bad",)
        assert failure.message == "query kv_cache_usage: the answer is too large"
        complete = {replica.variant.namespace for replica in snapshot.replicas if replica.complete}
        assert complete == {f"ns-{index}" for index in range(40)}
        engines = {replica.variant.namespace: replica.engine.running.detail for replica in snapshot.replicas}
        counts = {counts.model.namespace: counts.detail for counts in snapshot.request_counts}
        assert engines.pop("bad") == "query engine_signals: the answer is too large"
        assert counts.pop("bad") == "query request_counts: the answer is too large"
        assert {"too large" in text for text in (*engines.values(), *counts.values())} == {False}
        assert (collector.prometheus_status(), metric("wva_prometheus_up")) == (None, 1)


async def test_a_cycle_ends_at_its_deadline(cluster, prometheus, instruments, monkeypatch):
    """A query without an answer at the deadline fails, so a slow Prometheus does not delay the decision."""
    cluster.variant()

    async def hang(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr(prometheus, "query", hang)
    collector = Collector(cluster.stores, prometheus=prometheus, instruments=instruments, deadline_seconds=0.02)
    (failure,) = (await collector.collect(NOW)).failures
    assert failure.message == "query kv_cache_usage: Prometheus did not answer within 0.02 s"


async def test_cancellation_ends_the_cycle(cluster, prometheus, collector, monkeypatch):
    """Cancellation is passed on, and is neither a failure nor a deadline."""
    cluster.variant()
    asked = asyncio.Event()

    async def hang(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(prometheus, "query", hang)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collector.collect(NOW))
        await asked.wait()
        task.cancel()
    assert task.cancelled()


async def test_queries_run_side_by_side_but_not_all_at_once(cluster, prometheus, collector, monkeypatch):
    """At most eight queries run at the same time, so that WVA does not flood Prometheus."""
    for index in range(401):
        cluster.variant(namespace=f"ns-{index}")
    running, peak = 0, 0

    async def observe(*_, **__):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        return InstantVector()

    monkeypatch.setattr(prometheus, "query", observe)
    await collector.collect(NOW)
    assert 1 < peak <= 8


async def test_age_limits_may_change_between_cycles(cluster, prometheus, instruments):
    """New age limits of the ConfigMap apply in the next cycle."""
    limits = [Freshness(), Freshness(fresh_seconds=10, unavailable_seconds=20)]
    cluster.variant()
    prometheus.put_replica(age_seconds=15)
    collector = Collector(
        cluster.stores, prometheus=prometheus, instruments=instruments, freshness=lambda: limits.pop(0)
    )
    states = [(await collector.collect(NOW)).replicas[0].kv_usage.state for _ in range(2)]
    assert states == [SampleState.FRESH, SampleState.STALE]


async def test_variants_of_other_controllers_are_not_collected(cluster, prometheus, instruments):
    """A controller with an instance collects only the variants of that instance."""
    cluster.variant()
    collector = Collector(
        cluster.stores, prometheus=prometheus, instruments=instruments, claims=Claims(Claimant("s/x", "x"))
    )
    snapshot = await collector.collect(NOW)
    assert (snapshot.variants, prometheus.queries) == ((), [])


async def test_a_name_that_is_no_namespace_never_reaches_promql(cluster, prometheus, collector):
    """Kubernetes does not allow such a name; if there is one, only that namespace fails."""
    cluster.variant(namespace='x",y="')
    cluster.variant(namespace="ns")
    prometheus.put_replica()
    snapshot = await collector.collect(NOW)
    (failure,) = snapshot.failures
    assert failure.namespaces == ('x",y="',)
    assert all('namespace=~"ns"' in text for _, text, _ in prometheus.queries)
    assert {replica.variant: replica.complete for replica in snapshot.replicas} == {
        VariantKey("ns", "va"): True,
        VariantKey('x",y="', "va"): False,
    }


# --- request counts and inventory -----------------------------------------------------------------------------------


def _asking(cluster, prometheus, instruments, **settings):
    """Return a collector with these settings."""
    return Collector(cluster.stores, prometheus=prometheus, instruments=instruments, **settings)


async def test_requests_are_counted_for_models_that_may_go_to_zero(cluster, prometheus, instruments):
    """Other models have no counts; without an answer the counts are unknown."""
    cluster.variant("a", model_id="m")
    cluster.variant("b", model_id="n")
    collector = _asking(
        cluster, prometheus, instruments, retention_of=lambda model: 60.0 if model.model_id == "m" else None
    )
    (counts,) = (await collector.collect(NOW)).request_counts
    assert (counts.model.model_id, counts.retention_seconds, counts.finished) == ("m", 60.0, None)
    assert counts.detail


async def test_the_inventory_is_read_when_somebody_wants_to_know(cluster, prometheus, instruments):
    """The snapshot has the inventory, or the reason why it is unknown; if WVA did not ask, it has neither."""
    inventory = Inventory.of([AcceleratorPool("A100", 8, 0)])
    for found, expected in (((inventory, ""), (inventory, "")), ((None, "why"), (None, "why")), (None, (None, ""))):
        collector = _asking(cluster, prometheus, instruments, inventory=lambda found=found: found)
        snapshot = await collector.collect(NOW)
        assert (snapshot.inventory, snapshot.inventory_detail) == expected
