"""The requests of a model, which WVA counts before the model may go to zero."""

from __future__ import annotations

import asyncio

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.collect.request_counts import REQUEST_COUNTS, count_requests, request_query
from wva.collect.retention import LONGEST_SECONDS, WINDOWS, Window, window_of
from wva.collect.shared_queries import Round, SharedQueries
from wva.model.policy import DEFAULT_RETENTION_SECONDS
from wva.model.variant import ModelKey
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, Labels, PrometheusError
from wva.sim.prometheus.promql.engine import evaluate
from wva.sim.prometheus.promql.grammar import parse
from wva.sim.prometheus.promql.selection import EvaluationTime
from wva.sim.prometheus.tsdb import Tsdb

NOW = 1_000_000.0
MODEL = ModelKey("ns", "m")
OTHER = ModelKey("ns", "n")


def series(signal, value, *, model="m", namespace="ns", target=None, pod=None):
    """Return one series of an answer."""
    labels = {"namespace": namespace, "model_name": model, "signal": signal}
    if pod is not None:
        labels["pod"] = pod
    if target is not None:
        labels["target_model_name"] = target
    return InstantSeries(Labels(**labels), (NOW, value))


def idle(model="m", namespace="ns"):
    """Return the series of a model that was idle for ten minutes."""
    values = {"finished": "0", "running": "0", "waiting": "0", "covered": "11"}
    return [series(signal, value, model=model, namespace=namespace) for signal, value in values.items()]


class FixedPrometheus:
    """Answers every query with the same series, and records the queries."""

    def __init__(self, *found, error=None, warnings=(), hangs=False):
        """Answer with the series, with an error, or not at all."""
        self.asked = []
        self._found, self._error, self._warnings, self._hangs = found, error, warnings, hangs

    async def query(self, promql, *, name, at):
        """Answer."""
        assert (name, at) == (REQUEST_COUNTS, NOW)
        promql_parser.parse(promql)
        self.asked.append(promql)
        if self._hangs:
            await asyncio.sleep(3600)
        if self._error:
            raise self._error
        return InstantVector(tuple(self._found), tuple(self._warnings))

    async def count(self, models=None, ours=lambda *_: True):
        """Return the counts by model."""
        ask = asking(self, seconds=0.05 if self._hangs else 30.0)
        made = await count_requests(models or {MODEL: 600.0}, ask, ours=ours)
        return {counts.model: counts for counts in made}


def asking(prometheus, *, seconds=30.0):
    """Return a function that sends queries to a Prometheus in one round."""
    round_ = Round(NOW, seconds)
    round_.others_begin.set()
    shared = SharedQueries(prometheus)
    return lambda topic, make, namespaces: shared.settle(topic, {REQUEST_COUNTS: make}, namespaces, round_)


async def test_an_idle_model_is_known_to_be_idle():
    """The counts of an idle model are 0, and they cover the whole period."""
    counts = (await FixedPrometheus(*idle()).count())[MODEL]
    assert (counts.finished, counts.in_progress, counts.retention_seconds, counts.detail) == (0.0, 0.0, 600.0, "")
    assert (counts.covered_seconds, counts.covered) == (600.0, True)


@pytest.mark.parametrize(("parts", "seconds"), [(None, 0), ("0", 0), ("1", 0), ("4", 180), ("10", 540), ("12", 600)])
async def test_what_has_no_samples_is_not_covered(parts, seconds):
    """The first part lies before the window, so it does not count; nor does one beyond the window."""
    found = [one for one in idle() if one.metric.signal != "covered"]
    found += [] if parts is None else [series("covered", parts)]
    counts = (await FixedPrometheus(*found).count())[MODEL]
    assert (counts.covered_seconds, counts.covered) == (seconds, seconds == 600)


