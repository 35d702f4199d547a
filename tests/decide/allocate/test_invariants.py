"""What is true of every plan, whatever the numbers."""

from __future__ import annotations

import math
import time

from hypothesis import given
from hypothesis import strategies as st

from tests.decide.allocate.fleets import base_of, ceiling_of, free_after_floors, random_fleet, random_roles
from wva.decide.allocate import UNLIMITED, AllocationPolicy, Offer, SharingRule, Stock, Want, allocate
from wva.model.inventory import Inventory
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey
from wva.numbers import MAX_REPLICAS

SEEDS = st.integers(0, 10**9)
ROLES = ("encode", "prefill", "decode", "prefill-decode")
FLEETS = st.one_of(SEEDS.map(random_fleet), SEEDS.map(random_roles))
POLICIES = st.builds(
    AllocationPolicy, st.sampled_from(SharingRule), st.booleans(), st.just(0.1), st.sampled_from([0, 10**5])
)

HOSTILE = st.one_of(
    st.sampled_from([0.0, -1.0, 1e-300, 1e300, math.inf, -math.inf, math.nan, 1e15, 1e-15, 1.0]),
    st.floats(),
    st.floats(0.1, 100),
)
COUNTS = st.one_of(st.sampled_from([0, 1, 10, MAX_REPLICAS - 1, MAX_REPLICAS]), st.integers(0, MAX_REPLICAS))
LIMITS = st.lists(st.sampled_from(["a", "b", "quota", "nobody knows"]), max_size=2, unique=True).map(tuple)


@st.composite
def hostile_fleets(draw):
    """Return models with numbers that no sound cluster has."""
    wants = []
    for place in range(draw(st.integers(1, 4))):
        offers = [
            Offer(
                VariantKey("ns", f"{place}-{variant}"),
                draw(HOSTILE),
                draw(HOSTILE),
                draw(COUNTS),
                draw(COUNTS),
                draw(COUNTS),
                draw(st.none() | COUNTS),
                step=draw(st.sampled_from([1, 2, 1000, MAX_REPLICAS])),
                gpus=draw(st.sampled_from([0, 1, 8, 1_000_000])),
                limits=draw(LIMITS),
            )
            for variant in range(draw(st.integers(0, 4)))
        ]
        priority, weight = draw(st.integers(1, 100)), draw(st.floats(0, 1e9))
        key = draw(st.sampled_from([ModelKey("ns", f"{place}"), ModelKey("ns", "roles", ROLES[place - 1])]))
        part, beside = (draw(HOSTILE), draw(HOSTILE)) if key.role else (0.0, 0.0)
        wants.append(Want(key, draw(HOSTILE), tuple(offers), priority, weight, draw(st.booleans()), part, beside))
    free = {name: draw(COUNTS) for name in ("a", "b", "quota")}
    return wants, draw(st.sampled_from([Stock(free, Inventory()), Stock(), UNLIMITED]))


def check_bounds(wants, stock, plan):
    """Every number is possible, and no limit is exceeded beyond what exists."""
    taken = {}
    for want in wants:
        for offer in want.offers:
            number, high = plan.numbers[offer.key], ceiling_of(offer)
            assert min(offer.floor, high) <= number <= min(high, MAX_REPLICAS)
            possible = {offer.existing, offer.present, min(offer.floor, high), high, base_of(offer)}
            known = 1e-15 <= offer.capacity <= 1e15
            assert not known or number in possible or abs(number - offer.existing) >= offer.step
            base = max(base_of(offer), min(offer.present, high)) if stock.frozen else base_of(offer)
            for name in offer.limits:
                taken[name] = taken.get(name, 0) + max(0, number - base) * max(1, offer.gpus)
    free = free_after_floors(wants, stock)
    assert not stock.counted or stock.frozen or all(gpus <= free.get(name, 0) for name, gpus in taken.items())
    assert not stock.frozen or not any(taken.values())


@given(FLEETS, POLICIES)
def test_bounds_and_limits_are_kept(fleet, policy):
    """Every policy keeps bounds and limits, with effort and without."""
    wants, stock = fleet
    check_bounds(wants, stock, allocate(wants, stock, policy))


@given(hostile_fleets(), POLICIES)
def test_hostile_numbers_finish_quickly(fleet, policy):
    """The allocator keeps bounds and limits with hostile numbers, too."""
    wants, stock = fleet
    before = time.thread_time()
    plan = allocate(wants, stock, policy)
    assert time.thread_time() - before < 3
    check_bounds(wants, stock, plan)
    assert all(lack > 0 for lack in plan.missing.values())
    assert all(limit.fewer > 0 for limit in plan.limits.values())


@given(FLEETS, st.randoms(use_true_random=False), POLICIES)
def test_the_order_of_models_and_variants_does_not_matter(fleet, shuffle, policy):
    """The names of models and variants decide, not their order."""
    wants, stock = fleet
    mixed = [replace(want, offers=tuple(shuffle.sample(want.offers, len(want.offers)))) for want in wants]
    shuffle.shuffle(mixed)
    assert allocate(mixed, stock, policy) == allocate(wants, stock, policy)


def test_rounding_does_not_depend_on_the_order_of_variants():
    """The capacity that is missing is the same to the last bit: 0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1."""
    offers = tuple(
        Offer(VariantKey("ns", name), 1.0, capacity, existing=1, present=1, floor=1, ceiling=1)
        for name, capacity in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    )
    want = Want(ModelKey("ns", "m"), 1.0, offers)
    plans = [allocate([each], UNLIMITED, AllocationPolicy()) for each in (want, replace(want, offers=offers[::-1]))]
    assert plans[0].missing
    assert plans[0] == plans[1]


@given(SEEDS, st.floats(0, 100), st.floats(0, 100))
def test_more_need_never_gives_less_capacity(seed, need, more):
    """This holds for a model that is alone."""
    wants, stock = random_fleet(seed)
    found = []
    for each in (need, need + more):
        want = replace(wants[0], need=each)
        numbers = allocate([want], stock).numbers
        found.append(min(each, sum(numbers[offer.key] * offer.capacity for offer in want.offers)))
    assert found[0] <= found[1] * (1 + 1e-6) + 1e-6


@given(SEEDS)
def test_a_plan_is_the_answer_to_itself(seed):
    """If a plan is carried out, the next plan is the same, except for the steps of scalers."""
    drawn, _ = random_fleet(seed)
    wants = [replace(want, offers=tuple(replace(offer, step=1) for offer in want.offers)) for want in drawn]
    first = allocate(wants).numbers
    done = [
        replace(
            want,
            offers=tuple(replace(offer, present=first[offer.key], existing=first[offer.key]) for offer in want.offers),
        )
        for want in wants
    ]
    assert allocate(done).numbers == first


@given(SEEDS, SEEDS)
def test_models_that_share_nothing_do_not_change_each_other(seed, other):
    """Models that share no limit get the same, whatever other models are in the fleet."""
    wants, stock = random_fleet(seed)
    others, _ = random_fleet(other)
    strangers = [
        replace(
            want,
            key=replace(want.key, namespace="other"),
            offers=tuple(replace(offer, key=replace(offer.key, namespace="other"), limits=()) for offer in want.offers),
        )
        for want in others
    ]
    together = allocate([*strangers, *wants], stock)
    assert {key: number for key, number in together.numbers.items() if key.namespace == "ns"} == allocate(
        wants, stock
    ).numbers
