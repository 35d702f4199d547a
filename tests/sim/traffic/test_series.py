"""Traffic from a time series has its rates and mean lengths, step by step."""

import numpy as np
import pytest

from wva.sim.traffic.lengths import Sizes, fixed, histogram
from wva.sim.traffic.series import RateSeries, from_series
from wva.sim.traffic.streams import stream

NAN = np.nan


def series(rate, prompt, output, step=600.0):
    """Return a series of these columns."""
    return RateSeries(step, np.array(rate, float), np.array(prompt, float), np.array(output, float))


def test_each_step_has_its_rate_and_its_mean_lengths():
    """Rates and lengths of each step fit, within the chance of a Poisson process."""
    traffic = from_series(1, series([5, 0, 20], [1000, NAN, 200], [100, NAN, 400]))
    assert traffic.duration_seconds == 1800.0
    step = (traffic.arrival_seconds // 600).astype(int)
    assert np.bincount(step, minlength=3) == pytest.approx([3000, 0, 12_000], abs=350)
    assert [traffic.prompt_tokens[step == at].mean() for at in (0, 2)] == pytest.approx([1000, 200], rel=0.07)
    assert [traffic.output_tokens[step == at].mean() for at in (0, 2)] == pytest.approx([100, 400], rel=0.07)
    again = from_series(1, series([5, 0, 20], [1000, NAN, 200], [100, NAN, 400]))
    assert np.array_equal(traffic.prompt_tokens, again.prompt_tokens)


def test_what_is_not_known_runs_evenly_between_its_neighbours():
    """A gap is filled evenly between its neighbours, and the share of gaps is reported."""
    gap = series([NAN, 10, NAN, 30, NAN], [500] * 5, [100] * 5)
    assert gap.unknown_share == pytest.approx(0.6)
    traffic = from_series(1, gap, sizes=Sizes(fixed(7), fixed(9)))
    counts = np.bincount((traffic.arrival_seconds // 600).astype(int), minlength=5) / 600
    assert counts == pytest.approx([10, 10, 20, 30, 30], rel=0.06)
    assert set(traffic.prompt_tokens) == {500}
    assert set(traffic.output_tokens) == {100}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([1, -1], [5, 5], [5, 5]), r"requests_per_second\[1\] is -1.0: expected 0 to"),
        (([1, 1], [5, np.inf], [5, 5]), r"prompt_tokens\[1\] is inf"),
        (([1, 1], [5, 5], [5]), "output_tokens has the shape"),
        (([NAN, NAN], [5, 5], [5, 5]), "requests_per_second has no value"),
        (([], [], []), "requests_per_second has no value"),
    ],
)
def test_series_that_make_no_sense_are_refused(columns, words):
    """The error names the column and the step."""
    with pytest.raises(ValueError, match=words):
        series(*columns)


def test_a_step_takes_time():
    """A step must take time: without a duration it has no rate."""
    with pytest.raises(ValueError, match="step_seconds is 0"):
        series([1], [1], [1], step=0.0)


def test_lengths_of_a_histogram():
    """Each bucket has its share. Beyond the last finite bound lengths are up to twice as long."""
    lengths = histogram({10.0: 0.0, 100.0: 60.0, 1000.0: 90.0, np.inf: 100.0})(stream(1, "a"), 100_000)
    assert np.mean(lengths <= 100) == pytest.approx(0.6, abs=0.01)
    assert np.mean(lengths <= 1000) == pytest.approx(0.9, abs=0.01)
    assert (lengths.min(), lengths.max()) == (10, 2000)
    assert set(histogram({5.0: 3.0})(stream(1, "a"), 1000)) <= set(range(1, 6))
    with pytest.raises(ValueError, match="without observations"):
        histogram({10.0: 0.0, np.inf: 0.0})
