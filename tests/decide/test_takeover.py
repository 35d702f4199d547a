"""A restart or another leader: the memory is gone, the clocks and numbers are not."""

from __future__ import annotations

from tests.builders import NOW, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, Story, numbers
from wva.model.memory import Memory


def test_the_number_is_read_back_from_the_status():
    """Unfinished growth to 3 is not published as 2 for a moment."""
    assert Story().cycle(variant(replicas=2, desired=3), a=[BUSY] * 2)["a"].desired == 3


def test_the_clock_is_read_back_from_the_condition():
    """Progressing since nine minutes: after one more the sibling grows."""
    stuck = variant("a", replicas=2, ready_replicas=1, cost=5, settling_since=NOW - 540)
    sibling = variant("b", cost=50)
    story = Story()
    assert numbers(story.cycle(stuck, sibling, a=[HOT], b=[HOT])) == {"a": 2, "b": 1}
    assert numbers(story.cycle(stuck, sibling, after=60, a=[HOT], b=[HOT])) == {"a": 2, "b": 2}


def test_the_later_of_condition_and_oldest_waiting_pod_starts_the_clock():
    """The condition is about an earlier change if the pods are younger."""
    started = variant(replicas=2, ready_replicas=1, settling_since=NOW - 900, oldest_unready_since=NOW - 100)
    assert Story().cycle(started, a=[HOT])["a"].settling_since == NOW - 100


def test_a_waiting_pod_alone_starts_the_clock():
    """No condition was written yet."""
    started = variant(replicas=2, ready_replicas=1, maximum=2, oldest_unready_since=NOW - 700)
    decision = Story().cycle(started, a=[HOT])["a"]
    assert decision.settling_since == NOW - 700
    assert "a: 1 replica stuck" in decision.message


def test_without_any_trace_the_clock_starts_now():
    """Nothing else is known."""
    assert Story().cycle(variant(replicas=2, ready_replicas=1), a=[HOT])["a"].settling_since == NOW


def test_a_settled_variant_has_no_clock_whatever_the_condition_says():
    """The condition will be corrected by this decision."""
    settled = variant(replicas=2, settling_since=NOW - 900)
    assert Story().cycle(settled, a=[BUSY] * 2)["a"].settling_since is None


def test_replicas_that_just_came_are_still_awaited_after_a_takeover():
    """Progressing for a minute, Ready, not scraped yet."""
    arrived = variant(replicas=2, desired=2, settling_since=NOW - 60)
    decision = Story().cycle(arrived, a=[HOT, SILENT])["a"]
    assert (decision.desired, decision.settling_since) == (2, NOW - 60)


def test_a_takeover_in_the_middle_of_a_shrink_neither_repeats_nor_forgets_it():
    """Two were asked for; the third replica is still there."""
    assert Story().cycle(variant(replicas=3, desired=2), a=[IDLE] * 3)["a"].desired == 2


def test_a_restart_changes_no_number_that_a_running_controller_would_keep():
    """With memory, and without it but with the status: the same decisions."""
    story = Story()
    variants = [variant("a", replicas=2, cost=5), variant("b", replicas=2, cost=50)]
    story.cycle(*variants, a=[FULL] * 2, b=[FULL] * 2)
    published = numbers(story.decisions)
    since = {name: decision.settling_since for name, decision in story.decisions.items()}
    again = [
        variant(name, replicas=2, cost=cost, desired=published[name], settling_since=since[name])
        for name, cost in (("a", 5), ("b", 50))
    ]
    continued = numbers(story.cycle(*again, after=30, a=[HOT] * 2, b=[HOT] * 2))
    assert numbers(Story().cycle(*again, after=30, a=[HOT] * 2, b=[HOT] * 2)) == continued


def test_variants_that_are_gone_are_forgotten():
    """A new variant of the same name starts afresh."""
    story = Story()
    story.cycle(variant(), variant("b"), a=[FULL], b=[FULL])
    story.cycle(variant("b"), after=30, b=[FULL])
    assert [entry.key.name for entry in story.memory.variants] == ["b"]
    story.cycle(after=60)
    assert story.memory == Memory()


def test_a_pod_that_dies_later_starts_a_new_clock():
    """What became of earlier pods does not count against it."""
    story = Story()
    story.cycle(variant(replicas=3), a=[BUSY] * 3)
    story.cycle(variant(replicas=3, ready_replicas=1), after=900, a=[BUSY])
    assert story.remembers("a").settling_since == NOW + 900
    story.cycle(variant(replicas=3, ready_replicas=2), after=930, a=[BUSY] * 2)
    assert story.remembers("a").settling_since == NOW + 930
