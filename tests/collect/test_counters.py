"""The counters of engines: WVA asks for them where an analyzer needs them, and takes all of one scrape or none."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.collect.doubles import NOW, FakePrometheus, series
from wva.collect.queries import parts
from wva.collect.snapshot import Collector
from wva.model.metrics import EngineCounters, SampleState
from wva.prometheus.answers import MAX_ANSWER_BYTES, MAX_SERIES, ErrorKind, InstantVector, PrometheusError

GAUGES = {"kv_usage": "0.4", "waiting": "3", "running": "12"}
COUNTERS = {
    "finished": "100",
    "aborted": "4",
    "refused": "7",
    "prompt_tokens": "50000",
    "cached_tokens": "20000.5",
    "prompts": "110",
    "answer_tokens": "9600",
    "answers": "96",
    "gap_seconds": "300.25",
    "gaps": "10000",
}
FOUND = EngineCounters(NOW - 5, 100, 4, 29_999.5, 110, 9600, 96, 300.25, 10_000, 7)


def build(cluster, prometheus, instruments, **settings):
    """Return a collector with settings."""
    return Collector(cluster.stores, prometheus=prometheus, instruments=instruments, **settings)


@pytest.fixture
def collector(cluster, prometheus, instruments):
    """Return a collector that asks for the counters of every model but ``plain``."""
    return build(cluster, prometheus, instruments, counters_of=lambda model: model.model_id != "plain")


@pytest.fixture
def only(cluster, prometheus, collector):
    """Return a function that collects and returns the replica of one variant."""
    cluster.variant()
    prometheus.put_replica()

    async def collect():
        (replica,) = (await collector.collect(NOW)).replicas
        return replica

    return collect


def put_counters(prometheus, *, age_seconds=5.0, without=(), **changed):
    """Put all signals of a pod but those in ``without``; the size of its cache has no model_name."""
    labels = {name: changed.pop(name) for name in ("pod", "model_name") if name in changed}
    size = {"num_gpu_blocks": "1000", "block_size": "16", "engine": "0", "signal": "cache_config"}
    found = series({"namespace": "ns", "pod": labels.get("pod", "va-0"), **size})
    prometheus.series.setdefault("engine_counters", []).append(found)
    values = {"time": str(NOW - age_seconds), **GAUGES, **COUNTERS, **changed}
    for signal, value in values.items():
        if signal not in without:
            prometheus.put("engine_counters", value, signal=signal, **labels)


async def test_all_that_a_pod_has_counted_is_in_its_replica(prometheus, only):
    """The replica has the counters and the gauges of the same scrape; cached prompt tokens are subtracted."""
    put_counters(prometheus)
    replica = await only()
    assert (replica.counters, replica.counters_detail) == (FOUND, "")
    assert replica.engine.kv_capacity_tokens.fresh_value == 16_000
    assert {name: getattr(replica.engine, name).fresh_value for name in GAUGES} == {
        name: float(value) for name, value in GAUGES.items()
    }
    assert replica.engine.running.timestamp == FOUND.at
    assert replica.engine.input_tokens.state is SampleState.MISSING


async def test_the_time_is_that_of_their_own_scrape(prometheus, only):
    """The KV usage may come from another scrape."""
    put_counters(prometheus, age_seconds=12)
    replica = await only()
    assert replica.counters.at == replica.engine.running.timestamp == NOW - 12
    assert replica.kv_usage.timestamp == NOW - 5


@pytest.mark.parametrize(("age_seconds", "told"), [(-29, True), (-31, False), (120, True), (299, True), (300, False)])
async def test_counters_are_believed_as_long_as_samples_are(prometheus, only, age_seconds, told):
    """Stale counters are used, too, because a count stays true."""
    put_counters(prometheus, age_seconds=age_seconds)
    replica = await only()
    assert (replica.counters is not None) == told
    assert bool(replica.counters_detail) != told


@pytest.mark.parametrize("signal", [*COUNTERS, "running", "time"])
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e16"])
async def test_one_that_cannot_be_true_spoils_all(prometheus, only, signal, value):
    """One bad value makes all counters of the replica unusable, and the detail says why."""
    put_counters(prometheus, **{signal: value})
    replica = await only()
    assert replica.counters is None
    assert replica.counters_detail


@pytest.mark.parametrize("signal", [*COUNTERS, "running", "time"])
async def test_no_data_is_not_zero(prometheus, only, signal):
    """A missing counter makes all unusable; only aborted and refused requests and cached tokens may be absent."""
    put_counters(prometheus, without=(signal,))
    counters = (await only()).counters
    if signal in {"aborted", "refused"}:
        assert getattr(counters, signal) == 0
    elif signal == "cached_tokens":
        assert counters.prompt_tokens == 50_000
    else:
        assert counters is None


async def test_what_is_missing_is_named(prometheus, only):
    """The detail names the counter that is missing or invalid."""
    put_counters(prometheus, without=("gaps",), finished="NaN")
    assert (await only()).counters_detail == "finished: 'NaN' is not a number"
    prometheus.series["engine_counters"].clear()
    put_counters(prometheus, without=("gaps",))
    assert (await only()).counters_detail == "no series vllm:inter_token_latency_seconds_count"
    prometheus.series["engine_counters"].clear()
    replica = await only()
    assert replica.counters is None
    assert replica.counters_detail.startswith("no series vllm:num_requests_running, vllm:request_success_total, ")


async def test_hits_may_run_ahead_of_the_prompts_that_they_belong_to(prometheus, only):
    """Hits count when a prompt begins and prompts when they end, so the difference may be below zero."""
    put_counters(prometheus, prompt_tokens="100", cached_tokens="160")
    assert (await only()).counters.prompt_tokens == -60


async def test_two_answers_about_one_counter_contradict_each_other(prometheus, only):
    """Two series for one counter make the counters unusable."""
    put_counters(prometheus)
    prometheus.put("engine_counters", "7", signal="gaps")
    assert (await only()).counters_detail == "gaps: 2 series for one pod"


async def test_a_new_pod_comes_with_the_time_of_its_creation(cluster, only):
    """The replica has the creation time of its pod, or None if it cannot be read."""
    cluster.pod("va-0", deployment="d-va", creationTimestamp="2023-11-14T22:13:20Z")
    assert (await only()).created == NOW
    cluster.pod("va-0", deployment="d-va", creationTimestamp="soon")
    assert (await only()).created is None


async def test_models_that_do_not_ask_get_no_counters(cluster, prometheus, collector):
    """A model does not get counters because another model of its namespace needs them."""
    cluster.variant("va", model_id="plain")
    cluster.variant("vb")
    prometheus.put_replica(model_name="plain")
    put_counters(prometheus, model_name="plain")
    put_counters(prometheus, pod="vb-0")
    prometheus.put("engine_counters", "99", signal="finished", pod="vb-0", model_name="adapter")
    first, second = (await collector.collect(NOW)).replicas
    assert (first.counters, first.counters_detail, first.created, first.engine) == (None, "", None, None)
    assert second.counters == FOUND


async def test_two_more_queries_are_asked_and_only_where_somebody_wants_to_know(cluster, prometheus, collector):
    """WVA asks for the counters and the gateway's queue, in namespaces that need them."""
    cluster.variant("va", namespace="quiet", model_id="plain")
    prometheus.put_replica(namespace="quiet", model_name="plain")
    await collector.collect(NOW)
    assert len(prometheus.queries) == 2
    cluster.variant("vb", namespace="loud")
    prometheus.queries.clear()
    await collector.collect(NOW)
    texts = {name: text for name, text, _ in prometheus.queries}
    assert sorted(texts)[:2] == ["engine_counters", "kv_cache_usage"]
    assert len(texts) == len(prometheus.queries) == 4
    for name in ("engine_counters", "scheduler_queue"):
        assert set(re.findall(r'namespace=~"([^"]*)"', texts[name])) == {"loud"}


