"""The generated traffic has the published statistics of the traces, each within its bound."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.sim.traffic import traces
from wva.sim.traffic.acceptance import BOUNDS, TRACES, Bound, comparisons
from wva.sim.traffic.kinds import KINDS as KINDS_BY_NAME
from wva.sim.traffic.statistics import Statistics, WeekStatistics, counts, statistics


@pytest.mark.parametrize("first_seed", [0, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", sorted(TRACES))
def test_the_statistics_of_a_trace_are_met(name, first_seed):
    """The statistics are met for two sets of seeds, which differ from each other and from those of the search."""
    missed = [one for one in comparisons(name, first_seed=first_seed) if not one.holds]
    assert not missed


def test_every_trace_is_a_kind():
    """Every trace has a kind of traffic of the same name. Every kind needs only a seed."""
    assert set(TRACES) < set(KINDS_BY_NAME)
    for name, kind in KINDS_BY_NAME.items():
        if not name.startswith("azure-2024"):  # their default duration of a day takes too long
            assert kind(1).count > 0, name


def test_every_statistic_has_a_bound():
    """Bounds and statistics have the same names, so that no bound is left unchecked."""
    assert set(BOUNDS) == {field.name for kind in (Statistics, WeekStatistics) for field in fields(kind)}
    assert Bound(share=0.1).holds(11.0, published=10.0)
    assert not Bound(share=0.1).holds(11.1, published=10.0)
    assert not Bound(difference=0.1).holds(0.0, published=0.2)


@pytest.mark.parametrize(("kind", "sigma"), [(traces.azure_2024_conversation, 0.08), (traces.azure_2024_coding, 0.13)])
def test_minutes_of_the_week_vary_as_the_plotted_bands(kind, sigma):
    """Minutes vary around the mean of the hour and resemble the minute before.

    That mean hides a seventh of the variation.
    """
    variation, memory = [], []
    for seed in range(3):
        minutes = counts(kind(seed, duration_seconds=12 * 3600.0, rate=25.0, day="Tue", hour=12), bin_seconds=60.0)
        away = np.log(minutes[30:-30] / np.convolve(minutes, np.ones(61) / 61, mode="valid"))
        variation.append(away.std())
        memory.append(np.corrcoef(away[1:], away[:-1])[0, 1])
    assert np.mean(variation) == pytest.approx(sigma * 6 / 7, rel=0.1)
    assert np.mean(memory) > 0.6


KINDS = (
    traces.azure_2023_conversation,
    traces.azure_2023_code,
    traces.azure_2024_conversation,
    traces.azure_2024_coding,
    traces.burstgpt,
    traces.mooncake_conversation,
    traces.mooncake_tool,
    traces.mooncake_synthetic,
    traces.client_mix,
)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**62),
    duration=st.floats(900.0, 9000.0),
    rate=st.floats(0.2, 5.0),
)
def test_traffic_of_any_duration_and_rate_is_whole(kind, seed, duration, rate):
    """Arrivals are sorted and within the duration, lengths are within bounds, and the count fits the rate."""
    one, same = (kind(seed, duration_seconds=duration, rate=rate) for _ in range(2))
    assert np.all(np.diff(one.arrival_seconds) >= 0)
    assert np.all((one.arrival_seconds >= 0) & (one.arrival_seconds <= duration))
    assert np.all((one.prompt_tokens >= 1) & (one.prompt_tokens <= 120_000))
    assert np.all((one.output_tokens >= 1) & (one.output_tokens <= 4096))
    for field in fields(one):
        assert np.array_equal(getattr(one, field.name), getattr(same, field.name))
    expected = rate * duration
    assert one.count == pytest.approx(expected, abs=10 * (2.2 * expected) ** 0.5 + 10)
    faster = kind(seed, duration_seconds=duration, rate=4 * rate)
    assert faster.count == pytest.approx(4 * expected, abs=10 * (8.8 * expected) ** 0.5 + 10)


def test_hours_of_the_week_are_chosen_by_day():
    """A day has the hours of that day in the week, and an unknown day is refused."""
    week = TRACES["azure-2024-coding"].weekly(1)
    hours = counts(week, bin_seconds=3600.0)
    tuesday = traces.azure_2024_coding(1, duration_seconds=24 * 3600.0, rate=4.0, day="Tue")
    shape = counts(tuesday, bin_seconds=3600.0)
    assert shape / shape.mean() == pytest.approx(hours[48:72] / hours[48:72].mean(), abs=0.1)
    with pytest.raises(ValueError, match="expected one of Sun, Mon"):
        traces.azure_2024_coding(1, day="Monday")


def test_a_few_clients_send_most():
    """With a few uneven clients the rate varies far more than that of a Poisson process."""
    mix = traces.client_mix(1, clients=12)
    plain = statistics(mix)
    assert plain.dispersion_60s > 10
    assert statistics(traces.client_mix(1, clients=1)).rate == pytest.approx(8.0, rel=0.05)


def test_more_than_fits_into_memory_is_refused():
    """Traffic that is too large for memory is refused before anything is drawn."""
    with pytest.raises(ValueError, match="50000000 fit into memory"):
        traces.azure_2024_coding(1, duration_seconds=7 * 86_400.0, rate=1000.0)
