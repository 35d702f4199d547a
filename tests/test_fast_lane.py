"""The fast lane wakes a cycle when a model has more requests than its replicas carry."""

from __future__ import annotations

import asyncio

import pytest

from tests.kube.clocks import ManualClock, settle
from wva.collect.queries import in_progress
from wva.fast_lane import OFTEN, FastLane
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.tsdb import Tsdb

CHAT, CODE = ModelKey("llm", "chat"), ModelKey("code", "code")


class FakeOptimizer:
    """Counts how often it is woken."""

    def __init__(self):
        """Have one model whose replicas carry ten requests."""
        self.busy = False
        self.began, self.due = float("-inf"), float("inf")
        self.ceilings = {CHAT: 10.0}
        self.grew = False
        self.urgent = []

    def wake(self, models):
        """Note the models for which it is woken."""
        self.urgent.append(models)

    @property
    def woken(self):
        """How often it was woken."""
        return len(self.urgent)


class FakeLoads:
    """Answers with the requests in progress of each model."""

    def __init__(self):
        """Have no requests."""
        self.requests = {}
        self.error = None
        self.spoils = ""
        self.asked = []

    async def query(self, text, *, name, at):
        """Answer."""
        self.asked.append((name, text, at))
        if self.error and self.spoils in text:
            raise self.error
        return InstantVector(
            tuple(
                InstantSeries(Labels(namespace=model.namespace, model_name=model.model_id), (at, str(value)))
                for model, value in self.requests.items()
            )
        )


class Lane:
    """A fast lane with everything around it."""

    def __init__(self):
        """Look every five seconds."""
        self.optimizer, self.prometheus, self.clock = FakeOptimizer(), FakeLoads(), ManualClock()
        self.seconds = 5.0
        self.lane = FastLane(
            prometheus=self.prometheus, optimizer=self.optimizer, seconds=lambda: self.seconds, clock=self.clock
        )


@pytest.fixture
def scene():
    """Return a lane."""
    return Lane()


async def test_a_load_within_what_replicas_carry_wakes_nothing(scene):
    """The replicas carry ten requests."""
    scene.prometheus.requests = {CHAT: 10.0}
    assert await scene.lane.look() == []
    assert scene.optimizer.woken == 0


async def test_a_load_beyond_it_begins_a_cycle(scene):
    """One look is one query, and one cycle."""
    scene.prometheus.requests = {CHAT: 11.0}
    assert await scene.lane.look() == [CHAT]
    assert scene.optimizer.woken == 1
    assert len(scene.prometheus.asked) == 1


async def test_the_cycle_is_told_for_which_models_it_begins(scene):
    """For the others it only comes sooner."""
    scene.optimizer.ceilings = {CHAT: 10.0, CODE: 10.0, ModelKey("llm", "third"): 10.0}
    scene.prometheus.requests = {CHAT: 11.0, CODE: 10.0, ModelKey("llm", "third"): 30.0}
    await scene.lane.look()
    scene.prometheus.requests = {CHAT: 11.0, CODE: 11.0, ModelKey("llm", "third"): 30.0}
    await scene.lane.look()
    assert scene.optimizer.urgent == [[CHAT, ModelKey("llm", "third")], [CODE]]


async def test_the_same_load_does_not_begin_another_one(scene):
    """The replicas that the first cycle ordered need a while. A load that goes on growing wakes again."""
    scene.prometheus.requests = {CHAT: 20.0}
    await scene.lane.look()
    assert await scene.lane.look() == []
    scene.prometheus.requests = {CHAT: 23.0}
    assert await scene.lane.look() == [CHAT]


async def test_after_a_calm_time_a_model_wakes_again(scene):
    """A load below the ceiling ends the memory of the last one."""
    for requests, woken in ((20.0, 1), (5.0, 1), (11.0, 2)):
        scene.prometheus.requests = {CHAT: requests}
        await scene.lane.look()
        assert scene.optimizer.woken == woken


async def test_a_rise_that_has_woken_a_cycle_wakes_another_one_when_it_is_there(scene):
    """The first cycle came before the replicas were full, so perhaps it ordered nothing."""
    scene.optimizer.ceilings = {CHAT: 300.0}
    for requests, woken in ((200.0, 0), (295.0, 1), (298.0, 1), (305.0, 2), (310.0, 2)):
        scene.prometheus.requests = {CHAT: requests}
        await scene.lane.look()
        assert scene.optimizer.woken == woken
        await scene.clock.advance(4.0)


async def test_a_load_that_swings_cannot_begin_cycles_without_end(scene):
    """The models of a namespace begin so many cycles within a minute; those of another one are not concerned."""
    scene.optimizer.ceilings = {CHAT: 10.0, CODE: 10.0}
    for turn in range(40):
        scene.prometheus.requests = {CHAT: 20.0 if turn % 2 else 0.0}
        await scene.lane.look()
        await scene.clock.advance(1.0)
    assert scene.optimizer.woken == OFTEN
    scene.prometheus.requests = {CODE: 20.0}
    assert await scene.lane.look() == [CODE]
    await scene.clock.advance(60.0)
    scene.prometheus.requests = {CHAT: 20.0}
    assert await scene.lane.look() == [CHAT]


