"""One query about many namespaces: WVA finds the namespace that spoils the answer; all others get theirs."""

from __future__ import annotations

import asyncio
import math
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collect.doubles import NOW
from wva.collect.queries import ESSENTIAL_QUERIES, engine_signals
from wva.collect.shared_queries import Round, SharedQueries
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError

NAMESPACES = tuple(f"ns-{number:03}" for number in range(100))
ESSENTIAL = tuple(ESSENTIAL_QUERIES)
KINDS = len(ESSENTIAL)
BY_NAMESPACE = [ErrorKind.MALFORMED, ErrorKind.EXECUTION, ErrorKind.TIMEOUT, ErrorKind.SERVER, ErrorKind.UNREACHABLE]


def makes(*names):
    """Return the functions that make the essential queries of these names, or of all."""
    return {name: ESSENTIAL_QUERIES[name] for name in names or ESSENTIAL}


class SpoiledPrometheus:
    """Answers one series for each namespace, or fails if a query names a spoiler; records the queries."""

    def __init__(self, *spoilers, kind=ErrorKind.MALFORMED, queries=ESSENTIAL):
        """Fail with this kind of error when a query of these names is about a spoiler."""
        self.spoilers, self.kind, self.queries = set(spoilers), kind, queries
        self.asked = []

    async def query(self, promql, *, name, at):
        """Answer like PrometheusClient."""
        assert at
        namespaces = tuple(re.search(r'namespace=~"([^"]*)"', promql)[1].split("|"))
        self.asked.append((name, namespaces))
        await asyncio.sleep(0)
        if name in self.queries and self.spoilers & set(namespaces):
            raise PrometheusError(self.kind, "too much")
        return InstantVector(tuple(InstantSeries(Labels(namespace=each), (NOW, "1")) for each in namespaces))

    def count(self):
        """Return how many queries were asked since the last time."""
        count = len(self.asked)
        self.asked.clear()
        return count


async def settle(shared, *, now=NOW, namespaces=NAMESPACES, seconds=30.0, wanted=None):
    """Send the queries in a new round."""
    round_ = Round(now, seconds)
    return await shared.settle("essential", wanted or makes(), namespaces, round_)


def answered(settled):
    """Return the namespaces in each answer."""
    return [{each.metric.namespace for each in vector.series} for vector in settled.answers.values()]


async def test_one_query_of_each_kind_is_enough_while_all_is_well():
    """WVA sends each query once if no query fails."""
    prometheus = SpoiledPrometheus()
    settled = await settle(SharedQueries(prometheus))
    assert answered(settled) == [set(NAMESPACES)] * KINDS
    assert (settled.failed, prometheus.count()) == ({}, KINDS)


@pytest.mark.parametrize("kind", BY_NAMESPACE)
@pytest.mark.parametrize("queries", [ESSENTIAL, ("queue_length",), ("kv_cache_usage",)])
async def test_who_spoils_an_answer_stands_alone(kind, queries):
    """WVA halves the namespaces until it finds the bad one; the others have all answers in the same round."""
    prometheus = SpoiledPrometheus("ns-037", kind=kind, queries=queries)
    settled = await settle(SharedQueries(prometheus))
    failure = settled.failed.pop("ns-037")
    assert (settled.failed, failure.message) == ({}, f"query {queries[0]}: too much")
    assert answered(settled) == [set(NAMESPACES) - {"ns-037"}] * KINDS
    assert prometheus.count() <= KINDS + 2 * math.ceil(math.log2(100)) + len(queries) - 1


@given(st.sets(st.sampled_from(NAMESPACES), min_size=1, max_size=3), st.sampled_from(BY_NAMESPACE[:2]))
async def test_several_are_found_in_one_round(spoilers, kind):
    """Each bad namespace costs no more queries than it would alone."""
    prometheus = SpoiledPrometheus(*spoilers, kind=kind)
    settled = await settle(SharedQueries(prometheus))
    assert settled.failed.keys() == spoilers
    assert answered(settled) == [set(NAMESPACES) - spoilers] * KINDS
    assert prometheus.count() <= KINDS + 14 * len(spoilers) + KINDS - 1


