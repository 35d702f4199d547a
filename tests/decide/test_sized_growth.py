"""How many replicas a model gets at once, on which variants, and when it gets more."""

from __future__ import annotations

import pytest

from tests.builders import NOW, replica, variant
from tests.decide.story import FULL, HOT, TIGHT, Story, numbers
from wva.decide.pipeline import decide
from wva.model.decision import Reason
from wva.model.memory import Memory
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot


@pytest.mark.parametrize(
    ("load", "wanted"),
    [(TIGHT, 11), ((0.79, 0), 12), ((0.0, 2.5), 13), ((0.0, 3), 15), ((0.79, 2.5), 13), ((1.0, 400), 20)],
)
def test_the_ratio_of_usage_to_trigger_says_how_many(load, wanted):
    """ceil(10 * kv / 0.7) and ceil(10 * queue / 2), the larger, twice as many at most; an HPA acts from twelve on."""
    assert Story().cycle(variant(replicas=10), a=[load] * 10)["a"].desired == max(wanted, 12)


def test_a_target_that_nothing_reaches_doubles():
    """With k = K no replica may hold anything, so the model doubles; the queue alone is fine."""
    policy = Policy(saturation=SaturationPolicy(kv_cache_threshold=0.5, kv_spare_trigger=0.5))
    assert Story(policy).cycle(variant(replicas=3), a=[(0.1, 0)] * 3)["a"].desired == 6


def test_overflow_goes_to_the_next_cheapest():
    """The cheap variant gets two more and is full then; the next one gets the rest."""
    decisions = Story().cycle(
        variant("a", cost=5, maximum=3), variant("b", replicas=3, cost=50), a=[FULL], b=[FULL] * 3
    )
    assert numbers(decisions) == {"a": 3, "b": 5}


def test_equal_variants_grow_evenly():
    """The numbers of equal variants differ by one at most."""
    decisions = Story().cycle(variant("a", replicas=2), variant("b", replicas=3), a=[FULL] * 2, b=[FULL] * 3)
    assert numbers(decisions) == {"a": 5, "b": 5}


def test_equal_variants_do_not_share_a_step_that_their_scalers_would_ignore():
    """Forty replicas need two more: one variant gets three, because its scaler ignores two."""
    loads = {"a": [(0.72, 0)] * 20, "b": [(0.72, 0)] * 20}
    found = numbers(Story().cycle(variant("a", replicas=20), variant("b", replicas=20), **loads))
    assert sorted(found.values()) == [20, 23]


def test_a_step_within_the_tolerance_is_enlarged():
    """Trace 06: the scaler of twelve replicas would ignore 13."""
    decision = Story().cycle(variant(replicas=12), a=[(0.72, 0)] * 12)["a"]
    assert (decision.desired, decision.reason) == (14, Reason.SCALE_UP)


def test_a_maximum_within_the_tolerance_is_reported():
    """The scaler would ignore 13, and its maximum allows no more."""
    decision = Story().cycle(variant(replicas=12, maximum=13), a=[HOT] * 12)["a"]
    assert (decision.desired, decision.reason) == (12, Reason.NO_CANDIDATE)
    assert "its scaler ignores a step of 10% or less, and its maximum 13 is no further away" in decision.message


def test_a_shrink_within_the_tolerance_is_enlarged_if_the_load_allows_it():
    """Of ten replicas two go, or none."""
    assert Story().cycle(variant(replicas=10), a=[(0.1, 0)] * 10)["a"].desired == 8
    decision = Story().cycle(variant(replicas=10), a=[(0.6, 0)] * 10)["a"]
    assert (decision.desired, decision.reason) == (10, Reason.SHRINK_UNSAFE)
    stuck = Story().cycle(variant(replicas=10, minimum=9), a=[(0.1, 0)] * 10)["a"]
    assert (stuck.desired, stuck.reason) == (10, Reason.STEADY)


def grown(ages: list[float | None], loads: list[tuple[float, float]], *, ready: int | None = None):
    """Decide on replicas that became Ready this many seconds ago."""
    replicas = [
        replace(replica(f"a-{number}", kv=kv, queue=queue), ready_since=None if age is None else NOW - age)
        for number, (age, (kv, queue)) in enumerate(zip(ages, loads, strict=True))
    ]
    seen = Snapshot.of([variant(replicas=ready or len(ages))], replicas)
    return decide(seen, Memory(), Policy(), NOW)[0][0]


def test_what_the_newest_replicas_relieved_is_not_answered_twice():
    """For a minute the old replicas report the peak from before; the new ones have spare."""
    decision = grown([900, 900, 20, 25], [FULL, FULL, (0.3, 0), (0.4, 0)])
    assert (decision.desired, decision.reason) == (4, Reason.GROWTH_SETTLING)
    assert "that was before the newest 2 replicas served, and those have spare" in decision.message
    assert grown([900, 900, 61, 61], [FULL, FULL, (0.3, 0), (0.4, 0)]).desired == 8


def test_newest_replicas_that_are_full_ask_for_half_as_many_at_most():
    """The newest replicas get most of the requests, so they look busier than all replicas will be."""
    assert grown([900, 900, 20, 25], [FULL, FULL, FULL, FULL]).desired == 6
    assert grown([900, 900, 20, 25], [FULL, FULL, (0.75, 0), (0.75, 0)]).desired == 5


def test_all_replicas_count_when_none_is_newer():
    """No replica is newer in a model that has just started, or if the age of the pods is unknown."""
    assert grown([20, 25], [FULL, FULL]).desired == 4
    assert grown([None, None], [FULL, FULL]).desired == 4
    assert grown([900, None], [FULL, FULL]).desired == 4
