"""The clairvoyant policy knows the traffic: its replicas are Ready in time, at the lowest cost."""

from __future__ import annotations

from itertools import count as numbers
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.rivals.fake_stage import FakeStage, even, requests, scenario, setup
from wva.sim.fleet.parameters import PRESETS
from wva.sim.rivals import POLICIES
from wva.sim.rivals.clairvoyant import (
    GOAL,
    Planned,
    cheapest_over_time,
    clairvoyant,
    plan,
    start_ups,
    static_peak,
)
from wva.sim.stage.demand import STEP_SECONDS, DemandOverTime, cheapest_counts, cost, demand, static_fleet
from wva.sim.stage.run import figures
from wva.sim.stage.scenario import StartUp, start_up_random
from wva.sim.stage.world import StageWorld

SMALL = PRESETS["L40S"]


def ten(_parameters, _prompt, _answer) -> float:
    """Return a made-up capacity: 10 requests per second of any size."""
    return 10.0


def by_size(parameters, prompt, answer) -> float:
    """Return a made-up capacity, in which a token of an answer costs as much as ten tokens of a prompt."""
    return parameters.max_num_seqs * 100.0 / (prompt + 10.0 * answer)


def two_rates(first: float, second: float, *, seconds: float = 600.0):
    """Return traffic with a step in the middle."""
    half = seconds / 2
    arrivals = np.concatenate(
        (np.arange(first * half) / first, half + np.arange(second * half) / second)
        if second
        else (np.arange(first * half) / first,)
    )
    return requests(arrivals, seconds)


def test_an_even_demand() -> None:
    """Of evenly spaced requests of one size, the mean at each moment is the rate."""
    needed = demand(scenario(), even(25.0, 600.0), ten)
    assert len(needed.rate) == 60
    assert needed.rate == pytest.approx(np.full(60, 25.0))
    assert needed.capacity == pytest.approx(np.full((60, 1), 10.0))


def test_a_moment_knows_what_begins_in_it() -> None:
    """The moment before a step counts in its mean the nine seconds after the step."""
    needed = demand(scenario(), two_rates(10.0, 20.0), ten)
    assert needed.rate[28:31] == pytest.approx([10.0, 19.0, 20.0])


def test_long_requests_weigh_more() -> None:
    """Requests with longer answers lower the capacity, and do not change the rate."""
    traffic = even(10.0, 300.0, prompt=1, answer=100)
    long = np.arange(traffic.count) % 10 == 0
    traffic.output_tokens[long] = 1000
    traffic.arrival_seconds[:] = np.sort(np.where(long, traffic.arrival_seconds % 150, traffic.arrival_seconds))
    needed = demand(scenario(), traffic, by_size, by_size)
    assert needed.rate.mean() == pytest.approx(10.0, rel=0.1)
    shift = demand(scenario(), even(10.0, 300.0, prompt=100, answer=100), by_size)
    longer = demand(scenario(), even(10.0, 300.0, prompt=100, answer=200), by_size)
    assert longer.capacity[0, 0] == pytest.approx(shift.capacity[0, 0] * 1100 / 2100)


def test_cached_prefixes_cost_nothing() -> None:
    """The demand leaves out prefixes that a cache may hold."""
    traffic = even(10.0, 300.0, prompt=500, answer=1)
    traffic.prefix_tokens[:] = 400
    assert demand(scenario(), traffic, by_size, by_size).capacity[0, 0] == by_size(setup().parameters, 100, 1)


def ideal_cost(of, traffic) -> float:
    """Return the cost of the cheapest fleet of each moment."""
    return cost(of, cheapest_counts(of, demand(of, traffic, ten)), until_seconds=traffic.duration_seconds)


def test_no_traffic_needs_the_minimum() -> None:
    """Without traffic the ideal fleet is the minimum, at the minimum's cost."""
    of = scenario(setup(minimum=2))
    assert ideal_cost(of, requests([], 3600.0)) == pytest.approx(8.0)  # a sum, whose order depends on the processor