async def test_a_model_without_a_ceiling_wakes_nothing(scene):
    """Where WVA does not know what a replica carries, the interval alone counts."""
    scene.prometheus.requests = {CODE: 1000.0}
    assert await scene.lane.look() == []


@pytest.mark.parametrize("value", ["NaN", "-5", "1e30"])
async def test_impossible_numbers_wake_nothing(scene, value):
    """A sample that no engine can have sent is not a load."""
    scene.prometheus.requests = {CHAT: value}
    assert await scene.lane.look() == []


async def test_a_failing_query_wakes_nothing(scene):
    """The cycle finds out what is wrong with Prometheus."""
    scene.prometheus.error = PrometheusError(ErrorKind.UNREACHABLE, "away")
    assert await scene.lane.look() == []


async def test_a_namespace_that_spoils_the_answer_is_asked_about_alone(scene):
    """The others are looked at in the same look, and from the next one on by one query."""
    scene.optimizer.ceilings = {CHAT: 10.0, CODE: 10.0, ModelKey("other", "m"): 10.0}
    scene.prometheus.error, scene.prometheus.spoils = PrometheusError(ErrorKind.MALFORMED, "18 MiB"), "other"
    scene.prometheus.requests = {CODE: 20.0}
    assert await scene.lane.look() == [CODE]
    scene.prometheus.asked.clear()
    scene.prometheus.requests = {CODE: 30.0}
    assert await scene.lane.look() == [CODE]
    healthy = [text for _, text, _ in scene.prometheus.asked if "other" not in text]
    assert len(healthy) == 1


async def test_what_is_not_known_is_no_calm(scene):
    """A model whose namespace has no answer is neither at rest nor woken again when it comes back."""
    scene.prometheus.requests = {CHAT: 20.0}
    assert await scene.lane.look() == [CHAT]
    scene.prometheus.error = PrometheusError(ErrorKind.UNREACHABLE, "away")
    assert await scene.lane.look() == []
    scene.prometheus.error = None
    assert await scene.lane.look() == []


async def test_it_looks_in_its_interval_while_the_optimizer_waits(scene):
    """While a cycle runs there is nothing to wake, and the next look comes soon after."""
    task = asyncio.create_task(scene.lane.run())
    await scene.clock.advance(2.5)
    assert len(scene.prometheus.asked) == 1
    await scene.clock.advance(5.0)
    assert len(scene.prometheus.asked) == 2
    scene.optimizer.busy = True
    await scene.clock.advance(5.0)
    assert len(scene.prometheus.asked) == 2
    scene.optimizer.busy = False
    await scene.clock.advance(2.5)
    assert len(scene.prometheus.asked) == 3
    task.cancel()
    await settle()


@pytest.mark.parametrize(
    ("requests", "seconds", "wakes"),
    [
        (80.0, 5.0, True),  # 15 seconds later there will be 290
        (80.0, 25.0, False),  # a slow rise is far from the ceiling
        (30.0, 1.0, False),  # so many more may come by chance
        (40.0, 0.0, False),  # no time has passed
    ],
)
async def test_a_fast_rise_begins_a_cycle_below_the_ceiling(scene, requests, seconds, wakes):
    """The replicas carry 200 requests, and ten were in progress."""
    scene.optimizer.ceilings = {CHAT: 200.0}
    scene.prometheus.requests = {CHAT: 10.0}
    assert await scene.lane.look() == []
    await scene.clock.advance(seconds)
    scene.prometheus.requests = {CHAT: requests}
    assert await scene.lane.look() == ([CHAT] if wakes else [])


async def test_a_rise_is_followed_from_where_it_began(scene):
    """Each look at a rise that goes on compares with the calm time before it."""
    scene.optimizer.ceilings = {CHAT: 200.0}
    woken = []
    for requests in (10.0, 60.0, 90.0, 130.0, 135.0, 136.0):
        scene.prometheus.requests = {CHAT: requests}
        woken.append(bool(await scene.lane.look()))
        await scene.clock.advance(2.0)
    assert woken == [False, True, True, True, False, False]


async def test_a_steep_rise_is_no_chance_because_the_looks_follow_closely(scene):
    """From one look to the next it may be, but not over half an interval."""
    scene.optimizer.ceilings = {CHAT: 200.0}
    for requests, woken in ((10.0, 0), (32.0, 0), (54.0, 1)):
        scene.prometheus.requests = {CHAT: requests}
        await scene.lane.look()
        assert scene.optimizer.woken == woken
        await scene.clock.advance(1.25)