async def test_the_time_of_prompts_is_asked_where_pods_compute_nothing_else(cluster, prometheus, collector):
    """One more query, in the namespaces of models with variants for prefill; what it does not tell is not known."""
    cluster.variant("va", namespace="loud", labels={"llm-d.ai/role": "prefill"})
    cluster.variant("vb", namespace="quiet")
    await collector.collect(NOW)
    texts = {name: text for name, text, _ in prometheus.queries}
    for name in ("request_prefill_time_seconds_sum", "time_to_first_token_seconds_sum"):
        assert re.findall(rf'{name}{{namespace=~"([^"]*)"', texts["engine_prefills"]) == ["loud"]


@pytest.mark.parametrize(("told", "found"), [("12.5", 12.5), ("-1", 0.0), ("NaN", 0.0), (None, 0.0)])
@pytest.mark.parametrize(("signal", "name"), [("seconds", "prefill_seconds"), ("first", "first_seconds")])
async def test_the_times_of_prompts_are_among_the_counters(cluster, prometheus, collector, told, found, signal, name):
    """A value that cannot be true counts as none."""
    cluster.variant(labels={"llm-d.ai/role": "prefill"})
    prometheus.put_replica()
    put_counters(prometheus)
    if told is not None:
        prometheus.put("engine_prefills", told, signal=signal)
    (replica,) = (await collector.collect(NOW)).replicas
    assert getattr(replica.counters, name) == found


