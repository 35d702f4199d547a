"""The stage's snapshots of scrapes are those of the real collector and its queries."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.collect.doubles import RecordingClock
from tests.publish.decisions import decision
from wva.collect.days import demand_of, earlier_days
from wva.collect.in_time import ServedUsers
from wva.collect.queries import in_progress
from wva.collect.snapshot import Collector
from wva.instruments import Instruments
from wva.model.decision import Aim
from wva.model.metrics import EngineCounters, EngineSignals
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.model.roles import PREFILL
from wva.model.variant import VariantKey
from wva.prometheus.answers import InstantSeries, Labels
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.server import EmbeddedPrometheus
from wva.sim.prometheus.tsdb import Tsdb, milliseconds
from wva.sim.stage.observe import EPOCH_SECONDS, MODEL, NAMESPACE, Observer
from wva.sim.stage.view import Scrape, ScrapedSignal, StagePodView, VariantView

NOW = 700.0
RETENTION = 600.0
NAMES = {
    ScrapedSignal.RUNNING: "vllm:num_requests_running",
    ScrapedSignal.WAITING: "vllm:num_requests_waiting",
    ScrapedSignal.KV_USAGE: "vllm:kv_cache_usage_perc",
    ScrapedSignal.PROMPT_TOKENS: "vllm:prompt_tokens_total",
    ScrapedSignal.PREFIX_QUERIES: "vllm:prefix_cache_queries_total",
    ScrapedSignal.PREFIX_HITS: "vllm:prefix_cache_hits_total",
    ScrapedSignal.TTFT_SUM: "vllm:time_to_first_token_seconds_sum",
    ScrapedSignal.TTFT_COUNT: "vllm:time_to_first_token_seconds_count",
    ScrapedSignal.ITL_SUM: "vllm:inter_token_latency_seconds_sum",
    ScrapedSignal.ITL_COUNT: "vllm:inter_token_latency_seconds_count",
    ScrapedSignal.REQUEST_PROMPT_SUM: "vllm:request_prompt_tokens_sum",
    ScrapedSignal.REQUEST_PROMPT_COUNT: "vllm:request_prompt_tokens_count",
    ScrapedSignal.REQUEST_GENERATION_SUM: "vllm:request_generation_tokens_sum",
    ScrapedSignal.REQUEST_GENERATION_COUNT: "vllm:request_generation_tokens_count",
    ScrapedSignal.PREFILL_SECONDS: "vllm:request_prefill_time_seconds_sum",
}
CACHED = "vllm:prompt_tokens_cached_total"
BLOCKS, BLOCK = 4096, 16


class StageOfOnePod:
    """A stage with one variant of one Ready pod, and of two that start."""

    def __init__(self, scrapes, queue, role=""):
        """Show these scrapes, and this queue at the gateway."""
        pods = (StagePodView("va-0", 1.0, 100.0), StagePodView("va-1", 612.7, None), StagePodView("va-2", 640.2, None))
        self.variants = {"va": VariantView("va", "A100", 10.0, 1, 10, 256, BLOCKS * BLOCK, 4, pods, role=role)}
        self._scrapes, self._queue = scrapes, queue

    def scrapes(self, pod):
        """Return the scrapes of a pod."""
        return self._scrapes if pod == "va-0" else ()

    def gateway_queue(self):
        """Return the queue at the gateway."""
        return self._queue


@st.composite
def histories(draw, role=""):
    """Draw scrapes of a pod in the last ten minutes: some lost, some at the edge of a window; counters only grow.

    Without a role nothing is transferred.
    """
    edges = st.sampled_from([100.0, 101.5, 340.0, 400.0, 640.0])
    at, scrapes = draw(st.floats(95, 690) | edges), []
    period, end = draw(st.sampled_from([15.0, 30.0, 60.0])), draw(st.sampled_from([NOW, NOW, 650.0, 400.5, 399.5]))
    counters = {signal: 0.0 for signal in ScrapedSignal if signal > ScrapedSignal.KV_USAGE}
    while at <= end:
        for signal in counters:
            counters[signal] += draw(st.sampled_from([0.0, 0.0, 1.0, 7.25, 350.0]))
        counters[ScrapedSignal.TRANSFERRED] *= bool(role)
        counters[ScrapedSignal.PREFIX_HITS] = counters[ScrapedSignal.PREFIX_QUERIES] * 0.4
        gauges = (draw(st.integers(0, 40)), draw(st.integers(0, 9)), draw(st.sampled_from([0.0, 0.31, 1.0])))
        lost = draw(st.integers(0, 3)) == 0
        values = (
            *map(float, gauges),
            *(counters[signal] for signal in ScrapedSignal if signal > ScrapedSignal.KV_USAGE),
        )
        scrapes.append(Scrape(round(at, 3), () if lost else values))
        at += period
    return scrapes


def fill(prometheus, scrapes, role=""):
    """Put the scrapes into the database as the series that a scrape of vLLM gives.

    Where prompts are transferred vLLM is new enough to count all cached tokens in one series.
    """
    labels = {"namespace": NAMESPACE, "model_name": MODEL.model_id, "pod": "va-0", "engine": "0"}
    config = {**labels, "num_gpu_blocks": str(BLOCKS), "block_size": str(BLOCK)}
    del config["model_name"]
    series = [({"__name__": name, **labels}, signal) for signal, name in NAMES.items()]
    success = {"__name__": "vllm:request_success_total", **labels}
    reasons = [{**success, "finished_reason": reason} for reason in ("stop", "abort")]
    cached = {"__name__": CACHED, **labels}
    for scrape in scrapes:
        if role and scrape.values:
            tokens = scrape.values[ScrapedSignal.PREFIX_HITS] + scrape.values[ScrapedSignal.TRANSFERRED]
            prometheus.tsdb.append(cached, EPOCH_SECONDS + scrape.at_seconds, tokens)
        elif role:
            prometheus.tsdb.mark_stale(cached, EPOCH_SECONDS + scrape.at_seconds)
        at = EPOCH_SECONDS + scrape.at_seconds
        for each in (*(each for each, _ in series), *reasons):
            if not scrape.values:
                prometheus.tsdb.mark_stale(each, at)
        if scrape.values:
            for each, signal in series:
                prometheus.tsdb.append(each, at, scrape.values[signal])
            # Requests that users gave up are in no counter of the stage.
            for each, value in zip(reasons, (scrape.values[ScrapedSignal.SUCCESS], 0.0), strict=True):
                prometheus.tsdb.append(each, at, value)
        info = {"__name__": "vllm:cache_config_info", **config}
        if scrape.values:
            prometheus.tsdb.append(info, at, 1.0)
        else:
            prometheus.tsdb.mark_stale(info, at)


def written(seconds):
    """Return a virtual time as Kubernetes writes it."""
    return datetime.fromtimestamp(int(EPOCH_SECONDS + seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def objects(role=""):
    """Return the objects of the variant: its Deployment asks for four pods and has three, one of them Ready."""
    cluster = CachedCluster()
    status = {"desiredOptimizedAlloc": {"accelerator": "A100", "numReplicas": 4}}
    cluster.va(namespace=NAMESPACE, target="d-va", model_id=MODEL.model_id, status=status)
    made = cluster.deployment(
        "d-va", namespace=NAMESPACE, replicas=4, ready=1, labels={"llm-d.ai/role": role} if role else {}
    )
    cluster.deployments.upsert(replace(made, status=replace(made.status, replicas=3)))
    for name, created, ready in (("va-0", 1.0, True), ("va-1", 612.7, False), ("va-2", 640.2, False)):
        cluster.pod(name, namespace=NAMESPACE, deployment="d-va", ready=ready, creationTimestamp=written(created))
    return cluster


async def collected(scrapes, queue, *, engines=True, counters=False, role=""):
    """Return the Snapshot of the collector."""
    cluster = objects(role)
    instruments = Instruments(CollectorRegistry())
    async with EmbeddedPrometheus(now=lambda: EPOCH_SECONDS + NOW) as prometheus:
        fill(prometheus, scrapes, role)
        if queue is not None:
            labels = {"namespace": NAMESPACE, "model_name": MODEL.model_id, "pod": "picker"}
            name = "inference_extension_flow_control_queue_size"
            prometheus.tsdb.append({"__name__": name, **labels}, EPOCH_SECONDS + NOW, queue)
        connection = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(connection, clock=RecordingClock(), instruments=instruments) as client:
            collector = Collector(
                cluster.stores,
                prometheus=client,
                instruments=instruments,
                engines_of=lambda _: engines,
                counters_of=lambda _: counters,
                retention_of=lambda _: RETENTION,
            )
            snapshot = await collector.collect(EPOCH_SECONDS + NOW)
    assert snapshot.failures == ()
    return snapshot


def same(mine, real):
    """Tell whether two samples have the same state, value and time. Their details may differ."""
    close = pytest.approx(real.value, rel=1e-9) if real.value is not None else None
    return (
        mine.state is real.state and mine.value == close and mine.timestamp == pytest.approx(real.timestamp, abs=2e-3)
    )


async def looked_at(scrapes):
    """Return what the controller finds out about the users of the model."""
    first, between = "vllm:time_to_first_token_seconds_bucket", "vllm:request_time_per_output_token_seconds_bucket"
    signals = {
        (first, "1.0"): ScrapedSignal.FIRST_IN_TIME,
        (first, "+Inf"): ScrapedSignal.TTFT_COUNT,
        (between, "0.1"): ScrapedSignal.BETWEEN_IN_TIME,
        (between, "+Inf"): ScrapedSignal.SUCCESS,
    }
    instruments = Instruments(CollectorRegistry())
    async with EmbeddedPrometheus(now=lambda: EPOCH_SECONDS + NOW) as prometheus:
        labels = {"namespace": NAMESPACE, "model_name": MODEL.model_id, "pod": "va-0", "engine": "0"}
        for scrape in scrapes:
            for (name, bound), signal in signals.items():
                if scrape.values:
                    series = {"__name__": name, **labels, "le": bound}
                    prometheus.tsdb.append(series, EPOCH_SECONDS + scrape.at_seconds, scrape.values[signal])
        clock = SimpleNamespace(now=lambda: EPOCH_SECONDS + NOW)
        made = decision(key=VariantKey(NAMESPACE, "va"), model=MODEL, aim=Aim(DEFAULT_OBJECTIVES))
        async with PrometheusClient(
            PrometheusSettings(prometheus.url, allow_http=True), clock=RecordingClock(), instruments=instruments
        ) as client:
            users = ServedUsers(prometheus=client, decisions=lambda: [made], clock=clock)
            await users.look()
    return users.lately()


QUEUES = st.sampled_from([None, 0.0, 3.0])
few = settings(
    max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
"""Of histories of scrapes, each of which takes long to draw."""


@few
@given(scrapes=histories())
async def test_what_users_got_is_what_the_controller_reads(scrapes):
    """The shares in time of the last two minutes, and the number of requests; nothing if there were none."""
    observer = Observer(MODEL, engines=True)
    mine = observer.snapshot(StageOfOnePod(scrapes, None), NOW, status=lambda _: 4).served
    real = await looked_at(scrapes)
    assert [each.model for each in mine] == [each.model for each in real]
    for found, expected in zip(mine, real, strict=True):
        assert found.at == expected.at
        for name in ("requests", "first", "between"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-6), name
    # The next minute has the same answer.
    assert observer.snapshot(StageOfOnePod([], None), NOW + 59.0, status=lambda _: 4).served == mine


@few
@given(scrapes=histories(), queue=QUEUES)
async def test_every_sample_is_what_the_collector_reads(scrapes, queue):
    """Engine signals, queue and variant of the stage's snapshot are those of the collector."""
    real = await collected(scrapes, queue)
    mine = Observer(MODEL, engines=True, retention_seconds=RETENTION).snapshot(
        StageOfOnePod(scrapes, queue), NOW, status=lambda _: 4
    )
    (replica,), (expected_replica,) = mine.replicas, real.replicas
    assert same(replica.kv_usage, expected_replica.kv_usage), (replica.kv_usage, expected_replica.kv_usage)
    assert same(replica.queue_length, expected_replica.queue_length)
    for name in EngineSignals.__struct_fields__:
        found, expected = getattr(replica.engine, name), getattr(expected_replica.engine, name)
        assert same(found, expected), (name, found, expected)
    sizes = [
        [(each.size.state, each.size.value) for each in one.queues if each.size.value is not None]
        for one in (mine, real)
    ]
    assert sizes[0] == sizes[1]
    (variant,), (expected_variant,) = mine.variants, real.variants
    for name in ("spec_replicas", "current_replicas", "ready_replicas", "status_desired", "oldest_unready_since"):
        assert getattr(variant, name) == getattr(expected_variant, name), name


