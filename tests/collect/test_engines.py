"""The signals of engines and endpoint pickers: which WVA asks for, and which model and state each gets."""

from __future__ import annotations

import re

import promql_parser
import pytest

from tests.collect.cluster import joined_queue
from tests.collect.doubles import NOW, series
from wva.collect.queries import (
    ANALYZER_QUERIES,
    BY_PODS,
    ENGINE_COUNTERS,
    ENGINE_PREFILLS,
    ENGINE_SIGNALS,
    SCHEDULER_QUEUE,
    CounterSignal,
    EngineSignal,
    PrefillSignal,
    QueueSignal,
    parts,
)
from wva.collect.snapshot import Collector
from wva.model.metrics import SampleState
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantVector

SIGNALS = {
    "kv_usage": "0.4",
    "waiting": "3",
    "running": "12",
    "input_tokens": "512.5",
    "output_tokens": "128",
    "prefix_hit_rate": "0.25",
    "success_rate": "1.5",
    "time_to_first_token": "0.2",
    "inter_token_latency": "0.03",
}


@pytest.fixture
def collector(cluster, prometheus, instruments):
    """Return a collector that asks about the engines of every model but ``plain``."""
    return Collector(
        cluster.stores,
        prometheus=prometheus,
        instruments=instruments,
        engines_of=lambda model: model.model_id != "plain",
    )


def put_engine(prometheus, *, blocks="1000", block="16", engine="0", signals=None, **labels):
    """Put all signals of one engine of a pod; the size of its cache has no model_name, as with real vLLM."""
    size = {"num_gpu_blocks": blocks, "block_size": block, "engine": engine, "signal": "cache_config"}
    found = series({"namespace": "ns", "pod": "va-0", **size, **labels})
    prometheus.series.setdefault("engine_signals", []).append(found)
    for signal, value in (SIGNALS if signals is None else signals).items():
        prometheus.put("engine_signals", value, signal=signal, **labels)


async def only(collector):
    """Collect and return the one replica."""
    (replica,) = (await collector.collect(NOW)).replicas
    return replica


async def test_all_that_an_engine_tells_is_in_its_replica(cluster, prometheus, collector):
    """The replica has the values, with the time of the pod's last scrape."""
    cluster.variant()
    prometheus.put_replica(kv="0.5", age_seconds=12)
    put_engine(prometheus)
    replica = await only(collector)
    assert replica.engine.kv_capacity_tokens.fresh_value == 16_000
    found = {name: getattr(replica.engine, name).fresh_value for name in SIGNALS}
    assert found == {name: float(value) for name, value in SIGNALS.items()}
    assert replica.engine.running.timestamp == NOW - 12
    assert replica.tokens_in_use.fresh_value == 8_000


async def test_the_engines_of_a_pod_add_up_to_one_cache(cluster, prometheus, collector):
    """Data-parallel engines have one cache each, and their sizes are added."""
    cluster.variant()
    prometheus.put_replica()
    put_engine(prometheus)
    put_engine(prometheus, engine="1", blocks="500", signals={})
    assert (await only(collector)).engine.kv_capacity_tokens.value == 24_000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"blocks": "None"}, "num_gpu_blocks 'None' and block_size '16' are not counts"),
        ({"block": "0"}, "num_gpu_blocks '1000' and block_size '0' are not counts"),
        ({"blocks": "9" * 50}, f"num_gpu_blocks '{'9' * 40}...' and block_size '16' are not counts"),
        ({"blocks": "-1"}, "num_gpu_blocks '-1' and block_size '16' are not counts"),
        ({"blocks": "9" * 9, "block": "9" * 9}, "'999999998000000001' is out of range"),
    ],
)
async def test_a_cache_that_is_not_made_of_whole_blocks_is_invalid(cluster, prometheus, collector, given, words):
    """A size that is not made of two counts is invalid, and not 0."""
    cluster.variant()
    prometheus.put_replica()
    put_engine(prometheus, **given)
    size = (await only(collector)).engine.kv_capacity_tokens
    assert (size.state, size.detail) == (SampleState.INVALID, words)


async def test_two_sizes_of_one_engine_contradict_each_other(cluster, prometheus, collector):
    """Two sizes for one engine make the size invalid."""
    cluster.variant()
    prometheus.put_replica()
    put_engine(prometheus)
    put_engine(prometheus, blocks="2000", signals={})
    size = (await only(collector)).engine.kv_capacity_tokens
    assert size.detail == "several sizes of the KV cache of engine '0'"


