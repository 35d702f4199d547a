"""A history gives traffic and a scenario: rates, lengths, recorded replicas, and assumed values."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.sim.backtest.conftest import MINUTES, ODD
from tests.sim.backtest.engines import ANSWER, MODEL, NAMESPACE, PROMPT, START, rates
from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.backtest.fetch import ModelSpan, fetch
from wva.sim.backtest.fit import fit
from wva.sim.backtest.history import NoHistoryError, RecordedHistory, history
from wva.sim.backtest.scenario import Backtest, backtest, recorded_traffic
from wva.sim.stage.scenario import StartUp

SPAN = ModelSpan(NAMESPACE, MODEL, START, START + 60 * MINUTES - 30)


@pytest.fixture
async def seen(client, clock, tmp_path) -> RecordedHistory:
    """Return the history of two engines."""
    return history(SPAN, await fetch(client, SPAN, tmp_path, clock=clock))


def whole(seen: RecordedHistory, **more) -> Backtest:
    """Return the backtest of a history."""
    return backtest(seen, [fit(variant, seen) for variant in seen.variants], objectives=Objectives(), **more)


def test_traffic_has_the_rate_and_the_lengths_of_the_history(seen):
    """The traffic has the recorded rates of each minute, and the recorded mean lengths."""
    traffic = recorded_traffic(seen, longest=8192)(1)
    wanted = 2.3 * rates(MINUTES)
    counts = np.histogram(traffic.arrival_seconds, bins=np.arange(0, 60 * MINUTES + 1, 300))[0]
    expected = wanted.reshape(-1, 5).sum(axis=1) * 60
    assert np.all(np.abs(counts[1:-1] - expected[1:-1]) < 5 * np.sqrt(expected[1:-1]) + 0.05 * expected[1:-1])
    assert traffic.prompt_tokens.mean() == pytest.approx(PROMPT, rel=0.05)
    assert traffic.output_tokens.mean() == pytest.approx(ANSWER, rel=0.05)
    assert (traffic.prompt_tokens + traffic.output_tokens).max() <= 8192


def test_a_seed_makes_the_same_traffic(seen):
    """The same seed makes the same traffic, even after the columns were written as JSON and read again."""
    made = recorded_traffic(seen, longest=8192)
    back = msgspec.json.decode(msgspec.json.encode(made), type=type(made))
    assert back == made
    assert np.array_equal(made(3).arrival_seconds, back(3).arrival_seconds)
    assert not np.array_equal(made(3).prompt_tokens[:50], made(4).prompt_tokens[:50])


def test_requests_that_wait_have_arrived(seen):
    """Requests that join the queue at the gateway count as arrivals, before any engine receives them."""
    growing = replace(seen, queue=np.arange(SPAN.count) * 30.0)
    more = recorded_traffic(growing, longest=8192)(1).count - recorded_traffic(seen, longest=8192)(1).count
    assert more == pytest.approx(SPAN.count * 30, rel=0.1)


def test_what_a_cache_held_is_shared(seen):
    """Prompts share as many tokens as the recorded cache held."""
    column = {"prefix_queries": np.full(SPAN.count, 1000.0), "prefix_hits": np.full(SPAN.count, 400.0)}
    pods = tuple(replace(pod, signals=pod.signals | column) for pod in seen.variants[0].pods)
    traffic = recorded_traffic(replace(seen, variants=(replace(seen.variants[0], pods=pods),)), longest=8192)(1)
    assert (traffic.prefix_tokens.sum() / traffic.prompt_tokens.sum()) == pytest.approx(0.4, rel=0.01)
    assert traffic.groups == 1


def test_the_scenario_is_that_of_the_history(seen):
    """The scenario has the recorded cost, bounds and engines of variants, and the controller's interval."""
    found = whole(seen)
    (variant,) = found.scenario.variants
    assert (variant.name, variant.price, variant.maximum, variant.replicas) == ("chat", 7.0, 6, 1)
    assert variant.parameters.kv_cache_tokens == ODD.kv_cache_tokens
    assert found.scenario.interval_seconds == 45.0
    assert found.replicas == {"chat": (1,) * SPAN.count}


def test_what_really_ran_is_counted(seen):
    """Reality has hours, cost, and the share of first tokens within the histogram bound next to the objective."""
    reality = whole(seen).reality
    hours = (SPAN.count - 1) * 30 / 3600
    assert reality.replica_hours["chat"] == pytest.approx(hours)
    assert reality.cost == pytest.approx(7.0 * hours)
    assert (reality.ttft_seconds, reality.peak_replicas) == (1.0, 1)
    assert reality.ttft_share == pytest.approx(0.9, rel=0.02)
    assert reality.requests == pytest.approx(2.3 * 60 * rates(MINUTES).sum(), rel=0.05)


def test_what_was_not_seen_is_said(seen):
    """The notes name assumed values: the start time of pods and the controller's interval."""
    notes = whole(replace(seen, interval_seconds=None)).notes
    assert any("--start-up" in note for note in notes)
    assert any("no controller was seen" in note for note in notes)
    given = whole(seen, start_up=StartUp(40.0))
    assert given.variants[0].start_up.median_seconds == 40.0
    assert given.notes == ()


def test_time_without_any_report_is_said(seen):
    """A note has the share of time without reports. That time counts as no load, but may be an outage of Prometheus."""
    dark = np.arange(SPAN.count) < SPAN.count / 4
    variant = seen.variants[0]

    def hidden(column):
        return np.where(dark, np.nan, column)

    pods = tuple(
        replace(pod, signals={name: hidden(column) for name, column in pod.signals.items()}) for pod in variant.pods
    )
    no_engine = replace(seen, variants=(replace(variant, pods=pods),))
    assert not any("count as no load" in note for note in whole(no_engine).notes)
    nothing = replace(seen, variants=(replace(variant, pods=pods, desired=hidden(variant.desired)),))
    assert "no engine and no controller reports in 25% of the time: it counts as no load" in whole(nothing).notes


def test_it_can_be_kept(seen):
    """The backtest is the same after it was written as JSON and read again."""
    found = whole(seen)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Backtest) == found


@pytest.mark.parametrize(("factor", "words"), [(0.0, "at least twice the scrape interval"), (1e6, "choose a shorter")])
def test_what_cannot_be_played_is_refused(seen, factor, words):
    """A history with no requests, or with more than memory holds, is refused."""
    pods = tuple(
        replace(pod, signals=pod.signals | {"ttft_count": pod.signals["ttft_count"] * factor})
        for pod in seen.variants[0].pods
    )
    with pytest.raises(NoHistoryError, match=words):
        whole(replace(seen, variants=(replace(seen.variants[0], pods=pods),)))
