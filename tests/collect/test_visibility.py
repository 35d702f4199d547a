"""Waiting until Prometheus has what was published, but not for long."""

from __future__ import annotations

import asyncio

import promql_parser
import pytest

from wva.collect.answers import ErrorKind, InstantVector, PrometheusError, Series
from wva.collect.visibility import SETTLE_SECONDS, VISIBLE_SECONDS, published_query, wait_visible
from wva.model.variant import VariantKey
from wva.sim.world.clock import VirtualClock

KEY = VariantKey("ns", "va")


class Prometheus:
    """Has a number from some moment on; answers errors if told to."""

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
        return InstantVector((Series({}, (at, self._value if there else "0")),))


async def waited(prometheus, clock, desired=2):
    """Return whether it was seen, and how long that took in virtual time."""
    task = asyncio.create_task(wait_visible(KEY, desired, prometheus=prometheus, clock=clock))
    while not task.done():
        for _ in range(10):
            await asyncio.sleep(0)
        if not task.done():
            clock.advance_to(clock.elapsed_seconds + 0.01)
    return task.result(), clock.elapsed_seconds


async def test_it_returns_as_soon_as_the_number_is_there():
    """And a moment later: whoever asked Prometheus just before has done by then what it wanted to do."""
    clock = VirtualClock()
    assert clock.now() == int(clock.now())
    seen, seconds = await waited(Prometheus(clock, since=1.0), clock)
    assert seen
    assert seconds == pytest.approx(1.0 + SETTLE_SECONDS, abs=0.03)


@pytest.mark.parametrize(("since", "counts"), [(0.05, 1.0), (0.95, 1.0), (1.05, 2.0)])
async def test_a_sample_counts_from_the_next_whole_second_on(since, counts):
    """KEDA asks for the value at the last whole second: until then it still reads what was there before."""
    clock = VirtualClock()
    seen, seconds = await waited(Prometheus(clock, since=since), clock)
    assert seen
    assert seconds == pytest.approx(counts + SETTLE_SECONDS, abs=0.03)


async def test_the_beginning_of_a_second_is_not_missed():
    """From then on autoscalers may see the number: the question is put at once, and not with the next of five."""
    clock = VirtualClock()
    clock.advance_to(0.13)
    seen, seconds = await waited(Prometheus(clock, since=0.5), clock)
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
    """Not scraped yet, a smaller number, none, or no answer: whoever waits for a replica is not kept longer."""
    clock = VirtualClock()
    prometheus = Prometheus(clock, **script)
    seen, seconds = await waited(prometheus, clock)
    assert not seen
    assert seconds == pytest.approx(VISIBLE_SECONDS, abs=0.03)
    assert 5 <= prometheus.asked <= 20


def test_the_query_names_one_variant():
    """In its own namespace, whichever label that is in."""
    assert published_query(KEY) == (
        'max(wva_desired_replicas{variant_name="va",exported_namespace="ns"}'
        ' or wva_desired_replicas{variant_name="va",namespace="ns"})'
    )