async def test_an_engine_is_no_fresher_than_its_pod(cluster, prometheus, collector):
    """Engine signals are stale when the KV usage is, and missing when it has no time."""
    cluster.variant(pods=2)
    prometheus.put_replica(age_seconds=120)
    put_engine(prometheus)
    put_engine(prometheus, pod="va-1")
    first, second = (await collector.collect(NOW)).replicas
    assert first.engine.running.state is first.tokens_in_use.state is SampleState.STALE
    assert second.engine.running.state is second.engine.kv_capacity_tokens.state is SampleState.MISSING


async def test_a_mean_over_nothing_is_missing_and_a_broken_one_invalid(cluster, prometheus, collector):
    """The query drops divisions by 0; a NaN in an answer is invalid."""
    cluster.variant()
    prometheus.put_replica()
    put_engine(prometheus, signals={"output_tokens": "NaN", "prefix_hit_rate": "1.5"})
    engine = (await only(collector)).engine
    assert engine.input_tokens.state is SampleState.MISSING
    assert engine.output_tokens.state is engine.prefix_hit_rate.state is SampleState.INVALID


async def test_series_of_other_models_and_pods_say_nothing(cluster, prometheus, collector):
    """WVA ignores series of other model names, such as adapters, and of pods that belong to none of its variants."""
    cluster.variant()
    prometheus.put_replica()
    put_engine(prometheus)
    put_engine(prometheus, signals={"running": "99"}, pod="stranger")
    prometheus.put("engine_signals", "99", signal="running", model_name="adapter")
    prometheus.put("engine_signals", "99", signal="no such signal")
    assert (await only(collector)).engine.running.fresh_value == 12


async def test_models_that_do_not_ask_get_no_engines(cluster, prometheus, collector):
    """A model does not get engine signals because another model of its namespace needs them."""
    cluster.variant("va", model_id="plain")
    cluster.variant("vb")
    prometheus.put_replica(model_name="plain")
    put_engine(prometheus, model_name="plain")
    first, second = (await collector.collect(NOW)).replicas
    assert first.engine is None
    assert second.engine is not None
    assert first.tokens_in_use.state is SampleState.MISSING


async def test_two_more_queries_are_asked_and_only_where_somebody_wants_to_know(cluster, prometheus, collector):
    """WVA sends two more queries for any number of models, about their namespaces only."""
    cluster.variant("va", namespace="quiet", model_id="plain")
    prometheus.put_replica(namespace="quiet", model_name="plain")
    await collector.collect(NOW)
    assert len(prometheus.queries) == 2
    for index in range(20):
        cluster.variant(f"v{index}", namespace=f"ns-{index % 2}", model_id=f"m{index}")
    prometheus.queries.clear()
    await collector.collect(NOW)
    assert len(prometheus.queries) == 4
    texts = {name: text for name, text, _ in prometheus.queries}
    for name in ("engine_signals", "scheduler_queue"):
        assert set(re.findall(r'namespace=~"([^"]*)"', texts[name])) == {"ns-0|ns-1"}


async def test_a_failure_about_engines_holds_nobody_else(cluster, prometheus, collector):
    """The replica keeps its other samples, and the detail has the failure."""
    cluster.variant()
    prometheus.put_replica()
    prometheus.fail("engine_signals", ErrorKind.TIMEOUT, "too slow")
    prometheus.fail("scheduler_queue", ErrorKind.TIMEOUT, "too slow")
    snapshot = await collector.collect(NOW)
    (replica,) = snapshot.replicas
    assert snapshot.failures == ()
    assert replica.complete
    assert replica.engine.kv_capacity_tokens.detail == "query engine_signals: too slow"
    assert replica.engine.running.detail == "query engine_signals: too slow"
    assert snapshot.queues[0].size.state is SampleState.INVALID
    assert snapshot.queues[0].size_bytes.detail == "query scheduler_queue: too slow"


def queue_of(*rows, model="m", namespace="ns"):
    """Return the queue of a model from (signal, value, labels)."""
    rows = [
        series({"namespace": "ns", "target_model_name": "m", "signal": signal, **labels}, value)
        for signal, value, labels in rows
    ]
    return joined_queue(ModelKey(namespace, model), InstantVector(tuple(rows)), now=NOW)


