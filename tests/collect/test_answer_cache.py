"""When WVA uses an answer of Prometheus again, and when it asks again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collect.cache_bench import CacheBench
from tests.collect.doubles import NOW
from wva.model.metrics import Freshness, SampleState
from wva.prometheus.answers import ErrorKind


async def test_without_a_ttl_every_cycle_asks():
    """Without a TTL, WVA asks Prometheus in every cycle."""
    bench = CacheBench(metrics_cache_ttl=None)
    assert [await bench.asked(at) for at in (0, 1, 2)] == [True, True, True]
    assert bench.metric("wva_prometheus_cache_entries") == 0


async def test_cycles_within_the_ttl_use_one_answer():
    """Cycles within the TTL use the kept answer, and the lookups are counted."""
    bench = CacheBench()
    assert [await bench.asked(at) for at in (0, 5, 29.9, 30, 35)] == [True, False, False, True, False]
    assert bench.metric("wva_prometheus_cache_lookups_total", result="hit") == 3
    assert bench.metric("wva_prometheus_cache_lookups_total", result="miss") == 2
    assert bench.metric("wva_prometheus_cache_entries") == 1


async def test_switched_off_it_asks_each_time_and_counts_nothing():
    """With PROMETHEUS_METRICS_CACHE_ENABLED=false WVA asks each time."""
    bench = CacheBench(metrics_cache_enabled=False)
    assert [await bench.asked(at) for at in (0, 1)] == [True, True]
    assert bench.metric("wva_prometheus_cache_lookups_total", result="miss") == 0


async def test_samples_keep_their_own_times():
    """A sample from the cache keeps the time of its scrape."""
    bench = CacheBench()
    await bench.asked(0)
    asked, replicas = await bench.asks(20)
    assert not asked
    assert replicas["va-0"].kv_usage.timestamp == NOW - 5


async def test_an_answer_that_has_become_stale_is_asked_for_anew():
    """WVA asks again when a sample of the kept answer becomes stale."""
    bench = CacheBench(metrics_cache_ttl=300.0, stale_threshold=300.0)
    assert await bench.asked(0)
    assert not await bench.asked(54)  # the sample is 59 s old
    assert await bench.asked(55)


async def test_a_queue_of_a_scheduler_that_has_become_stale_is_asked_for_anew():
    """The time of a queue is one of its signals, and the cache reads it there."""
    bench = CacheBench(metrics_cache_ttl=300.0, stale_threshold=300.0)
    bench.prometheus.put("scheduler_queue", str(NOW - 20), signal="timestamp", target_model_name="")
    bench.prometheus.put("scheduler_queue", "20", signal="size", target_model_name="")
    bench.engines = True
    assert await bench.asked(0)
    assert not await bench.asked(39)
    assert await bench.asked(40)


async def test_a_shorter_age_limit_counts_for_kept_answers_too():
    """A new age limit in the ConfigMap applies at once."""
    bench = CacheBench()
    await bench.asked(0)
    bench.freshness = Freshness(fresh_seconds=10, unavailable_seconds=20)
    assert await bench.asked(6)


async def test_a_pod_that_never_reports_does_not_empty_the_cache():
    """A sample that was stale in the answer does not make WVA ask again."""
    bench = CacheBench()
    bench.cluster.pod("va-1", deployment="d-va")
    bench.prometheus.put_replica(pod="va-1", age_seconds=100)
    assert await bench.asked(0)
    asked, replicas = await bench.asks(5)
    assert not asked
    assert replicas["va-1"].kv_usage.state is SampleState.STALE


async def test_no_answer_is_used_beyond_the_stale_threshold():
    """The stale threshold ends the use of an answer, even if the TTL is longer."""
    bench = CacheBench(metrics_cache_ttl=600.0, stale_threshold=20.0)
    assert [await bench.asked(at) for at in (0, 19, 20)] == [True, False, True]


async def test_a_pod_that_came_or_went_makes_it_ask():
    """A kept answer lacks the new replica, and after a pod is gone the others carry more."""
    bench = CacheBench()
    await bench.asked(0)
    pod = bench.cluster.pod("va-1", deployment="d-va")
    bench.prometheus.put_replica(pod="va-1")
    asked, replicas = await bench.asks(1)
    assert asked
    assert replicas["va-1"].complete
    assert not await bench.asked(2)
    bench.cluster.stores.targets.pods.delete(pod)
    assert await bench.asked(3)


async def test_a_pod_that_is_not_ready_yet_changes_nothing():
    """WVA uses no samples of a pod that is not ready, so it sends no new query."""
    bench = CacheBench()
    await bench.asked(0)
    bench.cluster.pod("va-1", deployment="d-va", ready=False)
    assert not await bench.asked(1)


async def test_another_namespace_is_asked_for():
    """A kept answer has no series of a new namespace, so WVA asks."""
    bench = CacheBench()
    await bench.asked(0)
    bench.cluster.variant(namespace="ns-2")
    assert await bench.asked(1)


@pytest.mark.parametrize(
    "change",
    [
        {"global_opt_interval": 60.0},
        {"metrics_cache_ttl": 29.0},
        {"metrics_cache_max_size": 7},
        {"metrics_cache_fetch_interval": 9.0},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_change_of_the_settings_empties_it(change):
    """The first cycle after a change of the settings asks."""
    bench = CacheBench()
    await bench.asked(0)
    bench.cache = bench.cache.model_copy(update=change)
    assert await bench.asked(1)


async def test_a_clock_that_was_set_back_makes_it_ask():
    """The age of an answer from the future is unknown."""
    bench = CacheBench()
    await bench.asked(0)
    assert await bench.asked(-1)


async def test_a_failure_is_not_kept():
    """The next cycle asks again, and the snapshot has the failure as without a cache."""
    bench = CacheBench()
    bench.prometheus.fail("queue_length", ErrorKind.SERVER, "on fire")
    assert await bench.asked(0)
    assert bench.failures
    bench.prometheus.failing.clear()
    assert await bench.asked(1)
    assert bench.failures == ()
    assert not await bench.asked(2)


async def test_an_answer_that_is_said_to_be_incomplete_is_not_kept():
    """A federated Prometheus warns when one of its stores is away; the next answer may be whole."""
    bench = CacheBench()
    bench.prometheus.warnings = ("a store is away",)
    await bench.asked(0)
    assert await bench.asked(1)


async def test_a_hit_says_nothing_about_prometheus():
    """The gauge and the readiness show the last queries that were sent."""
    bench = CacheBench()
    await bench.asked(0)
    bench.prometheus.fail("queue_length", ErrorKind.SERVER, "on fire")
    assert await bench.asked(30)
    assert bench.metric("wva_prometheus_up") == 0
    assert "on fire" in bench.collector.prometheus_status()


async def test_at_most_max_size_chunks_are_kept():
    """The cache drops the answer that was unused for longest."""
    bench = CacheBench(metrics_cache_max_size=1)
    for index in range(100):
        bench.cluster.variant(namespace=f"ns-{index:03}")
    await bench.asked(0)
    assert bench.metric("wva_prometheus_cache_entries") == 1
    await bench.asks(1)
    assert 0 < len(bench.prometheus.queries) < 8


async def test_what_nobody_asks_for_is_forgotten():
    """The cache drops the answers about a namespace without variants."""
    bench = CacheBench(metrics_cache_ttl=1000.0, stale_threshold=1000.0, metrics_cache_cleanup_interval=10.0)
    other = bench.cluster.variant(namespace="ns-2")
    await bench.asked(0)
    bench.cluster.stores.variant_autoscalings.delete(other)
    await bench.asked(1)
    assert bench.metric("wva_prometheus_cache_entries") == 2
    await bench.asked(11)
    assert bench.metric("wva_prometheus_cache_entries") == 1


QUARTERS = st.integers(1, 800).map(lambda quarters: quarters / 4)  # exact, also when added to a time
STEPS = st.lists(
    st.tuples(
        st.integers(0, 160).map(lambda quarters: quarters / 4), st.sampled_from(["", "pod", "fail", "mend", "load"])
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(STEPS, QUARTERS, QUARTERS)
def test_no_sample_counts_as_fresh_that_is_not(steps, ttl_seconds, stale_seconds):
    """Samples are younger than the age limit, and answers younger than the TTL and the stale threshold."""

    async def run():
        bench = CacheBench(metrics_cache_ttl=ttl_seconds, stale_threshold=stale_seconds)
        elapsed, asked_at, pods = 0.0, None, 1
        for pause, what in steps:
            elapsed += pause
            if what == "pod":
                bench.cluster.pod(f"va-{pods}", deployment="d-va")
                pods += 1
            elif what == "fail":
                bench.prometheus.fail("queue_length", ErrorKind.SERVER, "no")
            elif what == "mend":
                bench.prometheus.failing.clear()
            bench.prometheus.series.clear()
            for index in range(pods):
                bench.prometheus.put_replica(pod=f"va-{index}", age_seconds=5 - elapsed)
            asked, replicas = await bench.asks(elapsed)
            asked_at = elapsed if asked else asked_at
            assert elapsed - asked_at < min(ttl_seconds, stale_seconds) or asked
            assert len(replicas) == pods
            if not bench.failures:
                assert all(replica.complete for replica in replicas.values())
                ages = [NOW + elapsed - replica.kv_usage.timestamp for replica in replicas.values()]
                assert all(age < 60 for age in ages)

    asyncio.run(run())
