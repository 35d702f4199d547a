"""When a model shrinks, and which of its variants shrinks."""

from __future__ import annotations

import pytest

from tests.builders import INVALID, stale, variant
from tests.decide.story import FULL, IDLE, SILENT, Story, numbers, reasons
from wva.model.decision import Action, Reason, Source


def test_an_idle_pair_loses_one_replica():
    """The message names the spare that is left, the chosen variant and its cost."""
    decision = Story().cycle(variant(replicas=2), a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.reason, decision.action) == (1, Reason.SCALE_DOWN, Action.SCALE_DOWN)
    assert decision.source is Source.MEASURED
    words = "1 replica can carry the load; dearest variant that can shrink: a (cost 10)"
    assert decision.message == f"{words}; 2 of 2 replicas report, 0 saturated, mean spare KV 0.8, mean spare queue 5"


def test_the_last_replica_stays():
    """An idle model keeps one replica; only scale-to-zero may take it."""
    decision = Story().cycle(variant(), a=[IDLE])["a"]
    assert (decision.desired, decision.reason) == (1, Reason.STEADY)
    assert (
        decision.message
        == "enough capacity; 1 of 1 replicas report, 0 saturated, mean spare KV 0.8, mean spare queue 5"
    )


def test_the_dearest_shrinks_and_the_other_waits():
    """The dearer variant shrinks, and the sibling waits."""
    decisions = Story().cycle(
        variant("a", replicas=2, cost=5), variant("b", replicas=2, cost=50), a=[IDLE] * 2, b=[IDLE] * 2
    )
    assert numbers(decisions) == {"a": 2, "b": 1}
    assert reasons(decisions) == {"a": "SiblingShrinks", "b": "ScaleDown"}


def test_the_dearest_at_one_replica_leaves_it_to_the_next():
    """Each variant keeps one replica, so the next dearest shrinks."""
    decisions = Story().cycle(variant("a", replicas=2, cost=5), variant("b", cost=50), a=[IDLE] * 2, b=[IDLE])
    assert numbers(decisions) == {"a": 1, "b": 1}


def test_the_minimum_of_the_scaler_is_respected():
    """The variant could never reach a number below its minimum."""
    decisions = Story().cycle(
        variant("a", replicas=2, cost=5), variant("b", replicas=2, cost=50, minimum=2), a=[IDLE] * 2, b=[IDLE] * 2
    )
    assert numbers(decisions) == {"a": 1, "b": 2}


def test_a_minimum_of_zero_still_keeps_one_replica():
    """Only scale-to-zero takes the last replica."""
    assert Story().cycle(variant(minimum=0), a=[IDLE])["a"].desired == 1


def test_a_dear_sibling_with_a_minimum_of_zero_goes_when_the_cheap_one_suffices():
    """The scaler of the dear sibling can start it again; it stays at zero until the model is short of replicas."""
    story = Story()
    cheap, dear = variant("a", cost=5), variant("b", cost=50, minimum=0)
    assert numbers(story.cycle(cheap, dear, a=[(0.2, 0)], b=[(0.1, 0)])) == {"a": 1, "b": 0}
    gone = variant("b", replicas=0, cost=50, minimum=0)
    assert numbers(story.cycle(cheap, gone, after=60, a=[(0.3, 0)])) == {"a": 1, "b": 0}
    full = variant("a", cost=5, maximum=1)
    assert numbers(story.cycle(full, gone, after=120, a=[FULL])) == {"a": 1, "b": 1}


def test_equal_costs_shrink_the_variant_with_least_spare_kv():
    """The variant whose replicas have the least room shrinks."""
    decisions = Story().cycle(variant("a", replicas=2), variant("b", replicas=2), a=[(0.1, 0)] * 2, b=[(0.2, 0)] * 2)
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_equal_kv_spare_shrinks_the_variant_with_least_spare_queue():
    """The queue is the second tie-break."""
    decisions = Story().cycle(
        variant("a", replicas=2), variant("b", replicas=3), a=[(0.1, 0)] * 2, b=[(0.1, 0), (0.1, 0), (0.1, 1)]
    )
    assert numbers(decisions) == {"a": 2, "b": 2}


