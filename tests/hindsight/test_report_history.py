"""A report from Prometheus: the growth of counters of several processes, which begin anew, day by day."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from tests.collect.doubles import RecordingClock
from wva.collect.queries import TargetLabels
from wva.hindsight.report import history
from wva.hindsight.report.days import DAY_SECONDS
from wva.hindsight.report.history import from_prometheus
from wva.hindsight.shadow import Late, RealAndShadow, ShadowFigures
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.prometheus.answers import ErrorKind, PrometheusError, RangeSeries
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.sim.prometheus import EmbeddedPrometheus

MIDNIGHT = 20_000 * DAY_SECONDS
NOW = MIDNIGHT + DAY_SECONDS + 6 * 3600
STEP = 60
A, B = VariantKey("models", "a"), VariantKey("models", "b")


@pytest.fixture
async def prometheus():
    """Return a Prometheus without samples."""
    async with EmbeddedPrometheus(now=lambda: NOW, retention_seconds=10 * DAY_SECONDS) as running:
        yield running


@pytest.fixture
async def asked(prometheus):
    """Return a function that makes the report."""
    settings = PrometheusSettings(prometheus.url, allow_http=True)
    instruments = Instruments(CollectorRegistry())
    async with PrometheusClient(settings, clock=RecordingClock(), instruments=instruments) as client:

        async def ask(*, days=2, takes=lambda _: True, target="wva"):
            return await from_prometheus(
                client,
                days=days,
                now=NOW,
                address="http://prometheus",
                takes=takes,
                matchers=TargetLabels(target).matchers,
            )

        yield ask


def lead(prometheus, start, end, *, pod="wva-1", key=A, late=True, jobs=("wva",), target="wva"):
    """Let a process lead from start to end: it shows counters from 0 on. In each hour two GPUs run, and one would."""
    namespace = {"namespace": target, "exported_namespace": key.namespace} if target else {"namespace": key.namespace}
    slopes = [
        ("wva_shadow_hours_total", {}, 1.0),
        ("wva_shadow_gpu_hours_total", {"fleet": "real"}, 2.0),
        ("wva_shadow_gpu_hours_total", {"fleet": "shadow"}, 1.0),
        ("wva_shadow_cost_total", {"fleet": "real"}, 20.0),
        ("wva_shadow_cost_total", {"fleet": "shadow"}, 10.0),
    ]
    if late:
        slopes += [
            ("wva_shadow_late_requests_total", {"fleet": "real"}, 0.0),
            ("wva_shadow_late_requests_total", {"fleet": "shadow"}, 60.0),
            ("wva_shadow_late_requests_error_total", {}, 30.0),
        ]
    for job in jobs:
        common = {"job": job, "pod": pod, "instance": f"{pod}:8443", "variant_name": key.name, **namespace}
        for name, labels, slope in slopes:
            for at in range(start, end + 1, STEP):
                prometheus.tsdb.append({"__name__": name, **common, **labels}, at, slope * (at - start) / 3600)
            prometheus.tsdb.mark_stale({"__name__": name, **common, **labels}, end + 1)
        cost = {"__name__": "wva_variant_cost", "model_name": "acme/chat", **common}
        role = {"__name__": "wva_variant_role", "model_name": "acme/chat", "role": "decode", **common}
        for at in range(start, end + 1, STEP):
            prometheus.tsdb.append(cost, at, 10.0)
            prometheus.tsdb.append(role, at, 1.0)


async def test_each_day_has_its_own_growth(prometheus, asked):
    """A day of 24 hours, and the six hours of today; the model is known."""
    lead(prometheus, MIDNIGHT, NOW)
    found = await asked()
    first, second = (found.figures[A][day] for day in found.days)
    assert (first.hours, second.hours) == (pytest.approx(24, rel=0.01), pytest.approx(6, rel=0.01))
    assert first.gpu_hours == RealAndShadow(pytest.approx(48, rel=0.01), pytest.approx(24, rel=0.01))
    assert second.cost == RealAndShadow(pytest.approx(120, rel=0.01), pytest.approx(60, rel=0.01))
    assert second.late == Late(RealAndShadow(0.0, pytest.approx(360, rel=0.01)), pytest.approx(180, rel=0.01))
    assert found.models == {A: "acme/chat"}
    assert found.roles == {A: "decode"}
    assert found.days[1].name == "2024-10-05 until 06:00"


async def test_the_share_in_time_is_told_of_the_models_of_the_report(prometheus, asked):
    """For each day of which there are samples, in the mean of its hours."""
    lead(prometheus, MIDNIGHT, NOW)
    labels = {"__name__": "wva_in_time_ratio", "job": "wva", "pod": "wva-1", "namespace": "wva", "window": "1h"}
    for model, target in (("acme/chat", "wva"), ("other", "wva"), ("acme/chat", "tenant")):
        own = {**labels, "namespace": target, "exported_namespace": "models", "model_name": model}
        for at in range(MIDNIGHT + STEP, MIDNIGHT + DAY_SECONDS, STEP):
            prometheus.tsdb.append(own, at, 0.9 if target == "wva" else 0.1)
    words = "90 % of the requests to acme/chat in models were really in time on 2024-10-04, in the mean of its hours."
    assert (await asked()).notes == (words,)


async def test_leaders_that_follow_each_other_are_added(prometheus, asked):
    """The counters of each begin at 0. Neither the larger one nor the last value alone is the truth."""
    lead(prometheus, MIDNIGHT, MIDNIGHT + 10 * 3600, pod="wva-1")
    lead(prometheus, MIDNIGHT + 10 * 3600, MIDNIGHT + DAY_SECONDS, pod="wva-2")
    found = await asked()
    assert found.figures[A][found.days[0]].gpu_hours.real == pytest.approx(48, rel=0.01)


async def test_a_restart_in_place_loses_nothing(prometheus, asked):
    """The same pod begins at 0 again, and Prometheus sees one series with a reset."""
    middle = MIDNIGHT + 8 * 3600
    lead(prometheus, MIDNIGHT, middle - STEP)
    lead(prometheus, middle, MIDNIGHT + DAY_SECONDS)
    found = await asked()
    assert found.figures[A][found.days[0]].gpu_hours.real == pytest.approx(48, rel=0.01)


async def test_a_process_that_two_jobs_scrape_counts_once(prometheus, asked):
    """The series differ in their job alone."""
    lead(prometheus, MIDNIGHT, MIDNIGHT + DAY_SECONDS, jobs=("wva", "again"))
    found = await asked()
    assert found.sum.gpu_hours.real == pytest.approx(48, rel=0.01)


async def test_the_namespace_is_that_of_the_variant(prometheus, asked):
    """Prometheus renames the label where the target has one, and keeps it elsewhere."""
    lead(prometheus, MIDNIGHT, NOW, key=A)
    lead(prometheus, MIDNIGHT, NOW, key=B, target="")
    assert (await asked(target="")).figures.keys() == {A, B}
    assert (await asked(target="", takes=lambda key: key == B)).figures.keys() == {B}


async def test_counters_of_another_namespace_are_not_read(prometheus, asked):
    """A tenant's pod may have any counters on its page, also of its own variants and with any job."""
    lead(prometheus, MIDNIGHT, NOW, key=A)
    alone = await asked()
    lead(prometheus, MIDNIGHT, NOW, pod="forger", key=A, target="tenant")
    lead(prometheus, MIDNIGHT, NOW, pod="forger", key=B, target="tenant")
    found = await asked()
    assert (found.figures, found.models) == (alone.figures, alone.models)
    assert (await asked(target="elsewhere")).figures == {}


