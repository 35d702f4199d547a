"""WVA waits a short time until Prometheus has the published number."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import promql_parser
import pytest
from structlog.testing import capture_logs

from wva.collect.queries import TargetLabels
from wva.model.variant import VariantKey
from wva.prometheus.answers import ErrorKind, InstantSeries, InstantVector, PrometheusError
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.scale_from_zero.starts import (
    DIAGNOSIS_SECONDS,
    SETTLE_SECONDS,
    VISIBLE_SECONDS,
    Starter,
    published_query,
    unpinned_query,
)
from wva.sim.prometheus import EmbeddedPrometheus, InProcess, ScrapeTarget
from wva.sim.world.clock import VirtualClock

KEY = VariantKey("ns", "va")
TARGET = TargetLabels("wva-system", "wva-metrics")


class LatePrometheus:
    """A Prometheus that has the number from some moment on, or that raises an error."""

    def __init__(self, clock, *, since, value="2", error=None):
        """Take the script."""
        self._clock, self._taken, self._value, self._error = clock, clock.now() + since, value, error
        self.asked = 0

    async def query(self, promql, *, name, at):
        """Answer for a time as Prometheus does: with the last sample that was taken up to then."""
        promql_parser.parse(promql)
        assert name == "published_number"
        assert at <= self._clock.now()
        self.asked += 1
        if self._error is not None:
            raise self._error
        there = at >= self._taken
        return InstantVector((InstantSeries({}, (at, self._value if there else "0")),))


def starter(prometheus, clock):
    """Return a Starter that cannot write."""
    return Starter(client=None, stores=None, prometheus=prometheus, labels=TARGET, clock=clock)


async def waited(prometheus, clock, desired=2):
    """Return whether the number was seen, and how long that took in virtual time."""
    task = asyncio.create_task(starter(prometheus, clock).wait_visible(KEY, desired))
    while not task.done():
        for _ in range(10):
            await asyncio.sleep(0)
        if not task.done():
            clock.advance_to(clock.elapsed_seconds + 0.01)
    return task.result(), clock.elapsed_seconds


async def test_it_returns_as_soon_as_the_number_is_there():
    """It waits ``SETTLE_SECONDS`` more, so that an autoscaler that has just asked Prometheus acts before the start."""
    clock = VirtualClock()
    assert clock.now() == int(clock.now())
    seen, seconds = await waited(LatePrometheus(clock, since=1.0), clock)
    assert seen
    assert seconds == pytest.approx(1.0 + SETTLE_SECONDS, abs=0.03)


@pytest.mark.parametrize(("since", "counts"), [(0.05, 1.0), (0.95, 1.0), (1.05, 2.0)])
async def test_a_sample_counts_from_the_next_whole_second_on(since, counts):
    """KEDA asks for the value at the last whole second, so it still reads the earlier one until then."""
    clock = VirtualClock()
    seen, seconds = await waited(LatePrometheus(clock, since=since), clock)
    assert seen
    assert seconds == pytest.approx(counts + SETTLE_SECONDS, abs=0.03)


async def test_the_beginning_of_a_second_is_not_missed():
    """WVA asks at once when a second begins, because autoscalers may see the number from then on."""
    clock = VirtualClock()
    clock.advance_to(0.13)
    seen, seconds = await waited(LatePrometheus(clock, since=0.5), clock)
    assert seen
    assert seconds == pytest.approx(1.0 + SETTLE_SECONDS, abs=0.03)


@pytest.mark.parametrize(
    "script",
    [
        {"since": 60.0},
        {"since": 0.0, "value": "1"},
        {"since": 0.0, "value": "NaN"},
        {"since": 0.0, "error": PrometheusError(ErrorKind.UNREACHABLE, "refused")},
    ],
)
async def test_it_gives_up_after_a_while(script):
    """The number is not scraped yet, smaller, or NaN, or Prometheus does not answer."""
    clock = VirtualClock()
    prometheus = LatePrometheus(clock, **script)
    seen, seconds = await waited(prometheus, clock)
    assert not seen
    assert seconds == pytest.approx(VISIBLE_SECONDS, abs=0.03)
    assert 5 <= prometheus.asked <= 20


async def test_a_store_that_does_not_answer_is_noted():
    """The start goes on, and a condition tells that it did not wait for autoscalers."""
    clock = VirtualClock()
    noted = []
    prometheus = LatePrometheus(clock, since=0.0, error=PrometheusError(ErrorKind.SERVER, "HTTP 503"))
    asking = replace(starter(prometheus, clock), note=lambda *what: noted.append(what))
    assert await asking._ask("ns", "up", seconds=1.0) is None
    prometheus._error = None
    assert await asking._ask("ns", "up", seconds=1.0) is not None
    failed = {"ns": "query published_number: HTTP 503"}
    assert noted == [("published_number", ("ns",), failed), ("published_number", ("ns",), {})]


def test_the_query_names_one_variant_and_one_target():
    """It has the labels that Prometheus gave the target. The namespace of the variant is in ``exported_namespace``."""
    variant = 'variant_name="va",exported_namespace="ns"'
    assert published_query(KEY, TARGET) == (
        f'max(wva_desired_replicas{{job="wva-metrics",namespace="wva-system",{variant}}})'
    )
    assert published_query(KEY, TargetLabels("wva-system")) == (
        f'max(wva_desired_replicas{{namespace="wva-system",{variant}}})'
    )


FORGED = (
    'wva_desired_replicas{variant_name="va",namespace="ns",job="wva-metrics",service="wva-metrics",'
    'exported_namespace="ns",exported_job="wva-metrics"} 1000\n'
    'wva_desired_replicas{variant_name="va",exported_namespace="ns"} 1000\n'
)
OWN = 'wva_desired_replicas{variant_name="va",namespace="ns"} 2\n'
CONTROLLER = {"job": "wva-metrics", "namespace": "wva-system", "pod": "controller"}
TENANT = {"job": "wva-metrics", "namespace": "tenant", "pod": "page"}


@pytest.fixture
async def scraped(instruments):
    """Return (function that scrapes pages by an embedded Prometheus and waits, lines of the log)."""
    clock = VirtualClock()
    async with EmbeddedPrometheus(now=clock.now) as prometheus:
        connection = PrometheusSettings(prometheus.url, allow_http=True)
        async with PrometheusClient(connection, clock=clock, instruments=instruments) as client:

            async def wait(*targets, desired=2):
                """Return whether the number was seen."""
                prometheus.scraper.discover(lambda: list(targets))
                await prometheus.scrape()
                task = asyncio.create_task(starter(client, clock).wait_visible(KEY, desired))
                while not task.done():
                    await asyncio.sleep(0.002)
                    if not task.done():
                        clock.advance_to(clock.elapsed_seconds + 0.01)
                return task.result()

            with capture_logs() as lines:
                yield wait, lines


async def test_a_forged_number_does_not_end_the_wait(scraped):
    """A page cannot set the labels that Prometheus gives to its target, so its number does not count."""
    wait, lines = scraped
    own = ScrapeTarget(InProcess(lambda: OWN.replace(" 2", " 0")), CONTROLLER)
    assert not await wait(own, ScrapeTarget(InProcess(lambda: FORGED), TENANT))
    assert lines == []
    assert await wait(ScrapeTarget(InProcess(lambda: OWN), CONTROLLER), ScrapeTarget(InProcess(lambda: FORGED), TENANT))


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (CONTROLLER | {"job": "by-hand"}, "job=by-hand namespace=wva-system"),
        ({"job": "wva-metrics", "pod": "controller"}, "job=wva-metrics namespace=ns"),
        (TENANT, "job=wva-metrics namespace=tenant"),
    ],
)
async def test_the_targets_that_have_a_number_instead_are_named(scraped, labels, told):
    """The wait ends, and the log has the expected labels and the labels that exist."""
    wait, lines = scraped
    assert not await wait(ScrapeTarget(InProcess(lambda: OWN if labels is not TENANT else FORGED), labels))
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("published_number_not_found", "warning")
    assert (line["variant"], line["expected"]) == ("ns/va", '{job="wva-metrics",namespace="wva-system"}')
    assert line["found_only"] == [told]
    assert "WVA_METRICS_JOB" in line["hint"]


async def test_the_job_holds_where_prometheus_gives_no_namespace(scraped):
    """A page can set ``namespace`` then. It cannot set ``job``, because every target has one."""
    wait, _ = scraped
    own = ScrapeTarget(InProcess(lambda: OWN.replace(" 2", " 0")), CONTROLLER)
    forged = OWN.replace('namespace="ns"', 'exported_namespace="ns",namespace="wva-system",job="wva-metrics"')
    assert not await wait(own, ScrapeTarget(InProcess(lambda: forged), {"job": "kubernetes-pods", "pod": "page"}))


async def test_where_a_tenant_chooses_the_labels_of_a_target_the_forged_number_counts(scraped):
    """Relabelling and honorLabels need rights over Prometheus, which a page does not have."""
    wait, _ = scraped
    own = ScrapeTarget(InProcess(lambda: OWN.replace(" 2", " 0")), CONTROLLER)
    assert await wait(own, ScrapeTarget(InProcess(lambda: OWN.replace(" 2", " 1000")), CONTROLLER | {"pod": "page"}))
    forged = OWN.replace('namespace="ns"', 'exported_namespace="ns",namespace="wva-system",job="wva-metrics"')
    honoured = ScrapeTarget(InProcess(lambda: forged), TENANT, honor_labels=True)
    assert await wait(own, honoured)


async def test_nothing_is_told_without_any_number(scraped):
    """Prometheus may not have scraped yet, so WVA does not blame the labels."""
    wait, lines = scraped
    assert not await wait(ScrapeTarget(InProcess(lambda: "up 1\n"), CONTROLLER))
    assert lines == []


def test_the_question_about_others_takes_no_time_to_speak_of():
    """Requests wait during this question. Its answer has one series for each target, however many a page exposes."""
    assert DIAGNOSIS_SECONDS < VISIBLE_SECONDS / 4
    tree = promql_parser.parse(unpinned_query(KEY))
    assert tree.modifier.labels == ["job", "namespace"]
