"""Recorded collections of the original: the same pods map to the same variants with the same values.

The recording answers one query per model and signal; an adapter turns those answers into answers to WVA's grouped
queries by adding the labels ``namespace`` and ``model_name`` and a recent time. It names every pod by the
label ``pod``. Recorded pods have no readiness: the adapter makes them Ready. The tests compare values as the original
read them: a missing or invalid signal counts as 0, and a pod without any signal is no replica. A KV usage above 1,
which the original accepted, must be invalid. The tests compare the signals of the engines in the same way.
"""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster, joined_queue
from tests.collect.doubles import NOW, FakePrometheus
from tests.collect.doubles import series as series_of
from tests.golden.vectors import Better, close, parameters, tally
from wva.collect.queries import EngineSignal
from wva.collect.request_counts import count_requests
from wva.collect.retention import window_of
from wva.collect.shared_queries import Failure, Settled
from wva.collect.snapshot import Collector
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.model.metrics import SampleState
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantVector, PrometheusError

SECTION = "replica_metrics"
QUEUE_SECTION = "scheduler_queue"
COUNT_SECTION = "request_count"
ENGINES = {
    "vllm:cache_config_info": EngineSignal.CACHE_CONFIG,
    "vllm:request_generation_tokens": EngineSignal.OUTPUT_TOKENS,
    "vllm:request_prompt_tokens": EngineSignal.INPUT_TOKENS,
    "vllm:prefix_cache_hits": EngineSignal.PREFIX_HIT_RATE,
}
LARGEST_CACHE_TOKENS = 10**15
"""No real cache is larger. The original multiplied any numbers that it read, up to the largest integer."""
METRICS = {"vllm:kv_cache_usage_perc": "kv_cache_usage", "vllm:num_requests_waiting": "queue_length"}


def _cluster(case):
    """Return the caches of a case. A Deployment that the original did not track does not exist in them."""
    cluster = CachedCluster()
    namespace = case["namespace"]
    owned = {pod["deployment"] for pod in case["pods"] if pod["owner"] == "deployment"}
    for name in sorted(owned | set(case["tracked_deployments"])):
        deployment = cluster.deployment(name, namespace=namespace)
        if name not in case["tracked_deployments"]:
            cluster.deployments.delete(deployment)
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
            _put_engines(prometheus, case, answer)
            continue
        if answer.get("error"):
            prometheus.fail(name, ErrorKind.SERVER, "recorded error")
        for series in answer["result"] or []:
            labels = {
                "namespace": case["namespace"],
                "model_name": case["model"],
                "pod": "",
                **_named(series["metric"]),
            }
            prometheus.put(name, series["value"], **labels)
            prometheus.put(f"{name}_timestamp", str(NOW - 5), **labels)
    return prometheus


def _named(metric):
    """Return labels in which the pod is ``pod``: the original also read ``pod_name``, which no query returns."""
    labels = dict(metric)
    name = labels.pop("pod_name", "")
    return labels | {"pod": labels.get("pod") or name}


def _put_engines(prometheus, case, answer):
    signal = next(signal for metric, signal in ENGINES.items() if metric in answer["query"])
    named = {} if signal is EngineSignal.CACHE_CONFIG else {"model_name": case["model"]}
    for series in answer["result"] or []:
        labels = {"namespace": case["namespace"], "signal": signal.value, **named, **_named(series["metric"])}
        found = series_of(labels, series["value"])
        prometheus.series.setdefault("engine_signals", []).append(found)


async def _collect(case):
    collector = Collector(
        _cluster(case).stores,
        prometheus=_prometheus(case),
        instruments=Instruments(CollectorRegistry()),
        engines_of=lambda _: True,
    )
    return await collector.collect(NOW)


def _asks_nobody(case):
    """Tell whether a failing query is one that WVA does not send, because it has no variant."""
    targets = {va["deployment"] for va in case["variant_autoscalings"]}
    failing = any(
        answer.get("error") and any(metric in answer["query"] for metric in METRICS) for answer in case["prometheus"]
    )
    if not failing or targets & set(case["tracked_deployments"]):
        return None
    tested = "collect/test_collector.py::test_nothing_is_asked_without_an_active_variant"
    return Better("without a variant nothing is asked that could fail", tested)


