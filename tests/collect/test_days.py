"""The demand of earlier days: when requests came, which days are like today, and how a week is read."""

from __future__ import annotations

import asyncio
from math import isnan
from random import Random

import pytest
from msgspec import convert

from tests.kube.clocks import ManualClock, settle
from tests.offices import DAY, HOUR, at_hour, office
from wva.collect.days import EARLIER_DAYS, DaySignal, EarlierDays, came, demand_of, earlier_days
from wva.collect.query_failures import IN_FORCE, QueryFailures
from wva.model.usual import PART_SECONDS
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantSeries, Labels, PrometheusError, RangeSeries
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.tsdb import Tsdb

MODEL, CODE = ModelKey("ns", "org/model"), ModelKey("code", "code")


def asked(tsdb, at):
    """Return what the query finds at a time, by model."""
    moment = EvaluationTime(tsdb, round(at * 1000), round(at * 1000), round(at * 1000))
    found = evaluate(parse(earlier_days(["ns"]).text), moment)
    rates = demand_of(InstantSeries(convert(each.labels, Labels), (at, str(each.value))) for each in found)
    return {model: rate for (model, _), rate in rates.items()}


def scraped(tsdb, pod="a", *, until=900, model="org/model", **series):
    """Write a sample every 15 s of the series of a pod; each is a function of the time, by its name."""
    labels = {"namespace": "ns", "model_name": model, "pod": pod, "engine": "0"}
    reasons = {
        "vllm:request_success_total": {"finished_reason": "stop"},
        "vllm:admission_rejections_total": {"reason": "q"},
    }
    for name, value in series.items():
        full = {"finished": "vllm:request_success_total", "refused": "vllm:admission_rejections_total"}.get(name)
        full = full or f"vllm:num_requests_{name}"
        for at in range(0, until + 1, 15):
            tsdb.append({"__name__": full, **labels, **reasons.get(full, {})}, float(at), value(at))


def test_requests_count_when_they_come():
    """Those that wait for replicas have come, although none of them is done; later they do not count again."""
    tsdb = Tsdb()
    scraped(
        tsdb,
        finished=lambda at: 2.0 * min(at, 300) + 2.0 * max(0, at - 600) * 2.0,
        running=lambda at: min(600.0, max(0.0, at - 300.0) * 2.0) if at <= 600 else 600.0 - 2.0 * (at - 600.0),
        waiting=lambda _: 0.0,
    )
    assert asked(tsdb, 300.0)[MODEL] == pytest.approx(2.0)
    assert asked(tsdb, 600.0)[MODEL] == pytest.approx(2.0)
    assert asked(tsdb, 900.0)[MODEL] == pytest.approx(2.0)


def test_refused_requests_have_come_and_pods_add_up():
    """An engine that two jobs scrape counts once."""
    tsdb = Tsdb()
    scraped(tsdb, "a", finished=lambda at: 1.0 * at, refused=lambda at: 0.5 * at)
    scraped(tsdb, "b", finished=lambda at: 3.0 * at)
    for pod, growth in (("a", 0.0), ("b", 1.0)):
        scraped(tsdb, pod, running=lambda at, growth=growth: growth * at, waiting=lambda _: 0.0)
    for at in range(0, 901, 15):
        again = {"namespace": "ns", "model_name": "org/model", "pod": "b", "engine": "0", "job": "second"}
        tsdb.append({"__name__": "vllm:request_success_total", "finished_reason": "stop", **again}, float(at), 3.0 * at)
        tsdb.append({"__name__": "vllm:num_requests_running", **again}, float(at), 1.0 * at)
    assert asked(tsdb, 900.0) == {MODEL: pytest.approx(5.5)}


def test_of_requests_that_are_refused_again_and_again_not_all_count():
    """No more than of those that were let in."""
    tsdb = Tsdb()
    scraped(tsdb, finished=lambda at: 2.0 * at, refused=lambda at: 30.0 * at)
    assert asked(tsdb, 900.0) == {MODEL: pytest.approx(4.0)}


def test_what_a_picker_holds_back_has_come():
    """Under the name of the model that it is for, in llm-d-router and in GAIE."""
    for prefix in ("llm_d_epp", "inference_extension"):
        tsdb = Tsdb()
        scraped(tsdb, finished=lambda _: 5.0, running=lambda _: 0.0, waiting=lambda _: 0.0)
        for at in range(0, 901, 15):
            labels = {"namespace": "ns", "pod": "epp", "model_name": "alias", "target_model_name": "org/model"}
            tsdb.append({"__name__": f"{prefix}_flow_control_queue_size", **labels}, float(at), max(0.0, at - 600.0))
        assert asked(tsdb, 900.0) == {MODEL: pytest.approx(1.0)}, prefix


