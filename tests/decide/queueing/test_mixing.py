"""Fast and slow variants behind one router."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from wva.decide.measure.queueing import MISSED_BY_SLOW, Assured, FleetVariant, ServiceTimes, usage


def kind(used, size, base, slope, cost, *, lowest=0, highest=math.inf):
    """Return a variant of which a share may be in use; 0 where the targets are out of reach."""
    service = ServiceTimes(base, slope, 0.0, 0.0, 0.0, 0.0, 0.0, size, 0.0)
    one = Assured(service, 1.0, used, 0.0, 0.0, 0.0, 0.0, "ITL", used > 0)
    return FleetVariant(one, cost, lowest, highest)


FAST = kind(0.5, 256, 5_000, 60, 40)
SLOW = kind(0.02, 120, 11_000, 200, 20)


def test_one_variant_is_used_as_far_as_it_may():
    """There is no other variant to compare with."""
    assert usage([FAST], 10) == 0.5


def test_variants_that_may_be_used_alike_stay_together():
    """The difference is too small to leave a variant out."""
    assert usage([FAST, kind(0.48, 120, 11_000, 200, 20)], 10) == 0.48


def test_a_slow_variant_that_can_go_is_left_out():
    """The slow variant would keep the fast ones from being used fully."""
    assert usage([FAST, SLOW], 10) == 0.5


def test_few_requests_go_to_slow_replicas_that_must_stay():
    """The other variants are used less, until the slow one's share may miss the targets."""
    stays = kind(0.02, 120, 11_000, 200, 20, lowest=1)
    found = usage([FAST, stays], 20)
    assert 0.02 < found < 0.5
    assert stays.assured.rate_at(found) <= MISSED_BY_SLOW * 20 * (1 + 1e-9)


def test_a_variant_that_never_meets_the_targets_counts_for_nothing():
    """This also holds if its last replica must stay."""
    assert usage([FAST, kind(0.0, 120, 11_000, 200, 20, lowest=1)], 20) == 0.5
    assert usage([kind(0.0, 120, 11_000, 200, 20)], 20) == 0
    assert usage([], 20) == 0


def test_a_variant_at_its_maximum_leaves_the_rest_to_the_slow_one():
    """The fast variant alone cannot carry the load."""
    assert usage([kind(0.5, 256, 5_000, 60, 40, highest=1), SLOW], 12) == 0.02


kinds = st.builds(
    kind,
    used=st.floats(0.001, 1),
    size=st.integers(1, 1000).map(float),
    base=st.floats(1, 1e6),
    slope=st.floats(0.1, 1e4),
    cost=st.floats(0, 1e3),
    lowest=st.integers(0, 3),
    highest=st.sampled_from([3.0, 30.0, math.inf]),
)


@given(st.lists(kinds, min_size=1, max_size=5), st.floats(0, 1e4))
def test_there_is_always_a_use_that_one_of_them_may_have(found, demand):
    """It is between the lowest and the highest share."""
    used = usage(found, demand)
    assert min(each.assured.used for each in found) <= used <= max(each.assured.used for each in found)
