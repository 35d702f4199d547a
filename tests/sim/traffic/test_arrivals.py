"""Arrivals follow the rate, are sorted and within the duration, and have gaps of the chosen kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.traffic.arrivals import gamma, poisson, renewal
from wva.sim.traffic.rates import RateProfile, mean_rate
from wva.sim.traffic.streams import stream

profiles = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=6).map(
    lambda pairs: RateProfile(tuple(sorted((float(at), float(rate)) for at, rate in pairs)))
)


@given(profile=profiles, duration=st.integers(1, 80), seed=st.integers(0, 2**32), shape=st.sampled_from([0.5, 1, 3]))
def test_arrivals_are_sorted_within_the_duration_and_never_where_the_rate_is_0(profile, duration, seed, shape):
    """Arrivals are sorted and lie where the rate is positive, for any profile, duration and kind of gaps."""
    for at in (
        poisson(stream(seed, "a"), profile, duration_seconds=float(duration)),
        gamma(stream(seed, "a"), profile, duration_seconds=float(duration), shape=shape),
    ):
        assert np.all(np.diff(at) >= 0)
        assert np.all((at >= 0) & (at < duration))
        for one in at:
            assert profile.rate(one) > 0 or profile.rate(np.nextafter(one, 0)) > 0


@given(profile=profiles)
def test_evenly_spaced_expectations_arrive_where_the_cumulated_rate_says(profile):
    """The inverse of the cumulated rate is exact: as many are expected up to each as have come."""
    at = renewal(stream(0, "a"), profile, duration_seconds=70.0, gaps=lambda _, count: np.ones(count))
    expected = [mean_rate(profile, duration_seconds=one) * one for one in at]
    assert expected == pytest.approx(np.arange(1, len(at) + 1), abs=1e-6)
    assert mean_rate(profile, duration_seconds=70.0) * 70.0 == pytest.approx(len(at) + 0.5, abs=0.5 + 1e-6)


def test_counts_match_the_rate_in_each_part():
    """Over a ramp and a step the number of arrivals is the integral, within a few standard deviations."""
    profile = RateProfile(((0.0, 5.0), (1000.0, 25.0), (1000.0, 0.0), (2000.0, 0.0), (2000.0, 8.0)))
    at = poisson(stream(1, "a"), profile, duration_seconds=3000.0)
    counts, _ = np.histogram(at, bins=[0, 500, 1000, 2000, 3000])
    assert counts == pytest.approx([5_000, 10_000, 0, 8_000], abs=400)


@pytest.mark.parametrize("shape", [0.5, 0.84, 1.0, 4.0])
def test_gamma_gaps_have_their_coefficient_of_variation(shape):
    """The coefficient of variation is the square root of 1 / shape."""
    at = gamma(stream(2, "a"), RateProfile.constant(10.0), duration_seconds=20_000.0, shape=shape)
    gaps = np.diff(at)
    assert gaps.mean() == pytest.approx(0.1, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, rel=0.02)


def test_a_higher_rate_has_the_same_gaps_and_more_of_them():
    """With one seed, a higher rate has the same gaps in proportion, so that two scenarios differ in the rate alone."""
    slow = poisson(stream(3, "a"), RateProfile.constant(2.0), duration_seconds=1000.0)
    fast = poisson(stream(3, "a"), RateProfile.constant(8.0), duration_seconds=1000.0)
    assert len(fast) > 3 * len(slow)
    assert fast[: len(slow)] * 4 == pytest.approx(slow)
