"""Recorded collections of the original: the same pods map to the same variants with the same values.

The recording answers one query per model and signal; an adapter turns those answers into answers to our grouped queries
by adding the labels ``namespace`` and ``model_name`` and a recent time. Recorded pods carry no readiness: the adapter
makes them Ready. Values are compared in the compatibility reading (a missing or invalid signal counts as 0, a pod
without any signal is no replica), except that a KV usage above 1, which the original passed on, must be invalid.
"""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from tests.collect.cluster import Cluster
from tests.collect.doubles import NOW, FakePrometheus
from tests.golden.vectors import close, parameters, tally
from wva.collect.answers import ErrorKind
from wva.collect.snapshot import Collector, CollectorSettings
from wva.instruments import Instruments
from wva.model.metrics import SampleState

SECTION = "replica_metrics"
METRICS = {"vllm:kv_cache_usage_perc": "kv_cache_usage", "vllm:num_requests_waiting": "queue_length"}


def _cluster(case):
    """Return the caches of a case. A Deployment that the original did not track is one that does not exist."""
    cluster = Cluster()
    namespace = case["namespace"]
    owned = {pod["deployment"] for pod in case["pods"] if pod["owner"] == "deployment"}
    for name in sorted(owned | set(case["tracked_deployments"])):
        deployment = cluster.deployment(name, namespace=namespace)
        if name not in case["tracked_deployments"]:
            cluster.stores.deployments.delete(deployment)
    for pod in case["pods"]:
        _add_pod(cluster, pod, namespace)
    for va in case["variant_autoscalings"]:
        label = va["accelerator_label"]
        cluster.va(
            va["name"],
            namespace=namespace,
            model_id=case["model"],
            labels={"unrelated": ""} | ({} if label is None else {"inference.optimization/acceleratorName": label}),
            spec={
                "variantCost": "" if va["cost"] is None else str(va["cost"]),
                "scaleTargetRef": {
                    "kind": "Deployment",
                    "name": va["deployment"],
                    "apiVersion": va["scale_target_api_version"],
                },
            },
        )
    return cluster


def _add_pod(cluster, pod, namespace):
    if pod["owner"] == "deployment":
        cluster.pod(pod["name"], namespace=namespace, deployment=pod["deployment"])
    elif pod["owner"] == "rs-only":
        cluster.replica_set(f"{pod['name']}-bare-rs", namespace=namespace)
        cluster.pod(pod["name"], namespace=namespace, deployment=f"{pod['name']}-bare")
    elif pod["owner"] == "statefulset":
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
        cluster.pod(pod["name"], namespace=namespace, deployment=None, ownerReferences=[owner])
    elif pod["owner"] == "none":
        cluster.pod(pod["name"], namespace=namespace, deployment=None)


def _prometheus(case):
    prometheus = FakePrometheus()
    for answer in case["prometheus"]:
        name = next((name for metric, name in METRICS.items() if metric in answer["query"]), None)
        if name is None:
            continue
        if answer.get("error"):
            prometheus.fail(name, ErrorKind.SERVER, "recorded error")
        for series in answer["result"] or []:
            labels = {"namespace": case["namespace"], "model_name": case["model"], "pod": "", **series["metric"]}
            prometheus.put(name, series["value"], **labels)
            prometheus.put(f"{name}_timestamp", str(NOW - 5), **labels)
    return prometheus


async def _collect(case):
    collector = Collector(
        _cluster(case).stores,
        prometheus=_prometheus(case),
        instruments=Instruments(CollectorRegistry()),
        settings=CollectorSettings(),
    )
    return await collector.collect(NOW)


def _asks_nobody(case):
    """Leave out a failing query that we would not ask: there is no variant to ask it for."""
    targets = {va["deployment"] for va in case["variant_autoscalings"]}
    failing = any(
        answer.get("error") and any(metric in answer["query"] for metric in METRICS) for answer in case["prometheus"]
    )
    return "failing query without a variant" if failing and not targets & set(case["tracked_deployments"]) else None


@pytest.mark.parametrize("case", parameters("collector", section=SECTION, left_out=_asks_nobody))
async def test_replicas_are_those_of_the_original(case):
    """Mapping, KV usage, queue length, accelerator and cost of every replica; a failing query is a failure."""
    tally("collector", SECTION).run += 1
    snapshot = await _collect(case)
    assert bool(snapshot.failures) == case["expected_error"]
    if case["expected_error"]:
        assert snapshot.failures[0].namespaces == (case["namespace"],)
        return
    variants = {variant.key: variant for variant in snapshot.variants}
    seen = {
        replica.pod: replica
        for replica in snapshot.replicas
        if {replica.kv_usage.state, replica.queue_length.state} != {SampleState.MISSING}
    }
    assert sorted(seen) == sorted(expected["pod"] for expected in case["expected"])
    for expected in case["expected"]:
        replica = seen[expected["pod"]]
        variant = variants[replica.variant]
        assert replica.variant.name == expected["variant"]
        assert (variant.accelerator, variant.cost) == (expected["accelerator"], expected["cost"])
        assert (replica.queue_length.fresh_value or 0) == expected["queue"]
        if expected["kv"] > 1:
            assert replica.kv_usage.state is SampleState.INVALID
        else:
            assert close(replica.kv_usage.fresh_value or 0.0, expected["kv"])
