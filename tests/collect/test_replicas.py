"""The join of samples with the pods of variants."""

from __future__ import annotations

import pytest

from tests.collect.cluster import accepted_variants, no_faults
from tests.collect.doubles import NOW
from wva.collect.replicas import ReplicaJoin
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.model.metrics import Freshness, SampleState
from wva.model.variant import VariantKey
from wva.prometheus.answers import InstantSeries, InstantVector, Labels


@pytest.fixture
def replicas(cluster, prometheus, instruments):
    """Return a function that joins the cluster with all series of Prometheus, by pod."""
    return lambda: {replica.pod: replica for replica in _join(cluster, prometheus, instruments)}


def _join(cluster, prometheus, instruments):
    join = ReplicaJoin(accepted_variants(cluster.stores), instruments=instruments, faults=no_faults())
    for name in {name.removesuffix("_timestamp") for name in prometheus.series}:
        join.add(name, InstantVector(tuple(prometheus.answer(name))))
    return join.replicas(now=NOW, freshness=Freshness(), intervals=ScrapeIntervals())


def test_a_reporting_pod_carries_both_signals(cluster, prometheus, replicas):
    """A replica has both values with their times."""
    cluster.variant(pods=1)
    prometheus.put_replica(kv="0.7", queue="4", age_seconds=12)
    replica = replicas()["va-0"]
    assert replica.variant == VariantKey("ns", "va")
    assert (replica.kv_usage.value, replica.queue_length.value) == (0.7, 4.0)
    assert replica.kv_usage.timestamp == NOW - 12
    assert replica.complete


def test_a_ready_pod_without_samples_is_still_a_replica(cluster, replicas):
    """The pod should report, so it counts for coverage."""
    cluster.variant(pods=2)
    assert [(name, replica.reports) for name, replica in sorted(replicas().items())] == [
        ("va-0", False),
        ("va-1", False),
    ]


def test_a_pod_that_is_not_ready_is_no_replica(cluster, prometheus, replicas, metric):
    """Samples of such a pod are ignored, and a counter counts them."""
    cluster.deployment("d-va", replicas=3)
    cluster.va(target="d-va")
    cluster.pod("loading", deployment="d-va", ready=False)
    cluster.pod("terminating", deployment="d-va", deletionTimestamp="2026-01-01T00:00:00Z")
    cluster.pod("ended", deployment="d-va", ready=False, phase="Succeeded")
    for pod in ("loading", "terminating"):
        prometheus.put_replica(pod=pod)
    assert replicas() == {}
    assert metric("wva_samples_ignored_total", cause="not_ready") == 4


def test_series_of_unknown_pods_are_ignored_and_counted_once(cluster, prometheus, replicas, metric):
    """Prometheus shows deleted pods for a minute, and other workloads run vLLM, too."""
    cluster.variant(pods=1)
    prometheus.put_replica(pod="gone")
    prometheus.put_replica(namespace="elsewhere")
    assert not replicas()["va-0"].reports
    assert metric("wva_samples_ignored_total", cause="foreign_pod") == 4


def test_another_model_s_series_are_ignored_but_named_in_the_hint(cluster, prometheus, replicas, metric):
    """Users often set a spec.modelID that differs from vLLM's model name, so the detail names that name."""
    cluster.variant(pods=1, model_id="m")
    for name in ("org/y", "org/served", "org/z"):
        prometheus.put_replica(model_name=name)
    replica = replicas()["va-0"]
    assert replica.kv_usage.state is SampleState.MISSING
    assert replica.kv_usage.detail == 'its pods report model_name "org/served"'
    assert metric("wva_samples_ignored_total", cause="other_model") == 6


def test_a_sample_that_is_too_old_says_so_rather_than_naming_another_model(cluster, prometheus, replicas):
    """The pod serves the model, so the name of another model would mislead."""
    cluster.variant(pods=1)
    prometheus.put_replica(model_name="adapter")
    prometheus.put_replica(age_seconds=400)
    assert replicas()["va-0"].kv_usage.detail == "400 s old"


def test_another_model_beside_ours_is_no_hint(cluster, prometheus, replicas):
    """A pod may serve several names, and only the series of its model count."""
    cluster.variant(pods=1)
    prometheus.put_replica(model_name="adapter")
    prometheus.put_replica()
    assert replicas()["va-0"].complete


def test_a_series_without_identity_is_malformed(cluster, prometheus, replicas, metric):
    """A series must have namespace, pod and model."""
    cluster.variant(pods=1)
    prometheus.put("kv_cache_usage", "0.5", pod="")
    prometheus.put("kv_cache_usage", "0.5", namespace="")
    prometheus.series["kv_cache_usage"].append(InstantSeries(Labels(namespace="ns", pod="va-0"), (NOW, "0.5")))
    assert not replicas()["va-0"].reports
    assert metric("wva_samples_ignored_total", cause="malformed") == 3


def test_duplicate_series_make_the_sample_invalid(cluster, prometheus, replicas, metric):
    """WVA does not choose between two values of one signal."""
    cluster.variant(pods=1)
    prometheus.put_replica(kv="0.2")
    prometheus.put("kv_cache_usage", "0.9")
    replica = replicas()["va-0"]
    assert (replica.kv_usage.state, replica.queue_length.state) == (SampleState.INVALID, SampleState.FRESH)
    assert metric("wva_samples_total", signal="kv_cache_usage", state="invalid") == 1
    assert metric("wva_samples_total", signal="queue_length", state="fresh") == 1


def test_a_histogram_instead_of_a_number_is_invalid(cluster, prometheus, replicas):
    """A native histogram under the name of the signal is invalid."""
    cluster.variant(pods=1)
    prometheus.put_replica()
    labels = {"namespace": "ns", "pod": "va-0", "model_name": "m"}
    prometheus.series["kv_cache_usage"] = [InstantSeries(Labels(**labels))]
    assert replicas()["va-0"].kv_usage.state is SampleState.INVALID


def test_pods_of_the_same_name_in_two_namespaces_are_kept_apart(cluster, prometheus, instruments):
    """Tenants may use the same names."""
    cluster.variant(pods=1)
    cluster.variant(pods=1, namespace="other")
    prometheus.put_replica(namespace="other", kv="0.9")
    reports = {replica.variant: replica.reports for replica in _join(cluster, prometheus, instruments)}
    assert reports == {VariantKey("ns", "va"): False, VariantKey("other", "va"): True}


def test_huge_label_values_leave_nothing_behind(cluster, prometheus, replicas):
    """A label of ten megabytes becomes a short, printable detail."""
    cluster.variant(pods=1)
    prometheus.put_replica(model_name="\n\x1b[31m" + "x" * 10_000_000)
    prometheus.put_replica(pod="y" * 10_000_000)
    prometheus.put_replica(namespace="z" * 10_000_000)
    detail = replicas()["va-0"].kv_usage.detail
    assert len(detail) < 200
    assert detail.isprintable()
