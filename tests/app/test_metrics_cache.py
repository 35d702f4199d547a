"""The cache of Prometheus' answers in the running process: its settings are live, and metrics show its use."""

from __future__ import annotations

from tests.app.stage import MAIN, until

TTL, ENABLED = "PROMETHEUS_METRICS_CACHE_TTL", "PROMETHEUS_METRICS_CACHE_ENABLED"
FETCH = "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL"
ROUND = 4


def asked(stage):
    """Return how many queries of cycles Prometheus got: without those about the time before the process."""
    before = stage.metric("wva_prometheus_queries_total", query="past_pods", result="success") or 0
    return stage.prometheus.requests.query_count - before


async def busy(stage):
    """Prepare a variant that reports."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()


async def test_without_a_ttl_every_cycle_asks(stage):
    """Without a TTL each cycle queries Prometheus."""
    await busy(stage)
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.metric("wva_cycles_total", result="success") >= 1)
        cycles, queries = stage.metric("wva_cycles_total", result="success"), asked(stage)
        await stage.cycles(5)
        more = stage.metric("wva_cycles_total", result="success") - cycles
        assert asked(stage) - queries >= (more - 1) * ROUND


async def test_within_a_ttl_cycles_share_an_answer_and_decide_on(stage):
    """Many cycles use one round of queries, and the number stays measured."""
    await busy(stage)
    async with stage.controller(interval="20ms", **{TTL: "1h", "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD": "5m"}):
        await until(lambda: stage.metric("wva_prometheus_cache_lookups_total", result="hit") >= 5)
        assert asked(stage) == ROUND
        assert stage.metric("wva_prometheus_cache_entries") == 1
        assert stage.decision().source.value == "measured"


async def test_a_new_replica_is_seen_within_the_ttl(stage):
    """WVA queries Prometheus again when a replica is added."""
    await busy(stage)
    async with stage.controller(interval="20ms", **{TTL: "1h"}):
        await until(lambda: stage.metric("wva_prometheus_cache_lookups_total", result="hit") >= 1)
        stage.scale("d", 3)
        await stage.scrape()
        await until(lambda: stage.decision().coverage.fresh == 3)


async def test_the_config_map_switches_it_off_while_the_process_runs(stage):
    """Each cycle queries Prometheus after the cache was switched off."""
    await busy(stage)
    stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms", TTL: "1h"})
    async with stage.controller(interval=None, config_map={"GLOBAL_OPT_INTERVAL": "20ms", TTL: "1h"}):
        await until(lambda: stage.metric("wva_prometheus_cache_lookups_total", result="hit") >= 3)
        assert asked(stage) == ROUND
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms", TTL: "1h", ENABLED: "false"})
        await until(lambda: asked(stage) >= 4 * ROUND)


async def test_a_new_interval_asks_at_once_within_the_ttl(stage):
    """A new interval causes a round of queries at once, although the TTL has not passed."""
    await busy(stage)
    old, new = {"GLOBAL_OPT_INTERVAL": "1h", TTL: "1h"}, {"GLOBAL_OPT_INTERVAL": "20ms", TTL: "1h"}
    stage.config_map(MAIN, old)
    async with stage.controller(interval=None, config_map=old):
        await until(lambda: stage.decision() is not None and asked(stage) == ROUND)
        stage.load["d"] = (0.95, 20)
        await stage.scrape()
        stage.config_map(MAIN, new)
        await until(lambda: (stage.number() or 0) > 2)
        assert asked(stage) == 2 * ROUND


async def test_answers_are_fetched_between_cycles(stage):
    """With a fetch interval WVA queries Prometheus between cycles, so readiness soon shows an outage."""
    await busy(stage)
    async with stage.controller(interval="1h", **{TTL: "1h", FETCH: "30ms"}):
        await until(lambda: asked(stage) >= 3 * ROUND)
        assert stage.metric("wva_cycles_total", result="success") == 1
        stage.prometheus.faults.status = 400
        await until(lambda: any("prometheus" in line for line in stage.app.not_ready()))
        stage.prometheus.faults.clear()
        await until(lambda: not stage.app.not_ready())
        assert stage.metric("wva_cycles_total", result="success") == 1
