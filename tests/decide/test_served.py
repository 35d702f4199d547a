"""What users got against what was planned: when more is asked for than seems to be needed, and for how long."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from tests.decide.test_foresee import A, foresee, needed, pods
from wva.decide.measure.need import Need
from wva.decide.served import corrected, for_objectives
from wva.model.decision import Aim
from wva.model.in_time import LATELY_SECONDS, ServedLately, ServedShare
from wva.model.memory import Correction, Foresight, LatePrice
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.records import replace
from wva.model.variant import ModelKey

LOOK = LATELY_SECONDS
HOUR = 3600.0


def after(
    late: float | None,
    before: Correction = Correction(),  # noqa: B008 - frozen
    *,
    room: float | None = 1.2,
    looks: int = 1,
    requests: float = 1000.0,
    begin: float = NOW,
    demand: float = 6.0,
) -> Correction:
    """Return the correction after some looks that showed this share of late requests."""
    found = before
    for turn in range(looks):
        at = begin + LOOK * turn
        share = None if late is None else ServedShare(requests, 1.0 - late)
        found = corrected(found, share, at=at, in_time=0.99, room=room, demand=demand, now=at)
    return found


DEMAND = 6.0
CALM = Correction(calm=NOW - HOUR, demand=DEMAND)


def test_users_who_are_late_although_there_is_enough_get_more_than_there_is() -> None:
    """A raise asks for somewhat more than the fleet that was too small."""
    found = after(0.1, CALM)
    assert found.factor == pytest.approx(1.2 * 1.1)
    assert found.raised == NOW


def test_the_same_fleet_is_found_too_small_once_however_often_one_looks() -> None:
    """Raises do not pile up while the pods of the first one start."""
    assert after(0.1, CALM, looks=5).factor == pytest.approx(1.2 * 1.1)


@pytest.mark.parametrize(("seconds", "factor"), [(15.0, 1.0), (120.0, 1.0), (135.0, 1.2 * 1.1)])
def test_a_shortage_that_shows_soon_after_a_raise_has_made_users_late(seconds: float, factor: float) -> None:
    """Requests have become longer, and users felt it first: no fleet was too small for what was planned."""
    raised = after(0.1, CALM)
    short = corrected(raised, None, at=0.0, in_time=0.99, room=None, demand=DEMAND, now=NOW + seconds)
    assert short.factor == pytest.approx(factor)
    assert after(0.1, short, begin=NOW + HOUR, room=1.1).factor == pytest.approx(max(factor, 1.1 * 1.1))


def test_a_look_counts_once() -> None:
    """Cycles come more often than looks, and the times of two looks that follow each other overlap."""
    share = ServedShare(1000.0, 0.983)
    found = CALM
    for cycle in range(100):
        at = NOW + 60.0 * (cycle // 50)  # the second look shows half of the same time
        found = corrected(found, share, at=at, in_time=0.99, room=1.2, demand=DEMAND, now=NOW + cycle)
    assert found.requests == 1000.0
    assert found.factor == 1.0


def test_the_smallest_fleet_since_the_look_before_counts() -> None:
    """A pod that has just come was not there when the requests were late."""
    first = corrected(CALM, None, at=0.0, in_time=0.99, room=1.1, demand=DEMAND, now=NOW - 15.0)
    assert after(0.1, first, room=3.0).factor == pytest.approx(1.1 * 1.1)


def test_a_larger_fleet_that_is_too_small_is_asked_for_more() -> None:
    """The next raise starts from the fleet that was found too small then."""
    first = after(0.1, CALM)
    assert after(0.05, first, room=1.4, begin=NOW + LOOK).factor == pytest.approx(1.4 * 1.05)


@pytest.mark.parametrize(
    ("late", "requests"),
    [
        (0.0, 1000.0),
        (0.01, 1000.0),  # as many as may be
        (0.019, 1000.0),  # more, by chance
        (0.1, 10.0),  # one of ten
    ],
)
def test_what_chance_explains_changes_nothing(late: float, requests: float) -> None:
    """Three standard deviations above what may be late are chance."""
    assert after(late, CALM, requests=requests).factor == 1.0


def test_looks_that_tell_little_each_tell_together() -> None:
    """Few requests in each look are many after an hour."""
    assert after(0.017, CALM, looks=1).factor == 1.0
    assert after(0.017, CALM, looks=10).factor > 1.2


def test_requests_that_are_late_in_a_shortage_or_right_after_it_tell_nothing() -> None:
    """A fleet that was short is not a fleet that was thought to be enough."""
    short = after(0.5, CALM, room=None, looks=3)
    assert short.factor == 1.0
    # A minute after the shortage, requests of its time are still in the window.
    ended = NOW + 2.0 * LOOK
    assert after(0.5, short, begin=ended + 60.0).factor == 1.0
    assert after(0.5, short, begin=ended + LOOK + 60.0).factor > 1.0


def test_for_some_minutes_after_a_rise_of_demand_nothing_is_told() -> None:
    """Replicas come one after the other then, and their caches are cold. A fall is no rise, and what follows is."""
    risen = corrected(CALM, None, at=0.0, in_time=0.99, room=1.2, demand=1.3 * DEMAND, now=NOW)
    assert after(0.5, risen, begin=NOW + 9 * 60.0, demand=1.3 * DEMAND).factor == 1.0
    assert after(0.5, risen, begin=NOW + 11 * 60.0, demand=1.3 * DEMAND).factor > 1.0
    fallen = corrected(CALM, None, at=0.0, in_time=0.99, room=1.2, demand=DEMAND / 1.3, now=NOW)
    assert after(0.5, fallen, demand=DEMAND / 1.3).factor > 1.0
    assert after(0.5, fallen, demand=DEMAND).factor == 1.0


def test_the_first_cycle_knows_nothing_of_the_time_before() -> None:
    """After a restart the time before the first cycle may have been a shortage."""
    assert after(0.5, looks=4).factor == 1.0


def test_no_look_changes_nothing() -> None:
    """Without an answer of Prometheus the last good state is kept."""
    raised = after(0.1, CALM)
    assert after(None, raised, looks=100, begin=NOW + LOOK).factor == raised.factor


def test_a_raise_is_kept_for_an_hour_and_goes_in_small_steps() -> None:
    """Only when far fewer are late than may be, less is tried."""
    raised = after(0.1, CALM, room=2.0)
    kept = after(0.0, raised, room=2.2, looks=29, begin=NOW + LOOK)
    assert kept.factor == raised.factor
    less = after(0.0, kept, room=2.2, looks=1, begin=NOW + 31 * LOOK)
    assert less.factor == pytest.approx(0.95 * raised.factor)
    assert after(0.0, less, room=2.2, looks=300, begin=NOW + 32 * LOOK).factor == 1.0


def test_as_many_late_requests_as_may_be_keep_the_factor() -> None:
    """What is just enough is kept."""
    raised = after(0.1, CALM, room=2.0)
    assert after(0.01, raised, room=2.2, looks=200, begin=NOW + LOOK).factor == raised.factor


def test_raises_that_help_nobody_are_taken_back_and_not_tried_again_for_hours() -> None:
    """Long prompts are late by themselves; more replicas do not help them."""
    found, turn = CALM, 0
    while found.factor < 1.25:
        found = after(0.1, found, room=found.factor, begin=NOW + LOOK * turn)
        turn += 1
    assert turn == 3  # in steps of a tenth
    vain = after(0.1, found, room=found.factor, begin=NOW + LOOK * turn)
    assert vain.factor == 1.0
    later = NOW + LOOK * turn + 5.9 * HOUR
    assert after(0.1, vain, looks=10, begin=later - 10 * LOOK).factor == 1.0
    assert after(0.1, vain, begin=later + HOUR).factor > 1.0


def test_raises_that_help_go_on() -> None:
    """If late requests halve as the fleet doubles, the raises were right."""
    found, late = CALM, 0.3
    for turn in range(8):
        room = 1.2**turn
        found = after(late / room, found, room=room, begin=NOW + LOOK * turn)
        assert found.factor > min(3.9, room)


def test_there_is_an_end() -> None:
    """At most four times what seems to be needed is asked for."""
    assert after(1.0, CALM, room=50.0).factor == 4.0


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1.0),
            st.floats(0.0, 1e9),
            st.one_of(st.none(), st.floats(0.0, 1e6)),
            st.floats(0.0, 1e6),
            st.floats(-600.0, 4 * HOUR),
        ),
        max_size=30,
    )
)
def test_the_factor_stays_in_its_range(looks: list[tuple[float, float, float | None, float, float]]) -> None:
    """Whatever is seen."""
    found, now = CALM, NOW
    for late, requests, room, demand, seconds in looks:
        now += seconds
        found = corrected(
            found, ServedShare(requests, 1.0 - late), at=now, in_time=0.99, room=room, demand=demand, now=now
        )
        assert 1.0 <= found.factor <= 4.0
        assert isfinite(found.missed)


# -- within the forecast ----------------------------------------------------------------------------------------------

LATE = ServedLately(ModelKey("ns", "m"), NOW, 1000.0, 0.9, 1.0)
AIMS = {A: Aim(DEFAULT_OBJECTIVES)}


def told(served: ServedLately | None, memory: Foresight | None = None, **more: object) -> tuple[Need, Foresight]:
    """Return what is foreseen of six requests per second and four replicas that carry twelve."""
    memory = memory or Foresight(ModelKey("ns", "m"), NOW - HOUR, NOW - 15.0, correction=CALM)
    need = needed(6.0, aims=AIMS, **more)
    return foresee(need, [variant("a", replicas=4)], {A: pods(4)}, memory, now=NOW, served=served)


def test_all_that_is_needed_is_asked_for_in_proportion() -> None:
    """What is required, what a shrink leaves, and its parts."""
    before, _ = told(None)
    need, memory = told(LATE)
    factor = memory.correction.factor
    assert factor == pytest.approx(12.0 / before.required * 1.1)
    assert need.required == pytest.approx(before.required * factor)
    assert need.sufficient == pytest.approx(before.sufficient * factor)
    assert need.rate is not None
    assert before.rate is not None
    assert [amount for amount, _ in need.rate.stays] == pytest.approx([one * factor for one, _ in before.rate.stays])


def test_more_than_can_be_ordered_is_not_asked_for() -> None:
    """The bound of an order holds for a raise, too."""
    high = Foresight(ModelKey("ns", "m"), NOW - HOUR, NOW - 15.0, correction=replace(CALM, factor=4.0))
    need = needed(50.0, aims=AIMS)
    found, _ = foresee(need, [variant("a", replicas=4)], {A: pods(4)}, high, now=NOW)
    assert found.required == 16.0 * 12.0


def test_without_objectives_nothing_is_late() -> None:
    """An analyzer without objectives does not say what late is."""
    need = needed(6.0)
    memory = Foresight(ModelKey("ns", "m"), NOW - HOUR, NOW - 15.0, correction=CALM)
    found = foresee(need, [variant("a", replicas=4)], {A: pods(4)}, memory, now=NOW, served=LATE)
    assert found[1].correction == CALM


@pytest.mark.parametrize("refused", [0.0, 1.0])
def test_requests_that_engines_refuse_are_a_shortage(refused: float) -> None:
    """Refused requests say that the model is short, so they say nothing of its capacity."""
    assert (told(LATE, refused=refused)[1].correction.factor == 1.0) == bool(refused)


def test_what_waits_after_a_shortage_belongs_to_it() -> None:
    """The queue that a shortage leaves makes requests late when it is over."""
    ended = Foresight(
        ModelKey("ns", "m"), NOW - HOUR, NOW - 15.0, correction=replace(CALM, calm=NOW + 15.0, short=True)
    )
    assert told(None, ended, backlog=100.0)[1].correction.short
    assert not told(None, ended, backlog=1.0)[1].correction.short
    assert not told(None, backlog=100.0)[1].correction.short  # without a shortage before it, it tells of the capacity


@pytest.mark.parametrize(
    ("role", "share"), [("", 0.8), ("prefill", 0.9), ("decode", 0.8), ("prefill-decode", 0.8), ("encode", 1.0)]
)
def test_each_role_is_judged_by_what_it_has_its_part_in(role: str, share: float) -> None:
    """A prefill pod has no part in the time between tokens."""
    assert ServedLately(ModelKey("ns", "m"), NOW, 10.0, 0.9, 0.8).of(role).share == share


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        (Objectives(10.0, 0.1, 0.99), False),
        (Objectives(1.0, 0.03, 0.99), False),
        (Objectives(1.0, 0.1, 0.5), False),
        (Objectives(1.4, 0.08, 0.99), True),
    ],
)
def test_what_was_learned_for_other_objectives_is_forgotten(other, stays):
    """Neither a factor, nor late requests, nor a raise that was in vain says anything of other objectives."""
    learned = Correction(factor=1.8, calm=10.0, demand=5.0, looked=100.0, requests=50.0, missed=9.0, vain=9_000.0)
    memory = Foresight(ModelKey("ns", "m"), correction=learned, price=LatePrice(5.0, 100.0, 50.0, 9.0))
    memory = for_objectives(memory, Objectives(1.0, 0.1, 0.99), 100.0)
    assert (memory.correction, memory.price) == (learned, LatePrice(5.0, 100.0, 50.0, 9.0))
    after = for_objectives(memory, other, 200.0)
    if stays:
        assert after == memory
    else:
        assert after.correction == Correction(calm=10.0, demand=5.0, looked=200.0)
        assert after.price == LatePrice(looked=200.0)
        assert after.objectives == other
