"""The queries of the analyzers, evaluated on the fleet's pages, give the true values."""

from __future__ import annotations

import pytest

from tests.collect.cluster import joined_queue
from tests.collect.doubles import NOW, series
from wva.collect.queries import ANALYZER_QUERIES, ENGINE_COUNTERS, ENGINE_SIGNALS, SCHEDULER_QUEUE
from wva.collect.samples import GAUGES, Classifier, engine_counters, engine_signals, texts_of
from wva.model.metrics import Freshness
from wva.model.variant import ModelKey as Model
from wva.prometheus.answers import InstantVector
from wva.sim.fleet.fleet import Fleet, FleetSettings, ReadyPod
from wva.sim.fleet.load import LoadSpec
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import PoolKey, PoolVariant
from wva.sim.prometheus import InProcess, Scraper, ScrapeTarget, Tsdb
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.traffic.rates import RateProfile

MODEL = PoolKey("ns", "m")
H100 = PoolVariant("ns", "h100", "m", "H100", PRESETS["H100"])
LOAD = LoadSpec(RateProfile.constant(4.0))
STEP_SECONDS = 15
MINUTES = 10
END = NOW + MINUTES * 60
SCRAPE = Classifier(END, Freshness()).scrape((str(END),))


async def observed(*pods: str, load: LoadSpec = LOAD) -> dict[str, InstantVector]:
    """Return the answers by query name after ten minutes of this load, scraped every 15 s."""
    fleet = Fleet([H100], loads={MODEL: load}, seed=4, settings=FleetSettings(epoch_seconds=NOW))
    fleet.set_ready_pods("ns", deployment="h100", pods=[ReadyPod(name) for name in pods])
    tsdb = Tsdb()
    scraper = Scraper(tsdb)
    scraper.add(ScrapeTarget(InProcess(fleet.exposition_all), {"job": "fleet", "instance": "i"}, honor_labels=True))
    for step in range(MINUTES * 60 // STEP_SECONDS + 1):
        fleet.advance(step * STEP_SECONDS)
        await scraper.scrape(NOW + step * STEP_SECONDS)
    at = round((NOW + MINUTES * 60) * 1000)
    return {
        name: InstantVector(
            tuple(
                series(dict(found.labels), str(found.value))
                for found in evaluate(parse(make(["ns"]).text), EvaluationTime(tsdb, at, at, at))
            )
        )
        for name, make in ANALYZER_QUERIES.items()
    }


def by_signal(vector):
    """Return the series of an answer about one pod by signal."""
    found = {}
    for each in vector.series:
        found.setdefault(each.metric.signal, []).append(each)
    return found


async def test_engines_tell_the_truth():
    """Cache size and means of requests are those with which the fleet was made."""
    signals = engine_signals(by_signal((await observed("h-0"))[ENGINE_SIGNALS]), SCRAPE)
    assert signals.kv_capacity_tokens.fresh_value == PRESETS["H100"].kv_cache_tokens
    assert signals.success_rate.fresh_value == pytest.approx(4.0, rel=0.3)
    assert signals.input_tokens.fresh_value == pytest.approx(LOAD.prompt.mean_tokens, rel=0.3)
    assert signals.output_tokens.fresh_value == pytest.approx(LOAD.output.mean_tokens, rel=0.3)
    for sample in (signals.kv_usage, signals.running, signals.inter_token_latency, signals.time_to_first_token):
        assert sample.fresh_value
    assert signals.waiting.fresh_value == 0


async def test_engines_tell_what_they_have_counted():
    """The counters have the load of ten minutes. Finished and running requests add up to all requests."""
    found = by_signal((await observed("h-0"))[ENGINE_COUNTERS])
    scrape = Classifier(END, Freshness()).scrape(texts_of(found["time"]))
    gauges = engine_signals(found, scrape, signals=GAUGES)
    counters, _ = engine_counters(found, scrape, gauges)
    assert counters is not None
    assert counters.at == END
    in_progress = gauges.running.fresh_value + gauges.waiting.fresh_value
    assert counters.finished + in_progress == pytest.approx(4.0 * MINUTES * 60, rel=0.1)
    assert counters.aborted == 0
    assert counters.answers == counters.finished
    assert counters.finished <= counters.prompts <= counters.finished + in_progress
    assert counters.prompt_tokens / counters.prompts == pytest.approx(LOAD.prompt.mean_tokens, rel=0.1)
    assert counters.answer_tokens / counters.answers == pytest.approx(LOAD.output.mean_tokens, rel=0.1)
    assert counters.gaps >= counters.answer_tokens - counters.answers
    assert 0.001 < counters.gap_seconds / counters.gaps < 0.1
    assert gauges.kv_capacity_tokens.fresh_value == PRESETS["H100"].kv_cache_tokens
    assert gauges.kv_usage.fresh_value


async def test_the_gateway_tells_what_it_holds_back():
    """Without a replica all requests wait, and the gateway's queue has the model's namespace."""
    queue = joined_queue(Model("ns", "m"), (await observed())[SCHEDULER_QUEUE], now=END)
    assert queue.size.fresh_value
    assert queue.size_bytes.fresh_value
    assert queue.size_bytes.fresh_value / queue.size.fresh_value / 4 == pytest.approx(LOAD.prompt.mean_tokens, rel=0.3)