async def test_each_analyzer_has_its_own_query(cluster, prometheus, instruments):
    """Each query names the namespaces of its analyzer's models; a model with both analyzers is in both."""
    cluster.variant("va", namespace="one", model_id="tokens")
    cluster.variant("vb", namespace="two", model_id="counted")
    cluster.variant("vc", namespace="three", model_id="both")
    collector = build(
        cluster,
        prometheus,
        instruments,
        engines_of=lambda model: model.model_id != "counted",
        counters_of=lambda model: model.model_id != "tokens",
    )
    prometheus.put_replica(namespace="three", pod="vc-0", model_name="both")
    prometheus.put("engine_signals", "256", namespace="three", pod="vc-0", model_name="both", signal="input_tokens")
    snapshot = await collector.collect(NOW)
    about = {name: re.search(r'namespace=~"([^"]*)"', text)[1] for name, text, _ in prometheus.queries}
    assert about["engine_signals"] == "one|three"
    assert about["engine_counters"] == "three|two"
    assert about["scheduler_queue"] == "one|three|two"
    found = {replica.variant.namespace: replica for replica in snapshot.replicas}
    assert found["three"].engine.input_tokens.fresh_value == 256


async def test_a_failure_holds_nobody_else(prometheus, only):
    """The replica keeps its other samples, and the detail has the failure."""
    prometheus.fail("engine_counters", ErrorKind.TIMEOUT, "too slow")
    replica = await only()
    assert replica.complete
    assert (replica.counters, replica.counters_detail) == (None, "query engine_counters: too slow")
    assert replica.engine.kv_capacity_tokens.detail == "query engine_counters: too slow"


def _text(series):
    """Return a series as Prometheus writes it: without labels that it does not have."""
    labels = {name: text for name, text in msgspec.structs.asdict(series.metric).items() if text is not None}
    return msgspec.json.encode({"metric": labels, "value": series.value})


class BoundedPrometheus(FakePrometheus):
    """Selects pods as Prometheus does, and refuses answers that ``PrometheusClient`` would refuse."""

    async def query(self, promql, *, name, at):
        """Answer with the series of the selected pods; refuse more than 16 MiB of them."""
        answer = await super().query(promql, name=name, at=at)
        matcher = re.search(r'pod(=~|!~)"([^"]*)"', promql)
        found = answer.series
        if matcher is not None:
            pattern, wanted = re.compile(matcher[2]), matcher[1] == "=~"
            found = tuple(each for each in found if bool(pattern.fullmatch(each.metric.pod or "")) == wanted)
        size = sum(len(_text(each)) + 1 for each in found)
        if size > MAX_ANSWER_BYTES or len(found) > MAX_SERIES:
            raise PrometheusError(ErrorKind.MALFORMED, "the answer is larger than 16 MiB")
        return InstantVector(found, answer.warnings)


async def test_a_namespace_of_ten_thousand_pods_is_asked_in_parts(cluster, instruments):
    """An answer about all pods would be too large; each pod is in one part."""
    prometheus, number = BoundedPrometheus(), 10_000
    cluster.variant("a-model-with-a-long-name-in-a-large-fleet", pods=number, namespace="large-tenant-of-the-fleet")
    labels = {"namespace": "large-tenant-of-the-fleet", "model_name": "m"}
    for place in range(number):
        pod = f"a-model-with-a-long-name-in-a-large-fleet-{place}"
        for signal, value in {"time": str(NOW - 5.0), **GAUGES, **COUNTERS}.items():
            prometheus.put("engine_counters", value, pod=pod, signal=signal, **labels)
    collector = build(cluster, prometheus, instruments, counters_of=lambda _: True)
    snapshot = await collector.collect(NOW)
    assert len(snapshot.replicas) == number
    assert sum(replica.counters is not None for replica in snapshot.replicas) == number
    assert sum(name == "engine_counters" for name, _, _ in prometheus.queries) == 3
    assert sum(name == "scheduler_queue" for name, _, _ in prometheus.queries) == 1


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ({"a": 10, "b": 10}, ("",)),
        ({"a": 3_000, "b": 1_000}, ("",)),
        ({"a": 3_000, "b": 1_000, "9": 1}, ('pod=~".*[9a]"', 'pod!~".*[9a]"')),
        ({"a": 4_000, "b": 4_000, "c": 4_000}, ('pod=~".*[a]"', 'pod=~".*[b]"', 'pod!~".*[ab]"')),
        ({"a": 9_000}, ("",)),
    ],
    ids=str,
)
def test_parts_have_each_pod_once(ends, found):
    """The last part also matches pod names that were not counted; pods with the same last letter stay in one part."""
    assert parts(f"x{end}" for end, number in ends.items() for _ in range(number)) == found