async def test_what_is_not_there_is_not_zero(prometheus, asked):
    """A day without samples has no numbers, and a variant without an estimate no late requests."""
    lead(prometheus, MIDNIGHT + DAY_SECONDS, NOW, late=False)
    found = await asked()
    assert [line.figures is None for line in found.overall.lines] == [True, False]
    assert found.sum.late is None
    remarks = " ".join(found.remarks())
    assert "1 of 2 days of variants have no samples" in remarks
    assert "there is no estimate" in remarks


async def test_a_day_that_was_seen_in_part_says_so(prometheus, asked):
    """The hours seen are those of the counter."""
    lead(prometheus, MIDNIGHT + 12 * 3600, NOW)
    found = await asked()
    assert found.figures[A][found.days[0]].hours == pytest.approx(12, rel=0.01)
    assert any("1 of 2 days of variants were seen in part" in remark for remark in found.remarks())


async def test_zero_is_zero_where_it_was_seen(prometheus, asked):
    """A variant without replicas had no GPUs, and that is known."""
    for name, labels, slope in (
        ("wva_shadow_hours_total", {}, 1.0),
        *(
            (f"wva_shadow_{name}_total", {"fleet": fleet}, 0.0)
            for name in ("gpu_hours", "cost")
            for fleet in ("real", "shadow")
        ),
    ):
        for at in range(MIDNIGHT, NOW, STEP):
            series = {"__name__": name, "instance": "i", "variant_name": "a", "namespace": "wva", **labels}
            prometheus.tsdb.append(series, at, slope * (at - MIDNIGHT) / 3600)
    assert (await asked()).sum.gpu_hours == RealAndShadow(0.0, 0.0)


class Answering:
    """Answers each query with one series of a value, or not at all."""

    def __init__(self, value, fleets=("real", "shadow", "")):
        """Answer with the value for each fleet."""
        self.value, self.fleets = value, fleets

    async def query_range(self, promql, *, name, start, end, step_seconds, timeout_seconds):  # noqa: ARG002 - protocol
        """Answer."""
        if self.value is None:
            await asyncio.sleep(3600)
        labels = {"namespace": "models", "variant_name": "a"}
        return tuple(RangeSeries(labels | {"fleet": fleet}, ((end, self.value),)) for fleet in self.fleets)


def today(source):
    """Report on the last day."""
    return from_prometheus(source, days=1, now=NOW, address="", takes=lambda _: True, matchers="")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "words"])
async def test_a_value_that_no_counter_has_is_none(value):
    """The page of a scraped target may have any number."""
    found = await today(Answering(value))
    assert found.figures == {}


async def test_half_of_the_counters_are_none():
    """Without the fleet that would have been there is nothing to compare."""
    source = Answering("1", fleets=("real", ""))
    assert (await today(source)).figures == {}


async def test_a_query_has_an_end(monkeypatch):
    """Also with a client that keeps no time limit of its own."""
    monkeypatch.setattr(history, "TIMEOUT_SECONDS", -0.9)
    with pytest.raises(TimeoutError):
        await today(Answering(None))


async def test_an_error_is_that_of_prometheus(prometheus, asked):
    """The report is whole, or there is none."""
    prometheus.faults.status = 422
    with pytest.raises(PrometheusError) as caught:
        await asked()
    assert caught.value.kind is ErrorKind.EXECUTION


def test_the_counters_are_those_that_are_published():
    """A name that nobody publishes would be a report without numbers."""
    assert {name for name, _, _ in ShadowFigures(late=Late()).series()} == set(history._COUNTERS)
