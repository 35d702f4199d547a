"""Step 3: the capacity that a model needs when replicas that are ordered now serve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite, sqrt
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from wva.decide.foresee import forecast_of
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.model.memory import CapacityBasis, Correction, Foresight
from wva.model.metrics import ReplicaMetrics
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

MODEL, A = ModelKey("ns", "m"), VariantKey("ns", "a")
NOTHING_SEEN = Foresight(MODEL)
CYCLE = 15.0


def foresee(*given: Any, woken: bool = False, urgent: bool | None = None, **more: Any) -> tuple[Need, Foresight]:
    """Look ahead for a model. If a cycle was woken, it was for this model, unless ``urgent`` is told."""
    return forecast_of(*given, woken=woken, urgent=woken if urgent is None else urgent, **more)


def needed(demand: float, **fields: Any) -> Need:
    """Return a need of a demand in requests/s, of which a replica carries 3."""
    capacities = {A: Capacity(3.0, CapacityBasis.OBSERVED)}
    told = {name: fields.pop(name) for name in DemandRate.__struct_fields__ if name in fields}
    need = Need(MODEL, "requests/s", demand, demand, demand, capacities, DemandRate(**told))
    return replace(need, **fields)


def pods(number: int, *, ready: float = NOW - 3600.0, took: float = 100.0) -> list[ReplicaMetrics]:
    """Return Ready pods that took this many seconds to start."""
    return [ReplicaMetrics(f"a-{place}", A, ready_since=ready, created=ready - took) for place in range(number)]


def seen(
    demands: Iterable[float | Need], memory: Foresight = NOTHING_SEEN, *, replicas: int = 4, keep_warm: float = inf
) -> list[Need]:
    """Return what step 3 foresees in cycles with these demands."""
    found = []
    for turn, demand in enumerate(demands):
        need = demand if isinstance(demand, Need) else needed(demand)
        need, memory = foresee(
            need,
            [variant("a", replicas=replicas)],
            {A: pods(replicas)},
            memory,
            now=NOW + CYCLE * turn,
            keep_warm=keep_warm,
        )
        found.append(need)
    return found


def test_steady_demand_needs_little_more_than_itself() -> None:
    """The level is the mean of many minutes, plus half a standard error."""
    found = seen([6.0] * 60)[-1]
    assert found.demand == pytest.approx(6.0)
    assert 6.0 < found.required < 6.2
    assert found.required < found.sufficient < 6.5
    assert 0.0 < found.rate.error < 0.2


def test_a_jump_is_believed_in_the_cycle_that_shows_it() -> None:
    """WVA expects more than the cycle showed, because only a part of it was after the jump."""
    before, after = seen([2.0] * 40 + [12.0])[-2:]
    assert before.required < 3.0
    assert after.demand == pytest.approx(12.0)
    assert after.required > 12.0 + 0.5 * 9.0


def test_where_capacities_leave_room_for_chance_a_jump_orders_what_is_sure() -> None:
    """While replicas get through it. The next cycle tells whether it is more; a shrink leaves as much as otherwise."""
    plain, roomy = (seen([2.0] * 40 + [needed(11.0, roomy=room)], replicas=4)[-1] for room in (False, True))
    assert (roomy.demand, roomy.rate.error) == (plain.demand, plain.rate.error)
    assert plain.required > 11.0 + 0.5 * 9.0
    assert roomy.required == pytest.approx(11.0 - roomy.rate.error)
    again = [seen([2.0] * 40 + [needed(11.0, roomy=room)] * 3, replicas=4)[-1].required for room in (False, True)]
    assert again[0] == again[1] > 11.0
    steady = [seen([needed(6.0, roomy=room)] * 60)[-1] for room in (False, True)]
    assert (steady[0].required, steady[0].sufficient) == (steady[1].required, steady[1].sufficient)


def test_a_jump_beyond_what_replicas_get_through_orders_all_at_once() -> None:
    """What piles up is no chance."""
    first, second = (seen([2.0] * 40 + [needed(14.0, roomy=room)], replicas=4)[-1].required for room in (False, True))
    assert first == second > 14.0 + 0.5 * 12.0


def test_a_rise_is_followed_to_the_end_of_the_lead_time() -> None:
    """A replica that is ordered now serves at the end of the lead time."""
    found = seen([5.0 + 0.1 * turn for turn in range(60)])[-1]
    newest = 5.0 + 0.1 * 59
    lead = 40.0 + 100.0
    assert found.required == pytest.approx(newest + 0.1 / CYCLE * lead, rel=0.15)


def test_while_users_wait_for_long_demand_is_not_less_than_it_was() -> None:
    """Users give up and no counter counts that, so only the requests that are served seem to arrive."""
    crowded = [needed(6.0, backlog=2000.0)] * 8
    assert seen([20.0] * 40 + crowded)[-1].demand == pytest.approx(20.0, rel=0.01)
    served = [needed(6.0, backlog=200.0)] * 8
    assert seen([20.0] * 40 + served)[-1].demand == pytest.approx(6.0, rel=0.01)
    assert seen([20.0] * 40 + [needed(30.0, backlog=2000.0)] * 8)[-1].demand == pytest.approx(30.0, rel=0.01)


def test_arrivals_of_a_changing_fleet_count_in_the_next_cycle() -> None:
    """A new pod makes arrivals seem more in one cycle and less in the next."""
    found = seen([4.0] * 40 + [needed(9.0, unsettled=True), -1.0])
    assert found[-2].demand == pytest.approx(4.0, rel=0.01)
    assert found[-1].demand == pytest.approx(4.0, rel=0.01)


def test_what_waits_is_drained() -> None:
    """A backlog asks for more than the demand does, and a larger backlog for more."""
    none, some, many = (
        seen([5.0] * 40 + [needed(5.0, backlog=backlog)])[-1].required for backlog in (0.0, 1500.0, 3000.0)
    )
    assert none < 5.3
    assert some > none + 10.0
    assert many > some + 10.0


def test_what_will_wait_until_replicas_serve_is_drained_too() -> None:
    """Demand that the Ready replicas do not carry becomes backlog until new replicas serve."""
    enough = seen([5.0] * 40, replicas=4)[-1].required
    short = seen([5.0] * 40, replicas=1)[-1].required
    assert short > enough + 2.0


def test_a_mixed_fleet_is_measured_by_its_own_function() -> None:
    """If capacities do not add up, WVA asks the analyzer what the Ready replicas carry."""
    weak = needed(5.0, carries=lambda counts: 0.5 * sum(counts.values()))
    assert seen([weak] * 40)[-1].required > seen([5.0] * 40)[-1].required


def test_nothing_goes_before_the_demand_has_been_away_for_a_while() -> None:
    """A shrink must leave the highest need of the hold, and begins only when WVA has seen the whole hold."""
    found = seen([10.0] * 40 + [2.0] * 30)
    assert found[0].sufficient == inf
    assert found[45].sufficient > 10.0
    assert found[45].required < 5.0
    assert found[-1].sufficient < 5.0


def test_replicas_go_along_with_a_steady_fall() -> None:
    """On a line that falls, less demand is no chance: the level is that of now, and nothing earlier is held."""
    falling = [40.0 - 0.3 * turn for turn in range(100)]
    calm = replace(NOTHING_SEEN, correction=Correction(calm=NOW))
    found = seen([40.0] * 40 + falling, calm, replicas=14)[40:]
    for need, demand in zip(found[20:], falling[20:], strict=True):
        assert need.demand == pytest.approx(demand, rel=0.02)
        assert need.required <= need.sufficient <= 1.08 * demand
    soon = replace(NOTHING_SEEN, correction=Correction(calm=NOW + 1e6))  # demand has just risen
    assert seen([40.0] * 40 + falling, soon, replicas=14)[-1].sufficient > 1.08 * falling[-1]


@pytest.mark.parametrize(
    ("took", "cycle", "hold"), [(2.0, 10.0, 40.0), (2.0, 60.0, 120.0), (100.0, 10.0, 100.0), (600.0, 60.0, 600.0)]
)
def test_the_hold_is_as_long_as_a_start_a_reaction_and_two_cycles(took: float, cycle: float, hold: float) -> None:
    """If pods start quickly, the hold is short. WVA must have seen a share of the hold before any shrink."""
    memory, found = NOTHING_SEEN, []
    long = int(1800.0 / cycle)
    for turn in range(2 * long):
        need = needed(10.0 if turn < long else 2.0)
        need, memory = foresee(need, [variant("a")], {A: pods(4, took=took)}, memory, now=NOW + cycle * turn)
        found.append(need.sufficient)
    assert next(turn for turn, sufficient in enumerate(found) if sufficient < inf) * cycle == pytest.approx(
        0.7 * hold, abs=cycle
    )
    gone = next(turn for turn, sufficient in enumerate(found) if sufficient < 6.0) - (long - 1)
    assert hold <= gone * cycle <= hold + 2.0 * cycle


@pytest.mark.parametrize("urgent", [True, False])
def test_a_cycle_that_the_fast_lane_woke_does_not_shorten_the_hold(*, urgent: bool) -> None:
    """One regular cycle with less demand may be chance, however short the next cycle is, and whoever woke it."""
    memory, found = NOTHING_SEEN, {}
    for at, demand, woken in [*((60.0 * turn, 20.0, False) for turn in range(-20, 1)), (60.0, 2.0, False)]:
        need, memory = foresee(
            needed(demand), [variant("a", replicas=8)], {A: pods(8, took=30.0)}, memory, now=NOW + at, woken=woken
        )
        found[at] = need.sufficient
    cluster = [variant("a", replicas=8)], {A: pods(8, took=30.0)}
    for at, woken in ((64.0, True), (68.0, True), (124.0, False), (184.0, False)):
        need, memory = foresee(needed(2.0), *cluster, memory, now=NOW + at, woken=woken, urgent=woken and urgent)
        found[at] = need.sufficient
    assert min(found[60.0], found[64.0], found[68.0]) > 20.0
    assert found[184.0] < 3.0


@pytest.mark.parametrize(("lost", "asked", "more"), [((10, 30), 4, True), ((10,), 4, False), ((10, 30), 3, False)])
def test_replicas_that_vanish_are_a_surprise_as_more_demand_is(
    lost: tuple[int, ...], asked: int, *, more: bool
) -> None:
    """A quarter that was lost twice may be lost again; once is chance, and what nobody asks for is not lost."""
    memory, need = NOTHING_SEEN, needed(8.0)
    for turn in range(60):
        gone = any(place <= turn < place + 7 for place in lost)
        fleet = variant("a", replicas=asked if gone else 4, ready_replicas=3 if gone else 4)
        need, memory = foresee(needed(8.0), [fleet], {A: pods(fleet.ready_replicas)}, memory, now=NOW + CYCLE * turn)
    assert need.required == pytest.approx(8.0 * 4.0 / 3.0 if more else 8.0, rel=0.05)


def test_who_loses_everything_is_not_ready_for_it() -> None:
    """At most twice the demand is kept."""
    memory, need = NOTHING_SEEN, needed(8.0)
    for turn in range(60):
        ready = 0 if turn in {10, 30} else 4
        fleet = variant("a", replicas=4, ready_replicas=ready)
        need, memory = foresee(needed(8.0), [fleet], {A: pods(ready)}, memory, now=NOW + CYCLE * turn)
    assert need.required <= 16.0


def test_a_level_that_returns_is_warm_before_it_does() -> None:
    """Bursts of 5 minutes come every 20: the fourth finds its replicas Ready, and between bursts they go."""
    burst = [2.0] * 60 + [12.0] * 20
    found = seen(burst * 4)
    before_fourth, after_third = found[3 * 80 + 59], found[3 * 80 + 25]
    assert before_fourth.required > 11.0
    assert after_third.required < 6.0
    assert found[3 * 80 + 40].sufficient < 6.0


@pytest.mark.parametrize("keep_warm", [0.0, 60.0])
def test_keep_warm_bounds_how_long_replicas_stay(keep_warm: float) -> None:
    """With keep-warm off, WVA keeps no level that demand has left, and delays no shrink for it."""
    burst = [2.0] * 60 + [12.0] * 20
    found = seen(burst * 4, keep_warm=keep_warm)
    assert found[3 * 80 + 59].required < 6.0
    assert found[3 * 80 + 25].sufficient < 6.0


def test_a_single_spike_is_not_kept() -> None:
    """A level that came once has no pattern."""
    found = seen([2.0] * 60 + [12.0] * 4 + [2.0] * 60)
    assert found[-1].required < 3.0
    assert found[-1].sufficient < 3.0


def test_spells_that_are_shorter_than_a_start_are_not_chased() -> None:
    """After some short spells WVA expects the next to be over before a replica serves."""
    spell = [2.0] * 20 + [30.0] * 2
    found = seen(spell * 8)
    assert found[21].required > 30.0
    assert found[-1].required < 20.0


def test_rises_that_were_not_foreseen_leave_a_reserve() -> None:
    """If demand rises often within a start, at no known times, WVA keeps a reserve for a part of the rise."""
    calm = seen([6.0] * 400)[-1]
    rough = seen([6.0 * (1.6 if turn % 37 in {0, 1, 2, 3, 5, 11} else 1.0) for turn in range(400)])[-2]
    assert rough.required > 1.1 * calm.required


def test_longer_starts_look_further_ahead() -> None:
    """The lead time is the length of the last starts, or of a start that still goes on."""
    ramp = [5.0 + 0.1 * turn for turn in range(60)]
    memory, slow = NOTHING_SEEN, None
    for turn, demand in enumerate(ramp):
        now = NOW + CYCLE * turn
        slow, memory = foresee(
            needed(demand), [variant("a", replicas=4)], {A: pods(4, ready=now - 5.0, took=400.0)}, memory, now=now
        )
    assert slow is not None
    assert len(memory.start_ups[0][1]) == 10
    stuck, _ = foresee(
        needed(11.0),
        [variant("a", replicas=4, oldest_unready_since=NOW + 900.0 - 600.0)],
        {A: pods(4)},
        memory,
        now=NOW + 900.0,
    )
    assert seen(ramp)[-1].required < slow.required < stuck.required


def test_a_pod_that_was_stuck_for_an_hour_is_no_reason_to_look_an_hour_ahead() -> None:
    """After the transition deadline WVA does not count on a pod, so a start counts as no longer than that."""
    required = []
    for took in (240.0, 2800.0):
        after = NOTHING_SEEN
        for turn in range(60):  # a ramp shows how far ahead is looked
            now = NOW + CYCLE * turn
            need, after = foresee(
                needed(5.0 + 0.1 * turn), [variant("a")], {A: pods(4, took=took)}, after, now=now, deadline=240.0
            )
        required.append(need.required)
    assert required[0] == required[1] > 11.0


@pytest.mark.parametrize(
    ("known", "counts"), [([], 120.0), ([0.0], 120.0), ([5.0], 5.0), ([5.0, 60.0], 60.0), ([5.0, 300.0], 300.0)]
)
def test_a_known_start_says_more_than_the_usual_one(known: list[float], counts: float) -> None:
    """Pods that have long been Ready tell the length of their start at the first look; the longer start counts."""
    few = [pods(1, ready=NOW - 9000.0 * turn, took=took)[0] for turn, took in enumerate(known, start=1)]
    required = []
    for started in (few, pods(10, took=counts)):
        memory = NOTHING_SEEN
        for turn in range(60):  # a ramp shows how far ahead is looked
            need = needed(5.0 + 0.1 * turn, answers=lambda _: 100.0)
            need, memory = foresee(need, [variant("a")], {A: started}, memory, now=NOW + CYCLE * turn)
        required.append(need.required)
    assert required[0] == required[1] > 11.0


def test_starts_are_learned_whatever_the_order_of_listing() -> None:
    """The newest ten starts count; a pod that WVA saw starting counts once."""
    started = [pods(1, ready=NOW - 60.0 * turn, took=float(turn))[0] for turn in range(1, 15)]
    one, two = (
        foresee(needed(5.0), [variant("a")], {A: listed}, NOTHING_SEEN, now=NOW)[1].start_ups
        for listed in (started, started[::-1])
    )
    assert one == two == ((A, tuple(map(float, range(10, 0, -1)))),)
    _, memory = foresee(needed(5.0), [variant("a")], {A: started[:2]}, NOTHING_SEEN, now=NOW)
    later = [*started[:2], *pods(1, ready=NOW + 10.0, took=30.0)]
    for turn in range(1, 4):
        _, memory = foresee(needed(5.0), [variant("a")], {A: later}, memory, now=NOW + CYCLE * turn)
    assert memory.start_ups == ((A, (2.0, 1.0, 30.0)),)


def test_starts_that_cannot_be_are_not_learned() -> None:
    """WVA ignores pods without times, with times in the future, or with starts of hours."""
    odd = [
        ReplicaMetrics("a", A),
        ReplicaMetrics("b", A, ready_since=NOW + 10.0),
        ReplicaMetrics("c", A, ready_since=NOW + 10.0, created=NOW + 20.0),
        ReplicaMetrics("d", A, ready_since=NOW + 10.0, created=NOW - 9000.0),
        ReplicaMetrics("e", A, ready_since=NOW + 99.0, created=NOW),
    ]
    _, memory = foresee(needed(1.0), [variant("a")], {}, NOTHING_SEEN, now=NOW)
    _, memory = foresee(needed(1.0), [variant("a")], {A: odd}, memory, now=NOW + 15.0)
    assert memory.start_ups == ((A, ()),)


def test_a_demand_that_is_no_rate_is_left_alone() -> None:
    """The share of busy replicas says nothing of a later time; nor does a cycle in which no time has passed."""
    need = needed(4.0, rate=None)
    assert foresee(need, [], {}, NOTHING_SEEN, now=NOW) == (need, NOTHING_SEEN)
    need, memory = foresee(needed(4.0), [], {}, NOTHING_SEEN, now=NOW)
    again = needed(5.0)
    assert foresee(again, [], {}, memory, now=NOW) == (again, memory)


@pytest.mark.long_story
def test_short_cycles_share_a_slot() -> None:
    """The memory does not grow with the number of cycles, and the level stays the same."""
    memory = NOTHING_SEEN
    for turn in range(3000):
        need, memory = foresee(needed(4.0), [], {}, memory, now=NOW + turn)
    assert len(memory.slots) <= 121
    assert need.demand == pytest.approx(4.0)


def early(
    demand: float,
    *,
    seconds: float = 4.0,
    woken: bool = True,
    urgent: bool | None = None,
    replicas: int = 4,
    usual: float = 2.0,
    **fields: object,
) -> tuple[Need, Need]:
    """Return what a cycle foresees that was woken, and the one before it, after ten minutes of ``usual`` demand."""
    memory, now = NOTHING_SEEN, NOW
    cluster = [variant("a", replicas=replicas)], {A: pods(replicas)}
    for turn in range(40):
        now = NOW + CYCLE * turn
        before, memory = foresee(needed(usual), *cluster, memory, now=now)
    need = needed(demand, **fields)
    return foresee(need, *cluster, memory, now=now + seconds, woken=woken, urgent=urgent)[0], before


@pytest.mark.parametrize(("seconds", "hidden"), [(2.0, 0.0), (4.0, 0.0), (6.0, 9.0)])
def test_a_jump_is_believed_in_a_short_cycle(seconds: float, hidden: float) -> None:
    """It began early because the load has risen. The longer it is, the more of the jump does not show."""
    after, before = early(20.0, seconds=seconds)
    assert before.demand == pytest.approx(2.0)
    assert after.demand == pytest.approx(20.0)
    assert after.required == pytest.approx(20.0 + hidden)


@pytest.mark.parametrize(
    ("demand", "fields"),
    [
        (3.0, {}),  # six seconds with one more request per second are chance
        (20.0, {"scraped": 2.0}),  # the requests of a longer time came in one scrape
        (20.0, {"unsettled": True}),  # a part may belong to the next cycle
        (20.0, {"urgent": False}),  # the load of another model has risen
    ],
)
def test_what_a_short_cycle_shows_may_be_no_jump(demand: float, fields: dict[str, object]) -> None:
    """Then it counts together with the cycles around it."""
    after, before = early(demand, **fields)
    assert after.required == pytest.approx(before.required, rel=0.2)


def test_a_short_cycle_orders_what_waits_and_no_forecast_of_it() -> None:
    """A few seconds tell too little of how many requests will wait when new replicas serve."""
    short, _ = early(20.0, replicas=1)
    waiting, _ = early(20.0, replicas=1, backlog=70.0)
    long = seen([2.0] * 40 + [20.0], replicas=1)[-1]
    assert short.required < waiting.required < long.required
    assert waiting.required == pytest.approx(short.required + 2.0)  # a quarter of 140 seconds drains them


@pytest.mark.parametrize(
    ("seconds", "usual", "fields", "piled_up"),
    [
        (4.0, 11.4, {}, 60.0),
        (12.0, 11.4, {}, 60.0),
        (50.0, 11.4, {}, 60.0),  # the interval may be a minute
        (4.0, 11.4, {"answers": lambda _: 30.0}, 60.0),  # that they would get through more late is no reason to wait
        (4.0, 11.4, {"woken": False}, 0.0),  # it began in time, so nothing has made it begin
        (4.0, 11.4, {"urgent": False}, 0.0),  # another model has made it begin
        (12.0, 11.4, {"urgent": False}, 0.0),
        (4.0, 6.0, {}, 0.0),  # the replicas are half full by their rate, so they seem to carry more at once
        (4.0, 11.4, {"backlog": 0.0}, 0.0),  # all are served
        (4.0, 11.4, {"in_progress": 100.0}, 0.0),
        (4.0, 11.4, {"unsettled": True}, 0.0),  # a pod has just come
    ],
)
def test_what_nearly_full_replicas_have_in_progress_beyond_what_they_carry_has_piled_up(
    seconds: float, usual: float, fields: dict[str, Any], piled_up: float
) -> None:
    """The fast lane begins a cycle by that, and a rate that is known for some seconds only does not belie it."""
    measured = {"backlog": 1.0, "in_progress": 160.0, "ceiling": 100.0} | fields
    after, _ = early(usual, seconds=seconds, usual=usual, **measured)
    if piled_up:
        assert after.required == pytest.approx(12.0 + piled_up / 35.0)  # 12 is what four replicas carry
    else:
        assert after.required < 12.0


def test_the_first_cycle_did_not_begin_early() -> None:
    """How long it was is not known."""
    full, calm = needed(11.4, backlog=1.0, in_progress=160.0, ceiling=100.0), needed(11.4, backlog=1.0)
    found, usual = (
        foresee(need, [variant("a", replicas=4)], {A: pods(4)}, NOTHING_SEEN, now=NOW, woken=True)[0]
        for need in (full, calm)
    )
    assert found.required == usual.required


def looked_ahead(*, neighbour: bool) -> list[tuple[Need, Foresight]]:
    """Return what regular cycles foresee, and remember, while the demand varies and jumps at times.

    With a ``neighbour``, another model wakes a cycle 4 seconds after each of them, and the next is an interval later.
    """
    found, random, now, cluster = [], Random(7), NOW, ([variant("a", replicas=4)], {A: pods(4)})
    _, memory = foresee(needed(6.0), *cluster, NOTHING_SEEN, now=now)
    for turn in range(200):
        usual = 18.0 if turn % 60 in range(40, 50) else 6.0
        soon = usual * random.uniform(0.2, 4.0)
        whole = 4.0 + CYCLE, (4.0 * soon + CYCLE * usual) / (4.0 + CYCLE)
        for seconds, rate in ((4.0, soon), (CYCLE, usual)) if neighbour else (whole,):
            now += seconds
            need, memory = foresee(needed(rate), *cluster, memory, now=now, woken=seconds < CYCLE, urgent=False)
        found.append((need, memory))
    return found


def test_what_other_models_wake_changes_no_forecast() -> None:
    """A few seconds with more or fewer requests are no jump. They count in the next regular cycle."""
    alone, beside = (looked_ahead(neighbour=neighbour) for neighbour in (False, True))
    for (one, _), (other, memory) in zip(alone, beside, strict=True):
        assert (other.demand, other.required, other.sufficient) == pytest.approx(
            (one.demand, one.required, one.sufficient)
        )
        assert other.rate.error == pytest.approx(one.rate.error)
        assert memory.regular == pytest.approx(CYCLE)


def test_a_jump_that_has_been_seen_is_followed_by_the_cycles_of_the_model_itself() -> None:
    """A cycle that another model has woken takes nothing back, and its seconds count beside those of the next one."""
    cluster, memory = ([variant("a", replicas=4)], {A: pods(4, took=3.0)}), NOTHING_SEEN
    for turn in range(40):
        now = NOW + CYCLE * turn
        _, memory = foresee(needed(2.0), *cluster, memory, now=now)
    found = []
    for at, demand, urgent in ((6.0, 14.0, True), (8.0, 20.0, False), (10.0, 24.0, True)):
        need, memory = foresee(needed(demand), *cluster, memory, now=now + at, woken=True, urgent=urgent)
        found.append(need)
    assert [need.demand for need in found] == pytest.approx([14.0, 14.0, 22.0])
    assert found[1].required >= 14.0
    assert found[1].sufficient >= found[1].required


@pytest.mark.parametrize(("woken", "demand"), [(True, 20.0), (False, 2.0)])
def test_a_cycle_that_is_short_because_the_interval_is_shows_no_jump(*, woken: bool, demand: float) -> None:
    """Nothing has told that the load has risen, so its few seconds count when there are enough for a slot."""
    memory, cluster = NOTHING_SEEN, ([variant("a", replicas=4)], {A: pods(4)})
    for turn in range(121):
        now = NOW + 5.0 * turn
        _, memory = foresee(needed(2.0), *cluster, memory, now=now)
    found, memory = foresee(needed(20.0), *cluster, memory, now=now + 5.0, woken=woken)
    later, _ = foresee(needed(20.0), *cluster, memory, now=now + 10.0)
    assert found.demand == pytest.approx(demand)
    assert later.demand == pytest.approx(20.0)


def test_a_short_cycle_counts_for_itself_beside_the_short_one_before() -> None:
    """The first cycle that begins early may show only the begin of a rise, and the next one the rest of it."""
    memory = NOTHING_SEEN
    cluster = [variant("a", replicas=4)], {A: pods(4)}
    for turn in range(40):
        now = NOW + CYCLE * turn
        _, memory = foresee(needed(2.0), *cluster, memory, now=now)
    _, memory = foresee(needed(3.0), *cluster, memory, now=now + 9.0, woken=True)
    found, memory = foresee(needed(20.0), *cluster, memory, now=now + 12.0, woken=True)
    assert found.demand == pytest.approx(20.0)
    assert memory.slots[-1].seconds == pytest.approx(12.0)


def after_two(*cycles: tuple[float, float], replicas: int = 4) -> list[tuple[Need, Foresight]]:
    """Return what cycles (seconds since the one before, requests/s) foresee after ten minutes with 2 requests/s."""
    cluster = [variant("a", replicas=replicas)], {A: pods(replicas, took=3.0)}
    memory, now, found = NOTHING_SEEN, NOW, []
    for seconds, demand in [(CYCLE, 2.0)] * 40 + list(cycles):
        now += seconds
        need, memory = foresee(needed(demand), *cluster, memory, now=now, woken=seconds < CYCLE)
        found.append((need, memory))
    return found[40:]


def test_what_came_before_a_jump_is_not_averaged_with_what_came_after_it() -> None:
    """The cycle that shows the jump has only a part of it. The next two show all, and are averaged."""
    (first, _), (second, _), (third, memory) = after_two((6.0, 14.0), (2.0, 20.0), (2.0, 24.0))
    assert first.demand == pytest.approx(14.0)
    assert second.demand == pytest.approx(20.0)
    assert third.demand == pytest.approx(22.0)
    assert third.required == pytest.approx(22.0 + 2.0 * third.rate.error)  # of its error a short cycle tells half
    assert memory.slots[-1].partial


def test_the_level_follows_a_jump_when_it_is_known_for_some_seconds() -> None:
    """Until then it is that of before; a cycle that begins in time has no forecast of what short cycles have shown."""
    found = [memory for _, memory in after_two((6.0, 14.0), (4.0, 20.0), (4.0, 22.0), (4.0, 21.0), (CYCLE, 21.0))]
    assert [memory.slots[-1].partial for memory in found] == [True, True, True, False, False]
    assert [len(memory.levels) for memory in found[:3]] == [len(found[0].levels)] * 3
    assert len(found[3].levels) > len(found[2].levels)


def test_what_has_to_even_out_shows_no_jump() -> None:
    """A new pod gets all requests of three seconds, and the next cycle as many less: demand is what it was."""
    cluster, memory, now = ([variant("a", replicas=7)], {A: pods(7, took=3.0)}), NOTHING_SEEN, NOW
    steady = [(CYCLE, 20.0, False)] * 40 + [(4.0, 20.0, False)]
    for seconds, demand, unsettled in [*steady, (3.0, 80.0, True), (CYCLE, 12.0, True)]:
        now += seconds
        short = seconds < CYCLE
        need, memory = foresee(needed(demand, unsettled=unsettled), *cluster, memory, now=now, woken=short)
        assert need.demand == pytest.approx(20.0)
    assert need.required < 22.0


def test_of_a_jump_only_the_likely_part_is_held() -> None:
    """A few seconds with more requests than usual by chance keep no replica after longer cycles have shown less."""
    *_, (soon, memory) = after_two((6.0, 2.0), (2.0, 40.0), (CYCLE, 20.0), replicas=60)
    assert memory.reserved[0][1] == pytest.approx(40.0 - sqrt(40.0 / 2.0), rel=0.01)
    assert soon.required < soon.sufficient == pytest.approx(1.05 * memory.reserved[0][1])
    assert soon.sufficient < 40.0


@pytest.mark.long_story
def test_a_demand_that_jumps_all_the_time_takes_little_memory() -> None:
    """Only one slot of at least ten seconds in two may be followed by shorter ones."""
    *_, (need, memory) = after_two(*[(1.0, 500.0 if turn // 3 % 2 else 2.0) for turn in range(1500)])
    assert len(memory.slots) <= 242
    assert isfinite(need.required)


def test_what_short_cycles_have_shown_counts_when_pods_come() -> None:
    """While pods come, demand above the usual waits to be believed, and the usual is no longer that before the rise."""
    memory = NOTHING_SEEN
    for turn in range(40):
        now = NOW + CYCLE * turn
        _, memory = foresee(needed(2.0), [variant("a")], {A: pods(1, took=3.0)}, memory, now=now)
    for seconds in (2.0, 4.0, 6.0):
        _, memory = foresee(needed(20.0), [variant("a")], {A: pods(1, took=3.0)}, memory, now=now + seconds, woken=True)
    for turn in range(1, 6):
        at = now + 6.0 + CYCLE * turn
        need, memory = foresee(
            needed(21.0, unsettled=True), [variant("a", replicas=7)], {A: pods(7, took=3.0)}, memory, now=at
        )
        assert need.required == pytest.approx(20.5, rel=0.1)
        assert need.sufficient >= need.required


def test_a_short_cycle_gives_no_reason_to_shrink_below_what_it_shows() -> None:
    """It began because the load has risen, and pods that come do not hide that."""
    memory = NOTHING_SEEN
    for turn in range(40):
        now = NOW + CYCLE * turn
        _, memory = foresee(needed(6.0), [variant("a", replicas=7)], {A: pods(7)}, memory, now=now)
    risen, cluster = needed(12.0, unsettled=True), ([variant("a", replicas=7)], {A: pods(7)})
    late, _ = foresee(risen, *cluster, memory, now=now + 15.0)
    soon, _ = foresee(risen, *cluster, memory, now=now + 4.0, woken=True)
    assert late.sufficient < 7.0
    assert soon.sufficient == pytest.approx(12.0 * 1.05)
    assert soon.required < 7.0


def test_a_backlog_is_not_drained_in_less_than_half_a_minute() -> None:
    """Where pods start at once, a quarter of the lead time would order many replicas for a few seconds."""
    memory, found = NOTHING_SEEN, []
    for turn, backlog in enumerate([0.0] * 40 + [60.0]):
        cluster = [variant("a", replicas=2)], {A: pods(2, took=4.0)}
        need, memory = foresee(needed(6.0, backlog=backlog), *cluster, memory, now=NOW + CYCLE * turn)
        found.append(need.required)
    assert found[-1] == pytest.approx(found[-2] + 60.0 / 30.0, rel=0.02)


rates = st.sampled_from([0.0, 0.01, 1.0, 5.0, 50.0, 1e4]) | st.floats(0.0, 1e6)


@st.composite
def any_needs(draw: st.DrawFn) -> Need:
    """Draw a need of any amounts."""
    return needed(
        draw(rates),
        backlog=draw(rates),
        scraped=draw(rates | st.just(inf)),
        unsettled=draw(st.booleans()),
        in_progress=draw(rates),
        ceiling=draw(rates | st.just(inf)),
        roomy=draw(st.booleans()),
        capacities={A: Capacity(draw(rates), CapacityBasis.OBSERVED)},
    )


@given(needs=st.lists(any_needs(), min_size=1, max_size=30), seconds=st.floats(0.1, 4000.0), woken=st.booleans())
def test_whatever_is_measured_the_answer_is_a_number_and_the_memory_small(
    *, needs: Sequence[Need], seconds: float, woken: bool
) -> None:
    """No need becomes NaN, a shrink leaves at least what the model requires, and JSON can hold the memory."""
    memory = NOTHING_SEEN
    for turn, need in enumerate(needs):
        found, memory = foresee(
            need, [variant("a", replicas=2)], {A: pods(2)}, memory, now=NOW + seconds * turn, woken=woken
        )
        assert isfinite(found.required)
        assert found.required >= 0.0
        assert found.sufficient >= found.required
        assert found.rate.error >= 0.0
    assert len(memory.slots) <= 121
    assert len(memory.levels) <= 110
    assert len(memory.blocks) <= 120
    assert msgspec.json.decode(msgspec.json.encode(memory), type=Foresight) == memory


@given(st.lists(rates, min_size=1, max_size=12), rates, st.floats(0.1, 9.0))
def test_a_short_cycle_never_needs_less_than_its_demand_alone_would(
    past: list[float], demand: float, seconds: float
) -> None:
    """What a few seconds show is added to what is known, and takes nothing away."""
    memory = NOTHING_SEEN
    for turn, rate in enumerate(past):
        _, memory = foresee(needed(rate), [variant("a")], {A: pods(1)}, memory, now=NOW + CYCLE * turn)
    now = NOW + CYCLE * (len(past) - 1) + seconds
    found, without = (
        foresee(needed(demand, scraped=scraped), [variant("a")], {A: pods(1)}, memory, now=now, woken=True)[0]
        for scraped in (inf, 0.0)
    )
    assert found.required >= without.required


@given(st.lists(rates, min_size=1, max_size=12), st.floats(0.0, 100.0), st.floats(0.0, 1000.0), st.floats(0.0, 1000.0))
def test_more_demand_never_needs_less(past: list[float], demand: float, more: float, backlog: float) -> None:
    """After the same past, a cycle with more requests or a longer queue asks for at least as much."""
    memory = NOTHING_SEEN
    for turn, rate in enumerate(past):
        _, memory = foresee(needed(rate), [variant("a")], {A: pods(1)}, memory, now=NOW + 15.0 * turn)
    now = NOW + 15.0 * len(past)
    required = [
        foresee(need, [variant("a")], {A: pods(1)}, memory, now=now)[0].required
        for need in (needed(demand), needed(demand, backlog=backlog))
    ]
    assert required[0] <= required[1] * (1.0 + 1e-9)
    if demand + more > 3.0 * max([demand, *past]):
        assert foresee(needed(demand + more), [variant("a")], {A: pods(1)}, memory, now=now)[0].required >= required[0]


def test_demand_that_usually_ends_soon_keeps_what_serves_it():
    """It asks for no replica that would come too late. But users are there until it has ended."""
    spells, pause = [20, 20, 20, 20, 26, 26], 20
    found = seen([demand for length in spells for demand in [12.0] * length + [1.0] * pause])
    last = found[-pause - spells[-1] : -pause]
    assert min(need.required for need in last) < 3.0
    assert min(need.sufficient for need in last) >= 11.0
