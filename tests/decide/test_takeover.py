"""After a restart or a change of leader the memory is gone, but WVA still knows the clocks and the numbers."""

from __future__ import annotations

from tests.builders import NOW, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, Story, numbers
from wva.model.memory import Memory


def test_the_number_is_read_back_from_the_status():
    """WVA reads 3 from the status and does not publish 2 for a moment while growth to 3 is unfinished."""
    assert Story().cycle(variant(replicas=2, desired=3), a=[BUSY] * 2)["a"].desired == 3


def test_the_clock_is_read_back_from_the_condition():
    """The condition says Progressing for nine minutes; one minute later the sibling grows."""
    stuck = variant("a", replicas=2, ready_replicas=1, cost=5, settling_since=NOW - 540)
    sibling = variant("b", cost=50)
    story = Story()
    assert numbers(story.cycle(stuck, sibling, a=[HOT], b=[HOT])) == {"a": 2, "b": 1}
    assert numbers(story.cycle(stuck, sibling, after=60, a=[HOT], b=[HOT])) == {"a": 2, "b": 2}


def test_the_later_of_condition_and_oldest_waiting_pod_starts_the_clock():
    """If the pods are younger than the condition, the condition is about an earlier change."""
    started = variant(replicas=2, ready_replicas=1, settling_since=NOW - 900, oldest_unready_since=NOW - 100)
    assert Story().cycle(started, a=[HOT])["a"].settling_since == NOW - 100


def test_a_waiting_pod_alone_starts_the_clock():
    """No controller has written a condition yet, so the pod's age starts the clock."""
    started = variant(replicas=2, ready_replicas=1, maximum=2, oldest_unready_since=NOW - 700)
    decision = Story().cycle(started, a=[HOT])["a"]
    assert decision.settling_since == NOW - 700
    assert "a: 1 replica stuck" in decision.message


def test_without_any_trace_the_clock_starts_now():
    """Without a condition and without a waiting pod WVA starts the clock now."""
    assert Story().cycle(variant(replicas=2, ready_replicas=1), a=[HOT])["a"].settling_since == NOW


def test_a_settled_variant_has_no_clock_whatever_the_condition_says():
    """WVA ignores an old condition of a settled variant; this decision corrects it."""
    settled = variant(replicas=2, settling_since=NOW - 900)
    assert Story().cycle(settled, a=[BUSY] * 2)["a"].settling_since is None


def test_replicas_that_just_came_are_still_awaited_after_a_takeover():
    """The condition has said Progressing for a minute; the new pods are Ready, but not scraped yet."""
    arrived = variant(replicas=2, desired=2, settling_since=NOW - 60)
    decision = Story().cycle(arrived, a=[HOT, SILENT])["a"]
    assert (decision.desired, decision.settling_since) == (2, NOW - 60)


def test_a_takeover_in_the_middle_of_a_shrink_neither_repeats_nor_forgets_it():
    """WVA asked for two replicas and the third still exists: the new leader keeps the number."""
    assert Story().cycle(variant(replicas=3, desired=2), a=[IDLE] * 3)["a"].desired == 2


def test_a_restart_changes_no_number_that_a_running_controller_would_keep():
    """WVA decides the same with its memory, and without its memory but with the status."""
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
    """A new variant of the same name starts without history."""
    story = Story()
    story.cycle(variant(), variant("b"), a=[FULL], b=[FULL])
    story.cycle(variant("b"), after=30, b=[FULL])
    assert [entry.key.name for entry in story.memory.variants] == ["b"]
    story.cycle(after=60)
    assert story.memory == Memory()


def test_a_pod_that_dies_later_starts_a_new_clock():
    """A pod that dies later gets a new clock; earlier pods of the variant do not count."""
    story = Story()
    story.cycle(variant(replicas=3), a=[BUSY] * 3)
    story.cycle(variant(replicas=3, ready_replicas=1), after=900, a=[BUSY])
    assert story.remembers("a").settling_since == NOW + 900
    story.cycle(variant(replicas=3, ready_replicas=2), after=930, a=[BUSY] * 2)
    assert story.remembers("a").settling_since == NOW + 930