def test_a_model_of_which_nothing_was_counted_is_not_known():
    """No data is not zero: a gauge alone says nothing."""
    tsdb = Tsdb()
    scraped(tsdb, running=lambda _: 3.0, waiting=lambda _: 0.0)
    assert asked(tsdb, 900.0) == {}
    assert came({DaySignal.FINISHED: 2.0, DaySignal.RUNNING: 900.0}) == 2.0  # its growth is not known
    assert came({DaySignal.FINISHED: 0.0, DaySignal.HELD_BACK: 0.0, DaySignal.HELD_BACK_BEFORE: 9.0}) == 0.0


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1", "1e300", "x"])
def test_a_value_that_no_engine_has_is_left_out(text):
    """As with every other sample."""
    labels = Labels(namespace="ns", model_name="org/model", signal=DaySignal.FINISHED)
    assert demand_of([InstantSeries(labels, (1.0, text)), InstantSeries(labels, None)]) == {}


# -- how a week is read -----------------------------------------------------------------------------------------------


class PastDemand:
    """A Prometheus that has the demand of some models since a time; it notes what is asked."""

    def __init__(self, demands, *, since=0.0):
        """Take the demand of each model as a function of the time."""
        self.demands, self.since, self.error, self.spoils, self.asked = demands, since, None, "", []

    async def query_range(self, promql, *, name, start, end, step_seconds, timeout_seconds):  # noqa: ARG002 - the protocol
        """Answer as Prometheus does: at start, and at each step until the end."""
        self.asked.append((name, start, end))
        if self.error is not None and self.spoils in promql:
            raise self.error
        times = [start + step_seconds * count for count in range(round((end - start) / step_seconds) + 1)]
        found = []
        for model, demand in self.demands.items():
            labels = {"namespace": model.namespace, "model_name": model.model_id, "signal": "finished"}
            values = tuple((at, str(demand(at - 1.0))) for at in times if at > self.since)
            if values and model.namespace in promql:
                found.append(RangeSeries(labels, values))
        return tuple(found)


class DaysScene:
    """A reader of days with everything around it, at a time of a day."""

    def __init__(self, *, models=(MODEL,), since=0.0, hour=8.5, demand=office):
        """Have a fleet whose days are those of an office."""
        self.clock = ManualClock()
        self.models = list(models)
        self.start = self.clock.now()
        shift = at_hour(30, hour) - self.start + 60.0
        self.prometheus = PastDemand(dict.fromkeys((MODEL, CODE), demand), since=since)
        self.clock.now = lambda: self.clock.monotonic() - 1000.0 + self.start + shift
        self.failures = QueryFailures(self.clock, revisit=lambda _: None)
        self.days = EarlierDays(
            prometheus=self.prometheus,
            models=lambda: self.models,
            clock=self.clock,
            random=Random(1),
            note=self.failures.note,
        )

    async def run(self, seconds):
        """Let the reader run for some seconds, and stop it."""
        task = asyncio.ensure_future(self.days.run())
        for _ in range(round(seconds / 10.0)):
            await self.clock.advance(10.0)
            for _ in range(100):
                if not self.days.busy:
                    break
                await settle()
        task.cancel()


async def test_a_week_is_read_in_blocks_the_newest_first():
    """A day each minute, until the whole week is known; then one part each five minutes."""
    scene = DaysScene()
    await scene.days.look()
    ((name, start, end),) = scene.prometheus.asked
    assert name == EARLIER_DAYS
    assert (end, start) == (at_hour(30, 8.5), at_hour(29, 8.5) + PART_SECONDS)
    assert scene.days.usual() == ()
    await scene.run(900.0)
    (usual,) = scene.days.usual()
    assert (usual.model, usual.days) == (MODEL, 7)
    assert usual.within(30 * 60.0, now=scene.clock.now()) == pytest.approx(6.0)
    times = [end for _, _, end in scene.prometheus.asked]
    first = min(start for _, start, _ in scene.prometheus.asked)
    assert at_hour(23, 8.5) - 3 * PART_SECONDS <= first <= at_hour(23, 8.5) - PART_SECONDS
    assert len(times) <= 12
    before = len(times)
    await scene.run(HOUR)
    assert len(scene.prometheus.asked) - before <= 13
    assert scene.days.usual()[0].at > scene.clock.now() - 2 * PART_SECONDS


async def test_what_prometheus_has_forgotten_is_remembered():
    """A process that runs for three days has known three days, wherever samples are kept for one hour only."""
    scene = DaysScene(since=at_hour(30, 7.5))
    for _ in range(2 * 24 * 12 + 6):
        scene.prometheus.since = scene.clock.now() - HOUR
        await scene.days.look()
        await scene.days.look()
        await scene.clock.advance(PART_SECONDS)
    (usual,) = scene.days.usual()
    assert usual.days == 2


async def test_a_model_that_comes_later_has_its_week_too():
    """The others are not read again for it."""
    scene = DaysScene()
    await scene.run(900.0)
    scene.models.append(CODE)
    scene.prometheus.asked.clear()
    await scene.run(900.0)
    assert [usual.model for usual in scene.days.usual()] == [CODE, MODEL]
    assert scene.days.usual()[0].days == 7
    scene.models.remove(CODE)
    await scene.days.look()
    assert [usual.model for usual in scene.days.usual()] == [MODEL]


