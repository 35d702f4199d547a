"""Starting replicas count as supply until the transition deadline, and then no longer."""

from __future__ import annotations

from tests.builders import NOW, policy, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, Story, numbers, reasons
from wva.model.decision import Reason

DEADLINE = 600.0


def test_pending_replicas_that_suffice_stop_further_growth():
    """One replica loads its model. With it the model would have spare again, so no other variant grows."""
    decisions = Story().cycle(
        variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", cost=50), a=[HOT], b=[HOT]
    )
    assert reasons(decisions) == {"a": "ReplicasPending", "b": "PendingReplicasSuffice"}
    assert numbers(decisions) == {"a": 2, "b": 1}
    assert "1 replica on the way would be enough" in decisions["b"].message


def test_the_next_cheapest_grows_when_pending_replicas_do_not_suffice():
    """Eight replicas are full and one starts. Two idle ones would bring the mean spare back, so WVA adds one."""
    story = Story()
    variants = (variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", replicas=7, cost=50))
    story.cycle(*variants, a=[HOT], b=[HOT] * 7)
    decisions = story.cycle(*variants, after=30, a=[HOT], b=[HOT] * 7)
    assert numbers(decisions) == {"a": 2, "b": 8}
    assert reasons(decisions) == {"a": "ReplicasPending", "b": "ScaleUp"}


def test_growth_beside_pending_replicas_is_half_of_what_there_is_at_most():
    """With a trigger as high as the threshold no number of replicas is enough: nine exist, so WVA adds five."""
    story = Story(policy(kv_cache_threshold=0.5, kv_spare_trigger=0.5))
    variants = (variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", replicas=7, cost=50))
    story.cycle(*variants, a=[HOT], b=[HOT] * 7)
    assert numbers(story.cycle(*variants, after=30, a=[HOT], b=[HOT] * 7)) == {"a": 2, "b": 12}


def test_replicas_asked_for_a_moment_ago_get_time_to_show():
    """For half a minute after it asked for replicas, WVA adds no more, on any variant."""
    story = Story()
    variants = (variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", replicas=7, cost=50))
    story.cycle(*variants, a=[HOT], b=[HOT] * 7)
    decisions = story.cycle(*variants, after=29, a=[HOT], b=[HOT] * 7)
    assert numbers(decisions) == {"a": 2, "b": 7}
    assert reasons(decisions) == {"a": "ReplicasPending", "b": "ScaleUpSettling"}
    assert "what is under way (1 replica) was asked for it, and demand has not risen since" in decisions["b"].message


def test_a_variant_that_is_alone_is_sized_once_unless_demand_has_risen():
    """The only replica is full while the second one loads; WVA asked for the second because of that load."""
    story = Story()
    assert story.cycle(variant(), a=[FULL])["a"].desired == 2
    loading = variant(replicas=2, ready_replicas=1)
    for seconds in (60, 120, 300):
        decision = story.cycle(loading, after=seconds, a=[(0.95, 9 + seconds)])["a"]
        assert (decision.desired, decision.reason) == (2, Reason.REPLICAS_PENDING)
    assert "demand has not risen since" in decision.message


def test_a_variant_that_is_alone_grows_again_when_demand_has_risen():
    """Ten replicas were at 0.72 when WVA asked for one more; now they are full."""
    story = Story()
    assert story.cycle(variant(replicas=9), a=[(0.71, 0)] * 9)["a"].desired == 10
    loading = variant(replicas=10, ready_replicas=9)
    assert story.cycle(loading, after=60, a=[(0.75, 1)] * 9)["a"].desired == 10
    assert story.cycle(loading, after=90, a=[(0.79, 3)] * 9)["a"].desired > 10


def test_replicas_asked_for_count_before_they_exist():
    """The scaler has not acted yet: WVA keeps the number and does not raise it again."""
    story = Story()
    assert story.cycle(variant(), a=[HOT])["a"].desired == 2
    decision = story.cycle(variant(), after=30, a=[HOT])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.REPLICAS_PENDING)


def test_a_variant_waiting_without_growth_wish_keeps_its_number():
    """The model has enough spare, but replicas are starting: its sibling does not shrink and says why."""
    story = Story()
    pending = variant("a", replicas=2, ready_replicas=1)
    decisions = story.cycle(pending, variant("b", replicas=3), a=[IDLE], b=[IDLE] * 3)
    assert reasons(decisions) == {"a": "ReplicasPending", "b": "SiblingGrows"}
    assert "nothing shrinks while replicas of a are pending" in decisions["b"].message


def test_after_the_deadline_siblings_grow():
    """A stuck replica is no supply, so the dearer sibling grows."""
    story = Story()
    stuck, sibling = variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", cost=50)
    assert numbers(story.cycle(stuck, sibling, a=[HOT], b=[HOT])) == {"a": 2, "b": 1}
    assert numbers(story.cycle(stuck, sibling, after=DEADLINE - 1, a=[HOT], b=[HOT])) == {"a": 2, "b": 1}
    assert numbers(story.cycle(stuck, sibling, after=DEADLINE, a=[HOT], b=[HOT])) == {"a": 2, "b": 2}


def test_a_stuck_replica_does_not_stop_a_variant_that_is_alone():
    """One stuck pod does not keep the model from getting other replicas."""
    story = Story()
    stuck = variant(replicas=2, ready_replicas=1)
    story.cycle(stuck, a=[HOT])
    decision = story.cycle(stuck, after=DEADLINE, a=[HOT])["a"]
    assert (decision.desired, decision.reason) == (3, Reason.SCALE_UP)
    assert "the only variants left: a" in decision.message


def test_a_variant_whose_replicas_never_start_gets_no_more_than_a_few_times_what_serves():
    """Three of four replicas are stuck, so more of them would not help; the message names them."""
    story = Story()
    stuck = variant(replicas=4, ready_replicas=1)
    story.cycle(stuck, a=[FULL])
    decision = story.cycle(stuck, after=DEADLINE, a=[FULL])["a"]
    assert (decision.desired, decision.reason) == (4, Reason.NO_CANDIDATE)
    assert "a: 3 replicas stuck" in decision.message


def test_pods_without_a_node_make_the_next_variant_eligible_at_once():
    """Pods that the scheduler cannot place are no supply, long before the deadline."""
    stuck, sibling = variant("a", replicas=2, ready_replicas=1, cost=5, unschedulable_pods=1), variant("b", cost=50)
    assert numbers(Story().cycle(stuck, sibling, a=[HOT], b=[HOT])) == {"a": 2, "b": 2}


def test_a_variant_whose_pods_find_no_node_does_not_grow():
    """The variant has no sibling, and its message says why it does not grow."""
    stuck = variant("a", replicas=3, ready_replicas=1, unschedulable_pods=2)
    decision = Story().cycle(stuck, a=[HOT])["a"]
    assert (decision.desired, decision.reason) == (3, Reason.NO_CANDIDATE)
    assert "a: 2 pods without a node to run on" in decision.message


def test_pending_variants_are_named_when_nobody_can_grow():
    """All replicas of the model are full, and the starting ones are too few to relieve them."""
    story = Story()
    story.cycle(variant(replicas=10, ready_replicas=9, maximum=10), a=[HOT] * 9)
    decision = story.cycle(variant(replicas=10, ready_replicas=9, maximum=10), after=30, a=[HOT] * 9)["a"]
    assert decision.reason is Reason.NO_CANDIDATE
    assert "a: 1 replica pending" in decision.message


def test_after_the_deadline_a_stuck_replica_does_not_block_shrinking():
    """The other replicas are idle and all report: the dearest variant shrinks."""
    story = Story()
    stuck, sibling = variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", replicas=3, cost=50)
    loads = {"a": [IDLE], "b": [IDLE] * 3}
    assert numbers(story.cycle(stuck, sibling, **loads)) == {"a": 2, "b": 3}
    decisions = story.cycle(stuck, sibling, after=DEADLINE, **loads)
    assert numbers(decisions) == {"a": 2, "b": 2}
    assert decisions["a"].reason is Reason.REPLICAS_PENDING
    assert "not ready within the transition deadline" in decisions["a"].message


def test_a_stuck_variant_may_shrink_itself():
    """Kubernetes removes the stuck replica first."""
    story = Story()
    stuck = variant(replicas=3, ready_replicas=2)
    story.cycle(stuck, a=[IDLE, IDLE])
    decision = story.cycle(stuck, after=DEADLINE, a=[IDLE, IDLE])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SCALE_DOWN)


def test_the_deadline_is_a_setting():
    """The deadline can be longer, because large models load for more than ten minutes."""
    story = Story(policy(transition_deadline_seconds=3600.0))
    stuck, sibling = variant("a", replicas=2, ready_replicas=1, cost=5), variant("b", cost=50)
    story.cycle(stuck, sibling, a=[HOT], b=[HOT])
    assert numbers(story.cycle(stuck, sibling, after=3599, a=[HOT], b=[HOT])) == {"a": 2, "b": 1}
    assert numbers(story.cycle(stuck, sibling, after=3600, a=[HOT], b=[HOT])) == {"a": 2, "b": 2}


def test_progress_starts_the_clock_again():
    """One of two starting replicas became Ready after nine minutes, so the other one gets its full time again."""
    story = Story()
    sibling = variant("b", cost=50)
    story.cycle(variant("a", replicas=3, ready_replicas=1), sibling, a=[HOT], b=[HOT])
    story.cycle(variant("a", replicas=3, ready_replicas=2), sibling, after=540, a=[HOT] * 2, b=[HOT])
    assert story.remembers("a").settling_since == NOW + 540
    decisions = story.cycle(
        variant("a", replicas=3, ready_replicas=2), sibling, after=DEADLINE + 60, a=[HOT] * 2, b=[HOT]
    )
    assert numbers(decisions) == {"a": 3, "b": 1}


def test_a_flapping_replica_is_no_progress():
    """A replica that becomes Ready a second time does not start the clock again."""
    story = Story()
    for second, ready in enumerate((1, 2, 1, 2)):
        story.cycle(variant(replicas=3, ready_replicas=ready), after=second, a=[HOT] * ready)
    assert story.remembers("a").settling_since == NOW + 1
    assert story.remembers("a").ready_replicas == 2


def test_another_number_starts_the_clock_again():
    """Each new number is a new change with a clock of its own."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    assert story.decisions["a"].settling_since == NOW
    story.cycle(variant(replicas=2), after=60, a=[BUSY, BUSY])
    assert story.decisions["a"].settling_since is None
    story.cycle(variant(replicas=2), after=90, a=[HOT, HOT])
    assert story.decisions["a"].settling_since == NOW + 90


def test_new_replicas_that_do_not_report_yet_are_still_on_their_way():
    """If WVA did not count a replica that is Ready but not scraped yet, it would ask for one too many."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    decision = story.cycle(variant(replicas=2), after=60, a=[HOT, SILENT])["a"]
    assert (decision.desired, decision.reason, decision.settling_since) == (2, Reason.REPLICAS_PENDING, NOW + 60)
    story.cycle(variant(replicas=2), after=90, a=[BUSY, BUSY])
    assert story.decisions["a"].settling_since is None


def test_new_replicas_that_do_not_report_yet_are_no_gap_in_the_metrics():
    """WVA does not report missing metrics of replicas that became Ready a moment ago."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    decision = story.cycle(variant(replicas=2), after=60, a=[BUSY, SILENT])["a"]
    assert (decision.desired, decision.reason, decision.held) == (2, Reason.REPLICAS_PENDING, False)
    assert decision.message == "1 replica new and not reporting yet"


def test_new_replicas_that_never_report_become_a_gap():
    """After the deadline they count as replicas without metrics."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    story.cycle(variant(replicas=2), after=60, a=[BUSY, SILENT])
    decision = story.cycle(variant(replicas=2), after=60 + DEADLINE, a=[BUSY, SILENT])["a"]
    assert (decision.reason, decision.settling_since) == (Reason.METRICS_INCOMPLETE, None)


def test_new_silent_replicas_keep_their_variant_from_growing():
    """Nine of ten replicas are full, and the new one does not report yet: the variant waits for it."""
    story = Story()
    story.cycle(variant(replicas=9, maximum=10), a=[HOT] * 9)
    story.cycle(variant(replicas=10, maximum=10), after=60, a=[*[HOT] * 9, SILENT])
    decision = story.cycle(variant(replicas=10, maximum=10), after=90, a=[*[HOT] * 9, SILENT])["a"]
    assert (decision.desired, decision.reason) == (10, Reason.REPLICAS_PENDING)
    assert decision.message.startswith("1 replica pending; 9 of 9 reporting replicas saturated; ")


def test_more_ready_pods_than_replicas_wait_for_the_caches_to_agree():
    """One replica has two Ready pods, so one of the caches is old, and WVA does not shrink the model."""
    decision = Story().cycle(variant(), a=[IDLE, IDLE])["a"]
    assert (decision.desired, decision.reason) == (1, Reason.STEADY)
    assert "until Ready pods and replicas agree" in decision.message


def test_a_variant_at_its_maximum_names_its_new_replica_first():
    """The new replica is Ready, but its samples are missing; WVA waits for them before it asks for more."""
    full = variant(replicas=2, desired=2, maximum=2, settling_since=NOW - 60)
    decision = Story().cycle(full, a=[FULL, SILENT])["a"]
    assert (decision.desired, decision.reason) == (2, Reason.NO_CANDIDATE)
    assert "a: 1 replica new and not reporting yet" in decision.message


def test_a_pod_that_does_not_start_in_time_is_not_counted_on_whatever_came_after_it():
    """The clock of the variant began anew with its last growth; the age of the oldest pod still counts."""
    story, late = Story(), NOW + 700.0
    story.cycle(variant(replicas=3, ready_replicas=2), a=[BUSY] * 2)
    stuck = variant(replicas=3, ready_replicas=2, oldest_unready_since=NOW)
    for seconds in (650.0, 655.0):
        decision = story.cycle(variant(replicas=3, ready_replicas=3), after=seconds, a=[BUSY] * 3)["a"]
    assert decision.desired == 3
    decision = story.cycle(stuck, after=late - NOW, a=[FULL] * 2)["a"]
    assert (decision.reason, decision.desired > 3) == (Reason.SCALE_UP, True)
