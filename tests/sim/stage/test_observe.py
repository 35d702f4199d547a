"""What the stage tells the decision code of scrapes, against the real collector with its queries."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.collect.cluster import Cluster
from tests.collect.doubles import RecordingClock
from wva.collect.prometheus import PrometheusClient, PrometheusSettings
from wva.collect.snapshot import Collector, CollectorSettings
from wva.instruments import Instruments
from wva.model.metrics import EngineSignals
from wva.sim.prometheus.server import EmbeddedPrometheus
from wva.sim.stage.observe import EPOCH_SECONDS, MODEL, NAMESPACE, Observer
from wva.sim.stage.view import Pod, Scrape, Signal, VariantView

NOW = 700.0
NAMES = {
    Signal.RUNNING: "vllm:num_requests_running",
    Signal.WAITING: "vllm:num_requests_waiting",
    Signal.KV_USAGE: "vllm:kv_cache_usage_perc",
    Signal.PREFIX_QUERIES: "vllm:prefix_cache_queries_total",
    Signal.PREFIX_HITS: "vllm:prefix_cache_hits_total",
    Signal.TTFT_SUM: "vllm:time_to_first_token_seconds_sum",
    Signal.TTFT_COUNT: "vllm:time_to_first_token_seconds_count",
    Signal.ITL_SUM: "vllm:inter_token_latency_seconds_sum",
    Signal.ITL_COUNT: "vllm:inter_token_latency_seconds_count",
    Signal.REQUEST_PROMPT_SUM: "vllm:request_prompt_tokens_sum",
    Signal.REQUEST_PROMPT_COUNT: "vllm:request_prompt_tokens_count",
    Signal.REQUEST_GENERATION_SUM: "vllm:request_generation_tokens_sum",
    Signal.REQUEST_GENERATION_COUNT: "vllm:request_generation_tokens_count",
}
BLOCKS, BLOCK = 4096, 16


class StageOfOnePod:
    """A stage with one variant of one Ready pod."""

    def __init__(self, scrapes, queue):
        """Show these scrapes, and this queue at the gateway."""
        pod = Pod("va-0", 1.0, 100.0)
        self.variants = {"va": VariantView("va", "A100", 10.0, 1, 10, 256, BLOCKS * BLOCK, 1, (pod,))}
        self._scrapes, self._queue = scrapes, queue

    def scrapes(self, _):
        """Return what was scraped of the pod."""
        return self._scrapes

    def gateway_queue(self):
        """Return the queue at the gateway."""
        return self._queue


@st.composite
def histories(draw):
    """Draw scrapes of a pod in the last ten minutes: some lost, counters that only grow."""
    at, scrapes = draw(st.floats(95, 690)), []
    counters = {signal: 0.0 for signal in Signal if signal > Signal.KV_USAGE}
    while at <= NOW:
        for signal in counters:
            counters[signal] += draw(st.sampled_from([0.0, 0.0, 1.0, 7.25, 350.0]))
        counters[Signal.PREFIX_HITS] = counters[Signal.PREFIX_QUERIES] * 0.4
        gauges = (draw(st.integers(0, 40)), draw(st.integers(0, 9)), draw(st.sampled_from([0.0, 0.31, 1.0])))
        lost = draw(st.integers(0, 3)) == 0
        values = (*map(float, gauges), *(counters[signal] for signal in Signal if signal > Signal.KV_USAGE))
        scrapes.append(Scrape(round(at, 3), () if lost else values))
        at += 15.0
    return scrapes


def fill(prometheus, scrapes):
    """Put the scrapes into the database as the series that a scrape of vLLM gives."""
    labels = {"namespace": NAMESPACE, "model_name": MODEL.model_id, "pod": "va-0", "engine": "0"}
    config = {**labels, "num_gpu_blocks": str(BLOCKS), "block_size": str(BLOCK)}
    del config["model_name"]
    series = [({"__name__": name, **labels}, signal) for signal, name in NAMES.items()]
    series.append(({"__name__": "vllm:request_success_total", **labels, "finished_reason": "stop"}, Signal.SUCCESS))
    for scrape in scrapes:
        at = EPOCH_SECONDS + scrape.at_seconds
        for each, signal in series:
            if scrape.values:
                prometheus.tsdb.append(each, at, scrape.values[signal])
            else:
                prometheus.tsdb.mark_stale(each, at)
        info = {"__name__": "vllm:cache_config_info", **config}
        if scrape.values:
            prometheus.tsdb.append(info, at, 1.0)
        else:
            prometheus.tsdb.mark_stale(info, at)


async def collected(scrapes):
    """Return what the collector sees of the pod."""
    cluster = Cluster()
    cluster.variant(namespace=NAMESPACE, model_id=MODEL.model_id)
    instruments = Instruments(CollectorRegistry())
    async with EmbeddedPrometheus(now=lambda: EPOCH_SECONDS + NOW) as prometheus:
        fill(prometheus, scrapes)
        connection = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(connection, clock=RecordingClock(), instruments=instruments) as client:
            options = CollectorSettings(engines_of=lambda _: True)
            collector = Collector(cluster.stores, prometheus=client, instruments=instruments, settings=options)
            snapshot = await collector.collect(EPOCH_SECONDS + NOW)
    assert snapshot.failures == ()
    return snapshot.replicas[0]


def same(mine, real):
    """Tell whether two samples say the same; their details are for people."""
    close = pytest.approx(real.value, rel=1e-9) if real.value is not None else None
    return (
        mine.state is real.state and mine.value == close and mine.timestamp == pytest.approx(real.timestamp, abs=2e-3)
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(scrapes=histories())
async def test_every_sample_is_what_the_collector_reads(scrapes):
    """Value, state and time, of the two signals and of all that the engines tell."""
    real = await collected(scrapes)
    snapshot = Observer(engines=True).snapshot(StageOfOnePod(scrapes, None), NOW, status=lambda _: None)
    mine = snapshot.replicas[0]
    assert same(mine.kv_usage, real.kv_usage), (mine.kv_usage, real.kv_usage)
    assert same(mine.queue_length, real.queue_length)
    for name in EngineSignals.__dataclass_fields__:
        found, expected = getattr(mine.engine, name), getattr(real.engine, name)
        assert same(found, expected), (name, found, expected)
