"""The share of requests in time comes from the histograms of the engines; what is not there is not guessed."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import NOW
from tests.kube.clocks import ManualClock, settle
from tests.publish.decisions import decision, held
from wva.collect.in_time import (
    IN_TIME,
    ITL_BOUNDS,
    TTFT_BOUNDS,
    ServedUsers,
    ServedWindow,
    in_time_query,
    judged_at,
    served,
)
from wva.collect.query_failures import IN_FORCE, QueryFailures
from wva.model.decision import Aim
from wva.model.in_time import NOT_MEASURED, InTime, ServedLately, ServedShare
from wva.model.objectives import Objectives
from wva.model.trouble import UNTROUBLED
from wva.model.variant import ModelKey, VariantKey
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError
from wva.sim.prometheus.promql import EvaluationTime, evaluate, parse
from wva.sim.prometheus.tsdb import Tsdb

MODEL, CODE = ModelKey("ns", "org/model"), ModelKey("code", "code")
FIRST = VariantKey("ns", "va")
OBJECTIVES = Objectives(1.0, 0.1, 0.99)


def counted(signal, value, le=None, window="5m", model=MODEL):
    """Return one series of an answer."""
    labels = Labels(namespace=model.namespace, model_name=model.model_id, signal=f"{signal}_{window}", le=le)
    return InstantSeries(labels, (NOW, str(value)))


def answer(*, first=(90.0, 100.0), between=(95.0, 100.0), window="5m", model=MODEL, **counters):
    """Return the series of a model: of each histogram the requests in time and all, and its counters."""
    found = [
        counted("first", first[0], "1", window, model),
        counted("first", first[1], "+Inf", window, model),
        counted("between", between[0], "0.1", window, model),
        counted("between", between[1], "+Inf", window, model),
    ]
    return [*found, *(counted(name, value, None, window, model) for name, value in counters.items())]


@pytest.mark.parametrize(
    ("seconds", "bounds", "bound"),
    [
        (1.0, TTFT_BOUNDS, 1.0),
        (3.0, TTFT_BOUNDS, 2.5),
        (0.3, TTFT_BOUNDS, 0.25),
        (10.0, TTFT_BOUNDS, 10.0),
        (3600.0, TTFT_BOUNDS, 2560.0),
        (0.1, ITL_BOUNDS, 0.1),
        (0.009, ITL_BOUNDS, None),
    ],
)
def test_an_objective_between_two_bounds_is_judged_at_the_lower_one(seconds, bounds, bound):
    """Below the lowest bound nothing is judged."""
    assert judged_at(seconds, bounds) == bound


@pytest.mark.parametrize(
    ("series", "share"),
    [
        (answer(), 0.9),
        (answer(first=(99.0, 100.0), between=(80.0, 100.0)), 0.8),
        # Refused requests are late by both measures.
        (answer(refused=100.0), 0.45),
        (answer(first=(100.0, 100.0), between=(80.0, 100.0), refused=60.0), 0.5),
        # All that were aborted had their first token, so none is late for that.
        (answer(ended=100.0, aborted=10.0), 0.9),
        # Of twenty that were aborted ten had no first token.
        (answer(ended=110.0, aborted=20.0), 90.0 / 110.0),
        # More have ended than began within the window, and none was aborted.
        (answer(ended=130.0, aborted=0.0), 0.9),
        # Everybody was refused.
        (answer(first=(0.0, 0.0), between=(0.0, 0.0), refused=5.0), 0.0),
        # Nobody has got a whole answer yet.
        (answer(first=(3.0, 4.0), between=(0.0, 0.0)), 0.75),
    ],
)
def test_the_smaller_share_counts_and_who_is_not_served_is_late(series, share):
    """A request is late if its first token, or the time between its tokens, is."""
    assert served(series, OBJECTIVES)["5m"].share == pytest.approx(share)


def picked(first, between, window="5m", **counters):
    """Return the series of a picker: of each histogram the requests in time and all, and its counters."""
    return [
        counted("picker_first", first[0], "1", window),
        counted("picker_first", first[1], "+Inf", window),
        counted("picker_between", between[0], "0.1", window),
        counted("picker_between", between[1], "+Inf", window),
        *(counted(name, value, None, window) for name, value in counters.items()),
    ]


@pytest.mark.parametrize(
    ("series", "share"),
    [
        # Its queue makes requests late that the engines had in time.
        ([*answer(), *picked((50.0, 100.0), (95.0, 100.0))], 0.5),
        ([*answer(), *picked((100.0, 100.0), (95.0, 100.0), turned_away=100.0)], 95.0 / 200.0),
        # What an engine has refused may be among what the picker has.
        ([*answer(refused=60.0), *picked((100.0, 100.0), (100.0, 100.0), turned_away=100.0)], 0.5),
        # Without a picker that measures, or where nobody streams, the engines tell.
        ([*answer(), *picked((0.0, 0.0), (0.0, 0.0))], 0.9),
        ([*answer(), *picked((80.0, 100.0), (0.0, 0.0))], 0.8),
        (picked((80.0, 100.0), (90.0, 100.0)), 0.8),
        # Where few answers are streamed, the picker has measured few, and what was lost is of all requests.
        ([*answer(refused=25.0), *picked((4.0, 4.0), (4.0, 4.0))], 90.0 / 125.0),
        ([*answer(first=(20.0, 100.0)), *picked((4.0, 4.0), (4.0, 4.0))], 0.2),
    ],
)
def test_where_a_picker_measures_its_histograms_count(series, share):
    """They are about what users wait for, its queue included."""
    assert served(series, OBJECTIVES)["5m"].share == pytest.approx(share)


def test_requests_that_never_got_in_are_among_the_requests():
    """How many there were says how much a share weighs."""
    assert served(answer(refused=60.0), OBJECTIVES)["5m"].requests == 160.0


async def test_the_names_of_a_picker_lead_to_the_model(scene):
    """A request for an alias is one for the model that serves it; a bound that an objective names is exact."""
    three = Objectives(3.0, 0.1, 0.99)
    scene.decisions = [decision(aim=Aim(three))]
    alias = [
        InstantSeries(
            Labels(namespace="ns", model_name="alias", target_model_name="org/model", signal=f"{signal}_5m", le=le),
            (NOW, value),
        )
        for signal, le, value in (
            ("picker_first", "3", "7"),
            ("picker_first", "+Inf", "10"),
            ("picker_between", "0.1", "10"),
            ("picker_between", "+Inf", "10"),
        )
    ]
    scene.prometheus.series = alias
    await scene.served.look()
    ((_, text, _),) = scene.prometheus.asked
    assert r'llm_d_epp_request_ttft_seconds_bucket{namespace=~"ns",streaming="true",le=~"3|3\\.0|\\+Inf"}' in text
    assert scene.served.of(MODEL).five_minutes == ServedShare(10.0, 0.7)


@pytest.mark.parametrize(
    "series",
    [
        [],
        answer(first=(0.0, 0.0), between=(0.0, 0.0)),
        answer()[:2],
        answer()[2:],
        [each for each in answer() if each.metric.le != "1"],
        [counted("first", "NaN", "1"), *answer()[1:]],
        [counted("first", "-1", "1"), *answer()[1:]],
        [InstantSeries(answer()[0].metric, None), *answer()[1:]],
        [counted("first", 90, "abc"), *answer()[1:]],
    ],
    ids=["none", "no requests", "first", "between", "no bound", "NaN", "negative", "native", "text"],
)
def test_without_requests_or_series_there_is_no_share(series):
    """No data is neither 0 nor 1."""
    assert served(series, OBJECTIVES) == {}


def test_both_spellings_of_a_bound_count():
    """Prometheus 3 writes bounds as numbers; pods that it scraped before its upgrade have both within an hour."""
    both = [*answer(), counted("first", 9.0, "1.0"), counted("first", 10.0, "+Inf")]
    assert served(both, OBJECTIVES)["5m"] == ServedWindow(110.0, 0.9, 0.95)


def test_the_bounds_of_other_models_do_not_count_for_a_model():
    """The answer has the bounds of all objectives; for each model the highest one within its own counts."""
    more = [*answer(), counted("first", 100.0, "2.5"), counted("first", 50.0, "0.5")]
    assert served(more, OBJECTIVES)["5m"].share == 0.9


def test_each_window_has_its_share():
    """An hour remembers what five minutes have forgotten."""
    found = served([*answer(), *answer(first=(40.0, 80.0), window="1h")], OBJECTIVES)
    assert found == {"5m": ServedWindow(100.0, 0.9, 0.95), "1h": ServedWindow(80.0, 0.5, 0.95)}


@pytest.mark.parametrize(("text", "bound"), [("1.0", 1.0), ("1", 1.0)])
def test_the_query_counts_each_engine_once_and_adds_pods(text, bound):
    """A pod that two jobs scrape counts once, and a bound is found in either spelling."""
    tsdb = Tsdb()
    for pod, jobs, engines in (("a", ("one", "two"), ("0", "1")), ("b", ("one",), ("0",))):
        for job in jobs:
            for engine in engines:
                labels = {"namespace": "ns", "model_name": "org/model", "pod": pod, "engine": engine, "job": job}
                for le, part in ((text, 0.5), ("2.5", 0.75), ("+Inf", 1.0)):
                    name = {"__name__": "vllm:time_to_first_token_seconds_bucket", "le": le}
                    for at in range(0, 3_615, 15):
                        tsdb.append({**labels, **name}, float(at), part * at)
    moment = EvaluationTime(tsdb, 3_600_000, 3_600_000, 3_600_000)
    found = evaluate(parse(in_time_query(["ns"], [OBJECTIVES]).text), moment)
    counts = {(each.labels["signal"], each.labels["le"]): each.value for each in found}
    assert counts == {
        ("first_2m", text): pytest.approx(3 * 60.0),
        ("first_2m", "+Inf"): pytest.approx(3 * 120.0),
        ("first_5m", text): pytest.approx(3 * 150.0),
        ("first_5m", "+Inf"): pytest.approx(3 * 300.0),
        ("first_1h", text): pytest.approx(3 * 1800.0),
        ("first_1h", "+Inf"): pytest.approx(3 * 3600.0),
    }
    assert float(text) == bound


class FakeHistograms:
    """Answers with the series that it is given."""

    def __init__(self):
        """Have none."""
        self.series, self.error, self.spoils, self.asked = [], None, "", []

    async def query(self, text, *, name, at):
        """Answer."""
        self.asked.append((name, text, at))
        if self.error and self.spoils in text:
            raise self.error
        return InstantVector(tuple(self.series))


class ServedScene:
    """A watch with everything around it."""

    def __init__(self):
        """Have one variant with the default objectives."""
        self.prometheus, self.clock, self.told = FakeHistograms(), ManualClock(), []
        self.revisited = []
        self.failures = QueryFailures(self.clock, revisit=lambda _: None)
        self.decisions = [decision(aim=Aim(OBJECTIVES))]
        self.served = ServedUsers(
            prometheus=self.prometheus,
            decisions=lambda: self.decisions,
            clock=self.clock,
            note=self.failures.note,
            tell=self.told.append,
            revisit=self.revisited.append,
        )


@pytest.fixture
def scene():
    """Return a watch."""
    return ServedScene()


async def test_decisions_are_told_of_the_last_two_minutes(scene):
    """Each model of which something is known, with the time of the look; the others are left out."""
    scene.decisions.append(decision(key=VariantKey("code", "b"), model=CODE, aim=Aim(OBJECTIVES)))
    assert scene.served.lately() == ()
    scene.prometheus.series = [*answer(window="2m"), *answer(model=CODE)]
    await scene.served.look()
    assert scene.served.lately() == (ServedLately(MODEL, scene.clock.now(), 100.0, 0.9, 0.95),)
    scene.prometheus.error = PrometheusError(ErrorKind.EXECUTION, "HTTP 422")
    await scene.served.look()
    assert scene.served.lately() == ()


async def test_a_look_is_one_query_about_all_models(scene):
    """It names the bounds of their objectives only, and the share of each is remembered."""
    other = Aim(Objectives(3.0, 0.05, 0.95))
    scene.decisions.append(decision(key=VariantKey("code", "b"), model=CODE, aim=other))
    scene.prometheus.series = [*answer(), *answer(window="1h"), *answer(model=CODE)]
    await scene.served.look()
    ((name, text, _),) = scene.prometheus.asked
    assert name == IN_TIME
    assert r'le=~"1|2\\.5|1\\.0|\\+Inf"' in text
    assert r'le=~"0\\.05|0\\.1|\\+Inf"' in text
    share = ServedShare(100.0, 0.9)
    assert scene.served.of(MODEL) == InTime(OBJECTIVES, FIRST, share, share)
    assert scene.told == [{FIRST, VariantKey("code", "b")}]
    await scene.served.look()
    assert scene.told[1:] == [set()]


async def test_a_hundred_and_one_namespaces_take_two_queries(scene):
    """No more, however many models they have."""
    scene.decisions = [
        decision(key=VariantKey(f"ns-{place}", f"v{of}"), model=ModelKey(f"ns-{place}", f"m{of}"), aim=Aim())
        for place in range(101)
        for of in range(3)
    ]
    await scene.served.look()
    assert len(scene.prometheus.asked) == 2


async def test_models_without_objectives_are_not_asked_about(scene):
    """Other analyzers plan for none. One that had them keeps them while its number is held."""
    scene.decisions = [decision()]
    await scene.served.look()
    assert scene.prometheus.asked == []
    scene.decisions = [decision(aim=Aim(OBJECTIVES))]
    await scene.served.look()
    scene.decisions = [held()]
    await scene.served.look()
    assert len(scene.prometheus.asked) == 2
    scene.decisions = [decision()]
    await scene.served.look()
    assert (len(scene.prometheus.asked), scene.served.of(MODEL)) == (2, None)


async def test_of_the_objectives_of_several_variants_the_loosest_counts(scene):
    """What a slow variant cannot reach is not asked of it."""
    slow = Objectives(2.5, 0.1, 0.99)
    scene.decisions.append(decision(key=VariantKey("ns", "slow"), aim=Aim(slow)))
    await scene.served.look()
    assert scene.served.of(MODEL) == InTime(slow, FIRST)


async def test_the_loosest_of_each_value_counts(scene):
    """One role cannot reach the first token that was asked for, the other not the time between tokens."""
    scene.decisions = [
        decision(key=VariantKey("ns", "prefill"), aim=Aim(Objectives(0.4, 0.025, 0.99))),
        decision(key=VariantKey("ns", "decode"), aim=Aim(Objectives(0.1, 0.05, 0.99))),
    ]
    await scene.served.look()
    assert scene.served.of(MODEL).objectives == Objectives(0.4, 0.05, 0.99)


async def test_without_an_answer_there_is_no_share_and_the_failure_is_told(scene):
    """What was true a minute ago may not be now."""
    scene.prometheus.series = answer()
    await scene.served.look()
    scene.prometheus.error = PrometheusError(ErrorKind.EXECUTION, "HTTP 422")
    await scene.served.look()
    await scene.served.look()
    assert scene.served.of(MODEL) == InTime(OBJECTIVES, FIRST)
    assert scene.failures.of("ns").message == f"query in_time: HTTP 422; in force: {IN_FORCE[IN_TIME]}"


async def test_one_namespace_that_spoils_the_answer_takes_nothing_from_others(scene):
    """It is found by halves, as in a cycle."""
    scene.decisions.append(decision(key=VariantKey("code", "b"), model=CODE, aim=Aim(OBJECTIVES)))
    scene.prometheus.series = answer()
    scene.prometheus.error, scene.prometheus.spoils = PrometheusError(ErrorKind.EXECUTION, "too many"), '"code'
    await scene.served.look()
    assert scene.served.of(MODEL).five_minutes == ServedShare(100.0, 0.9)
    assert scene.served.of(CODE).five_minutes is None


async def test_it_asks_once_a_minute(scene):
    """The first time a minute after the start, when there are decisions."""
    task = asyncio.create_task(scene.served.run())
    for seconds, asked in ((59.0, 0), (1.0, 1), (59.0, 1), (1.0, 2)):
        await scene.clock.advance(seconds)
        assert (len(scene.prometheus.asked), scene.served.busy) == (asked, False)
    task.cancel()
    await settle()


@pytest.mark.parametrize(
    ("five_minutes", "hour", "missed"),
    [
        (ServedShare(100, 0.9), ServedShare(1000, 0.9), True),
        (ServedShare(100, 0.995), ServedShare(1000, 0.9), False),
        (ServedShare(100, 0.9), ServedShare(1000, 0.995), False),
        (ServedShare(5, 0.8), ServedShare(10, 0.9), False),  # one late request of ten
        (ServedShare(5, 0.4), ServedShare(10, 0.7), True),
        (None, ServedShare(1000, 0.5), False),
        (ServedShare(100, 0.5), None, False),
    ],
)
def test_an_objective_is_missed_within_the_hour_and_now(five_minutes, hour, missed):
    """And by more requests than chance makes late."""
    assert InTime(OBJECTIVES, FIRST, five_minutes, hour).missed is missed


async def test_a_condition_is_looked_at_again_when_it_changes(scene):
    """Not each minute: its message has measurements, and they alone are no news."""
    assert scene.served.trouble(MODEL) is None
    bad = [*answer(), *answer(window="1h")]
    for series, trouble, visits in (
        (bad, "ObjectiveMissed", 1),
        ([*answer(first=(80.0, 100.0)), *answer(window="1h")], "ObjectiveMissed", 1),
        ([*answer(first=(100.0, 100.0), between=(100.0, 100.0)), *answer(window="1h")], "", 2),
        ([], NOT_MEASURED.reason, 3),
    ):
        scene.prometheus.series = series
        await scene.served.look()
        assert scene.served.trouble(MODEL).reason == trouble
        assert scene.revisited == [FIRST] * visits
    assert scene.served.trouble(CODE) == NOT_MEASURED


def test_what_is_missed_is_told_with_what_was_asked_for():
    """Shares, how many requests they are about, and the objectives."""
    told = InTime(OBJECTIVES, FIRST, ServedShare(97, 0.88), ServedShare(1204, 0.912)).trouble
    assert told.message == (
        "requests in time: 88 % of 97 in the last 5 minutes, 91.2 % of 1204 in the last hour; expected: first token "
        "within 1 s, between tokens 100 ms, in time 99 %"
    )


@pytest.mark.parametrize(
    ("five_minutes", "hour", "trouble"),
    [
        (None, None, NOT_MEASURED),
        (None, ServedShare(1000, 0.5), UNTROUBLED),
        (ServedShare(10, 1.0), ServedShare(10, 1.0), UNTROUBLED),
    ],
)
def test_without_any_request_within_the_hour_nothing_is_known(five_minutes, hour, trouble):
    """Nobody who asked in the last five minutes was served late, if nobody asked."""
    assert InTime(OBJECTIVES, FIRST, five_minutes, hour).trouble == trouble
