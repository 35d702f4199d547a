"""Traffic of plain shapes has the given rates and lengths, and depends on its seed alone."""

from dataclasses import fields

import numpy as np
import pytest

from wva.sim.traffic import shapes

KINDS = (
    shapes.answer_shift,
    shapes.bursts,
    shapes.constant,
    shapes.flash_crowd,
    shapes.jittered_bursts,
    shapes.levels,
    shapes.low_traffic,
    shapes.office,
    shapes.prompt_shift,
    shapes.ramp,
    shapes.sine,
    shapes.slow_ramp,
    shapes.step,
    shapes.upstream_ramp,
    shapes.upstream_two_variants,
    shapes.viral,
)


def rate(traffic, start, end):
    """Return the requests per second between two shares of the duration."""
    span = traffic.duration_seconds
    return np.sum((traffic.arrival_seconds >= start * span) & (traffic.arrival_seconds < end * span)) / (
        (end - start) * span
    )


@pytest.mark.parametrize("kind", KINDS)
def test_columns_fit_together_and_come_from_the_seed(kind):
    """Arrivals are sorted and within the duration, lengths are at least 1, and equal seeds give equal columns."""
    one, same, other = kind(7), kind(7), kind(8)
    assert np.all(np.diff(one.arrival_seconds) >= 0)
    assert 0 <= one.arrival_seconds[0] <= one.arrival_seconds[-1] <= one.duration_seconds
    assert min(one.prompt_tokens.min(), one.output_tokens.min()) >= 1
    assert np.all((one.prefix_tokens <= one.prompt_tokens) & (one.shared_tokens <= one.prompt_tokens))
    for field in fields(one):
        assert np.array_equal(getattr(one, field.name), getattr(same, field.name))
        column = getattr(one, field.name)
        assert not isinstance(column, np.ndarray) or len(column) == one.count
    assert not np.array_equal(one.arrival_seconds, other.arrival_seconds)


def test_the_shapes_have_their_rates():
    """Each part of a shape has its rate, within the chance of a Poisson process."""
    assert rate(shapes.sine(1), 0, 1) == pytest.approx(14.0, rel=0.02)
    step = shapes.step(1, low=2.0, high=20.0)
    assert [rate(step, 0, 0.2), rate(step, 0.2, 0.6), rate(step, 0.6, 1)] == pytest.approx([2, 20, 2], rel=0.08)
    bursts = shapes.bursts(1, duration_seconds=4800.0, low=2.0, high=20.0)
    assert [rate(bursts, 0, 3 / 16), rate(bursts, 3 / 16, 1 / 4)] == pytest.approx([2, 20], rel=0.1)
    ramp = shapes.ramp(1)
    assert [rate(ramp, 0, 1 / 6), rate(ramp, 1 / 3, 2 / 3), rate(ramp, 5 / 6, 1)] == pytest.approx([2, 20, 2], rel=0.1)
    slow = shapes.slow_ramp(1)
    assert [rate(slow, 0, 0.5), rate(slow, 0.45, 0.55)] == pytest.approx([13, 22.9], rel=0.03)
    parts = [rate(shapes.upstream_ramp(1), part / 7, (part + 1) / 7) for part in range(7)]
    assert parts == pytest.approx([2, 4, 6, 8, 10, 4, 1], rel=0.15)
    assert shapes.upstream_two_variants(1).count == pytest.approx(7800, rel=0.04)


def test_levels_follow_each_other():
    """Each rate has an equal part of the time."""
    found = shapes.levels(1, duration_seconds=3000.0, parts=(2.0, 20.0, 5.0))
    assert [rate(found, 0, 1 / 3), rate(found, 1 / 3, 2 / 3), rate(found, 2 / 3, 1)] == pytest.approx(
        [2, 20, 5], rel=0.1
    )


