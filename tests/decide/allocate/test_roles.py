"""A request needs each role of its model: scarce GPUs are shared so that the roles fit each other."""

from __future__ import annotations

import pytest

from tests.decide.allocate.cases import limits, missing, numbers, on, shared, stock, want
from wva.decide.allocate import SharingRule, allocate
from wva.model.records import replace
from wva.model.variant import ModelKey


def pair(name, prefill, decode, need=8.0, **others):
    """Return a model that needs so much of each role; all requests come to both."""
    return [
        replace(want(name, need, variant, **others), key=ModelKey("ns", name, role), part=1.0)
        for role, variant in (("prefill", prefill), ("decode", decode))
    ]


def binding(plan):
    """Return the role that keeps each model from serving more."""
    return {key.model_id: role.role for key, role in plan.binding.items()}


def test_both_roles_get_the_same_share():
    """Two and four replicas are needed, and three GPUs are free: half of both is better than one role alone."""
    plan = shared(stock(a=3), *pair("m", on("a", "p", capacity=4), on("a", "d", capacity=2)))
    assert numbers(plan) == {"p": 1, "d": 2}
    assert limits(plan) == {"d": ("a", 2), "p": ("role decode", 1)}
    assert (missing(plan), binding(plan)) == ({"m": 4}, {"m": "decode"})


def test_enough_for_all():
    """If there are enough GPUs, the roles change nothing."""
    plan = shared(stock(a=6), *pair("m", on("a", "p", capacity=4), on("a", "d", capacity=2)))
    assert (numbers(plan), limits(plan), binding(plan)) == ({"p": 2, "d": 4}, {}, {})


def test_a_role_with_gpus_of_its_own_takes_none_that_its_partner_cannot_use():
    """Prefill has a pool of its own with room for all; decode gets two of four."""
    plan = shared(stock(a=9, h=2), *pair("m", on("a", "p", capacity=1), on("h", "d", capacity=2)))
    assert numbers(plan) == {"p": 4, "d": 2}
    assert limits(plan) == {"d": ("h", 2), "p": ("role decode", 4)}


def test_a_maximum_binds_as_gpus_do():
    """No GPUs are counted. Decode may have two replicas, and prefill gets what they can use."""
    plan = allocate(pair("m", on("a", "p", capacity=1), on("a", "d", capacity=2, ceiling=2, ceiling_origin="HPA d")))
    assert numbers(plan) == {"p": 4, "d": 2}
    assert limits(plan) == {"d": ("HPA d", 2), "p": ("role decode", 4)}
    assert binding(plan) == {"m": "decode"}


def test_what_a_role_has_stays():
    """Its partner cannot use it now, but it is there."""
    plan = shared(stock(h=1), *pair("m", on("a", "p", present=6, floor=6), on("h", "d")))
    assert numbers(plan) == {"p": 6, "d": 1}


def test_what_has_passed_a_role_is_served():
    """Prefill is at its maximum. Decode has what it needs for the requests that come to it all the same."""
    plan = allocate(pair("m", on("a", "p", ceiling=2, ceiling_origin="HPA p"), on("a", "d")))
    assert (numbers(plan), limits(plan)) == ({"p": 2, "d": 8}, {"p": ("HPA p", 6)})
    assert binding(plan) == {"m": "prefill"}
    plan = shared(stock(a=2, h=5), *pair("m", on("a", "p"), on("h", "d")))
    assert (numbers(plan), binding(plan)) == ({"p": 2, "d": 5}, {"m": "prefill"})


def test_a_role_of_which_no_variant_can_grow_holds_the_other():
    """Half of decode is there, and prefill has a quarter: it grows to the half."""
    prefill, decode = pair("m", on("a", "p", present=2), on("h", "d", capacity=0, present=4))
    plan = allocate([prefill, replace(decode, need=4.0, beside=4.0)])
    assert (numbers(plan), binding(plan)) == ({"p": 4, "d": 4}, {"m": "decode"})


def test_replicas_that_keep_their_number_count():
    """Six of eight are carried by a variant that may not grow, and one more of two GPUs is there."""
    prefill, decode = pair("m", on("a", "p"), on("h", "d"))
    plan = shared(stock(a=9, h=1), prefill, replace(decode, need=2.0, beside=6.0))
    assert numbers(plan) == {"p": 7, "d": 1}


