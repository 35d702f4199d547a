"""What the allocator gives to one model when no limit of GPUs applies."""

from __future__ import annotations

import pytest

from tests.decide.allocate.cases import alone, limits, missing, numbers, offer, on, stock, want
from wva.decide.allocate import UNLIMITED, AllocationPolicy, Stock, allocate

LARGEST = 2**31 - 1


def test_the_variant_with_the_lowest_price_per_capacity_grows_first():
    """When the cheapest variant is at its maximum, the next one grows."""
    large, small = offer("large", 40, 300, 2, floor=1), offer("small", 10, 100, 2, floor=1, ceiling=4)
    assert alone(1300, large, small) == {"large": 3, "small": 4}
    assert alone(300, large, small) == {"large": 1, "small": 1}


def test_the_dearest_replica_goes_first():
    """Each replica is one unit of capacity here, so price alone decides."""
    assert alone(3, offer("large", 20, 1, 2), offer("small", 5, 1, 2, ceiling=2)) == {"large": 1, "small": 2}


def test_the_last_replica_goes_to_the_variant_that_covers_the_rest_at_the_lowest_price():
    """Seven of ten per replica would cost less per capacity, but two small ones do."""
    assert alone(12, offer("large", 9, 10), offer("small", 1.5, 1)) == {"large": 1, "small": 2}


def test_a_price_per_capacity_beats_a_price_per_replica():
    """A card three times as fast at twice the price is the cheaper one."""
    assert alone(9, offer("slow", 20, 1), offer("fast", 40, 3)) == {"slow": 0, "fast": 3}


def test_nothing_is_needed():
    """The variants keep their floors."""
    assert alone(0, offer("a", present=3), offer("b", present=2, floor=1)) == {"a": 0, "b": 1}
    assert alone(-5, offer("a", present=3)) == {"a": 0}
    assert alone(5) == {}


def test_a_need_that_is_no_number():
    """The present capacity stays, at the lowest price."""
    nobody_knows = float("nan")
    assert alone(nobody_knows, offer("a", present=3, floor=1)) == {"a": 3}
    assert alone(nobody_knows, offer("a", present=3), offer("b", 50, 1, 1), offer("u", 5, 0, 2)) == {
        "a": 4,
        "b": 0,
        "u": 2,
    }


def test_no_models():
    """An empty fleet has an empty plan."""
    assert allocate([]).numbers == {}


class TestMoves:
    """A replica that is added costs a share more."""

    def test_a_plan_that_saves_less_than_the_move_is_not_taken(self):
        """A replica for 19 would have to be started, which costs 1.9; the one for 20 is there."""
        assert alone(1, offer("new", 19), offer("there", 20, present=1)) == {"new": 0, "there": 1}

    def test_a_plan_that_saves_more_than_the_move_is_taken(self):
        """A replica for 18 costs 19.8 with its start."""
        assert alone(1, offer("new", 18), offer("there", 20, present=1)) == {"new": 1, "there": 0}

    def test_the_share_is_part_of_the_policy(self):
        """At a share of 0 the allocator takes every saving; at a share of 1 it takes none below half of the price."""
        both = offer("new", 19), offer("there", 20, present=1)
        assert alone(1, *both, policy=AllocationPolicy(move_share=0.0)) == {"new": 1, "there": 0}
        dear = offer("new", 10.5), offer("there", 20, present=1)
        assert alone(1, *dear, policy=AllocationPolicy(move_share=1.0)) == {"new": 0, "there": 1}

    def test_what_is_asked_for_is_no_move(self):
        """A replica that does not exist yet, but is asked for, is kept."""
        assert alone(1, offer("new", 19), offer("asked", 20, present=1, existing=0)) == {"new": 0, "asked": 1}