def test_the_ideal_cost_counts_the_measured_time() -> None:
    """The cost is of the measured time alone, and a moment that the end cuts short counts in part."""
    of = scenario(measured_from_seconds=1800.0)
    assert ideal_cost(of, even(25.0, 3600.0)) == pytest.approx(3 * 4.0 / 2)
    assert cost(of, np.array([[3]] * 181), until_seconds=1805.0) == pytest.approx(3 * 4.0 * 5 / 3600)


def test_the_cheapest_mix() -> None:
    """For 7 requests per second, a large replica and two small ones are cheaper than two large ones."""
    of = scenario(setup("large", price=3.0, minimum=0), setup("small", price=1.0, minimum=0, parameters=SMALL))

    def capacity(parameters, _prompt, _answer) -> float:
        return 1.0 if parameters is SMALL else 5.0

    assert static_fleet(of, demand(of, even(7.0, 100.0), capacity)) == (1, 2)
    counts = cheapest_counts(of, demand(of, two_rates(2.0, 7.0), capacity))
    assert counts[0].tolist() == [0, 2]
    assert counts[-2].tolist() == [1, 2]


def test_bounds_hold_where_nothing_suffices() -> None:
    """If no fleet suffices, all variants are at their maximum."""
    of = scenario(setup(maximum=3))
    assert static_fleet(of, demand(of, even(100.0, 100.0), ten)) == (3,)


def test_it_is_ready_in_time_and_lets_go_at_once() -> None:
    """Pods that take 60 s are ordered so that they become Ready just before a step.

    After a step down they go at once.
    """

    def asked(first: float, second: float) -> list[tuple[float, str, int]]:
        of = scenario(traffic=two_rates(first, second))
        counts = cheapest_over_time(of, demand(of, of.traffic(1), ten))
        changes = plan(of, counts, lambda: start_ups(1))
        return FakeStage(of, lambda _: 10.0).run([Planned(changes)], until=600).asked

    up, down = [("h100", number) for number in range(2, 6)], [("h100", number) for number in (4, 3, 2, 1)]
    assert asked(5.0, 45.0) == [(229.0, *change) for change in up]
    assert asked(45.0, 5.0) == [*((0.0, *change) for change in up), *((300.0, *change) for change in down)]


def test_those_who_know_serve_users_well() -> None:
    """On the real stage both policies reach the goal. The fixed fleet never changes, and costs more."""
    of = scenario(setup(maximum=8), traffic=two_rates(6.0, 60.0, seconds=400.0), measured_from_seconds=90.0)
    found = {}
    for policy in (static_peak, clairvoyant):
        world = StageWorld(of, seed=1)
        world.run(policy(of, 1))
        found[policy] = figures(world)
        assert found[policy].attainment >= GOAL
    assert found[static_peak].scale_ups == found[static_peak].scale_downs == 0
    assert found[clairvoyant].cost < found[static_peak].cost


def levels(of, rates) -> list[int]:
    """Return the counts of the first variant that are cheapest over time."""
    needed = DemandOverTime(np.array(rates, float), np.full((len(rates), len(of.variants)), 10.0))
    return cheapest_over_time(of, needed)[:, 0].tolist()


def test_a_gap_shorter_than_a_start_is_kept() -> None:
    """If a start takes 60 s, the policy keeps a replica over a gap of 50 s, and removes it for 100 s."""
    of = scenario(setup(replicas=2))
    assert levels(of, [20.0] * 10 + [10.0] * 5 + [20.0] * 10) == [2] * 25
    assert levels(of, [20.0] * 10 + [10.0] * 10 + [20.0] * 10) == [2] * 10 + [1] * 10 + [2] * 10


def test_another_variant_is_not_worth_a_short_time() -> None:
    """The policy changes to a cheaper variant for ten minutes, but not for 20 s, because its pods have to start."""
    of = scenario(setup("large", price=3.0, minimum=0), setup("small", price=1.0, minimum=0, replicas=0))

    def fleets(moments: int) -> list[list[int]]:
        capacity = np.tile([5.0, 1.0], (moments, 1))
        return cheapest_over_time(of, DemandOverTime(np.full(moments, 1.0), capacity)).tolist()

    assert fleets(2) == [[1, 0]] * 2
    assert fleets(60) == [[0, 1]] * 60


