"""Recorded cycles decided again: the same to the last bit, or under another policy with a memory of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, variant
from tests.decide.strategies import cycles as any_cycle
from wva.decide.pipeline import conclude
from wva.model.decision import Reason
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import SaturationPolicy
from wva.model.recording import WITHOUT_DECISIONS, Recording
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey
from wva.publish.replay import Link, differences, link, repeat, under

A = VariantKey("ns", "a")
USAGES = (0.3, 0.62, 0.62, 0.75, 0.75)


def recorded(usages=USAGES, *, memory=None, interval=30.0):
    """Return the recordings of a controller that has seen these KV usages on one replica, cycle by cycle."""
    memory, found = memory or Memory(), []
    for index, usage in enumerate(usages):
        snapshot = Snapshot.of([variant("a", desired=1)], [replica("a-0", kv=usage, queue=0)])
        now = NOW + index * interval
        outcome = conclude(snapshot, memory, policy(), now)
        found.append(Recording(now, policy(), memory, snapshot, outcome.decisions))
        memory = outcome.memory
    return found


def test_what_was_decided_comes_out_again():
    """Every decision is the same, and every memory follows from the cycle before."""
    cycles = list(repeat(recorded()))
    assert [cycle.differing for cycle in cycles] == [()] * len(USAGES)
    assert [cycle.link for cycle in cycles] == [Link(started=True), *[Link()] * (len(USAGES) - 1)]


@given(any_cycle())
def test_any_cycle_comes_out_again(recording):
    """Whatever was seen."""
    outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
    (cycle,) = repeat([replace(recording, decisions=outcome.decisions)])
    assert cycle.differing == ()


@pytest.mark.parametrize("change", [{"desired": 7}, {"message": "other"}, {"spare_capacity": -0.0}, {"steps": ()}])
def test_a_decision_that_differs_in_anything_is_named(change):
    """Also in the sign of a zero."""
    first, *others = recorded((0.9, 0.9))
    (decision,) = first.decisions
    assert decision.spare_capacity == 0.0
    changed = replace(first, decisions=(replace(decision, **change),))
    assert [cycle.differing for cycle in repeat([changed, *others])] == [(A,), ()]


def test_a_decision_that_is_missing_or_too_many_is_named():
    """A recording is compared as a whole."""
    (recording,) = recorded((0.5,))
    (missing,) = repeat([replace(recording, decisions=())])
    assert missing.differing == (A,)
    (decision,) = recording.decisions
    other = replace(decision, key=VariantKey("ns", "b"))
    (more,) = repeat([replace(recording, decisions=(decision, other))])
    assert more.differing == (other.key,)


def test_a_recording_without_decisions_is_not_compared():
    """Those of format 2 have none."""
    (recording,) = recorded((0.5,))
    (cycle,) = repeat([replace(recording, decisions=(), version=WITHOUT_DECISIONS)])
    assert cycle.differing == ()
    assert cycle.outcome.decisions == recording.decisions


def test_a_cycle_that_is_missing_shows_in_the_memory():
    """What has been learned of the model does not follow from the cycle that is left before it."""
    recordings = recorded()
    del recordings[2:4]
    torn = [cycle.link.torn for cycle in repeat(recordings)]
    assert torn == [(), (), ("models",)]


def test_a_variant_that_the_world_changed_is_named():
    """One that was started from zero, one that was deleted, one that is new."""
    entries = {name: VariantMemory(VariantKey("ns", name), 1, None, 1) for name in "abc"}
    left = Memory((entries["a"], entries["b"]))
    found = Memory((replace(entries["a"], desired=3), entries["c"]))
    assert link(left, found) == Link(overtaken=tuple(VariantKey("ns", name) for name in "abc"))


def test_a_controller_that_started_anew_is_told():
    """It has no memory of anything."""
    recordings = [*recorded(), *(replace(each, now=each.now + 1000) for each in recorded())]
    assert [cycle.link.started for cycle in repeat(recordings)] == ([True] + [False] * (len(USAGES) - 1)) * 2


def eager(recorded_policy):
    """Return the policy with a trigger that asks for more sooner."""
    return replace(recorded_policy, saturation=SaturationPolicy(kv_spare_trigger=0.3))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_same_policy_makes_no_difference(usages):
    """The memory that is carried along is the one that was recorded."""
    pairs = list(under(repeat(recorded(usages)), lambda recorded_policy: recorded_policy))
    assert all(pair.then == pair.other for pair in pairs)
    assert all(each.spans == () and each.differing == 0 for each in differences(pairs))


def test_another_policy_has_a_memory_of_its_own():
    """Its own growth is remembered: it is not asked for in each cycle again."""
    pairs = list(under(repeat(recorded()), eager))
    assert [pair.then[0].desired for pair in pairs] == [1, 1, 1, 2, 2]
    assert [pair.other[0].desired for pair in pairs] == [1, 2, 2, 2, 2]
    assert pairs[2].other[0].previous == 2
    assert pairs[2].other[0].reason is not Reason.SCALE_UP


def test_the_difference_is_told_by_time():
    """When, the numbers and the reasons; hours count until the next cycle."""
    (difference,) = differences(list(under(repeat(recorded(interval=36.0)), eager)))
    (span,) = difference.spans
    assert (span.start, span.end, span.cycles) == (NOW + 36, NOW + 72, 2)
    assert (span.then, span.now, span.reason_now) == (1, 2, "ScaleUp")
    assert difference.differing == 2
    assert difference.replica_hours_then == pytest.approx(0.05)
    assert difference.replica_hours_now == pytest.approx(0.07)
    assert difference.cost_now == pytest.approx(0.07 * variant("a").cost)


def test_a_time_without_a_controller_counts_nothing():
    """A long gap between two recordings is no time in which a number was in force."""
    recordings = [*recorded(interval=36.0), *(replace(each, now=each.now + 86400) for each in recorded(interval=36.0))]
    (difference,) = differences(list(under(repeat(recordings), eager)))
    assert difference.replica_hours_then == pytest.approx(0.1)


def test_what_the_world_changed_is_taken_over():
    """A variant that was started from zero between two cycles was so under any policy."""
    recordings = recorded((0.3, 0.3, 0.3))
    (entry,) = recordings[2].memory.variants
    told = replace(recordings[2].memory, variants=(replace(entry, desired=5),))
    pairs = list(under(repeat([*recordings[:2], replace(recordings[2], memory=told)]), eager))
    assert [pair.other[0].previous for pair in pairs] == [1, 1, 5]