async def test_without_models_nothing_is_asked():
    """No analyzer wants to know."""
    scene = DaysScene(models=())
    await scene.run(900.0)
    assert scene.prometheus.asked == []


async def test_an_outage_is_told_waited_for_and_made_good():
    """Less and less often, and no part is lost; smaller blocks may succeed."""
    scene = DaysScene()
    await scene.run(900.0)
    scene.prometheus.error = PrometheusError(ErrorKind.UNREACHABLE, "connection refused")
    scene.prometheus.asked.clear()
    await scene.run(2 * HOUR)
    assert 10 < len(scene.prometheus.asked) < 150
    assert (
        scene.failures.of("ns").message
        == f"query {EARLIER_DAYS}: connection refused; in force: {IN_FORCE[EARLIER_DAYS]}"
    )
    assert scene.days.usual()[0].within(HOUR, now=scene.clock.now()) == 0.0
    scene.prometheus.error = None
    await scene.run(900.0)
    assert scene.days.usual()[0].days == 7
    assert scene.failures.of("ns").message == ""


async def test_after_a_day_without_an_answer_the_week_is_read_again():
    """What another process has seen while it led is as good as what this one would have seen."""
    scene = DaysScene()
    await scene.run(900.0)
    await scene.clock.advance(26 * HOUR)
    await scene.days.look()
    assert scene.days.usual() == ()  # until the week is read, last Saturday may be missing
    await scene.run(900.0)
    assert scene.days.usual()[0].days == 7
    middle = scene.clock.now() - 5 * HOUR
    assert not isnan(scene.days._known[MODEL].days._rate(int(middle / PART_SECONDS)))


async def test_one_namespace_that_spoils_the_answer_takes_nothing_from_others():
    """The others have their week."""
    scene = DaysScene(models=(MODEL, CODE))
    scene.prometheus.error, scene.prometheus.spoils = PrometheusError(ErrorKind.EXECUTION, "HTTP 422"), "code"
    await scene.run(1800.0)
    assert [usual.model for usual in scene.days.usual()] == [MODEL]
    assert "HTTP 422" in scene.failures.of("code").message


async def test_a_namespace_that_had_no_answer_is_read_when_it_has_one():
    """Its week has no hole, and nothing is known of it before."""
    scene = DaysScene(models=(MODEL, CODE))
    scene.prometheus.error, scene.prometheus.spoils = PrometheusError(ErrorKind.EXECUTION, "HTTP 422"), "code"
    await scene.run(1800.0)
    scene.prometheus.error = None
    await scene.run(2 * HOUR)
    assert [(usual.model, usual.days) for usual in scene.days.usual()] == [(CODE, 7), (MODEL, 7)]
    scene.prometheus.error = PrometheusError(ErrorKind.EXECUTION, "HTTP 422")
    await scene.run(660.0)
    assert [usual.model for usual in scene.days.usual()] == [MODEL]
    scene.prometheus.error = None
    await scene.run(2 * HOUR)
    assert [(usual.model, usual.days) for usual in scene.days.usual()] == [(CODE, 7), (MODEL, 7)]


async def test_a_namespace_without_an_answer_does_not_keep_a_new_model_from_its_week():
    """Its past waits for a pause of its own."""
    scene = DaysScene(models=(CODE,))
    scene.prometheus.error, scene.prometheus.spoils = PrometheusError(ErrorKind.EXECUTION, "HTTP 422"), "code"
    await scene.run(HOUR)
    scene.models.append(MODEL)
    scene.prometheus.asked.clear()
    await scene.run(HOUR)
    assert [(usual.model, usual.days) for usual in scene.days.usual()] == [(MODEL, 7)]
    assert len(scene.prometheus.asked) < 150


async def test_a_namespace_with_many_models_is_read_in_answers_of_bounded_size():
    """Fifty thousand points at the most."""
    scene = DaysScene(models=[ModelKey("ns", f"m{number}") for number in range(1000)])
    await scene.days.look()
    spans = [(end - start) / PART_SECONDS + 1.0 for _, start, end in scene.prometheus.asked]
    assert max(spans) * 1000 * len(DaySignal) <= 50_000
    assert sum(spans) == 288


async def test_a_point_of_another_time_is_left_out():
    """It would push out the week."""
    scene = DaysScene()
    labels = {"namespace": "ns", "model_name": "org/model", "signal": "finished"}
    ask = scene.prometheus.query_range

    async def odd(*given, **more):
        return (*await ask(*given, **more), RangeSeries(labels, ((1e12, "1"), (1.0, "1"))))

    scene.prometheus.query_range = odd
    await scene.run(900.0)
    assert scene.days.usual()[0].days == 7


async def test_a_clock_that_was_set_back_begins_anew():
    """The days of a time to come are not those before."""
    scene = DaysScene()
    await scene.run(900.0)
    now = scene.clock.now
    scene.clock.now = lambda: now() - 3 * DAY
    await scene.run(900.0)
    (usual,) = scene.days.usual()
    assert 0.0 <= scene.clock.now() - usual.at < 2 * PART_SECONDS