async def test_what_runs_waits_and_queues_is_in_progress():
    """Requests in the engines and at the gateway count; the label of the target goes before the model's."""
    found = [
        series("finished", "2.5"),
        series("running", "1"),
        series("waiting", "2"),
        series("queued", "3", model="", target="m"),
        series("queued", "4", model="m", target=""),
        series("queued", "99", model="m", target="other"),
    ]
    counts = (await FixedPrometheus(*found).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (2.5, 10.0)


async def test_what_runs_in_a_foreign_pod_does_not_count():
    """A proxy may repeat the page of an engine; its pod belongs to no variant, and would keep the model for ever."""
    found = [one for one in idle() if one.metric.signal not in {"running", "waiting"}]
    found += [series(signal, "0", pod="chat-0") for signal in ("running", "waiting")]
    found += [series(signal, "5", pod="proxy") for signal in ("running", "waiting")]
    counts = (await FixedPrometheus(*found).count(ours=lambda _, pod: pod == "chat-0"))[MODEL]
    assert (counts.finished, counts.in_progress, counts.detail) == (0.0, 0.0, "")


async def test_pods_of_nobody_alone_do_not_make_a_model_idle():
    """If no pod of the model reports, nothing is known about it."""
    found = [one for one in idle() if one.metric.signal not in {"running", "waiting"}]
    found += [series(signal, "0", pod="proxy") for signal in ("running", "waiting")]
    counts = (await FixedPrometheus(*found).count(ours=lambda *_: False))[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert counts.detail == "no samples of requests that are running, waiting"


@pytest.mark.parametrize("gone", ["finished", "running", "waiting"])
async def test_a_missing_signal_makes_everything_unknown(gone):
    """A missing signal is unknown and does not count as 0."""
    found = [one for one in idle() if one.metric.signal != gone]
    counts = (await FixedPrometheus(*found).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert gone in counts.detail


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x", "1.7e308"])
async def test_what_is_no_number_of_requests_makes_everything_unknown(value):
    """One bad value makes all counts unknown."""
    counts = (await FixedPrometheus(*idle()[:2], series("waiting", value), idle()[3]).count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert "waiting requests are not a number from 0 to 1,000,000,000,000,000" in counts.detail


@pytest.mark.parametrize(
    ("prometheus", "words"),
    [
        (FixedPrometheus(error=PrometheusError(ErrorKind.UNREACHABLE, "refused")), "refused"),
        (FixedPrometheus(*idle(), warnings=["partial answer"]), "partial answer"),
        (FixedPrometheus(*idle(), hangs=True), "did not answer within 0.05 s"),
        (FixedPrometheus(), "no samples"),
    ],
)
async def test_no_whole_answer_makes_everything_unknown(prometheus, words):
    """An error, a partial answer, a timeout or an empty answer makes the counts unknown."""
    counts = (await prometheus.count())[MODEL]
    assert (counts.finished, counts.in_progress) == (None, None)
    assert words in counts.detail


async def test_models_of_one_window_share_a_query():
    """WVA sends one query for each window."""
    prometheus = FixedPrometheus(*idle(), *idle("n"))
    models = {MODEL: 600.0, OTHER: 400.0, ModelKey("far", "m"): 90.0}
    counts = await prometheus.count(models)
    assert len(prometheus.asked) == 2
    assert any("[10m]" in text for text in prometheus.asked)
    assert any("[2m]" in text and '"far"' in text for text in prometheus.asked)
    assert counts[OTHER].finished == 0.0
    assert counts[ModelKey("far", "m")].finished is None


async def test_another_namespace_says_nothing():
    """A model of the same name in another namespace is another model."""
    counts = (await FixedPrometheus(*idle(namespace="elsewhere")).count())[MODEL]
    assert counts.finished is None


def test_a_namespace_that_is_none_does_not_enter_a_query():
    """An invalid namespace is an error, and so is a query without namespaces."""
    for namespaces in ([], ['x"}']):
        with pytest.raises(ValueError, match="namespace"):
            request_query(namespaces, Window(60))


# --- windows --------------------------------------------------------------------------------------------------------


@given(st.floats(min_value=0.001, max_value=LONGEST_SECONDS))
def test_a_retention_period_is_rounded_up_to_a_window(retention):
    """WVA takes the shortest window that is not shorter than the period."""
    window = window_of(retention)
    assert window.seconds >= retention
    assert all(other.seconds < retention for other in WINDOWS if other.seconds < window.seconds)


def test_the_default_is_a_window_itself():
    """The default period is not rounded."""
    assert window_of(DEFAULT_RETENTION_SECONDS) == Window(600)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: str(window.seconds))
def test_a_window_is_looked_at_without_holes(window):
    """A window has whole parts, and a part is not longer than the allowed gap."""
    assert window.parts * window.part_seconds == window.seconds
    assert window.part_seconds <= window.gap_seconds <= window.seconds / 2


async def test_two_hundred_periods_cost_no_more_queries_than_there_are_windows():
    """The number of queries does not grow with the number of different periods."""
    prometheus = FixedPrometheus()
    await prometheus.count({ModelKey(f"ns-{number}", "m"): 3.7 * number for number in range(1, 201)})
    assert len(prometheus.asked) <= len(WINDOWS)


async def test_a_period_longer_than_every_window_is_never_over():
    """WVA sends no query, and the detail says why the model stays."""
    prometheus = FixedPrometheus()
    counts = (await prometheus.count({MODEL: LONGEST_SECONDS + 1.0}))[MODEL]
    assert (counts.finished, counts.covered, prometheus.asked) == (None, False, [])
    assert counts.detail == "a retention period of 604801 s is longer than the longest window: 604800 s"


# --- counts that the query makes of a history -----------------------------------------------------------------------


class SampledCounter:
    """A database with samples every 15 s, and the counts that the query finds in it at ``NOW``."""

    def __init__(self):
        """Begin without samples."""
        self._tsdb = Tsdb(retention_seconds=30 * 24 * 3600)

    def counter(self, values, *, since, until=0.0, pod="a", every=15.0):
        """Add a counter of finished requests; times are seconds before now, ``values`` a function of them."""
        labels = {"namespace": "ns", "model_name": "m", "pod": pod, "engine": "0", "finished_reason": "stop"}
        ago = since
        while ago >= until:
            for name, value in (("request_success_total", values(ago)), ("num_requests_running", 0.0)):
                self._tsdb.append({"__name__": f"vllm:{name}", **labels}, NOW - ago, value)
            self._tsdb.append({"__name__": "vllm:num_requests_waiting", **labels}, NOW - ago, 0.0)
            ago -= every
        return self

    def gone(self, pod, *, ago):
        """Mark the series of a pod as ended."""
        for series in self._tsdb:
            if series.labels["pod"] == pod:
                series.append(round((NOW - ago) * 1000), None)
        return self

    async def count(self, retention=600.0):
        """Return the counts of the model."""
        moment = EvaluationTime(self._tsdb, *[round(NOW * 1000)] * 3)

        class Database:
            async def query(self, promql, **_):
                found = evaluate(parse(promql), moment)
                return InstantVector(
                    tuple(InstantSeries(Labels(**dict(each.labels)), (NOW, str(each.value))) for each in found)
                )

        (counts,) = await count_requests({MODEL: retention}, asking(Database()))
        return counts

    async def idle(self, retention=600.0):
        """Tell whether the model is known to have served nothing over the whole period."""
        counts = await self.count(retention)
        return counts.finished == 0 and counts.in_progress == 0 and counts.covered


def steady(value):
    """Return a counter that does not move."""
    return lambda _: value


@pytest.mark.parametrize("window", WINDOWS[2:12], ids=lambda window: str(window.seconds))
async def test_a_model_seen_idle_over_the_whole_period_is_idle(window):
    """For any window, earlier requests do not count, and one request within it does."""
    since = window.seconds + window.part_seconds + 30.0
    assert await SampledCounter().counter(steady(7.0), since=since).idle(window.seconds)
    last = SampledCounter().counter(lambda ago: 7.0 if ago > window.seconds / 2 else 8.0, since=since)
    assert not await last.idle(window.seconds)


@pytest.mark.parametrize("seen", [0.0, 15.0, 60.0, 300.0, 420.0, 585.0])
async def test_a_history_shorter_than_the_period_is_not_idleness(seen):
    """A new server has too few samples, although the counter does not move in them."""
    counts = await SampledCounter().counter(steady(0.0), since=seen).count()
    assert not counts.covered
    assert counts.covered_seconds <= seen + 180


async def test_a_counter_that_was_not_there_before_counts_as_a_whole():
    """A pod may have served before its first scrape, so its whole counter counts."""
    served = SampledCounter().counter(steady(0.0), since=900.0).counter(steady(5.0), since=60.0, pod="b")
    assert (await served.count()).finished == 5.0
    brief = SampledCounter().counter(steady(0.0), since=900.0).counter(steady(2.0), since=400.0, until=400.0, pod="b")
    assert (await brief.count()).finished == 2.0


async def test_pods_that_were_replaced_do_not_keep_a_model_for_ever():
    """Several pods that were idle one after the other cover the period together."""
    rolled = SampledCounter().counter(steady(9.0), since=900.0, until=300.0).gone("a", ago=290.0)
    assert await rolled.counter(steady(0.0), since=330.0, pod="b").idle()
    restarted = SampledCounter().counter(lambda ago: 9.0 if ago > 400.0 else 0.0, since=900.0)
    assert await restarted.idle()
    recreated = SampledCounter().counter(steady(9.0), since=900.0, until=300.0).gone("a", ago=290.0)
    assert await recreated.counter(steady(0.0), since=200.0, pod="b").idle()


async def test_requests_of_a_pod_that_was_replaced_are_not_forgotten():
    """Requests of the former pod count, although its successor has served none."""
    history = SampledCounter().counter(lambda ago: 9.0 if ago > 400.0 else 12.0, since=900.0, until=300.0)
    assert (await history.counter(steady(0.0), since=200.0, pod="b").count()).finished > 0


@pytest.mark.parametrize("ends", [100.0, 240.0])
async def test_a_gap_in_the_period_is_not_idleness(ends):
    """During a gap without scrapes, pods that are gone now may have finished requests."""
    history = SampledCounter().counter(steady(3.0), since=1200.0, until=ends + 300.0)
    counts = await history.counter(steady(0.0), since=ends, pod="b").count()
    assert not counts.covered
    assert 0 < counts.covered_seconds < 600


async def test_a_pod_that_is_not_scraped_for_a_while_shows_afterwards_what_it_served():
    """Its counter goes on during the gap, so the requests count afterwards."""
    gap = SampledCounter().counter(steady(3.0), since=900.0, until=400.0).counter(steady(4.0), since=300.0)
    assert (await gap.count()).finished > 0
