"""What earlier days had after this time of day: replicas are ready for it, and words say why."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from tests.decide.scraped_loop import ScrapedLoop
from tests.decide.test_foresee import CYCLE, A, foresee, needed, pods
from wva.decide.measure.need import Need
from wva.decide.pipeline import decide
from wva.model.decision import Aim
from wva.model.memory import Foresight, Memory
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.usual import PART_SECONDS, UsualDemand
from wva.model.variant import ModelKey

MODEL = ModelKey("ns", "m")
LEAD = 40.0 + 100.0
"""In the tests of step 3, pods take 100 s to start."""


def known(*peaks: float, at: float = NOW, lately: float = 2.0) -> UsualDemand:
    """Return what three earlier days had, in parts of five minutes."""
    return UsualDemand(MODEL, at, lately, 3, tuple(peaks))


def steady(demand: float = 2.0, *, key: ModelKey = MODEL) -> Foresight:
    """Return the memory after an hour of steady demand."""
    memory = Foresight(key)
    for turn in range(240):
        now = NOW - CYCLE * (240 - turn)
        need = replace(needed(demand), key=key)
        _, memory = foresee(need, [variant("a", replicas=2)], {A: pods(2)}, memory, now=now)
    return memory


def ahead(usual: UsualDemand | None, demand: float = 2.0, *, key: ModelKey = MODEL, now: float = NOW) -> Need:
    """Return what is foreseen of steady demand, on two replicas that carry six, if earlier days had something."""
    need = replace(needed(demand), key=key)
    memory = steady(demand, key=key)
    return foresee(need, [variant("a", replicas=2)], {A: pods(2)}, memory, now=now, usual=usual)[0]


def test_what_earlier_days_had_within_the_lead_time_is_needed_now() -> None:
    """It was 8 requests per second; a later peak is left for later."""
    before = ahead(None)
    assert ahead(known(8.0)).required == 8.0
    assert ahead(known(2.0, 8.0)).required == before.required
    assert ahead(known(2.0, 8.0), now=NOW + 300.0 - LEAD).required == 8.0
    assert ahead(known(8.0)).demand == before.demand
    assert ahead(known(8.0)).sufficient >= 8.0


@pytest.mark.parametrize(("peak", "counts"), [(2.9, False), (3.1, True)])
def test_what_is_hardly_more_than_now_does_not_count(peak: float, *, counts: bool) -> None:
    """A day without so small a rise would still be like the days with it, so replicas would wait for it all day."""
    assert (ahead(known(peak)).required == peak) == counts
    if not counts:
        assert ahead(known(peak)) == ahead(None)


def test_words_say_which_days_and_how_much() -> None:
    """In the figures of the decision, and for the replicas that stay."""
    need = ahead(known(8.0))
    assert need.summary == "; on the 3 earlier days that were like today, demand soon rose to 8"
    assert need.rate is not None
    words = [words for _, words in need.rate.stays]
    assert "on earlier days demand soon rose to what they carry, so replicas stay for that" in words
    assert ahead(known(1.0)).summary == ""


def test_no_replica_goes_shortly_before_it_is_needed() -> None:
    """At the end of the lunch break, the replicas of the morning stay."""
    assert ahead(known(6.0)).sufficient >= 6.0 > ahead(None).sufficient


def test_it_is_bounded_as_every_order_is() -> None:
    """Whoever writes false samples on several days gets sixteen times the present capacity at the most."""
    assert ahead(known(1e9)).required == 16.0 * 6.0


def test_a_rise_that_was_foreseen_is_no_surprise() -> None:
    """The reserve is for what comes unforeseen, so a rise of each day does not make it larger."""
    memory = steady()
    begun = memory.blocks[-1].begun
    need, after = foresee(
        needed(2.0), [variant("a", replicas=2)], {A: pods(2)}, memory, now=begun + LEAD, usual=known(8.0, at=begun)
    )
    assert after.blocks[-1].foreseen == 8.0
    assert need.required == 8.0


@pytest.mark.parametrize(("lately", "needs"), [(4.0, 8.0), (8.0, 4.0), (0.0, 0.0)])
def test_a_role_gets_the_part_of_it_that_it_gets_now(lately: float, needs: float) -> None:
    """Requests are counted at the pods of all roles together. If none came lately, the part of a role is unknown."""
    role = replace(MODEL, role="decode")
    plain, told = ahead(None, key=role), ahead(known(16.0, lately=lately), key=role)
    assert told.required == (pytest.approx(needs, rel=0.02) if needs else plain.required)


def test_what_has_come_is_not_expected_once_more() -> None:
    """The demand of a role has just risen as it does each day: the part of a role is that of the last minutes."""
    key = replace(MODEL, role="decode")
    memory, cycle = steady(2.0, key=key), ([variant("a", replicas=3)], {A: pods(3)})
    usual = known(16.0, at=NOW - 60.0, lately=4.0)
    for turn in range(4):
        need, memory = foresee(replace(needed(8.0), key=key), *cycle, memory, now=NOW + CYCLE * turn, usual=usual)
    assert need.summary == ""
    assert need.required < 9.0


def test_only_the_part_counts_that_comes_to_the_variants() -> None:
    """Pods that no variant has serve half of the requests of this model, at every hour."""
    assert ahead(known(4.0, lately=4.0)) == ahead(None)
    assert ahead(known(16.0, lately=4.0)).required == pytest.approx(8.0)
    assert ahead(known(8.0, lately=1.0)).required == 8.0  # a count that missed some is not made up for


def test_after_a_start_nothing_is_known_of_the_part() -> None:
    """Until there is some demand to compare with what was counted."""
    begun = [variant("a", replicas=2)], {A: pods(2)}, Foresight(MODEL)
    need = foresee(needed(2.0), *begun, now=NOW, usual=known(8.0, at=NOW - 60.0))[0]
    assert need.required < 3.0
    nobody = known(8.0, lately=0.0)
    need = foresee(needed(0.0), *begun, now=NOW, usual=nobody)[0]
    assert need.required == 8.0


@pytest.mark.parametrize("keep_warm", [0.0, 1800.0])
def test_who_keeps_nothing_warm_prepares_for_nothing(keep_warm: float) -> None:
    """``keepWarm`` says how long after demand has gone replicas may wait for it."""
    found = [
        foresee(
            needed(2.0), [variant("a", replicas=2)], {A: pods(2)}, steady(), now=NOW, usual=one, keep_warm=keep_warm
        )
        for one in (known(8.0), None)
    ]
    assert found[0] == found[1]


def test_replicas_that_are_ordered_ahead_are_no_shortage() -> None:
    """What users got of the present replicas still says whether these carry the present demand."""
    need, memory = needed(2.0, aims={A: Aim(DEFAULT_OBJECTIVES)}), steady()
    found = [
        foresee(need, [variant("a", replicas=2)], {A: pods(2)}, memory, now=NOW, usual=one)[1].correction
        for one in (known(8.0), None)
    ]
    assert found[0] == found[1]
    assert not found[0].short


@given(
    peaks=st.lists(st.floats(0.0, 1e9), min_size=13, max_size=13).map(sorted),
    demand=st.floats(0.0, 50.0),
    late=st.floats(0.0, 700.0),
)
def test_it_never_asks_for_less(peaks: list[float], demand: float, late: float) -> None:
    """Whatever earlier days had, nothing that is needed without them goes."""
    usual = known(*peaks, at=NOW - late, lately=demand)
    memory = Foresight(MODEL)
    cycle = needed(demand), [variant("a", replicas=2)], {A: pods(2)}
    for turn in range(40):
        _, memory = foresee(*cycle, memory, now=NOW - CYCLE * (40 - turn))
    with_days, without = (foresee(*cycle, memory, now=NOW, usual=one)[0] for one in (usual, None))
    assert with_days.required >= without.required
    assert with_days.sufficient >= without.sufficient
    assert with_days.required == max(without.required, min(96.0, with_days.required)) < inf


def test_replicas_serve_before_a_load_that_comes_each_day() -> None:
    """They are ordered a lead time before, and they go again on a day on which it does not come."""
    jump = 900.0

    def usual(now: float) -> UsualDemand | None:
        at = now // PART_SECONDS * PART_SECONDS
        peaks = [64.0 if at + PART_SECONDS * (part + 1) > jump else 32.0 for part in range(13)]
        return UsualDemand(MODEL, NOW + at, 32.0, 5, tuple(peaks)) if at <= jump else None

    with_days = ScrapedLoop(interval=15.0, rate=lambda now: 64.0 if now > jump else 32.0, usual=usual).run(1800.0)
    without = ScrapedLoop(interval=15.0, rate=lambda now: 64.0 if now > jump else 32.0).run(1800.0)
    needed_then = without.number(1790.0)
    assert with_days.number(jump - 300.0) == without.number(jump) < needed_then
    assert with_days.number(jump - 45.0) >= needed_then
    assert abs(with_days.number(1790.0) - needed_then) <= 1
    told = zip(with_days.decisions, with_days.numbers, strict=True)
    said = next(one.message for one, (_, number) in told if number >= needed_then)
    assert "on the 5 earlier days that were like today, demand soon rose to 64" in said
    empty = ScrapedLoop(interval=15.0, usual=usual).run(2700.0)
    assert empty.number(jump) >= needed_then
    assert empty.number(2690.0) == without.number(jump)


def test_without_earlier_days_nothing_changes() -> None:
    """Nor with days that had no more than now."""
    assert ahead(known(2.0)) == ahead(None)


def test_what_is_known_of_a_model_is_in_the_snapshot_of_a_cycle() -> None:
    """So a recorded cycle is decided the same way again; groups of models have their own."""
    other = replace(known(3.0), model=ModelKey("ns", "other"))
    snapshot = Snapshot(usual=(known(8.0), other))
    first, second = snapshot.grouped({MODEL: 0, other.model: 1}, 2)
    assert (first.usual, second.usual) == ((known(8.0),), (other,))
    assert decide(snapshot, Memory(), Policy(), NOW)[0] == ()
