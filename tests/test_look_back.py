"""What a process learns of the time before it: once, in bounded time, and nothing else changes by it."""

from __future__ import annotations

import pytest
from msgspec import convert
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.collect.cluster import CachedCluster
from wva.collect.past import PAST_PODS
from wva.collect.snapshot import Collector
from wva.instruments import Instruments
from wva.look_back import LONGEST_SECONDS, LookBack
from wva.model.policy import Policy
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError, RangeSeries

NOW = 1_700_000_000.0
HOUR = 3600.0
POD = {"namespace": "ns", "model_name": "m", "pod": "va-0"}


class ClockOfAnswers:
    """A clock that goes on only when it is told to."""

    def __init__(self):
        """Start at 0."""
        self.seconds = 0.0

    def monotonic(self):
        """Return the seconds since the start."""
        return self.seconds


class HistoryOfOnePod:
    """A Prometheus with one pod that has reported since ``since``; each answer takes a while."""

    def __init__(self, clock, *, since=NOW - 10 * HOUR, takes=0.0):
        """Take the clock, which goes on with each answer."""
        self.clock, self.since, self.takes = clock, since, takes
        self.failing = None
        self.spoiling = ""  # it fails only about what contains this
        self.answering = 0  # and only after so many answers
        self.asked = []
        self.texts = []

    async def query(self, promql, *, name, at):
        """Answer at one time."""
        found = await self.query_range(promql, name=name, start=at, end=at, step_seconds=1.0, timeout_seconds=10.0)
        return InstantVector(tuple(InstantSeries(convert(each.metric, Labels), each.values[0]) for each in found))

    async def query_range(self, promql, *, name, start, end, step_seconds, timeout_seconds):  # noqa: ARG002 - the protocol
        """Answer at each step with the pod, if it reported."""
        self.asked.append((name, start, end))
        self.texts.append(promql)
        self.clock.seconds += self.takes
        if self.failing is not None and self.spoiling in promql and len(self.asked) > self.answering:
            raise self.failing
        if "engine_counters" in name or "scheduler" in name:
            return ()
        times = [start + step_seconds * count for count in range(int((end - start) / step_seconds + 1.001))]
        values = tuple((at, f"{at - 3:.3f}") for at in times if at >= self.since)
        if name == PAST_PODS:
            return (RangeSeries(POD, values),) if values else ()
        timestamps = RangeSeries(POD | {"signal": "timestamp"}, values)
        return (timestamps, RangeSeries(POD | {"signal": "value"}, tuple((at, "0.25") for at, _ in values)))


@pytest.fixture
def clock():
    """Return a clock that stands still."""
    return ClockOfAnswers()


@pytest.fixture
def history(clock):
    """Return a Prometheus with ten hours of one pod."""
    return HistoryOfOnePod(clock)


@pytest.fixture
def output():
    """Return a function that returns every event logged so far."""
    with capture_logs() as lines:
        yield lambda: [{**line, "level": line["log_level"]} for line in lines]


@pytest.fixture
def instruments():
    """Return metrics of a process."""
    return Instruments(CollectorRegistry())


@pytest.fixture
def cluster():
    """Return caches with one variant of one pod."""
    cluster = CachedCluster()
    cluster.variant()
    return cluster


@pytest.fixture
def look_back(clock, history, instruments, cluster):
    """Return a look back over the variants of the cluster."""
    collector = Collector(cluster.stores, prometheus=None, instruments=instruments, counters_of=lambda _: True)
    return LookBack(collector=collector, prometheus=history, policy=Policy, interval=lambda: 15.0, clock=clock)


def cycles(output):
    """Return what the log says of the cycles that were gone through."""
    (line,) = [line for line in output() if line["event"] == "past_read"]
    return line["cycles"]


async def test_what_is_learned_has_no_numbers(look_back):
    """Only what cycles learn of models is kept."""
    memory = await look_back.learned(NOW)
    assert (memory.variants, memory.models, memory.failing) == ((), (), ())
    assert [each.key for each in memory.demand] == [ModelKey("ns", "m")]


async def test_it_is_read_once(look_back, history):
    """A second call asks nothing."""
    await look_back.learned(NOW)
    asked = len(history.asked)
    assert await look_back.learned(NOW + 15) is None
    assert len(history.asked) == asked


async def test_an_hour_in_the_pace_of_cycles_and_five_in_that_of_minutes(look_back, output):
    """The default interval is 15 s here."""
    await look_back.learned(NOW)
    assert cycles(output) == 240 + 300


@pytest.mark.parametrize(("interval", "count"), [(60.0, 60 + 300), (30.0, 120 + 300), (0.02, 240 + 300), (7200.0, 2)])
async def test_the_pace_is_that_of_the_cycles_to_come(look_back, output, interval, count):
    """A longer interval makes fewer cycles, a very short one no more than one in 15 seconds."""
    look_back.interval = lambda: interval
    await look_back.learned(NOW)
    assert cycles(output) == count