@few
@given(data=st.data(), role=st.sampled_from(["", PREFILL]), queue=QUEUES, engines=st.booleans())
async def test_every_counter_is_what_the_collector_reads(data, role, queue, engines):
    """The counters come all from the last scrape or are all missing, together with the gauges of that scrape."""
    scrapes = data.draw(histories(role))
    real = await collected(scrapes, queue, engines=engines, counters=True, role=role)
    (expected,) = real.replicas
    assert [one.role for one in real.variants] == [role]
    observer = Observer(MODEL, engines=engines, counters=True)
    snapshot = observer.snapshot(StageOfOnePod(scrapes, queue, role), NOW, status=lambda _: 4)
    assert [one.role for one in snapshot.variants] == [role]
    (replica,) = snapshot.replicas
    assert replica.created == expected.created
    assert (replica.counters is None) == (expected.counters is None) == bool(expected.counters_detail)
    if replica.counters is not None:
        for name in EngineCounters.__struct_fields__:
            found, read = getattr(replica.counters, name), getattr(expected.counters, name)
            assert found == pytest.approx(read, rel=1e-9, abs=2e-3 if name == "at" else 1e-6), name
    for name in EngineSignals.__struct_fields__:
        assert same(getattr(replica.engine, name), getattr(expected.engine, name)), name
    assert bool(snapshot.queues) == (queue is not None)