def test_bounds_hold_over_time() -> None:
    """Without load the policy keeps the minimum. With too much load it orders the maximum."""
    of = scenario(setup(replicas=5, minimum=2, maximum=4))
    assert levels(of, [0.0] * 20 + [100.0] * 20) == [2] * 20 + [4] * 20


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from([5.0, 15.0, 40.0]),
)
def test_no_series_of_fleets_is_cheaper(rates, prices, carries, before, start) -> None:
    """The cost is the lowest of all series of fleets, for two variants and a few moments."""
    of = scenario(
        *(
            setup(name, price=price, replicas=count, minimum=0, maximum=3, start_up=StartUp(start, 0.0))
            for name, price, count in zip("ab", prices, before, strict=True)
        )
    )
    found = cheapest_over_time(
        of, DemandOverTime(np.array(rates, float), np.tile(np.array(carries, float), (len(rates), 1)))
    )

    def step(old, new) -> float:
        return sum(
            price * (new_count * STEP_SECONDS + max(0, new_count - old_count) * start)
            for price, old_count, new_count in zip(prices, old, new, strict=True)
        )

    def enough(fleet, rate) -> bool:
        return fleet[0] * carries[0] + fleet[1] * carries[1] >= min(rate, 3 * sum(carries))

    best = {before: 0.0}
    for rate in rates:
        fleets = [fleet for fleet in product(range(4), range(4)) if enough(fleet, rate)]
        best = {new: min(cost + step(old, new) for old, cost in best.items()) for new in fleets}
    series = [before, *map(tuple, found.tolist())]
    assert all(enough(fleet, rate) for fleet, rate in zip(series[1:], rates, strict=True))
    assert sum(step(old, new) for old, new in pairwise(series)) == pytest.approx(min(best.values()))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 1000),
    st.floats(0.0, 0.5),
)
def test_every_plan_is_ready_in_time(wanted, first: int, second: int, seed: int, sigma: float) -> None:
    """For any spread of start-up times, all needed replicas are Ready after the longest start-up time."""
    start_up = StartUp(40.0, sigma, pull_probability=0.2, pull_seconds=100.0)
    of = scenario(setup("a", replicas=first, start_up=start_up), setup("b", replicas=second, start_up=start_up))

    def draws():
        random = start_up_random(seed)
        return lambda start_up: start_up.draw(random)

    changes = plan(of, np.array(wanted), draws)
    draw = draws()
    longest = max(draw(start_up) for _ in range(8 * len(wanted)))
    assert [change.at_seconds for change in changes] == sorted(change.at_seconds for change in changes)
    draw, name = draws(), numbers()
    pods = {one.name: [(next(name), 0.0)] * one.replicas for one in of.variants}
    for moment, needed in enumerate(wanted):
        now = moment * STEP_SECONDS
        while changes and changes[0].at_seconds <= now:
            change = changes.pop(0)
            mine = pods[change.variant]
            while len(mine) < change.replicas:
                mine.append((next(name), change.at_seconds + draw(start_up)))
            while len(mine) > change.replicas:
                mine.remove(max(mine, key=lambda pod: (pod[1] > change.at_seconds, pod[0])))
        for one, number in zip(of.variants, needed, strict=True):
            if now >= longest:
                assert sum(ready <= now for _, ready in pods[one.name]) >= number


def test_each_policy_makes_its_controllers() -> None:
    """Every policy in the registry runs on a scenario of two variants, and keeps all bounds."""
    of = scenario(setup("h100"), setup("l40s", price=1.0, maximum=7), traffic=two_rates(45.0, 5.0, seconds=120.0))
    for name, policy in POLICIES.items():
        stage = FakeStage(of, lambda _: 500.0).run(policy(of, 1), until=60)
        for one in of.variants:
            assert one.minimum <= stage.replicas(one.name) <= one.maximum, name
