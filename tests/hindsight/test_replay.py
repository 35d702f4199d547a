"""Recorded cycles are decided again, with the same policy or with another policy and its own memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, variant
from tests.decide.strategies import cycles as any_cycle
from tests.hindsight import samples
from wva.decide.pipeline import conclude
from wva.decide.rules import Rule
from wva.hindsight.cycle import Recording
from wva.hindsight.differences import Kind, differences, kinds
from wva.hindsight.replay import MemoryLink, link, repeat, under
from wva.model.decision import Reason
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey

A = VariantKey("ns", "a")
USAGES = (0.3, 0.62, 0.62, 0.75, 0.75)


def recorded(usages=USAGES, *, memory=None, interval=30.0):
    """Return the recordings of a controller that saw these KV usages on one replica, one for each cycle."""
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
    assert [cycle.link for cycle in cycles] == [MemoryLink(started=True), *[MemoryLink()] * (len(USAGES) - 1)]


@given(any_cycle())
def test_any_cycle_comes_out_again(recording):
    """Every cycle gives the recorded decisions again."""
    outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
    (cycle,) = repeat([replace(recording, decisions=outcome.decisions)])
    assert cycle.differing == ()


@pytest.mark.parametrize("change", [{"desired": 7}, {"message": "other"}, {"spare_capacity": -0.0}, {"steps": ()}])
def test_a_decision_that_differs_in_anything_is_named(change):
    """The comparison finds any difference, even the sign of a zero."""
    first, *others = recorded((0.9, 0.9))
    (decision,) = first.decisions
    assert decision.spare_capacity == 0.0
    changed = replace(first, decisions=(replace(decision, **change),))
    assert [cycle.differing for cycle in repeat([changed, *others])] == [(A,), ()]


def test_a_decision_that_is_missing_or_too_many_is_named():
    """The comparison names variants that only one side has."""
    (recording,) = recorded((0.5,))
    (missing,) = repeat([replace(recording, decisions=())])
    assert missing.differing == (A,)
    (decision,) = recording.decisions
    other = replace(decision, key=VariantKey("ns", "b"))
    (more,) = repeat([replace(recording, decisions=(decision, other))])
    assert more.differing == (other.key,)


def of_before(recordings):
    """Return recordings of an older engine, with other numbers."""
    changed = []
    for recording in recordings:
        decisions = tuple(replace(decision, desired=decision.desired + 1) for decision in recording.decisions)
        changed.append(replace(recording, decisions=decisions, version=3))
    return changed


def test_a_recording_of_an_older_engine_is_not_said_to_differ():
    """``repeat`` does not compare the decisions of an older engine, or a format without decisions."""
    for recordings in (of_before(recorded()), [replace(each, decisions=(), version=2) for each in recorded()]):
        cycles = list(repeat(recordings))
        assert [cycle.differing for cycle in cycles] == [()] * len(USAGES)
        assert [cycle.link for cycle in cycles] == [MemoryLink(started=True), *[MemoryLink()] * (len(USAGES) - 1)]


def test_a_cycle_after_an_upgrade_is_compared_with_none_before():
    """The memory of the older engine differs from that of this engine, so no link is torn."""
    old, new = recorded()[:2], recorded()[3:]
    cycles = list(repeat([*of_before(old), *new]))
    assert [cycle.link.torn for cycle in cycles] == [()] * len(cycles)


def test_decisions_of_an_older_engine_are_those_of_the_recording():
    """Each recorded decision is compared with the one of this engine on the recorded numbers."""
    recordings = of_before(recorded())
    pairs = list(under(repeat(recordings), lambda recorded_policy: recorded_policy))
    assert [pair.then for pair in pairs] == [recording.decisions for recording in recordings]
    assert all(pair.engines for pair in pairs)
    (difference,) = differences(pairs)
    assert difference.differing == len(USAGES)
    assert {span.kind for span in difference.spans} <= {kind.value for kind in Kind}
    assert sum(each.decisions for each in kinds(pairs)) == len(USAGES)
    assert [each.kind for each in kinds(pairs)] == sorted(
        (each.kind for each in kinds(pairs)), key=[kind.value for kind in Kind].index
    )


def test_one_engine_has_no_kinds():
    """A comparison of two policies of one engine has no kinds."""
    pairs = list(under(repeat(recorded()), eager))
    assert kinds(pairs) == ()
    (difference,) = differences(pairs)
    assert [span.kind for span in difference.spans] == [""]
    assert [span.rule_now for span in difference.spans] == [Rule.GROWS.value]


def test_what_is_learned_of_older_cycles_is_carried_along():
    """Each cycle starts from the recorded number, even if this engine wanted another one before."""
    recordings = of_before(recorded())
    entry = replace(recordings[3].memory.variants[0], desired=4)
    recordings[3] = replace(recordings[3], memory=replace(Memory(), variants=(entry,)))
    pairs = list(under(repeat(recordings), lambda recorded_policy: recorded_policy))
    assert [pair.other[0].previous for pair in pairs][3] == 4


@pytest.mark.parametrize("name", samples.NAMES)
def test_what_the_release_before_recorded_is_compared(name):
    """Every difference has a kind, although the recordings lack counters and memory of demand."""
    recordings = samples.recordings(name)
    assert {recording.version for recording in recordings} == {3}
    assert all(pod.counters is None for recording in recordings for pod in recording.snapshot.replicas)
    assert all(recording.memory.demand == () for recording in recordings)
    pairs = list(under(repeat(recordings), lambda recorded_policy: recorded_policy))
    found = {each.kind: each.decisions for each in kinds(pairs)}
    assert sum(found.values()) == sum(len(recording.decisions) for recording in recordings)
    assert Kind.OTHER.value not in found


def test_a_cycle_that_is_missing_shows_in_the_memory():
    """The memory of the model does not follow from the cycle before the gap."""
    recordings = recorded()
    del recordings[2:4]
    torn = [cycle.link.torn for cycle in repeat(recordings)]
    assert torn == [(), (), ("models",)]


def test_a_variant_that_the_world_changed_is_named():
    """The link names a variant that was started from zero, one that was deleted, and a new one."""
    entries = {name: VariantMemory(VariantKey("ns", name), 1, None, 1) for name in "abc"}
    left = Memory((entries["a"], entries["b"]))
    found = Memory((replace(entries["a"], desired=3), entries["c"]))
    assert link(left, found) == MemoryLink(overtaken=tuple(VariantKey("ns", name) for name in "abc"))


def test_a_controller_that_started_anew_is_told():
    """The first cycle after a restart has no memory."""
    recordings = [*recorded(), *(replace(each, now=each.now + 1000) for each in recorded())]
    assert [cycle.link.started for cycle in repeat(recordings)] == ([True] + [False] * (len(USAGES) - 1)) * 2


def eager(recorded_policy):
    """Return the policy with a trigger at which a model grows earlier."""
    return replace(recorded_policy, saturation=SaturationPolicy(kv_spare_trigger=0.3))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_same_policy_makes_no_difference(usages):
    """With the same policy, the memory of the replay equals the recorded one."""
    pairs = list(under(repeat(recorded(usages)), lambda recorded_policy: recorded_policy))
    assert all(pair.then == pair.other for pair in pairs)
    assert all(each.spans == () and each.differing == 0 for each in differences(pairs))


def test_another_policy_has_a_memory_of_its_own():
    """The other policy remembers its own growth and does not order it again in each cycle."""
    pairs = list(under(repeat(recorded()), eager))
    assert [pair.then[0].desired for pair in pairs] == [1, 1, 1, 2, 2]
    assert [pair.other[0].desired for pair in pairs] == [1, 2, 2, 2, 2]
    assert pairs[2].other[0].previous == 2
    assert pairs[2].other[0].reason is not Reason.SCALE_UP


def test_the_difference_is_told_by_time():
    """Each span has its times, numbers and reasons; replica hours count until the next cycle."""
    (difference,) = differences(list(under(repeat(recorded(interval=36.0)), eager)))
    (span,) = difference.spans
    assert (span.start, span.end, span.cycles) == (NOW + 36, NOW + 72, 2)
    assert (span.then, span.now, span.reason_now) == (1, 2, "ScaleUp")
    assert difference.differing == 2
    assert difference.replica_hours_then == pytest.approx(0.05)
    assert difference.replica_hours_now == pytest.approx(0.07)
    assert difference.cost_now == pytest.approx(0.07 * variant("a").cost)


def test_a_time_without_a_controller_counts_nothing():
    """Replica hours do not include a long gap between two recordings."""
    recordings = [*recorded(interval=36.0), *(replace(each, now=each.now + 86400) for each in recorded(interval=36.0))]
    (difference,) = differences(list(under(repeat(recordings), eager)))
    assert difference.replica_hours_then == pytest.approx(0.1)


def test_what_the_world_changed_is_taken_over():
    """If a variant was started from zero between two cycles, the other policy sees it, too."""
    recordings = recorded((0.3, 0.3, 0.3))
    (entry,) = recordings[2].memory.variants
    told = replace(recordings[2].memory, variants=(replace(entry, desired=5),))
    pairs = list(under(repeat([*recordings[:2], replace(recordings[2], memory=told)]), eager))
    assert [pair.other[0].previous for pair in pairs] == [1, 1, 5]