class TestTies:
    """Ties at the same price: first the most capacity, then the fewest moves, then equal numbers, then names."""

    def test_most_capacity(self):
        """Of two replicas for 20 and one for 40, the allocator takes what carries more."""
        assert alone(2, offer("a", 20, 1), offer("b", 40, 2.5)) == {"a": 0, "b": 1}
        assert alone(2, offer("a", 20, 1.2), offer("b", 40, 2)) == {"a": 2, "b": 0}

    def test_a_dearer_plan_never_wins_by_capacity(self):
        """A dearer plan does not win, however much it carries."""
        assert alone(1, offer("a", 20, 1), offer("b", 20.1, 1000)) == {"a": 1, "b": 0}

    def test_fewest_moves(self):
        """The allocator adds one replica of 40 rather than two of 20."""
        assert alone(2, offer("a", 20, 1), offer("b", 40, 2)) == {"a": 0, "b": 1}

    def test_names(self):
        """Of two variants that differ in nothing else, the allocator takes the first by name."""
        assert alone(1, offer("b", gpus=2), offer("a")) == {"a": 1, "b": 0}

    def test_equal_variants_stay_equal(self):
        """Equal variants share a change. A variant that begins with more replicas keeps more."""
        assert alone(7, offer("a", present=1), offer("b", present=1), offer("c", present=1)) == {"a": 3, "b": 2, "c": 2}
        assert alone(4, offer("a", present=3), offer("b", present=3)) == {"a": 2, "b": 2}
        assert alone(8, offer("a", present=1), offer("b", present=5)) == {"a": 3, "b": 5}
        assert alone(6, offer("a", present=1), offer("b", present=5)) == {"a": 1, "b": 5}
        assert alone(7, offer("a", ceiling=2), offer("b")) == {"a": 2, "b": 5}
        assert alone(2, offer("a", present=3, floor=2), offer("b", present=3)) == {"a": 2, "b": 0}

    def test_of_equal_variants_the_one_with_the_most_spare_grows_first(self):
        """Whatever their sizes are; further replicas go to the smallest. ``rank`` is lower with more spare."""
        busy, calm = {"present": 2, "rank": (0, -0.1, -1.0)}, {"present": 4, "rank": (0, -0.5, -3.0)}
        assert alone(7, offer("a", **busy), offer("b", **calm)) == {"a": 2, "b": 5}
        assert alone(9, offer("a", **busy), offer("b", **calm)) == {"a": 4, "b": 5}
        assert alone(7, offer("a", **busy), offer("b", **calm, ceiling=4)) == {"a": 3, "b": 4}

    def test_equal_variants_with_steps_are_evened_out(self):
        """Both can take three more replicas."""
        large = {"present": 20, "step": 3}
        assert alone(46, offer("a", **large), offer("b", **large)) == {"a": 23, "b": 23}

    def test_equal_variants_stay_apart_where_a_scaler_would_not_follow(self):
        """One variant gets both replicas; if each got one, the scalers would ignore the changes."""
        large = {"present": 20, "step": 2}
        assert alone(42, offer("a", **large), offer("b", **large)) == {"a": 22, "b": 20}


class TestBounds:
    """Floors, ceilings and what the scaler can be brought to."""

    def test_a_ceiling_is_named_with_what_it_keeps_away(self):
        """The cheapest variant that is full lacks five replicas."""
        plan = allocate([want("m", 15, offer("a", ceiling=10, ceiling_origin="HPA ns/a"))])
        assert (numbers(plan), limits(plan), missing(plan)) == ({"a": 10}, {"a": ("HPA ns/a", 5)}, {"m": 5})

    @pytest.mark.parametrize("most", [0, None])
    @pytest.mark.parametrize("capacity", [1.0, 1e15, 1e18])
    def test_a_need_that_is_too_small_to_be_believed_is_none(self, capacity, most):
        """A quotient of it would be rounded to 0: the plan would lack capacity, and name a limit of no replica."""
        small = want("m", 2.2e-309, on("nothing", "a", 0.0, capacity, ceiling=most))
        for free in (UNLIMITED, Stock(), stock()):
            plan = allocate([small], free)
            assert (numbers(plan), limits(plan), missing(plan)) == ({"a": 0}, {}, {})

    def test_the_smallest_need_gets_a_replica(self):
        """Even of the largest capacity."""
        assert alone(1e-300, offer("a", capacity=1e18)) == {"a": 1}

    def test_a_ceiling_that_keeps_nothing_away_is_not_named(self):
        """The sibling covers the rest of the need."""
        plan = allocate([want("m", 15, offer("a", ceiling=10), offer("b", 20))])
        assert (numbers(plan), limits(plan), missing(plan)) == ({"a": 10, "b": 5}, {}, {})

    def test_nobody_is_named_where_no_ceiling_is_in_the_way(self):
        """The variant's capacity is unknown, so the plan names no ceiling."""
        plan = allocate([want("m", 15, offer("a", capacity=0, present=2))])
        assert (numbers(plan), limits(plan), missing(plan)) == ({"a": 2}, {}, {"m": 15})

    def test_a_floor_above_the_ceiling_yields_the_ceiling(self):
        """As in the bounds of a scaler."""
        assert alone(0, offer("a", floor=5, ceiling=3)) == {"a": 3}
        assert alone(0, offer("a", floor=-5, ceiling=-3, present=2)) == {"a": 0}

    def test_a_step_that_the_scaler_ignores_is_enlarged(self):
        """Growth to the next possible number; a shrink only if that leaves enough."""
        ten = offer("a", present=10, step=2)
        assert [alone(need, ten)["a"] for need in (8, 8.5, 9, 10, 11, 12, 13)] == [8, 10, 10, 10, 12, 12, 13]

    def test_the_number_that_is_asked_for_stays_possible(self):
        """It was set when fewer replicas existed."""
        assert alone(11, offer("a", present=11, existing=10, step=2)) == {"a": 11}

    def test_bounds_move_a_number_by_any_step(self):
        """The scaler brings the number into its bounds by itself."""
        assert alone(30, offer("a", present=30, step=4, ceiling=28)) == {"a": 28}
        assert alone(0, offer("a", present=10, step=2, floor=11)) == {"a": 11}

    def test_a_small_step_goes_to_a_sibling_if_that_is_cheaper(self):
        """Four replicas of 10 cost more than one of 25, so the sibling gets the replica."""
        assert alone(31, offer("a", present=30, step=4), offer("b", 25)) == {"a": 30, "b": 1}

    def test_a_variant_of_unknown_capacity_keeps_its_number(self):
        """The variant neither grows nor shrinks, and the allocator counts none of its capacity."""
        unknown = offer("u", 5, 0, present=3)
        assert alone(4, unknown, offer("a")) == {"a": 4, "u": 3}
        assert alone(0, unknown) == {"u": 3}
        assert alone(0, offer("u", 5, float("nan"), present=3, ceiling=2)) == {"u": 2}