FRESH = ("timestamp", str(NOW - 5), {})


def test_a_queue_belongs_to_the_model_of_the_picker_s_own_namespace():
    """A model of the same name in another namespace is another model; a series without a namespace counts for none."""
    rows = (("size", "4", {}), ("bytes", "1e3", {}), FRESH)
    assert (queue_of(*rows).size.fresh_value, queue_of(*rows).size_bytes.fresh_value) == (4, 1_000)
    assert queue_of(*rows, namespace="other").size.state is SampleState.MISSING
    assert queue_of(*rows, model="other").size.state is SampleState.MISSING
    nowhere = [(signal, value, {"namespace": ""}) for signal, value, _ in rows]
    assert queue_of(*nowhere).size.state is SampleState.MISSING


def test_the_target_of_a_request_names_its_model_else_the_request_does():
    """Requests under an alias and requests without a target count for the same model."""
    plain = {"target_model_name": "", "model_name": "m"}
    alias = {"model_name": "alias"}
    rows = [
        ("size", "4", alias),
        ("size", "2", plain),
        ("size", "90", {"target_model_name": "x", "model_name": "m"}),
        ("timestamp", str(NOW - 70), plain),
        ("timestamp", str(NOW - 5), alias),
    ]
    for order in (rows, rows[::-1]):
        queue = queue_of(*order)
        assert (queue.size.state, queue.size.value, queue.size.timestamp) == (SampleState.STALE, 6, NOW - 70)


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ([("size", "4", {})], SampleState.MISSING),
        ([("size", "NaN", {}), FRESH], SampleState.INVALID),
        ([("size", "-1", {}), FRESH], SampleState.INVALID),
        ([("size", "1e300", {}), FRESH], SampleState.INVALID),
        ([("size", "4", {}), ("size", "NaN", {"model_name": "n"}), FRESH], SampleState.INVALID),
        ([("size", "4", {}), ("timestamp", "soon", {}), FRESH], SampleState.INVALID),
    ],
)
def test_a_queue_that_cannot_be_believed_is_no_number(rows, state):
    """One bad series makes the whole queue unusable."""
    assert queue_of(*rows).size.state is state


async def test_queues_come_in_the_order_of_models(cluster, collector):
    """The snapshot has one queue for each model that asks and has an active variant."""
    cluster.variant("vb", model_id="b")
    cluster.variant("va", model_id="a")
    cluster.variant("vc", model_id="plain")
    cluster.deployment("zero", replicas=0)
    cluster.va("vd", target="zero", model_id="d")
    snapshot = await collector.collect(NOW)
    assert [queue.model.model_id for queue in snapshot.queues] == ["a", "b"]


def test_every_signal_is_asked_for_once():
    """The signals in the text of each query are those of its enumeration."""
    signals = {
        ENGINE_SIGNALS: EngineSignal,
        ENGINE_COUNTERS: CounterSignal,
        ENGINE_PREFILLS: PrefillSignal,
        SCHEDULER_QUEUE: QueueSignal,
    }
    for name, make in ANALYZER_QUERIES.items():
        query = make(["ns"])
        assert (query.name, query.essential) == (name, False)
        assert re.findall(r'"signal", "(\w+)"', query.text) == [signal.value for signal in signals[name]]


def test_a_part_of_the_pods_is_asked_about_in_each_selector():
    """The text is valid PromQL, and each selector names the namespaces and the part."""
    for name in BY_PODS:
        selectors = 0 if name == ENGINE_PREFILLS else 10
        for part in parts(f"x{end}" for end in "abc" for _ in range(3_000)):
            text = ANALYZER_QUERIES[name](["ns"], part).text
            promql_parser.parse(text)
            assert text.count(f'{{namespace=~"ns",{part}') == text.count('namespace=~"') > selectors


@pytest.mark.parametrize("make", ANALYZER_QUERIES.values(), ids=ANALYZER_QUERIES)
@pytest.mark.parametrize("namespaces", [[], ['x"} or up']])
def test_no_query_without_or_with_a_false_namespace(namespaces, make):
    """A query without a namespace, or with an invalid one, is an error."""
    with pytest.raises(ValueError, match="namespace"):
        make(namespaces)
