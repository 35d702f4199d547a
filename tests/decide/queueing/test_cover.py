"""Replicas of several variants that carry a demand: enough, cheap, within bounds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NAMESPACE
from wva.decide.queueing.cover import SHRINK_SHARE, Carrier, carried, cover
from wva.model.variant import VariantKey

CHEAP, DEAR = VariantKey(NAMESPACE, "cheap"), VariantKey(NAMESPACE, "dear")


def test_the_last_replica_is_the_cheapest_that_covers_the_rest():
    """Large replicas are cheaper per request, but a small one does for the rest."""
    large = Carrier(DEAR, cost=80, rate=10, planned=0, counted=0, lowest=0)
    small = Carrier(CHEAP, cost=12, rate=1, planned=0, counted=0, lowest=0)
    assert cover(20.5, [large, small], shrinks=True) == ({DEAR: 2, CHEAP: 1}, 0.0)


def test_a_full_variant_leaves_the_rest_to_the_next():
    """The cheapest grows to its maximum, the next takes over, and what is left is said."""
    first = Carrier(CHEAP, cost=1, rate=1, planned=1, counted=1, lowest=1, highest=3)
    second = Carrier(DEAR, cost=9, rate=1, planned=1, counted=1, lowest=1, highest=2)
    assert cover(4.5, [first, second], shrinks=True) == ({CHEAP: 3, DEAR: 2}, 0.0)
    assert cover(9.0, [first, second], shrinks=True) == ({CHEAP: 3, DEAR: 2}, 4.0)


def test_whole_replicas_that_fit_exactly_need_no_further_one():
    """Two requests per second are two replicas for one each."""
    carrier = Carrier(CHEAP, cost=1, rate=1, planned=0, counted=0, lowest=0)
    assert cover(2.0, [carrier], shrinks=False) == ({CHEAP: 2}, 0.0)


def test_an_exact_fit_is_no_shortage():
    """Rounding in the last digit buys no replica."""
    carrier = Carrier(CHEAP, cost=1, rate=0.1, planned=3, counted=3, lowest=1)
    assert cover(0.1 + 0.2, [carrier], shrinks=False) == ({CHEAP: 3}, 0.0)


@st.composite
def carriers(draw: st.DrawFn) -> Carrier:
    """Draw a variant with any number of replicas, some of which may not come."""
    lowest = draw(st.integers(0, 3))
    planned = lowest + draw(st.integers(0, 9))
    counted = planned - draw(st.integers(0, planned))
    return Carrier(
        CHEAP,
        cost=draw(st.floats(0, 100)),
        rate=draw(st.floats(0.01, 100)),
        planned=planned,
        counted=counted,
        lowest=lowest,
        highest=draw(st.none() | st.integers(planned, planned + 5)),
        grows=counted == planned,
    )


@given(st.floats(0, 500), st.lists(carriers(), max_size=4), st.booleans())
def test_a_cover_covers(demand, drawn, shrinks):
    """Either the demand is carried or everything is full; nothing leaves its bounds; a shrink leaves room."""
    given_ones = [
        Carrier(VariantKey(NAMESPACE, str(at)), c.cost, c.rate, c.planned, c.counted, c.lowest, c.highest, c.grows)
        for at, c in enumerate(drawn)
    ]
    numbers, short = cover(demand, given_ones, shrinks=shrinks)
    lost = {each.key: each.planned - each.counted for each in given_ones}
    capacity = math.fsum(
        each.rate * min(numbers[each.key], each.counted) if lost[each.key] else each.rate * numbers[each.key]
        for each in given_ones
    )
    assert capacity + short >= demand * (1 - 1e-6) - 1e-6
    for each in given_ones:
        number = numbers[each.key]
        assert number >= min(each.lowest, each.planned)
        assert each.highest is None or number <= each.highest
        if not shrinks or carried(given_ones) * SHRINK_SHARE < demand:
            assert number >= each.planned
        if short:
            assert not each.grows or number == each.highest