@pytest.mark.parametrize("count", [5, 30, 100])
async def test_many_cost_a_bounded_number_in_each_round_and_are_found_in_time(count):
    """All good namespaces have their answers in the end."""
    spoilers = set(NAMESPACES[:: 100 // count])
    prometheus = SpoiledPrometheus(*spoilers)
    shared = SharedQueries(prometheus)
    for number in range(20):
        settled = await settle(shared, now=NOW + 60.0 * number)
        assert spoilers <= settled.failed.keys()
        assert prometheus.count() <= KINDS + 64 + KINDS - 1 + KINDS * 2 * 8 + KINDS
    assert settled.failed.keys() == spoilers
    assert answered(settled) == [set(NAMESPACES) - spoilers] * (KINDS if count < 100 else 0)


@pytest.mark.parametrize("kind", list(ErrorKind))
async def test_an_outage_is_not_multiplied(kind):
    """If all queries fail, no namespace is the reason, so WVA soon stops the search for one."""
    prometheus = SpoiledPrometheus(*NAMESPACES, kind=kind)
    shared = SharedQueries(prometheus)
    limits = {
        ErrorKind.MALFORMED: 16,
        ErrorKind.EXECUTION: 16,
        ErrorKind.BAD_QUERY: KINDS,
        ErrorKind.UNAUTHORIZED: KINDS,
    }
    for number in range(3):
        settled = await settle(shared, now=NOW + 60 * number)
        assert settled.failed.keys() == set(NAMESPACES)
        assert prometheus.count() <= limits.get(kind, 6)
    prometheus.spoilers.clear()
    assert (await settle(shared, now=NOW + 180)).failed == {}
    assert prometheus.count() == KINDS


async def test_after_an_outage_with_a_few_answers_all_have_theirs_at_once():
    """After the outage WVA clears all suspected namespaces in one round."""
    prometheus = SpoiledPrometheus(kind=ErrorKind.TIMEOUT)
    shared, random = SharedQueries(prometheus), Random(1)
    for number in range(10):
        answer = prometheus.query

        async def query(promql, *, name, at, answer=answer):
            prometheus.spoilers = set(NAMESPACES) if random.random() < 0.8 else set()
            return await answer(promql, name=name, at=at)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(prometheus, "query", query)
            await settle(shared, now=NOW + 60 * number)
    assert len(shared.suspected("essential")) > 50
    prometheus.spoilers.clear()
    prometheus.count()
    settled = await settle(shared, now=NOW + 1200)
    assert (settled.failed, answered(settled)) == ({}, [set(NAMESPACES)] * KINDS)
    assert prometheus.count() <= KINDS + KINDS * 2 * 8 + KINDS


@pytest.mark.parametrize("kind", [ErrorKind.UNAUTHORIZED, ErrorKind.BAD_QUERY, ErrorKind.REFUSED])
async def test_what_no_namespace_can_cause_is_not_looked_for(kind):
    """No namespace can cause these errors, so all namespaces fail without a search."""
    prometheus = SpoiledPrometheus("ns-037", kind=kind)
    settled = await settle(SharedQueries(prometheus))
    assert settled.failed.keys() == set(NAMESPACES)
    assert prometheus.count() == KINDS


async def test_who_was_found_is_asked_alone_and_less_and_less_often():
    """The other namespaces still share one query of each kind."""
    prometheus = SpoiledPrometheus("ns-037")
    shared = SharedQueries(prometheus)
    await settle(shared)
    asked_at = []
    for number in range(1, 31):
        prometheus.count()
        settled = await settle(shared, now=NOW + 30 * number)
        assert settled.failed.keys() == {"ns-037"}
        alone = [name for name, namespaces in prometheus.asked if namespaces == ("ns-037",)]
        assert len(prometheus.asked) - len(alone) == KINDS
        asked_at += [30 * number] * bool(alone)
    assert asked_at == [30, 90, 210, 510, 810]


async def test_who_recovers_has_an_answer_at_once_and_returns_after_a_while():
    """WVA asks for it alone at first, in case it fails again and spoils the shared answers."""
    prometheus = SpoiledPrometheus("ns-037")
    shared = SharedQueries(prometheus)
    await settle(shared)
    prometheus.spoilers.clear()
    for number in range(1, 12):
        prometheus.count()
        settled = await settle(shared, now=NOW + 60 * number)
        assert (settled.failed, answered(settled)) == ({}, [set(NAMESPACES)] * KINDS)
        assert len(prometheus.asked) == (2 * KINDS if number <= 10 else KINDS)


async def test_who_fails_again_is_alone_already():
    """WVA asks alone for a namespace that failed before, so its next failure does not delay the others."""
    prometheus = SpoiledPrometheus("ns-037")
    shared = SharedQueries(prometheus)
    await settle(shared)
    prometheus.spoilers.clear()
    await settle(shared, now=NOW + 60)
    prometheus.spoilers.add("ns-037")
    prometheus.count()
    settled = await settle(shared, now=NOW + 120)
    assert settled.failed.keys() == {"ns-037"}
    assert prometheus.count() == KINDS + 1


async def test_who_comes_and_goes_is_in_each_answer_once():
    """An answer has each namespace once, although the groups of suspected namespaces change."""
    prometheus = SpoiledPrometheus(*NAMESPACES[20:60])
    shared = SharedQueries(prometheus)
    for number in range(12):
        namespaces = NAMESPACES[:50] if number % 2 else NAMESPACES[25:]
        settled = await settle(shared, now=NOW + 60 * number, namespaces=namespaces)
        told = [each.metric.namespace for vector in settled.answers.values() for each in vector.series]
        assert len(told) <= KINDS * len(set(told))
        assert set(told) <= set(namespaces) - prometheus.spoilers
        if number == 6:
            prometheus.spoilers = set(NAMESPACES[30:35])


async def test_one_namespace_that_has_prometheus_for_itself_is_asked_every_time():
    """A single namespace shares its answer with no other, so it does not wait."""
    prometheus = SpoiledPrometheus("ns-037")
    shared = SharedQueries(prometheus)
    for number in range(5):
        assert (await settle(shared, now=NOW + number, namespaces=("ns-037",))).failed
        assert prometheus.count() == KINDS


async def test_a_clock_that_is_set_back_lets_nobody_wait():
    """Waiting times from before the clock changed do not count."""
    prometheus = SpoiledPrometheus("ns-037")
    shared = SharedQueries(prometheus)
    for number in range(4):
        await settle(shared, now=NOW + 60 * number)
    prometheus.spoilers.clear()
    assert (await settle(shared, now=NOW - 86_400)).failed == {}


async def test_kinds_of_answers_are_judged_apart():
    """A namespace may spoil one kind of answer and not another."""
    prometheus = SpoiledPrometheus("ns-037", queries=("queue_length",))
    shared = SharedQueries(prometheus)
    round_ = Round(NOW, 30.0)
    spoiled = await shared.settle("one", makes("queue_length"), NAMESPACES, round_)
    good = await shared.settle("other", makes("kv_cache_usage"), NAMESPACES, round_)
    assert (spoiled.failed.keys(), good.failed) == ({"ns-037"}, {})


async def test_what_takes_too_long_is_found_over_several_rounds():
    """A round has time for a few slow queries only; answered halves count at once."""
    prometheus = SpoiledPrometheus()
    answer = prometheus.query

    async def slow(promql, *, name, at):
        if "ns-037" in promql:
            await asyncio.sleep(0.02)
            raise PrometheusError(ErrorKind.TIMEOUT, "slow")
        return await answer(promql, name=name, at=at)

    prometheus.query = slow
    shared = SharedQueries(prometheus)
    held = []
    for number in range(8):
        settled = await settle(shared, now=NOW + 60 * number, seconds=0.05, wanted=makes("queue_length"))
        held.append(len(settled.failed))
        assert "ns-037" in settled.failed
    assert held[0] <= 50
    assert held[-1] == 1


# --- order ----------------------------------------------------------------------------------------------------------


class SlowPrometheus(SpoiledPrometheus):
    """Takes a while for each query, and records how many run at the same time."""

    def __init__(self):
        """Nothing runs yet."""
        super().__init__()
        self.running, self.peak = [], {}

    async def query(self, promql, *, name, at):
        """Answer after a while."""
        self.running.append(name)
        for each in set(self.running):
            self.peak[each] = max(self.peak.get(each, 0), self.running.count(each))
        await asyncio.sleep(0.001)
        self.running.remove(name)
        return await super().query(promql, name=name, at=at)


async def test_essential_queries_go_first():
    """Essential queries go before 200 other queries that came earlier."""
    prometheus = SlowPrometheus()
    shared, round_ = SharedQueries(prometheus), Round(NOW, 30.0)
    other = {"engine_signals": engine_signals}
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(shared.settle(number, other, NAMESPACES[:1], round_))
        for start in (0, 50):
            group.create_task(shared.settle("essential", makes(), NAMESPACES[start : start + 50], round_))
    names = [name for name, _ in prometheus.asked]
    assert set(names[: 2 * KINDS]) == set(ESSENTIAL)
    assert len(names) == 200 + 2 * KINDS
    assert prometheus.peak["engine_signals"] <= 4


async def test_the_others_do_not_wait_for_ever():
    """Other queries get their answers, although the essential queries hang."""
    prometheus = SpoiledPrometheus()
    answer = prometheus.query

    async def hang(promql, *, name, at):
        if name in ESSENTIAL:
            await asyncio.Event().wait()
        return await answer(promql, name=name, at=at)

    prometheus.query = hang
    shared, round_ = SharedQueries(prometheus), Round(NOW, 0.1)
    async with asyncio.TaskGroup() as group:
        essential = group.create_task(shared.settle("essential", makes(), NAMESPACES, round_))
        other = group.create_task(shared.settle("engines", {"engine_signals": engine_signals}, NAMESPACES, round_))
    assert essential.result().failed.keys() == set(NAMESPACES)
    assert other.result().failed == {}