def test_jittered_bursts_come_at_uneven_times_and_heights():
    """Bursts last 3 to 6 minutes, 14 to 26 minutes apart, and each has a height of its own."""
    found = shapes.jittered_bursts(1, low=2.0, least=12.0, most=22.0)
    minutes = np.bincount((found.arrival_seconds // 60).astype(int), minlength=240) / 60
    high = minutes > 7.0
    begins = np.flatnonzero(high[1:] & ~high[:-1]) + 1
    lengths = [int(np.argmin(np.append(high[begin:], False))) for begin in begins]
    assert len(begins) == pytest.approx(12, abs=2)
    assert (min(lengths), max(lengths)) == (pytest.approx(3, abs=1), pytest.approx(6, abs=1))
    assert len(set(np.diff(begins))) > 5
    peaks = [minutes[begin + 1] for begin in begins]
    assert 10.0 < min(peaks) < 16.0 < max(peaks) < 24.0
    assert np.median(minutes[~high]) == pytest.approx(2.0, rel=0.1)


def test_what_is_viral_rises_fast_and_decays_slowly():
    """The rate is steady, eight times as high 3 minutes after an unknown time, and falls as t^-0.8 from there."""
    begins = set()
    for seed in range(1, 4):
        found = shapes.viral(seed, duration_seconds=7200.0, rate=30.0)
        minutes = np.bincount((found.arrival_seconds // 60).astype(int), minlength=120) / 60
        begin = int(np.argmax(minutes > 36.0))
        begins.add(begin)
        assert 20 <= begin <= 60
        assert minutes[: begin - 1].mean() == pytest.approx(30.0, rel=0.05)
        assert minutes.max() == pytest.approx(240.0, rel=0.12)
        assert minutes[begin + 30] == pytest.approx(30.0 + 210.0 * 10.0**-0.8, rel=0.15)
    assert len(begins) == 3


def test_an_office_has_days_and_a_weekend():
    """A day is four times the night, the lunch lower, Saturday a fifth, and midnight has a job."""
    found = shapes.office(1, rate=1.0, duration_seconds=3 * 86_400.0)
    hours = np.bincount((found.arrival_seconds // 3600).astype(int), minlength=72) / 3600
    night, day = hours[3:9].mean(), hours[[10, 11, 14, 15, 16]].mean()
    assert day / night == pytest.approx(4.0, rel=0.1)
    assert hours[12] / day == pytest.approx(0.65, abs=0.06)
    assert hours[58] / day == pytest.approx(0.2, abs=0.06)
    assert hours[24] - hours[25] == pytest.approx(2.0 / 3.0, rel=0.25)
    assert hours[34] / hours[10] != pytest.approx(1.0, abs=0.01)
    late = shapes.office(1, rate=1.0, duration_seconds=3600.0, begin_hour=8.75)
    assert rate(late, 0.5, 1) / rate(late, 0, 0.2) == pytest.approx(4.0, rel=0.2)


def test_a_flash_crowd_is_as_high_as_it_was_asked_for():
    """Each part of the time has one crowd of the given height. Outside of them the rate is the steady one."""
    crowd = shapes.flash_crowd(1, duration_seconds=7200.0, rate=20.0, height=3.0, crowds=2)
    minutes = np.bincount((crowd.arrival_seconds // 60).astype(int), minlength=120) / 60
    assert np.median(minutes) == pytest.approx(20.0, rel=0.05)
    for part in (minutes[:60], minutes[60:]):
        assert np.sort(part)[-4:].mean() == pytest.approx(60.0, rel=0.05)


def test_shifts_change_the_lengths_from_a_third_on_and_nothing_else():
    """From a third of the time on, prompts are 8 times as long, or answers 4 times."""
    for shifted, column, factor in (
        (shapes.prompt_shift(1), "prompt_tokens", 8),
        (shapes.answer_shift(1), "output_tokens", 4),
    ):
        plain = shapes.constant(1, duration_seconds=shifted.duration_seconds, rate=4.0, sizes=shapes.SHORT)
        later = plain.arrival_seconds >= plain.duration_seconds / 3
        before = getattr(plain, column)
        assert np.array_equal(getattr(shifted, column), np.where(later, before * factor, before))
        assert np.array_equal(shifted.arrival_seconds, plain.arrival_seconds)


def test_low_traffic_has_minutes_to_hours_between_requests():
    """All gaps between requests lie within the two bounds."""
    gaps = np.diff(shapes.low_traffic(1, duration_seconds=30 * 86_400.0).arrival_seconds)
    assert 60 <= gaps.min() < 120
    assert 2 * 3600 < gaps.max() <= 3 * 3600


def test_one_column_does_not_move_another():
    """Other lengths do not change arrivals and draws, and another rate does not change lengths."""
    long, short = shapes.sine(3), shapes.sine(3, sizes=shapes.SHORT)
    assert np.array_equal(long.arrival_seconds, short.arrival_seconds)
    assert np.array_equal(long.draw, short.draw)
    faster = shapes.sine(3, rate=20.0)
    assert np.array_equal(faster.prompt_tokens[: long.count], long.prompt_tokens)