async def test_what_is_remembered_goes_with_its_model(scene):
    """A model that is gone and comes back begins anew."""
    scene.prometheus.requests = {CHAT: 10.0}
    await scene.lane.look()
    scene.optimizer.ceilings = {}
    await scene.lane.look()
    scene.optimizer.ceilings = {CHAT: 1000.0}
    scene.prometheus.requests = {CHAT: 900.0}
    await scene.clock.advance(1.0)
    assert await scene.lane.look() == []


async def test_a_look_that_begins_a_cycle_is_soon_followed_by_others(scene):
    """The cycle may show only the begin of the rise, and the next scrape may come at any time."""
    task = asyncio.create_task(scene.lane.run())
    scene.prometheus.requests = {CHAT: 20.0}
    for asked in (2, 3, 4, 5, 5, 5, 5, 6):
        await scene.clock.advance(1.25)
        assert len(scene.prometheus.asked) == asked
    assert scene.optimizer.woken == 1
    task.cancel()
    await settle()


async def test_a_rise_that_the_next_scrape_shows_begins_another_cycle_at_once(scene):
    """The second cycle does not wait for the usual interval after a look that found nothing new."""
    task = asyncio.create_task(scene.lane.run())
    scene.prometheus.requests = {CHAT: 20.0}
    await settle()
    await scene.clock.advance(1.25)
    assert scene.optimizer.woken == 1
    scene.prometheus.requests = {CHAT: 40.0}
    await scene.clock.advance(1.25)
    assert scene.optimizer.woken == 2
    task.cancel()
    await settle()


async def test_zero_switches_it_off(scene):
    """A change of the interval counts from the next look."""
    scene.seconds = 0.0
    task = asyncio.create_task(scene.lane.run())
    await scene.clock.advance(60.0)
    assert scene.prometheus.asked == []
    task.cancel()
    await settle()


async def test_the_query_names_the_namespaces(scene):
    """The query asks for both gauges of the models that have a ceiling."""
    await scene.lane.look()
    ((name, text, _),) = scene.prometheus.asked
    assert name == "in_progress"
    assert text.count('{namespace=~"llm"}') == 2


def test_what_runs_and_what_waits_is_added():
    """Both gauges of a pod have the same labels. A model with only one of them is counted, too."""
    tsdb = Tsdb()
    for metric, model, engine, value in (
        ("running", "chat", "0", 2.0),
        ("running", "chat", "1", 3.0),
        ("waiting", "chat", "0", 5.0),
        ("waiting", "code", "0", 7.0),
    ):
        labels = {"namespace": "llm", "model_name": model, "pod": "p", "engine": engine, "signal": "waiting"}
        tsdb.append({"__name__": f"vllm:num_requests_{metric}", **labels}, 10.0, value)
    moment = EvaluationTime(tsdb, 10_000, 10_000, 10_000)
    found = evaluate(parse(in_progress(["llm"]).text), moment)
    assert {each.labels["model_name"]: each.value for each in found} == {"chat": 10.0, "code": 7.0}


async def test_the_looks_are_spread_evenly_between_two_cycles(scene):
    """A cycle sees what a look would see, and no time without either is longer than the interval of the looks."""
    scene.optimizer.began = scene.clock.monotonic()
    scene.optimizer.due = scene.optimizer.began + 12.0
    task = asyncio.create_task(scene.lane.run())
    for seconds, asked in ((3.9, 0), (0.1, 1), (3.9, 1), (0.1, 2), (4.0, 2)):
        await scene.clock.advance(seconds)
        assert len(scene.prometheus.asked) == asked
    scene.optimizer.began = scene.clock.monotonic()
    scene.optimizer.due = scene.optimizer.began + 12.0
    await scene.clock.advance(4.0)
    assert len(scene.prometheus.asked) == 3
    task.cancel()
    await settle()


async def test_a_cycle_that_has_ordered_replicas_is_soon_followed_by_looks(scene):
    """It may have seen only the beginning of a rise."""
    scene.optimizer.began, scene.optimizer.grew = scene.clock.monotonic(), True
    scene.optimizer.due = scene.optimizer.began + 15.0
    task = asyncio.create_task(scene.lane.run())
    for seconds, asked in ((1.2, 0), (0.05, 1), (1.25, 2), (1.25, 3), (1.25, 4), (4.9, 4), (0.1, 5)):
        await scene.clock.advance(seconds)
        assert len(scene.prometheus.asked) == asked
    task.cancel()
    await settle()


@pytest.mark.parametrize(("ahead", "looks"), [(0.9, 0), (1.1, 1)])
async def test_a_cycle_that_begins_soon_takes_the_place_of_a_look(scene, ahead, looks):
    """Within a second the cycle asks the same and more."""
    scene.optimizer.due = scene.clock.monotonic() + ahead
    task = asyncio.create_task(scene.lane.run())
    await settle()
    assert len(scene.prometheus.asked) == looks
    task.cancel()
    await settle()
