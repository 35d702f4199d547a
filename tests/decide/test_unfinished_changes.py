"""In every cycle WVA checks again a number that the workload has not reached yet."""

from __future__ import annotations

from tests.builders import NOW, replica, stale, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, TIGHT, Story, numbers, reasons
from wva.decide.pipeline import decide
from wva.model.decision import Reason, Source
from wva.model.memory import Memory, ModelMemory, PodPeak
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey

DEADLINE = 600.0


def test_an_unfinished_shrink_is_kept_while_it_stays_safe():
    """The shrink is still safe, so WVA keeps it and takes no second replica."""
    story = Story()
    assert story.cycle(variant(replicas=3), a=[IDLE] * 3)["a"].desired == 2
    decision = story.cycle(variant(replicas=3), after=30, a=[IDLE] * 3)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_UNFINISHED)
    words = "1 replica still to go; the others carry the load"
    assert decision.message == f"{words}; 3 of 3 replicas report, 0 saturated, mean spare KV 0.8, mean spare queue 5"


def test_an_unfinished_shrink_is_withdrawn_when_it_became_unsafe():
    """The load rose, though not enough for growth: WVA keeps the replicas that exist."""
    story = Story()
    story.cycle(variant(replicas=2), a=[IDLE] * 2)
    decision = story.cycle(variant(replicas=2), after=30, a=[BUSY, BUSY])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_WITHDRAWN)
    assert decision.message.startswith("2 replicas needed, 1 there (2 of 2 replicas report, ")
    assert decision.message.endswith(", so the unfinished shrink to 1 is withdrawn")
    assert decision.settling_since is None


def test_a_surge_during_an_unfinished_shrink_grows_from_what_exists():
    """Three replicas exist and WVA asked for two; now it asks for six."""
    story = Story()
    story.cycle(variant(replicas=3), a=[IDLE] * 3)
    decision = story.cycle(variant(replicas=3), after=30, a=[FULL] * 3)["a"]
    assert (decision.desired, decision.reason) == (6, Reason.SCALE_UP)


def test_growth_of_a_sibling_withdraws_unfinished_shrinks():
    """A model that needs more replicas gives none away."""
    story = Story()
    dear, cheap = variant("a", replicas=3, cost=50), variant("b", cost=5)
    assert numbers(story.cycle(dear, cheap, a=[IDLE] * 3, b=[IDLE])) == {"a": 2, "b": 1}
    decisions = story.cycle(dear, cheap, after=30, a=[FULL] * 3, b=[FULL])
    assert numbers(decisions) == {"a": 3, "b": 5}
    assert reasons(decisions) == {"a": "ScaleDownWithdrawn", "b": "ScaleUp"}


def test_unfinished_shrinks_are_withdrawn_even_if_nobody_can_grow():
    """The wish to grow withdraws the shrink: at its maximum the variant keeps the replicas that exist."""
    story = Story()
    story.cycle(variant(replicas=2, maximum=2), a=[IDLE] * 2)
    decision = story.cycle(variant(replicas=2, maximum=2), after=30, a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_WITHDRAWN)


def test_an_unfinished_shrink_is_held_while_the_metrics_have_gaps():
    """WVA neither confirms nor withdraws the shrink, because it has no evidence for either."""
    story = Story()
    story.cycle(variant(replicas=3), a=[IDLE] * 3)
    decision = story.cycle(variant(replicas=3), after=30, a=[IDLE, IDLE, (stale(0), 0)])["a"]
    assert (decision.desired, decision.reason, decision.source) == (2, Reason.METRICS_INCOMPLETE, Source.HELD)


def test_an_unfinished_shrink_is_held_while_pods_and_replicas_disagree():
    """One pod has gone already, but the Deployment still counts it."""
    story = Story()
    story.cycle(variant(replicas=3), a=[IDLE] * 3)
    decision = story.cycle(variant(replicas=3), after=30, a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_UNFINISHED)
    assert "held until Ready pods and replicas agree" in decision.message


def test_an_unfinished_shrink_keeps_siblings_from_shrinking():
    """Only one variant of the model shrinks at a time."""
    story = Story()
    dear, cheap = variant("a", replicas=3, cost=50), variant("b", replicas=3, cost=5)
    story.cycle(dear, cheap, a=[IDLE] * 3, b=[IDLE] * 3)
    decisions = story.cycle(dear, cheap, after=30, a=[IDLE] * 3, b=[IDLE] * 3)
    assert numbers(decisions) == {"a": 2, "b": 3}
    assert reasons(decisions) == {"a": "ScaleDownUnfinished", "b": "SiblingShrinks"}
    assert decisions["b"].message == "waits for the shrink of a"


