"""Who grows on what when all models are solved together: the cheapest way, within the GPUs that there are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.decide.queueing.cover import Carrier, carried
from wva.decide.queueing.fleet import Fleet, FleetNeed, Gpus, plan
from wva.decide.queueing.system import Options
from wva.model.optimizers import BestEffort
from wva.model.variant import ModelKey, VariantKey

CHEAP, DEAR = ("cheap", 10.0, 3.0), ("dear", 4.0, 1.0)
"""Name, cost and requests per second of a replica; cheap is cheaper per request, dear by the replica."""


def carrier(name, cost, rate, *, model="m", planned=1, **fields):
    """Return a variant of a model that serves with so many replicas."""
    return Carrier(VariantKey("ns", f"{model}-{name}"), cost, rate, planned, planned, 1, **fields)


def need(demand, *carriers, model="m", rank=100, shrinks=True):
    """Return what a model has to carry."""
    return FleetNeed(ModelKey("ns", model), rank, demand, carriers, shrinks)


def several(*demands, rate=1.0, cost=1.0, ranks=(), kind="A100"):
    """Return models with one variant each, and the GPU types of these."""
    ranks = ranks or (100,) * len(demands)
    needs = [
        need(demand, carrier("v", cost, rate, model=f"m{number}"), model=f"m{number}", rank=rank)
        for number, (demand, rank) in enumerate(zip(demands, ranks, strict=True))
    ]
    return needs, {each.carriers[0].key: kind for each in needs}


def limited(free, types, *, policy=BestEffort.NONE, delayed=False, **gpus):
    """Return a fleet that keeps to the free GPUs."""
    return Fleet(Options(False, policy, delayed), Gpus(free, types, **gpus))


def numbers(grants):
    """Return the numbers of all variants."""
    return {key.name: number for grant in grants for key, number in grant.numbers.items()}


def test_growth_is_the_cheapest_mix_of_variants():
    """10 are missing: three more of the cheap one, and one dear replica for the rest, not a fourth cheap one."""
    (grant,) = plan([need(13.0, carrier(*CHEAP), carrier(*DEAR, planned=0))])
    assert numbers([grant]) == {"m-cheap": 4, "m-dear": 1}
    assert grant.wanted == grant.numbers
    assert not grant.bindings


def test_one_variant_alone_is_taken_where_the_mix_costs_more():
    """Cheapest per request first is a rule of thumb: a whole candidate that costs less wins."""
    big, small = carrier("big", 10.0, 10.0, planned=0), carrier("small", 3.0, 2.9, planned=0)
    (grant,) = plan([need(11.0, big, small)])
    assert numbers([grant]) == {"m-big": 0, "m-small": 4}


def test_what_is_carried_grows_nothing_and_shrinks_as_the_variants_say():
    """A shrink asks nobody for GPUs."""
    busy = need(1.0, carrier("v", 1.0, 1.0, planned=3))
    fleet = limited({}, {})
    assert numbers(plan([busy], fleet)) == {"m-v": 2}
    assert numbers(plan([replace(busy, shrinks=False)], fleet)) == {"m-v": 3}


def test_what_no_variant_can_carry_is_said():
    """The maximum is given whole, as far as it reaches."""
    (grant,) = plan([need(9.0, carrier("v", 1.0, 1.0, highest=3))])
    assert (numbers([grant]), grant.short) == ({"m-v": 3}, 6.0)
    (grant,) = plan([need(9.0, carrier("v", 1.0, 1.0, grows=False))])
    assert (numbers([grant]), grant.short) == ({"m-v": 1}, 8.0)
    (grant,) = plan([need(1e-30, carrier("v", 1.0, 1.0, planned=0))])
    assert numbers([grant]) == {"m-v": 1}


def test_a_model_that_cannot_have_all_it_needs_gets_nothing_without_best_effort():
    """And says who kept it from how much; the next one has what it leaves."""
    needs, types = several(5.0, 3.0, ranks=(1, 2))
    first, second = plan(needs, limited({"A100": 3}, types))
    assert numbers([first, second]) == {"m0-v": 1, "m1-v": 3}
    key = needs[0].carriers[0].key
    assert (first.denied(key), first.bindings) == (4, {key: "gpu-limiter A100"})
    assert not second.bindings


def test_another_accelerator_is_taken_where_the_cheapest_has_no_gpus():
    """The first candidate that fits as a whole, in the order of what they cost."""
    one = need(7.0, carrier(*CHEAP), carrier(*DEAR, planned=0))
    keys = [each.key for each in one.carriers]
    fleet = limited({"A100": 1, "L4": 9}, dict(zip(keys, ("A100", "L4"), strict=True)))
    (grant,) = plan([one], fleet)
    assert numbers([grant]) == {"m-cheap": 2, "m-dear": 1}
    (grant,) = plan([one], replace(fleet, gpus=replace(fleet.gpus, free={"L4": 9})))
    assert numbers([grant]) == {"m-cheap": 1, "m-dear": 4}
    assert (grant.denied(keys[0]), grant.bindings) == (1, {keys[0]: "gpu-limiter A100"})


def test_a_candidate_on_several_variants_takes_the_gpus_of_all():
    """Two types: whole or not at all; then what one variant alone can do."""
    one = need(7.0, carrier(*CHEAP, cards=2, accelerator="H100"), carrier(*DEAR, planned=0))
    keys = [each.key for each in one.carriers]
    types = dict(zip(keys, ("H100", "H100"), strict=True))
    assert numbers(plan([one], limited({"H100": 3}, types))) == {"m-cheap": 2, "m-dear": 1}
    needs, more = several(2.0, kind="H100")
    both = plan([replace(one, rank=1), *needs], limited({"H100": 3}, types | more))
    assert numbers(both) == {"m-cheap": 2, "m-dear": 1, "m0-v": 1}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (BestEffort.NONE, [1, 1, 1]),
        (BestEffort.PRIORITY_EXHAUSTIVE, [5, 1, 1]),
        (BestEffort.PRIORITY_ROUND_ROBIN, [3, 3, 1]),
        (BestEffort.ROUND_ROBIN, [3, 2, 2]),
    ],
)
def test_what_those_get_that_cannot_have_all(policy, expected):
    """Four GPUs; each of three models lacks five replicas, and the last one is of a lower class."""
    needs, types = several(6.0, 6.0, 6.0, ranks=(1, 1, 2))
    fleet = limited({"A100": 4}, types, policy=policy, delayed=True)
    assert list(numbers(plan(needs, fleet)).values()) == expected


def test_best_effort_comes_after_each_class_unless_it_is_delayed():
    """A high class eats what a lower one could have used as a whole."""
    needs, types = several(6.0, 3.0, ranks=(1, 2))
    for delayed, expected in ((False, [4, 1]), (True, [2, 3])):
        fleet = limited({"A100": 3}, types, policy=BestEffort.PRIORITY_EXHAUSTIVE, delayed=delayed)
        assert list(numbers(plan(needs, fleet)).values()) == expected


def test_best_effort_gives_what_one_variant_can():
    """Bounds leave two replicas of the first and one of the second; GPUs are there for two."""
    one = need(9.0, carrier(*CHEAP, highest=3), carrier(*DEAR, planned=0, highest=1))
    types = dict.fromkeys((each.key for each in one.carriers), "A100")
    fleet = limited({"A100": 2}, types, policy=BestEffort.PRIORITY_EXHAUSTIVE)
    assert numbers(plan([one], fleet)) == {"m-cheap": 3, "m-dear": 0}


@pytest.mark.parametrize("policy", list(BestEffort)[1:])
def test_best_effort_passes_no_bound(policy):
    """The scaler leaves one replica, though there are GPUs for more."""
    one = need(9.0, carrier("v", 1.0, 1.0, highest=2), carrier("w", 2.0, 1.0))
    types = dict(zip((each.key for each in one.carriers), ("A100", "H100"), strict=True))
    assert numbers(plan([one], limited({"A100": 4, "H100": 0}, types, policy=policy))) == {"m-v": 2, "m-w": 1}


def test_best_effort_prefers_the_variant_that_costs_less_for_what_it_carries():
    """One GPU, and each may have one replica more: 12 for three requests per second goes before 10 for one."""
    one = need(9.0, carrier("small", 10.0, 1.0, highest=2), carrier("large", 12.0, 3.0, highest=2))
    types = dict.fromkeys((each.key for each in one.carriers), "A100")
    fleet = limited({"A100": 1}, types, policy=BestEffort.PRIORITY_EXHAUSTIVE)
    assert numbers(plan([one], fleet)) == {"m-small": 1, "m-large": 2}


def test_a_quota_binds_by_its_name():
    """Five GPUs are free, the quota leaves two replicas: best effort gives these."""
    needs, types = several(5.0)
    key = needs[0].carriers[0].key
    fleet = limited({"A100": 5}, types, rooms={key: (2, "ResourceQuota ns/gpus")})
    (grant,) = plan(needs, fleet)
    assert numbers([grant]) == {"m0-v": 3}
    assert grant.bindings == {key: "ResourceQuota ns/gpus"}
    (grant,) = plan(needs, limited({"A100": 5}, types, rooms={key: (9, "ResourceQuota ns/gpus")}))
    assert (numbers([grant]), dict(grant.bindings)) == ({"m0-v": 5}, {})
    (grant,) = plan(needs, limited({"A100": 5}, types, rooms={key: (0, "ResourceQuota ns/gpus")}))
    assert (numbers([grant]), grant.denied(key)) == ({"m0-v": 1}, 4)


def test_nothing_grows_on_gpus_that_nobody_has_or_knows():
    """The limiter is named with the accelerator, or with the inventory."""
    needs, _ = several(5.0)
    needs[0] = replace(needs[0], carriers=(replace(needs[0].carriers[0], accelerator="L4"),))
    key = needs[0].carriers[0].key
    (grant,) = plan(needs, limited({"A100": 5}, {}))
    assert (numbers([grant]), grant.bindings) == ({"m0-v": 1}, {key: "gpu-limiter L4"})
    (grant,) = plan(needs, limited({}, {}, unknown="not read"))
    assert (numbers([grant]), grant.bindings) == ({"m0-v": 1}, {key: "gpu-limiter inventory"})


@st.composite
def fleets(draw):
    """Draw models with variants on a few types of GPUs, and how they are solved."""
    needs, types = [], {}
    for number in range(draw(st.integers(1, 4))):
        carriers = []
        for place in range(draw(st.integers(1, 3))):
            planned = draw(st.integers(0, 3))
            highest = draw(st.none() | st.integers(planned, planned + 6))
            one = carrier(
                str(place),
                draw(st.sampled_from([0.0, 1.0, 5.0, 9.0])),
                draw(st.sampled_from([0.1, 1.0, 2.5])),
                model=f"m{number}",
                planned=planned,
                highest=highest,
                grows=draw(st.booleans()),
                cards=draw(st.integers(1, 3)),
                accelerator=draw(st.sampled_from(["A100", "H100"])),
            )
            carriers.append(replace(one, lowest=min(1, planned)))
            types[one.key] = one.accelerator
        demand = draw(st.sampled_from([0.0, 0.3, 2.0, 7.7, 20.0]))
        needs.append(need(demand, *carriers, model=f"m{number}", rank=draw(st.integers(1, 2))))
    options = Options(draw(st.booleans()), draw(st.sampled_from(list(BestEffort))), draw(st.booleans()))
    free = {"A100": draw(st.integers(0, 12)), "H100": draw(st.integers(0, 12))}
    return needs, Fleet(options, Gpus(free, types))


@given(fleets())
def test_no_gpu_is_promised_twice_and_no_bound_is_passed(drawn):
    """Growth within free GPUs and bounds; nothing that is there is taken from a model in need."""
    needs, fleet = drawn
    grants = plan(needs, fleet)
    taken = dict.fromkeys(fleet.gpus.free, 0)
    for one, grant in zip(needs, grants, strict=True):
        for each in one.carriers:
            number = grant.numbers[each.key]
            assert number >= (each.planned if one.missing else each.lowest)
            assert each.highest is None or number <= each.highest
            taken[fleet.gpus.types[each.key]] += max(0, number - each.planned) * each.cards
            assert (each.key in grant.bindings) == (grant.denied(each.key) > 0)
    if not fleet.options.unlimited:
        assert all(taken[kind] <= free for kind, free in fleet.gpus.free.items())


@given(fleets())
def test_with_gpus_enough_everybody_gets_the_same_as_without_a_limit(drawn):
    """And all that can be carried is carried."""
    needs, fleet = drawn
    plenty = replace(fleet, gpus=replace(fleet.gpus, free=dict.fromkeys(fleet.gpus.free, 10**9)))
    grants = plan(needs, plenty)
    assert [grant.numbers for grant in grants] == [grant.numbers for grant in plan(needs)]
    for one, grant in zip(needs, grants, strict=True):
        counted = [replace(each, counted=grant.numbers[each.key]) for each in one.carriers]
        assert carried(counted) + grant.short >= one.demand * (1 - 1e-6) or math.isclose(one.demand, 0.0)


@given(fleets(), st.randoms())
def test_the_order_of_listing_changes_nothing(drawn, random):
    """Models and their variants may come in any order."""
    needs, fleet = drawn
    shuffled = [replace(one, carriers=tuple(random.sample(one.carriers, len(one.carriers)))) for one in needs]
    random.shuffle(shuffled)
    expected = {each.model: grant.numbers for each, grant in zip(needs, plan(needs, fleet), strict=True)}
    found = {each.model: grant.numbers for each, grant in zip(shuffled, plan(shuffled, fleet), strict=True)}
    assert found == expected
