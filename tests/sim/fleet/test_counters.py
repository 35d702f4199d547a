"""The bounds of histograms."""

from itertools import pairwise

from wva.sim.fleet.counters import HISTOGRAMS, bucket_bounds, one_two_five


def test_token_buckets_end_at_the_limit():
    """The series 1, 2, 5 per decade ends at its largest number that is not above the limit."""
    assert one_two_five(100) == (1, 2, 5, 10, 20, 50, 100)
    assert one_two_five(300)[-1] == 200


def test_each_histogram_has_rising_bounds():
    """The bounds of each histogram rise. They follow each other, and the last entry is the end of all."""
    bounds, starts = bucket_bounds(1000)
    assert len(starts) == HISTOGRAMS + 1
    assert starts[-1] == len(bounds)
    for start, end in pairwise(starts):
        assert list(bounds[start:end]) == sorted(set(bounds[start:end]))