@pytest.mark.parametrize("case", parameters("collector", section=SECTION, better=_asks_nobody))
async def test_replicas_are_those_of_the_original(case):
    """The replicas and their values are those of the original; a failing query is a failure."""
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
        _compare_engine(replica, expected)


def _compare_engine(replica, expected):
    """Compare the engine's values, 0 for an unknown one; without a KV usage WVA has no time for them."""
    engine = replica.engine
    if replica.kv_usage.state is SampleState.MISSING:
        assert engine.kv_capacity_tokens.fresh_value is None
        return
    total = expected["total_kv_capacity_tokens"]
    if total <= LARGEST_CACHE_TOKENS:
        assert (engine.kv_capacity_tokens.fresh_value or 0) == total
    if replica.kv_usage.fresh_value is not None and total <= LARGEST_CACHE_TOKENS:
        assert (replica.tokens_in_use.fresh_value or 0) == expected["tokens_in_use"]
    for sample, name in (
        (engine.input_tokens, "avg_input_tokens"),
        (engine.output_tokens, "avg_output_tokens"),
        (engine.prefix_hit_rate, "prefix_cache_hit_rate"),
    ):
        if expected[name] >= 0:
            assert close(sample.fresh_value or 0.0, expected[name])
        else:
            assert sample.state is SampleState.INVALID


def _request_count_verdict(case):
    """Tell whether WVA rounds the period up, or treats a NaN as unknown where the original counted no requests."""
    if window_of(parse_duration(case["retention"])).seconds != parse_duration(case["retention"]):
        tested = "collect/test_request_counts.py::test_a_retention_period_is_rounded_up_to_a_window"
        return Better("retention periods share a few windows", tested)
    values = [series["value"] for answer in case["prometheus"] for series in answer["result"]]
    tested = "collect/test_request_counts.py::test_what_is_no_number_of_requests_makes_everything_unknown"
    return Better("what is no number of requests is not 0", tested) if "NaN" in values else None


@pytest.mark.parametrize("case", parameters("collector", section=COUNT_SECTION, better=_request_count_verdict))
async def test_finished_requests_are_counted_like_the_original(case):
    """WVA counts the finished requests over the same time; without an answer the count is unknown."""
    tally("collector", COUNT_SECTION).run += 1
    model, retention = ModelKey("ns", "m"), parse_duration(case["retention"])
    asked = []

    async def ask(_, make, namespaces):
        query = make(namespaces)
        asked.append(query.text)
        if any(row.get("error") for row in case["prometheus"]):
            error = PrometheusError(ErrorKind.SERVER, "recorded error")
            return Settled(failed={"ns": Failure(query.name, error, ("ns",))})
        labels = {"namespace": "ns", "model_name": "m"}
        rows = [series["value"] for row in case["prometheus"] for series in row["result"]]
        series = [series_of({**labels, "signal": "finished"}, value) for value in rows]
        series += [series_of({**labels, "signal": signal}, "0") for signal in ("running", "waiting")]
        return Settled({query.name: InstantVector(tuple(series))})

    (found,) = await count_requests({model: retention}, ask)
    assert found.finished == case["expected"]
    spans = [re.search(r"\[(\w+)\]", row["query"]).group(1) for row in case["prometheus"]]
    assert all(f"[{span}]" in asked[0] for span in spans)


@pytest.mark.parametrize("case", parameters("collector", section=QUEUE_SECTION))
def test_the_scheduler_queue_is_that_of_the_original(case):
    """Size and bytes of the queue are those of the original, which read 0 for an unknown number."""
    tally("collector", QUEUE_SECTION).run += 1
    model = ModelKey("ns", case["model"])
    found = [series_of({"namespace": "ns", "signal": "timestamp", "target_model_name": case["model"]}, str(NOW - 5))]
    for answer in case["prometheus"]:
        signal = "size" if "queue_size" in answer["query"] else "bytes"
        for series in answer["result"]:
            labels = {"namespace": "ns", "signal": signal, "target_model_name": case["model"]}
            found.append(series_of(labels, series["value"]))
    queue = joined_queue(model, InstantVector(tuple(found)), now=NOW)
    if case["expected"] is None:
        assert queue.size.state is queue.size_bytes.state is SampleState.MISSING
        return
    found = {"queue_size": int(queue.size.fresh_value or 0), "queue_bytes": int(queue.size_bytes.fresh_value or 0)}
    assert found == case["expected"]