def test_a_role_to_which_a_part_of_the_requests_comes():
    """Short prompts are computed by decode pods: of four that decode carries, two come to prefill."""
    prefill, decode = pair("m", on("a", "p"), on("h", "d"))
    plan = shared(stock(a=9, h=4), replace(prefill, need=4.0, part=0.5), decode)
    assert numbers(plan) == {"p": 2, "d": 4}


def test_three_roles():
    """Encode gets no more than prefill can use, and prefill no more than decode can."""
    encode = replace(want("m", 8.0, on("e", "e")), key=ModelKey("ns", "m", "encode"), part=1.0)
    plan = shared(stock(a=3, h=5, e=9), encode, *pair("m", on("a", "p"), on("h", "d")))
    assert numbers(plan) == {"e": 3, "p": 3, "d": 5}
    assert limits(plan) == {"e": ("role prefill", 5), "p": ("a", 5), "d": ("h", 3)}


def test_a_role_that_needs_nothing_more_is_left_out():
    """Prefill has enough, whatever becomes of decode."""
    prefill, decode = pair("m", on("a", "p", present=8, floor=8), on("h", "d"))
    plan = shared(stock(), replace(prefill, need=0.0), decode)
    assert (numbers(plan), binding(plan)) == ({"p": 8, "d": 0}, {"m": "decode"})


def test_one_role_alone():
    """The other one has enough, and is not asked for."""
    plan = shared(stock(a=3), pair("m", on("a", "p"), on("a", "d"))[1])
    assert (numbers(plan), limits(plan), binding(plan)) == ({"d": 3}, {"d": ("a", 5)}, {"m": "decode"})


def test_the_more_important_model_gets_both_roles():
    """What it leaves goes to the roles of the other one together."""
    first = pair("m", on("a", "mp", capacity=4), on("a", "md", capacity=2), priority=1)
    other = pair("n", on("a", "np", capacity=4), on("a", "nd", capacity=2), priority=2)
    plan = shared(stock(a=9), *other, *first)
    assert numbers(plan) == {"mp": 2, "md": 4, "np": 1, "nd": 2}
    assert binding(plan) == {"n": "decode"}


def test_another_model_makes_room_for_both():
    """It changes to dearer GPUs, so that both roles fit."""
    roles = pair("m", on("a", "p"), on("a", "d"), need=2.0, priority=5)
    other = want("n", 2, on("a", "n-a"), on("b", "n-b", 50), priority=1)
    plan = shared(stock(a=4, b=2), *roles, other)
    assert numbers(plan) == {"p": 2, "d": 2, "n-a": 0, "n-b": 2}


def test_a_larger_variant_leaves_the_others_their_gpus():
    """Seven GPUs. A replica of prefill takes four: so one, and three of decode."""
    plan = shared(stock(a=7), *pair("m", on("a", "p", capacity=4, gpus=4), on("a", "d", capacity=1)))
    assert numbers(plan) == {"p": 1, "d": 3}


@pytest.mark.parametrize(
    ("rule", "delayed", "expected"),
    [
        (SharingRule.NONE, False, {"mp": 0, "md": 0, "n": 3}),
        (SharingRule.PRIORITY_EXHAUSTIVE, False, {"mp": 1, "md": 1, "n": 3}),
        (SharingRule.PRIORITY_ROUND_ROBIN, False, {"mp": 1, "md": 1, "n": 3}),
        (SharingRule.ROUND_ROBIN, True, {"mp": 1, "md": 1, "n": 3}),
        (SharingRule.PRIORITY, False, {"mp": 2, "md": 3, "n": 0}),
        (SharingRule.SCORE, False, {"mp": 2, "md": 3, "n": 0}),
    ],
)
@pytest.mark.parametrize("effort", [250_000, 0])
def test_each_rule_shares_with_both_roles(rule, delayed, expected, effort):
    """Five GPUs are free. The model in roles needs six, and the other one needs three."""
    roles = pair("m", on("a", "mp", capacity=4), on("a", "md", capacity=2))
    plan = shared(stock(a=5), *roles, want("n", 3, on("a", "n")), sharing=rule, delayed=delayed, effort=effort)
    assert numbers(plan) == expected