async def test_nothing_is_asked_of_times_without_samples(look_back, history, output):
    """Ten minutes of samples make forty cycles."""
    history.since = NOW - 600.0
    await look_back.learned(NOW)
    assert cycles(output) == 40
    assert all(start >= NOW - 1200.0 for name, start, _ in history.asked[1:])


async def test_nothing_is_asked_about_models_that_learn_nothing(look_back, history, cluster):
    """Those of the percentage analyzer, beside one that learns."""
    cluster.variant("other", namespace="elsewhere", model_id="n")
    look_back.collector.counters_of = lambda model: model.namespace == "ns"
    memory = await look_back.learned(NOW)
    assert [each.key for each in memory.demand] == [ModelKey("ns", "m")]
    assert not any("elsewhere" in text for text in history.texts)


async def test_a_first_installation_asks_one_query(look_back, history):
    """Without any sample there is nothing to go through."""
    history.since = NOW + 1.0
    memory = await look_back.learned(NOW)
    assert (len(history.asked), memory.demand, memory.foreseen) == (1, (), ())


async def test_a_large_fleet_leaves_out_earlier_cycles_and_keeps_to_its_time(look_back, history, clock, output):
    """An answer takes a second: the last cycles are one after the other, up to now."""
    history.takes = 1.0
    look_back.interval = lambda: 30.0
    await look_back.learned(NOW)
    assert clock.seconds <= LONGEST_SECONDS + 6 * history.takes
    assert history.asked[-1][2] == NOW - 30.0
    assert cycles(output) < 120


async def test_after_a_failure_it_is_tried_again_three_times_in_all(look_back, history, output):
    """Then decisions go on without the past."""
    history.failing = PrometheusError(ErrorKind.UNREACHABLE, "gone")
    for left in (2, 1, 0, 0):
        assert await look_back.learned(NOW) is None
        assert len(history.asked) == 3 - left
    lines = [line for line in output() if line["event"] == "past_not_read"]
    assert [(line["reason"], line["tries_left"]) for line in lines] == [("gone", 2), ("gone", 1), ("gone", 0)]


async def test_an_answer_after_a_failure_counts(look_back, history):
    """A Prometheus that comes up with the controller is read in the next cycle."""
    history.failing = PrometheusError(ErrorKind.UNREACHABLE, "gone")
    assert await look_back.learned(NOW) is None
    history.failing = None
    assert await look_back.learned(NOW + 15) is not None


async def test_a_namespace_that_spoils_answers_takes_nobody_elses_past(look_back, history, cluster, output):
    """One query is about both; the failure is found to be that of one, and told once."""
    cluster.variant("other", namespace="elsewhere", model_id="n")
    history.failing = PrometheusError(ErrorKind.EXECUTION, "too many samples")
    history.spoiling = "elsewhere"
    memory = await look_back.learned(NOW)
    assert cycles(output) == 240 + 300
    assert ModelKey("ns", "m") in [each.key for each in memory.demand]
    assert len([line for line in output() if line["level"] not in {"debug", "info"}]) <= 5


async def test_it_keeps_to_its_time_if_prometheus_goes_away_after_the_first_answer(look_back, history, clock, output):
    """Each query takes as long as it may, and nothing is learned; then decisions go on."""
    history.failing = PrometheusError(ErrorKind.TIMEOUT, "no answer")
    history.answering, history.takes = 1, 5.0
    await look_back.learned(NOW)
    assert clock.seconds <= LONGEST_SECONDS + 2 * history.takes
    assert cycles(output) == 0


async def test_an_unexpected_error_leaves_decisions_as_after_a_first_installation(look_back, output):
    """The error is logged, and raised to nobody."""

    def broken():
        raise ZeroDivisionError("hostile")

    look_back.policy = broken
    assert await look_back.learned(NOW) is None
    assert [line["event"] for line in output() if line["level"] == "error"] == ["past_not_read"]


async def test_an_answer_that_cannot_be_read_leaves_decisions_as_after_a_first_installation(look_back, history, output):
    """The error is logged, and raised to nobody."""
    history.failing = ZeroDivisionError("hostile")
    assert await look_back.learned(NOW) is None
    assert [line["event"] for line in output() if line["level"] == "error"] == ["query_failed"]
    assert [line["event"] for line in output() if line["event"] == "past_not_read"] == ["past_not_read"]


async def test_the_metrics_of_the_process_are_those_of_its_own_cycles(look_back, instruments):
    """Cycles of the past count no samples and no queries of the collector."""
    before = {family.name: [s.value for s in family.samples] for family in instruments.registry.collect()}
    await look_back.learned(NOW)
    after = {family.name: [s.value for s in family.samples] for family in instruments.registry.collect()}
    assert after == before