def test_after_the_deadline_a_sibling_shrinks_and_the_stuck_one_does_not():
    """The scaler of the dear variant does nothing, but the idle model still gets smaller."""
    story = Story()
    dear, cheap = variant("a", replicas=3, cost=50), variant("b", replicas=3, cost=5)
    story.cycle(dear, cheap, a=[IDLE] * 3, b=[IDLE] * 3)
    decisions = story.cycle(dear, cheap, after=DEADLINE, a=[IDLE] * 3, b=[IDLE] * 3)
    assert numbers(decisions) == {"a": 2, "b": 2}


def test_after_the_deadline_outstanding_replicas_count_as_gone():
    """The stuck shrink may still happen, and without one more replica too few would be left."""
    story = Story()
    dear, cheap = variant("a", replicas=2, cost=50), variant("b", replicas=2, cost=5)
    loads = {"a": [(0.4, 0)] * 2, "b": [(0.4, 0)] * 2}
    assert numbers(story.cycle(dear, cheap, **loads)) == {"a": 1, "b": 2}
    decisions = story.cycle(dear, cheap, after=DEADLINE, **loads)
    assert numbers(decisions) == {"a": 1, "b": 2}
    assert decisions["b"].reason is Reason.SHRINK_UNSAFE


def test_unfinished_growth_is_withdrawn_when_even_fewer_would_do():
    """The load fell before the scaler acted."""
    story = Story()
    story.cycle(variant(replicas=2), a=[HOT] * 2)
    decision = story.cycle(variant(replicas=2), after=30, a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.GROWTH_WITHDRAWN)
    assert decision.message == "3 replicas no longer needed: fewer than now would do"


def test_unfinished_growth_is_kept_while_fewer_would_not_do():
    """Between the two thresholds WVA keeps the number, so the number does not swing."""
    story = Story()
    story.cycle(variant(replicas=2), a=[HOT] * 2)
    decision = story.cycle(variant(replicas=2), after=30, a=[BUSY] * 2)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.REPLICAS_PENDING)


def test_unfinished_growth_is_not_withdrawn_on_gaps():
    """A replica that does not report may be full."""
    story = Story()
    story.cycle(variant(replicas=2), a=[HOT] * 2)
    decision = story.cycle(variant(replicas=2), after=30, a=[IDLE, (None, 0)])["a"]
    assert (decision.desired, decision.reason) == (3, Reason.METRICS_INCOMPLETE)


def test_growth_that_was_not_reached_in_time_is_withdrawn():
    """The model no longer needs the growth, and an unfinished growth would block the variant for ever."""
    story = Story()
    story.cycle(variant(replicas=2), a=[HOT] * 2)
    story.cycle(variant(replicas=2), after=30, a=[BUSY] * 2)
    decision = story.cycle(variant(replicas=2), after=DEADLINE, a=[BUSY] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.GROWTH_WITHDRAWN)
    assert decision.message == "3 replicas not reached in time and no longer needed"


def test_growth_that_is_still_wished_stays_after_the_deadline():
    """The scaler may still get the quota that it needs."""
    story = Story()
    story.cycle(variant(replicas=2), a=[HOT] * 2)
    decision = story.cycle(variant(replicas=2), after=DEADLINE, a=[HOT] * 2)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.NO_CANDIDATE)


def test_withdrawn_growth_keeps_the_clock_of_pods_that_are_still_pending():
    """Three of four replicas exist and one of them is stuck; its clock goes on."""
    story = Story()
    stuck = variant(replicas=3, ready_replicas=2, desired=4)
    story.cycle(stuck, a=[BUSY] * 2)
    decision = story.cycle(stuck, after=DEADLINE, a=[BUSY] * 2)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.GROWTH_WITHDRAWN)
    assert decision.settling_since == NOW


def test_growth_forced_by_the_minimum_is_not_withdrawn():
    """The scaler's minimum asks for two replicas, whatever WVA measures."""
    story = Story()
    story.cycle(variant(minimum=2, desired=2), a=[IDLE])
    decision = story.cycle(variant(minimum=2, desired=2), after=DEADLINE, a=[IDLE])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.REPLICAS_PENDING)