def test_full_ties_shrink_the_last_name():
    """The name is the last tie-break, so chance decides nothing; the first name grows first and shrinks last."""
    decisions = Story().cycle(variant("b", replicas=2), variant("a", replicas=2), a=[IDLE] * 2, b=[IDLE] * 2)
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_a_shrink_that_would_break_the_kv_trigger_is_unsafe():
    """Two replicas at 0.36: one would be at 0.72, with a spare of 0.08."""
    decision = Story().cycle(variant(replicas=2), a=[(0.36, 0)] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_UNSAFE)
    assert decision.message == "on 1 replica the mean spare KV would be 0.08, below trigger 0.1"


def test_a_shrink_that_would_break_the_queue_trigger_is_unsafe():
    """Two replicas with a queue of 2 are steady; one would have 4."""
    decision = Story().cycle(variant(replicas=2), a=[(0.1, 2)] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_UNSAFE)
    assert decision.message == "on 1 replica the mean spare queue would be 1, below trigger 3"


def test_a_shrink_to_exactly_the_trigger_is_safe():
    """Queues of 1 become one of 2, a spare of 3 is not below 3."""
    assert Story().cycle(variant(replicas=2), a=[(0.1, 1)] * 2)["a"].desired == 1


def test_who_could_not_shrink_anyway_is_steady_when_it_is_unsafe():
    """The reason names the cause that applies to this variant."""
    tight = (0.65, 0)
    decisions = Story().cycle(
        variant("a", replicas=2),
        variant("b"),
        variant("c", replicas=2, minimum=2),
        a=[tight] * 2,
        b=[tight],
        c=[tight] * 2,
    )
    assert reasons(decisions) == {"a": "ScaleDownUnsafe", "b": "Steady", "c": "Steady"}
    assert decisions["c"].message == "enough spare; it cannot go below 2"


def test_nothing_shrinks_while_a_replica_is_saturated():
    """On average there is room, but one replica is full, so the load is uneven."""
    decision = Story().cycle(variant(replicas=5), a=[FULL, IDLE, IDLE, IDLE, IDLE])["a"]
    assert (decision.desired, decision.reason) == (5, Reason.SHRINK_UNSAFE)
    assert decision.message == "1 of 5 replicas saturated"


@pytest.mark.parametrize(
    "report",
    [SILENT, (None, 0), (0.0, None), (stale(0), 0), (0.0, stale(0)), (INVALID, 0), (0.0, INVALID)],
    ids=["silent", "no-kv", "no-queue", "stale-kv", "stale-queue", "invalid-kv", "invalid-queue"],
)
def test_one_gap_anywhere_in_the_model_keeps_all_of_it(report):
    """Nine replicas are idle and one does not report: WVA holds the number and names the gap."""
    decisions = Story().cycle(
        variant("a", replicas=8), variant("b", replicas=2, desired=2), a=[IDLE] * 8, b=[IDLE, report]
    )
    assert numbers(decisions) == {"a": 8, "b": 2}
    assert reasons(decisions) == {"a": "MetricsIncomplete", "b": "MetricsIncomplete"}
    assert "b: 1 of 2 replicas report fresh metrics; b-1: " in decisions["a"].message
    assert (decisions["a"].source, decisions["b"].source) == (Source.CURRENT_REPLICAS, Source.HELD)


def test_a_variant_without_ready_replicas_blocks_until_its_deadline():
    """Nothing shrinks while replicas are starting; after their deadline the model shrinks."""
    story = Story()
    starting, idle = variant("a", replicas=2, ready_replicas=0), variant("b", replicas=3)
    assert numbers(story.cycle(starting, idle, b=[IDLE] * 3)) == {"a": 2, "b": 3}
    assert numbers(story.cycle(starting, idle, after=600, b=[IDLE] * 3)) == {"a": 1, "b": 3}


def test_one_step_per_cycle():
    """However idle the model is, WVA takes one replica, waits until the workload follows, then takes the next."""
    story = Story()
    assert story.cycle(variant(replicas=6), a=[IDLE] * 6)["a"].desired == 5
    assert story.cycle(variant(replicas=5), after=30, a=[IDLE] * 5)["a"].desired == 4
