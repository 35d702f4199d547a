"""Buckets, weights, copies."""

from wva.sim.fleet.histogram import Histogram, one_two_five


def test_value_on_a_bound_belongs_to_it():
    """``le`` means less or equal."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [2, 4, 5]
    assert histogram.total == 14.0


def test_weight_counts_a_value_many_times():
    """One call with weight equals so many calls."""
    histogram = Histogram((1.0,))
    histogram.observe(0.25, weight=8)
    assert histogram.cumulative() == [8, 8]
    assert histogram.total == 2.0


def test_copy_is_independent():
    """Observing in a copy leaves the original alone."""
    histogram = Histogram((1.0,))
    twin = histogram.copy()
    twin.observe(0.5)
    assert histogram.cumulative() == [0, 0]
    assert twin.cumulative() == [1, 1]


def test_token_buckets_end_at_the_limit():
    """The series 1, 2, 5 per decade stops at the largest that does not exceed the limit."""
    assert one_two_five(100) == (1, 2, 5, 10, 20, 50, 100)
    assert one_two_five(300)[-1] == 200