def test_a_finished_change_settles():
    """Number, replicas and Ready pods agree, so no clock runs."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    assert story.remembers("a").settling_since == NOW
    story.cycle(variant(replicas=2), after=60, a=[BUSY] * 2)
    assert story.remembers("a").settling_since is None


def test_pods_ahead_of_the_counted_replicas_do_not_confuse_a_growth():
    """Both pods are Ready while the Deployment still counts one: the growth is unfinished, and WVA adds no more."""
    story = Story()
    story.cycle(variant(), a=[FULL])
    decision = story.cycle(variant(), after=60, a=[FULL, FULL])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.REPLICAS_PENDING)


def test_a_silent_replica_does_not_make_an_unfinished_shrink_look_like_growth():
    """The replica that lost its metrics existed before, so WVA sees a gap and no starting replica."""
    story = Story()
    story.cycle(variant(replicas=3), a=[IDLE] * 3)
    decision = story.cycle(variant(replicas=3), after=30, a=[IDLE, IDLE, SILENT])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.METRICS_INCOMPLETE)


def test_unfinished_shrinks_are_judged_together():
    """The model could lose one replica, but not two: WVA withdraws both shrinks."""
    shrinking = [variant("a", replicas=2, desired=1), variant("b", replicas=2, desired=1)]
    decisions = Story().cycle(*shrinking, a=[(0.36, 0)] * 2, b=[(0.36, 0)] * 2)
    assert reasons(decisions) == {"a": "ScaleDownWithdrawn", "b": "ScaleDownWithdrawn"}
    assert numbers(decisions) == {"a": 2, "b": 2}


def test_an_unfinished_shrink_is_held_while_a_sibling_has_pending_replicas():
    """WVA cannot count every replica of the model, so it neither confirms nor withdraws the shrink."""
    story = Story()
    story.cycle(variant("a", replicas=3, cost=50), variant("b"), a=[IDLE] * 3, b=[IDLE])
    pending = variant("b", replicas=2, ready_replicas=1)
    decision = story.cycle(variant("a", replicas=3, cost=50), pending, after=30, a=[BUSY] * 3, b=[BUSY])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SHRINK_UNFINISHED)
    assert "held until Ready pods and replicas agree" in decision.message


def test_an_overdue_shrink_is_held_while_there_are_more_ready_pods_than_replicas():
    """The deadline excuses missing pods, but not more pods than replicas."""
    late = variant(replicas=2, desired=1, settling_since=NOW - DEADLINE)
    decision = Story().cycle(late, a=[IDLE] * 3)["a"]
    assert (decision.desired, decision.reason) == (1, Reason.SHRINK_UNFINISHED)
    assert "held until Ready pods and replicas agree" in decision.message


def test_a_load_that_is_worked_off_withdraws_a_shrink_and_grows_nothing():
    """WVA keeps the replicas that still serve; the sibling waits, because the queues get shorter."""
    pods = [replica("a-0", kv=0.95, queue=20), replica("a-1", kv=0.95, queue=20)]
    pods.append(replica("b-0", variant="b", kv=0.95, queue=20))
    peaks = tuple(PodPeak(name, 0.95, 40) for name in ("a-0", "a-1", "b-0"))
    seen = Snapshot.of([variant("a", replicas=2, desired=1), variant("b")], pods)
    memory = Memory(models=(ModelMemory(ModelKey("ns", "m"), peaks),))
    decisions = {decision.key.name: decision for decision in decide(seen, memory, Policy(), NOW)[0]}
    assert numbers(decisions) == {"a": 2, "b": 1}
    assert reasons(decisions) == {"a": "ScaleDownWithdrawn", "b": "ScaleUpSettling"}


def test_a_withdrawn_shrink_that_covers_the_need_is_what_its_siblings_speak_of():
    """The siblings could grow and need not; their messages do not blame GPUs."""
    story = Story()
    dear, cheap = variant("a", replicas=2, cost=50), variant("b", cost=5)
    assert numbers(story.cycle(dear, cheap, a=[IDLE] * 2, b=[BUSY])) == {"a": 1, "b": 1}
    decisions = story.cycle(dear, cheap, after=30, a=[BUSY] * 2, b=[TIGHT])
    assert numbers(decisions) == {"a": 2, "b": 1}
    assert reasons(decisions) == {"a": "ScaleDownWithdrawn", "b": "SiblingGrows"}
    assert decisions["b"].message.endswith("; withdrawing the unfinished shrink of a covers that")


def test_what_a_maximum_takes_away_is_no_shrink_that_ends_the_wait_for_an_answer():
    """One of two replicas must leave. The sibling has grown for it and does not grow again at once."""
    story = Story()
    bound, sibling = variant("a", replicas=2, maximum=1), variant("b", replicas=3)
    first = numbers(story.cycle(bound, sibling, a=[FULL] * 2, b=[FULL] * 3))
    assert first["b"] > 3
    assert numbers(story.cycle(bound, sibling, a=[FULL] * 2, b=[FULL] * 3)) == first


def test_what_a_maximum_takes_away_is_not_added_beyond_twice_what_exists():
    """Three replicas exist and one of them must leave: WVA adds three, not four."""
    bound, sibling = variant("a", replicas=2, maximum=1), variant("b")
    assert numbers(Story().cycle(bound, sibling, a=[FULL] * 2, b=[FULL])) == {"a": 1, "b": 4}
