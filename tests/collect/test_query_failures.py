"""A query that is not essential may fail, and decisions go on: a condition tells what they lack."""

from __future__ import annotations

import pytest

from tests.builders import NOW
from tests.kube.clocks import ManualClock
from wva.collect import queries
from wva.collect.query_failures import IN_FORCE, QueryFailures
from wva.collect.request_counts import REQUEST_COUNTS
from wva.collect.snapshot import Collector
from wva.fast_lane import FastLane
from wva.model.trouble import UNTROUBLED
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantVector, PrometheusError

MODEL = ModelKey("ns", "m")
ASKED = (queries.ENGINE_SIGNALS, queries.ENGINE_COUNTERS, queries.SCHEDULER_QUEUE, REQUEST_COUNTS)


class FailuresWithAClock(QueryFailures):
    """Query failures with a clock of their own, and the namespaces to look at again."""

    def __init__(self) -> None:
        """Begin."""
        self.clock = ManualClock()
        self.revisited: list[str] = []
        super().__init__(self.clock, revisit=self.revisited.append)

    def fail(self, query: str = queries.IN_PROGRESS, reason: str = "query in_progress: HTTP 422") -> None:
        """Note that a query about ``ns`` and ``other`` has an answer about ``other`` alone."""
        self.note(query, ("ns", "other"), {"ns": reason})


@pytest.fixture
def failures() -> FailuresWithAClock:
    """Return failures that know nothing."""
    return FailuresWithAClock()


def test_a_failure_is_told_from_the_second_in_a_row_on_until_an_answer(failures: FailuresWithAClock) -> None:
    """One failure is no news. The first words stay, since a status is written for each new message."""
    failures.fail()
    assert (failures.of("ns"), failures.revisited) == (UNTROUBLED, [])
    failures.fail(reason="query in_progress: HTTP 503")
    told = failures.of("ns")
    assert told.reason == "QueryFailed"
    assert told.message == f"query in_progress: HTTP 422; in force: {IN_FORCE[queries.IN_PROGRESS]}"
    failures.fail()
    assert (failures.of("ns"), failures.of("other"), failures.revisited) == (told, UNTROUBLED, ["ns"])
    failures.note(queries.IN_PROGRESS, ("ns",), {})
    assert (failures.of("ns"), failures.revisited) == (UNTROUBLED, ["ns", "ns"])
    failures.fail()
    assert failures.of("ns") == UNTROUBLED


def test_all_queries_that_fail_are_named(failures: FailuresWithAClock) -> None:
    """The answer to one of them says nothing about another."""
    for query in ASKED:
        failures.fail(query, f"query {query}: it failed")
        failures.fail(query, f"query {query}: it failed")
    failures.note(REQUEST_COUNTS, ("ns",), {})
    message = failures.of("ns").message
    assert [query for query in ASKED if query in message] == [*ASKED[:-1]]


async def test_what_is_no_longer_asked_is_forgotten(failures: FailuresWithAClock) -> None:
    """The policy may have changed, so that no analyzer needs the query."""
    failures.fail()
    failures.fail()
    await failures.clock.advance(601.0)
    assert failures.of("ns") == UNTROUBLED
    failures.fail()
    assert failures.of("ns") == UNTROUBLED


@pytest.mark.parametrize("query", ASKED)
@pytest.mark.parametrize("warned", [False, True])
async def test_each_query_of_a_cycle_that_fails_is_told(cluster, prometheus, instruments, failures, query, warned):
    """So is one whose answer is empty but for a warning; the namespace has its decisions all the same."""
    everything = {"engines_of": lambda _: True, "counters_of": lambda _: True, "retention_of": lambda _: 600.0}
    collector = Collector(
        cluster.stores, prometheus=prometheus, instruments=instruments, note=failures.note, **everything
    )
    cluster.variant()
    prometheus.put_replica()
    if warned:
        answered = prometheus.query

        async def refusing(promql, *, name, at):
            answer = await answered(promql, name=name, at=at)
            return InstantVector((), ("too many samples",)) if name == query else answer

        prometheus.query = refusing
    else:
        prometheus.failing[query] = PrometheusError(ErrorKind.UNAUTHORIZED, "HTTP 403")
    for turn in range(2):
        snapshot = await collector.collect(NOW + 15.0 * turn)
        assert snapshot.failures == ()
    told = failures.of("ns")
    assert told.message.startswith(f"query {query}: {'too many samples' if warned else 'HTTP 403'}")
    assert told.message.count("in force") == 1
    prometheus.failing.clear()
    prometheus.query = type(prometheus).query.__get__(prometheus)
    await collector.collect(NOW + 60.0)
    assert failures.of("ns") == UNTROUBLED


@pytest.mark.parametrize("error", [PrometheusError(ErrorKind.MALFORMED, "HTTP 422"), TimeoutError()])
async def test_a_fast_lane_that_is_off_is_told(failures, error):
    """The message says what went wrong, or how long the look has waited."""

    class RefusingStore:
        async def query(self, _text, **_more):
            raise error

    class CeilingsOfOne:
        ceilings = dict.fromkeys([MODEL], 1.0)

    lane = FastLane(
        prometheus=RefusingStore(),
        optimizer=CeilingsOfOne(),
        seconds=lambda: 5.0,
        clock=failures.clock,
        note=failures.note,
    )
    assert await lane.look() == []
    assert await lane.look() == []
    words = "Prometheus did not answer within 3 s" if isinstance(error, TimeoutError) else "HTTP 422"
    assert failures.of("ns").message.startswith(f"query in_progress: {words}; in force: ")
