"""The fleet shows what the token analyzer asks for: its queries, evaluated on the fleet's pages, give the truth."""

from __future__ import annotations

import pytest

from tests.collect.doubles import NOW
from wva.api.core import Pod
from wva.api.meta import ObjectMeta
from wva.collect.answers import InstantVector, Series
from wva.collect.engines import EngineJoin
from wva.collect.queries import engine_queries
from wva.collect.samples import Classifier, Reading
from wva.collect.scheduler_queue import SchedulerQueueJoin
from wva.collect.variants import AcceptedVariant
from wva.model.metrics import Freshness
from wva.model.variant import ModelKey as Model
from wva.model.variant import Variant, VariantKey
from wva.sim.fleet.fleet import Fleet, FleetSettings, ReadyPod
from wva.sim.fleet.load import LoadSpec, RateProfile
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import ModelKey, VariantSpec
from wva.sim.prometheus import InProcess, Scraper, Target, Tsdb
from wva.sim.prometheus.promql import Moment, evaluate, parse

MODEL = ModelKey("ns", "m")
H100 = VariantSpec("ns", "h100", "m", "H100", PRESETS["H100"])
LOAD = LoadSpec(RateProfile.constant(4.0))
STEP_SECONDS = 15
MINUTES = 10


async def observed(*pods: str, load: LoadSpec = LOAD) -> list[InstantVector]:
    """Return the answers to both queries after ten minutes of this load, scraped every 15 s."""
    fleet = Fleet([H100], loads={MODEL: load}, seed=3, settings=FleetSettings(epoch_seconds=NOW))
    fleet.set_ready_pods("ns", deployment="h100", pods=[ReadyPod(name) for name in pods])
    tsdb = Tsdb()
    scraper = Scraper(tsdb)
    scraper.add(Target(InProcess(fleet.exposition_all), {"job": "fleet", "instance": "i"}, honor_labels=True))
    for step in range(MINUTES * 60 // STEP_SECONDS + 1):
        fleet.advance(step * STEP_SECONDS)
        await scraper.scrape(NOW + step * STEP_SECONDS)
    at = round((NOW + MINUTES * 60) * 1000)
    return [
        InstantVector(
            tuple(
                Series(dict(found.labels), (0.0, str(found.value)))
                for found in evaluate(parse(query.text), Moment(tsdb, at, at, at))
            )
        )
        for query in engine_queries(["ns"])
    ]


async def test_engines_tell_the_truth():
    """Size of the cache and means of the requests are those the fleet was made with."""
    answer, _ = await observed("h-0")
    variant = Variant(VariantKey("ns", "v"), Model("ns", "m"), "h100")
    pod = Pod(ObjectMeta(name="h-0", namespace="ns"))
    join = EngineJoin([AcceptedVariant(variant, (pod,))], asked=lambda _: True)
    join.add(answer)
    end = NOW + MINUTES * 60
    signals = join.signals(("ns", "h-0"), time=Reading((str(end),)), classifier=Classifier(end, Freshness()))
    assert signals is not None
    assert signals.kv_capacity_tokens.fresh_value == PRESETS["H100"].kv_cache_tokens
    assert signals.success_rate.fresh_value == pytest.approx(4.0, rel=0.3)
    assert signals.input_tokens.fresh_value == pytest.approx(LOAD.prompt.mean_tokens, rel=0.3)
    assert signals.output_tokens.fresh_value == pytest.approx(LOAD.output.mean_tokens, rel=0.3)
    for sample in (signals.kv_usage, signals.running, signals.inter_token_latency, signals.time_to_first_token):
        assert sample.fresh_value
    assert signals.waiting.fresh_value == 0


async def test_the_gateway_tells_what_it_holds_back():
    """Without a replica everything waits, and the queue belongs to the model of its namespace."""
    _, answer = await observed()
    join = SchedulerQueueJoin([Model("ns", "m")])
    join.add(answer)
    (queue,) = join.queues(Classifier(NOW + MINUTES * 60, Freshness()))
    assert queue.size.fresh_value
    assert queue.size_bytes.fresh_value
    assert queue.size_bytes.fresh_value / queue.size.fresh_value / 4 == pytest.approx(LOAD.prompt.mean_tokens, rel=0.3)
