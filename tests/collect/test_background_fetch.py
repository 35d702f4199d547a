"""WVA fetches kept answers again between cycles."""

from __future__ import annotations

import asyncio

import pytest

from tests.collect.cache_bench import CacheBench
from tests.collect.doubles import NOW
from wva.api.meta import Key
from wva.collect.answer_cache import BackgroundFetch, background_seconds
from wva.prometheus.answers import ErrorKind, PrometheusError


async def test_a_fetch_in_the_background_renews_what_cycles_use():
    """The next cycle finds a younger answer; an answer that a cycle has just got is not fetched."""
    bench = CacheBench(metrics_cache_fetch_interval=20.0)
    await bench.asked(0)
    await bench.collector.refresh(NOW + 5)
    assert len(bench.prometheus.queries) == 2
    await bench.collector.refresh(NOW + 20)
    assert len(bench.prometheus.queries) == 4
    assert not await bench.asked(49)
    assert await bench.asked(50)


async def test_a_failing_fetch_in_the_background_is_told_and_keeps_the_answer():
    """Readiness shows the outage before the next cycle, which uses the kept answer."""
    bench = CacheBench(metrics_cache_fetch_interval=10.0)
    await bench.asked(0)
    bench.prometheus.fail("queue_length", ErrorKind.UNREACHABLE, "away")
    await bench.collector.refresh(NOW + 10)
    assert "away" in bench.collector.prometheus_status()
    assert bench.metric("wva_prometheus_up") == 0
    assert not await bench.asked(15)
    assert bench.failures == ()
    assert "away" in bench.collector.prometheus_status()
    bench.prometheus.failing.clear()
    await bench.collector.refresh(NOW + 20)
    assert bench.collector.prometheus_status() is None


@pytest.mark.parametrize(
    "off", [{"metrics_cache_fetch_interval": 0.0}, {"metrics_cache_ttl": None}, {"metrics_cache_enabled": False}]
)
async def test_nothing_is_fetched_in_the_background_that_could_not_be_used(off):
    """Without interval, TTL or cache there is no fetch in the background."""
    bench = CacheBench(**{"metrics_cache_fetch_interval": 10.0, **off})
    assert background_seconds(bench.cache) == 0
    await bench.asked(0)
    await bench.collector.refresh(NOW + 25)
    assert len(bench.prometheus.queries) == 2


@pytest.mark.parametrize("first", ["cycle", "background"])
async def test_a_cycle_and_the_background_at_the_same_moment_ask_once(first):
    """The second one uses the answer of the first."""
    bench = CacheBench(metrics_cache_ttl=30.0, metrics_cache_fetch_interval=30.0, global_opt_interval=60.0)
    await bench.asked(0)
    bench.prometheus.queries.clear()
    answer, arrived, release = bench.prometheus.query, asyncio.Event(), asyncio.Event()

    async def slow(promql, *, name, at):
        arrived.set()
        await release.wait()
        return await answer(promql, name=name, at=at)

    bench.prometheus.query = slow
    parts = {"cycle": bench.collector.collect, "background": bench.collector.refresh}
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.pop(first)(NOW + 60.001))
        await arrived.wait()
        (second,) = parts.values()
        group.create_task(second(NOW + 60))
        await asyncio.sleep(0)
        release.set()
    assert len(bench.prometheus.queries) == 2


@pytest.mark.looptime
async def test_a_cycle_that_waits_for_the_background_has_all_of_its_time():
    """A cycle that waited for a slow fetch still gets its answers."""
    bench = CacheBench(metrics_cache_ttl=30.0, metrics_cache_fetch_interval=30.0, global_opt_interval=60.0)
    await bench.asked(0)
    answer, loop = bench.prometheus.query, asyncio.get_running_loop()
    slow_until = loop.time() + 20.5

    async def slow(promql, *, name, at):
        await asyncio.sleep(max(0.0, slow_until - loop.time()))
        await asyncio.sleep(1)
        return await answer(promql, name=name, at=at)

    bench.prometheus.query = slow
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.collector.refresh(NOW + 60))
        await asyncio.sleep(0.1)
        cycle = group.create_task(bench.collector.collect(NOW + 60.1))
    assert (cycle.result().failures, len(cycle.result().replicas)) == ((), 1)


@pytest.mark.looptime
async def test_a_fetch_about_suspected_namespaces_alone_waits_for_no_essential_query():
    """Such a fetch has no essential query to wait for, so it ends at once."""
    bench = CacheBench(metrics_cache_ttl=30.0, metrics_cache_fetch_interval=30.0, global_opt_interval=60.0)
    bench.engines = True
    bench.cluster.variant("bad", namespace="bad")
    answer, loop = bench.prometheus.query, asyncio.get_running_loop()

    async def spoiled(promql, *, name, at):
        if "bad" in promql and name == "queue_length":
            raise PrometheusError(ErrorKind.MALFORMED, "too large")
        return await answer(promql, name=name, at=at)

    bench.prometheus.query = spoiled
    await bench.asked(0)
    bench.prometheus.query = answer
    await bench.asked(60)
    bench.cluster.stores.variant_autoscalings.delete(Key("ns", "va"))
    began = loop.time()
    await bench.collector.refresh(NOW + 80)
    assert {at for _, _, at in bench.prometheus.queries} == {NOW + 60, NOW + 80}
    assert loop.time() - began < 1


class SteppedClock:
    """A clock whose waits end when the test says so."""

    def __init__(self):
        """Start at the one time there is."""
        self.waits = asyncio.Queue()
        self.steps = asyncio.Queue()

    def now(self):
        """Return the time."""
        return NOW

    async def wait(self, event, timeout_seconds):
        """Record the wait; end it with the event, or as if its time had passed."""
        await self.waits.put(timeout_seconds)
        step, changed = asyncio.ensure_future(self.steps.get()), asyncio.ensure_future(event.wait())
        await asyncio.wait({step, changed}, return_when=asyncio.FIRST_COMPLETED)
        step.cancel()
        changed.cancel()
        return event.is_set()


async def test_the_background_follows_its_interval():
    """The fetch sleeps while it is off, and follows a change of the settings at once."""
    bench, clock, refreshed = CacheBench(metrics_cache_ttl=None), SteppedClock(), []

    async def refresh(now):
        refreshed.append(now)

    background = BackgroundFetch(refresh, settings=lambda: bench.cache, clock=clock)
    task = asyncio.create_task(background.run())
    assert await clock.waits.get() is None
    bench.cache = bench.cache.model_copy(update={"metrics_cache_ttl": 30.0, "metrics_cache_fetch_interval": 7.0})
    background.settings_changed()
    assert await clock.waits.get() == 7.0
    assert refreshed == []
    await clock.steps.put(None)
    assert await clock.waits.get() == 7.0
    assert refreshed == [NOW]
    task.cancel()
