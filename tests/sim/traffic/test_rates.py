"""Each shape of a rate has its levels, and the combination of profiles is exact arithmetic on them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wva.sim.traffic import rates
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.streams import stream

profiles = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=6).map(
    lambda pairs: RateProfile(tuple(sorted((float(at), float(rate)) for at, rate in pairs)))
)
stairs = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6).map(rates.steps)
instants = st.floats(0, 60).filter(lambda at: abs(at - round(at)) > 1e-6)  # at a point, the rate may have a step

RAMP = RateProfile(((100.0, 2.0), (200.0, 10.0), (200.0, 4.0), (300.0, 0.0)))


@pytest.mark.parametrize(
    ("at", "rate"), [(0, 2), (100, 2), (150, 6), (199.9999999, 10), (200, 4), (250, 2), (300, 0), (1e6, 0)]
)
def test_rate_is_linear_between_points_and_constant_outside(at, rate):
    """Between two points the rate is linear. Two points at one time make a step at that time."""
    assert RAMP.rate(at) == pytest.approx(rate)


@pytest.mark.parametrize("points", [(), ((1.0, 1.0), (0.0, 1.0)), ((0.0, -1.0),)])
def test_bad_profiles_are_refused(points):
    """A profile needs points, rising times and rates of at least 0."""
    with pytest.raises(ValueError, match="rate profile"):
        RateProfile(points)


@given(profile=profiles, factor=stairs, at=instants)
def test_a_sum_and_a_product_are_those_of_the_rates(profile, factor, at):
    """Any profiles can be added, and a profile can be multiplied with a factor that is constant in pieces."""
    both = rates.total(profile, factor)
    assert both.rate(at) == pytest.approx(profile.rate(at) + factor.rate(at), abs=1e-6)
    assert rates.product(profile, factor).rate(at) == pytest.approx(profile.rate(at) * factor.rate(at), abs=1e-6)


@given(profile=profiles, duration=st.integers(1, 60))
@example(profile=RateProfile(((16.0, 0.0), (16.0, 7.0), (29.0, 6.0), (42.0, 0.0))), duration=50)
def test_the_mean_is_the_integral_over_the_duration(profile, duration):
    """Between two points the rate is linear, so its integral is the width times the rate in the middle."""
    edges = sorted({0.0, float(duration), *(at for at, _ in profile.points if 0.0 < at < duration)})
    integral = sum((end - start) * profile.rate((start + end) / 2) for start, end in pairwise(edges))
    assert rates.mean_rate(profile, duration_seconds=duration) * duration == pytest.approx(integral, abs=1e-6)


@given(profile=profiles.filter(lambda it: it.rate(0.5) > 0), mean=st.floats(0.01, 1000))
def test_a_scaled_rate_has_the_mean_that_was_asked_for(profile, mean):
    """A scaled rate has the given mean and the same shape."""
    changed = rates.scaled(profile, mean=mean, duration_seconds=40.0)
    assert rates.mean_rate(changed, duration_seconds=40.0) == pytest.approx(mean)


def test_silence_cannot_be_scaled():
    """A rate of 0 cannot be scaled to another mean, because it has no shape."""
    silence = RateProfile.constant(0.0)
    assert rates.scaled(silence, mean=0.0, duration_seconds=10.0) == silence
    with pytest.raises(ValueError, match="no other mean"):
        rates.scaled(silence, mean=1.0, duration_seconds=10.0)


@given(
    table=st.lists(st.floats(1.0, 3.0), min_size=1, max_size=30),
    first=st.integers(0, 40),
    hours=st.integers(1, 50),
)
def test_a_table_of_hours_begins_where_it_is_told_and_repeats(table, first, hours):
    """Each hour has the mean that the table has for it, unless a trough would need a rate below 0."""
    factor = rates.hourly(table, first_hour=first, duration_seconds=hours * 3600.0)
    at, heights = rates.within(factor, duration_seconds=hours * 3600.0)
    areas = np.concatenate(([0.0], np.cumsum(np.diff(at) * (heights[1:] + heights[:-1]) / 2)))
    edges = np.arange(hours + 1) * 3600.0
    between = np.array([rates.mean_rate(factor, duration_seconds=edge) * edge if edge else 0.0 for edge in edges])
    means = np.diff(between) / 3600.0
    assert areas[-1] == pytest.approx(between[-1])
    if heights.min() > 0:
        assert means == pytest.approx([table[(first + hour) % len(table)] for hour in range(hours)], rel=0.01)


def test_the_factor_of_the_minute_can_leave_the_hours_as_they_are():
    """After levelling, the factor has a mean of 1 within each hour."""
    factor = rates.minute_factor(stream(1, "minutes"), duration_seconds=5 * 3600.0, rho=0.8, sigma=0.3)
    values = np.array([rate for _, rate in rates.levelled(factor).points[:300]])
    assert values.reshape(5, 60).mean(axis=1) == pytest.approx(np.ones(5))
    assert values.std() > 0.2


def test_spells_take_their_share_of_the_time():
    """If heights do not vary, the factor is the floor outside of a spell, and higher by 1 in it."""
    shape = rates.OnOff(on_seconds=10.0, off_seconds=30.0, off_sigma=0.5, height_sigma=0.0, floor=0.01)
    factor = rates.on_off(stream(1, "spells"), shape, duration_seconds=400_000.0)
    assert {round(rate, 9) for _, rate in factor.points} == {0.01, 1.01}
    assert rates.mean_rate(factor, duration_seconds=400_000.0) == pytest.approx(0.26, rel=0.03)


def test_the_sine_and_the_bursts_have_their_levels():
    """Sine, bursts and flash crowd have the given extremes, periods and durations."""
    wave = rates.sine(low=1.0, high=5.0, period_seconds=640.0, duration_seconds=1280.0)
    assert [wave.rate(at) for at in (0.0, 160.0, 320.0, 640.0, 960.0)] == pytest.approx([1, 3, 5, 1, 5])
    load = rates.bursts(low=1.0, high=9.0, burst_seconds=5.0, period_seconds=20.0, duration_seconds=60.0)
    assert [load.rate(at) for at in (0.0, 14.9, 15.0, 19.9, 20.0, 35.0)] == [1, 1, 9, 9, 1, 9]
    crowd = rates.flash_crowd(at_seconds=10.0, height=3.0, rise_seconds=2.0, hold_seconds=5.0, fall_seconds=4.0)
    assert [crowd.rate(at) for at in (5.0, 11.0, 12.0, 17.0, 19.0, 30.0)] == pytest.approx([1, 2, 3, 3, 2, 1])


def test_the_factor_of_the_minute_has_its_spread_and_memory():
    """The factor is a log-normal AR(1) process around 1."""
    factor = rates.minute_factor(stream(1, "minutes"), duration_seconds=60.0 * 200_000, rho=0.8, sigma=0.13)
    values = np.array([rate for _, rate in factor.points])
    logarithms = np.log(values)
    assert values.mean() == pytest.approx(1.0, abs=0.01)
    assert logarithms.std() == pytest.approx(0.13, rel=0.03)
    assert np.corrcoef(logarithms[1:], logarithms[:-1])[0, 1] == pytest.approx(0.8, abs=0.01)