class TestLastReplica:
    """A model that may not go to zero."""

    def test_the_cheapest_replica_stays(self):
        """The cheapest replica stays, whatever it carries."""
        assert alone(0, offer("a", 20, 1, 1), offer("b", 10, 5, 1), keeps_one=True) == {"a": 0, "b": 1}
        assert alone(0, offer("a", 20, 7, 1), keeps_one=True) == {"a": 1}
        assert alone(3, offer("a", present=1), keeps_one=True) == {"a": 3}

    def test_it_is_started_if_there_is_none(self):
        """The allocator starts the cheapest replica."""
        assert alone(0, offer("a", 20), offer("b", 10), keeps_one=True) == {"a": 0, "b": 1}

    def test_a_replica_of_unknown_capacity_is_one(self):
        """A replica of unknown capacity counts as the last replica, and the model keeps it anyway."""
        assert alone(0, offer("u", 5, 0, 1), offer("a"), keeps_one=True) == {"a": 0, "u": 1}
        assert alone(0, offer("u", 5, 0, 0), offer("a"), keeps_one=True) == {"a": 1, "u": 0}
        assert alone(0, offer("u", 5, 0, 0), keeps_one=True) == {"u": 0}


class TestHostileNumbers:
    """With any numbers the allocator is quick and raises no error."""

    def test_replicas_that_cost_nothing_are_not_asked_for_without_end(self):
        """The allocator takes as many free replicas as the need takes, of the most capable variant."""
        assert alone(5, offer("a", 0), offer("b", 10)) == {"a": 5, "b": 0}
        assert alone(5, offer("a", 0, 1), offer("b", 0, 5)) == {"a": 0, "b": 1}

    @pytest.mark.parametrize("need", [1e300, float("inf"), 1e30])
    def test_a_need_beyond_all_replicas(self, need):
        """The allocator gives as many replicas as Kubernetes can count."""
        plan = allocate([want("m", need, offer("a"), offer("b", 20, 2))])
        assert numbers(plan) == {"a": LARGEST, "b": LARGEST}
        assert missing(plan)["m"] > 0

    def test_very_many_replicas(self):
        """The allocator finds the best of many numbers without counting up to it."""
        found = alone(4e9, offer("a", 10, 1), offer("b", 10, 1.5, ceiling=2_000_000_000))
        assert found == {"a": pytest.approx(10**9), "b": 2 * 10**9}

    def test_prices_and_capacities_of_any_size(self):
        """The allocator brings prices and capacities into a range."""
        assert alone(3, offer("a", float("nan"), 1), offer("b", 1, 1)) == {"a": 0, "b": 3}
        assert alone(3, offer("a", float("inf"), 1)) == {"a": 3}
        assert alone(3, offer("a", -7, 1), offer("b", 1, 1)) == {"a": 0, "b": 3}
        assert alone(1e-300, offer("a", 1e-300, 1e15), offer("b", 1e15, 1e-15)) == {"a": 1, "b": 0}
        assert alone(1, offer("a", 10, 1e308, 2), offer("b", 10, 1e-308, 3), offer("c")) == {"a": 2, "b": 3, "c": 1}

    def test_a_need_that_is_nothing_but_rounding_beside_what_is_there(self):
        """A thousand million replicas of one variant carry so much that one of the other is lost in it."""
        many = offer("many", 1, 1e9, 10**9, floor=10**9, ceiling=10**9)
        assert alone(1e19, many, offer("few", 1, 110, ceiling=3)) == {"many": 10**9, "few": 3}

    def test_very_many_variants(self):
        """The allocator takes the best fractions of replicas and rounds them up. No real model has so many variants."""
        offers = [offer(f"v{place}", 100 + place, 10 + place * 0.01, ceiling=2) for place in range(1500)]
        plan = allocate([want("m", 3000, *offers)])
        assert 0 < plan.gap < 0.01
        assert missing(plan) == {}
        assert missing(allocate([want("m", 1e6, *offers)]))["m"] > 0

    def test_a_search_that_is_cut_short_says_by_how_much_it_may_be_wrong(self):
        """Capacities that fit together badly, and little effort."""
        offers = [offer(f"v{place}", 100 + place * 7.3, 10 + place * 0.731) for place in range(5)]
        plan = allocate([want("m", 123.567, *offers)], policy=AllocationPolicy(effort=1))
        best = allocate([want("m", 123.567, *offers)])
        assert 0 <= best.gap < plan.gap < 0.05
