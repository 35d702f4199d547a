"""The pods of one namespace cannot change the numbers of another one by their labels."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.collect.doubles import NOW, FakePrometheus
from wva.collect.snapshot import Collector
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.prometheus import EmbeddedPrometheus, InProcess, ScrapeTarget

KV, QUEUE = "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"
VICTIM = VariantKey("victim", "va")


def page(usage, waiting, **labels):
    """Return the metrics page of a pod."""
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{KV}{{{text}}} {usage}\n{QUEUE}{{{text}}} {waiting}\n"


@pytest.fixture
async def world(clock, instruments):
    """Return a function that scrapes and returns the victim's replica.

    Victim and attacker each have a variant of the same model, with a pod of the same name.
    """
    cluster = CachedCluster()
    for namespace in ("victim", "attacker"):
        cluster.variant(namespace=namespace)
    async with EmbeddedPrometheus(now=lambda: NOW) as prometheus:
        connection = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(connection, clock=clock, instruments=instruments) as client:
            collector = Collector(cluster.stores, prometheus=client, instruments=instruments)

            async def collect(attack, *, honor_labels=False):
                victims = {"job": "vllm", "namespace": "victim", "pod": "va-0"}
                attackers = {"job": "vllm", "namespace": "attacker", "pod": "va-0"}
                pages = [
                    ScrapeTarget(InProcess(lambda: page(0.4, 3, model_name="m")), victims),
                    ScrapeTarget(InProcess(lambda: attack), attackers, honor_labels=honor_labels),
                ]
                prometheus.scraper.discover(lambda: pages)
                await prometheus.scrape()
                found = {replica.variant: replica for replica in (await collector.collect(NOW)).replicas}
                return found[VICTIM]

            yield collect


FORGERIES = {
    "namespace": {"namespace": "victim", "pod": "va-0"},
    "exported namespace": {"exported_namespace": "victim", "exported_pod": "va-0"},
    "both": {"namespace": "victim", "exported_namespace": "victim", "pod": "va-0", "exported_pod": "va-0"},
    "pod name": {"namespace": "victim", "pod_name": "va-0", "pod": "va-0"},
}


@pytest.mark.parametrize("labels", FORGERIES.values(), ids=FORGERIES.keys())
async def test_labels_of_a_page_do_not_make_it_anothers(world, labels):
    """Prometheus renames such labels to exported_..., which no query of WVA reads."""
    replica = await world(page(0.99, 90, model_name="m", **labels))
    assert (replica.kv_usage.value, replica.queue_length.value) == (0.4, 3)


@pytest.mark.parametrize(("usage", "waiting", "seen"), [(0.0, 0, (0.4, 3)), (0.99, 90, (0.99, 90))])
async def test_where_prometheus_honors_forged_labels_the_higher_value_counts(world, usage, waiting, seen):
    """With honorLabels a page can add series to other pods, but it cannot lower their values."""
    forged = {"model_name": "m", "namespace": "victim", "pod": "va-0", "engine": "x"}
    replica = await world(page(usage, waiting, **forged), honor_labels=True)
    assert (replica.kv_usage.value, replica.queue_length.value) == seen


LABELS = st.dictionaries(
    st.sampled_from(["exported_namespace", "exported_pod", "pod", "pod_name", "model_name", "engine", "job"]),
    st.sampled_from(["victim", "va-0", "m", "", "victim/va-0", 'x"} or {', "\u202e"]),
)
SERIES = st.lists(st.tuples(LABELS, st.sampled_from(["0", "0.99", "NaN", "1e9", "-1"])), max_size=8)


@settings(deadline=None)
@given(SERIES)
def test_no_series_of_a_namespace_changes_what_is_seen_of_another(forged):
    """The snapshot of the victim is the same with and without the attacker's series."""

    def seen(entries):
        cluster, prometheus = CachedCluster(), FakePrometheus()
        for namespace in ("victim", "attacker"):
            cluster.variant(namespace=namespace)
        prometheus.put_replica(namespace="victim", kv="0.4", queue="3")
        for labels, value in entries:
            for name in ("kv_cache_usage", "queue_length", "kv_cache_usage_timestamp", "queue_length_timestamp"):
                prometheus.put(name, value, **{**labels, "namespace": "attacker"})
        collector = Collector(
            cluster.stores,
            prometheus=prometheus,
            instruments=Instruments(CollectorRegistry()),
        )
        snapshot = asyncio.run(collector.collect(NOW))
        return [replica for replica in snapshot.replicas if replica.variant == VICTIM]

    assert seen(forged) == seen([])