@few
@given(scrapes=histories(), queue=QUEUES)
async def test_requests_are_counted_as_the_collector_counts_them(scrapes, queue):
    """The stage's request counts are the collector's. After a lost scrape the count is unknown, not zero."""
    (real,) = (await collected(scrapes, queue)).request_counts
    observer = Observer(MODEL, engines=True, retention_seconds=RETENTION)
    (mine,) = observer.snapshot(StageOfOnePod(scrapes, queue), NOW, status=lambda _: 4).request_counts
    assert (mine.model, mine.retention_seconds) == (real.model, real.retention_seconds)
    assert (mine.in_progress, mine.covered_seconds) == (real.in_progress, real.covered_seconds)
    assert mine.finished == (None if real.finished is None else pytest.approx(real.finished, rel=1e-9))


@few
@given(scrapes=histories(), at=st.sampled_from([600.0, 660.0, NOW]))
def test_what_came_in_five_minutes_is_what_the_query_finds(scrapes, at):
    """Requests count when they come: those that are done, and the growth of those in progress."""
    tsdb, moment = Tsdb(), milliseconds(EPOCH_SECONDS + at)
    fill(SimpleNamespace(tsdb=tsdb), scrapes)
    found = evaluate(parse(earlier_days([NAMESPACE]).text), EvaluationTime(tsdb, moment, moment, moment))
    rates = demand_of(InstantSeries(convert(each.labels, Labels), (at, str(each.value))) for each in found)
    observer = Observer(MODEL, engines=False, counters=True)
    stage = StageOfOnePod(scrapes, None)
    observer.snapshot(stage, at, status=lambda _: 4)
    expected = rates.get((MODEL, at))
    assert observer.came(stage, at) == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-9))


@settings(
    max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(scrapes=histories())
def test_the_fast_lane_sees_what_its_query_finds(scrapes):
    """The sum of what runs and what waits in the engines, as of the last scrapes."""
    tsdb, at = Tsdb(), milliseconds(EPOCH_SECONDS + NOW)
    fill(SimpleNamespace(tsdb=tsdb), scrapes)
    found = evaluate(parse(in_progress([NAMESPACE]).text), EvaluationTime(tsdb, at, at, at))
    expected = {each.labels["model_name"]: each.value for each in found}
    observer = Observer(MODEL, engines=False, counters=True)
    assert observer.in_progress(StageOfOnePod(scrapes, 0.0), NOW) == expected.get(MODEL.model_id, 0.0)
