"""The queueing analyzer: its demand and capacities; an unknown value never counts as 0."""

from __future__ import annotations

import pytest

from tests.builders import INVALID, NAMESPACE, NOW, sample, stale, variant
from tests.decide.queueing.samples import (
    A100,
    H100,
    KNOWN,
    MODEL,
    PREMIUM,
    UNTUNED,
    ModelCycles,
    pod,
    rate,
    steady,
    targets,
)
from wva.decide.amounts import LARGEST
from wva.decide.measure.queueing import LEFT_OUT, known_service, measure, under_load
from wva.model.decision import Reason
from wva.model.memory import CapacityBasis, Memory, Slot
from wva.model.policy import Policy, QueueingPolicy, QueueingRules
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue, Snapshot
from wva.model.variant import ModelKey, VariantKey
from wva.model.vllm_parameters import VllmParameters

KEY = ModelKey(NAMESPACE, MODEL)
A, B = VariantKey(NAMESPACE, "a"), VariantKey(NAMESPACE, "b")
RATE = 0.3944
"""Requests per second of 100 + 178 tokens that a replica on A100 takes within 500 and 24 ms, beside another."""


def without_functions(need):
    """Return a need that can be compared: functions are equal only to themselves."""
    return replace(need, rate=replace(need.rate, answers=None))


def test_demand_and_capacity_are_in_requests_per_second():
    """0.6667 requests/s take two replicas; one replica has all but few requests in time at 0.3944 requests/s."""
    need = ModelCycles().alike_twice(1, success_rate=40 / 60)
    assert (need.key, need.unit) == (KEY, "requests/s")
    assert need.demand == need.required == need.sufficient == pytest.approx(40 / 60)
    assert need.rate.error == pytest.approx((40 / 60 / 60) ** 0.5)
    assert rate(need) == pytest.approx(RATE, rel=1e-3)
    assert need.capacities[A].basis is CapacityBasis.DERIVED
    assert need.carries is None
    assert "its service class" in need.summary


def test_after_a_jump_a_replica_is_sized_for_the_load_that_there_is_now():
    """Quiet minutes before the load say nothing of how many replicas share it; minutes that are alike all count."""
    cycles = ModelCycles()
    known = rate(cycles.alike_twice(1, success_rate=40 / 60))
    (entry,) = steady(Snapshot.of([variant()], [pod(success_rate=0.0)]), KNOWN).foreseen
    quiet = replace(
        entry, at=cycles.now, slots=tuple([Slot(cycles.now - 60 * ago, 60.0, 0.0) for ago in range(14, -1, -1)])
    )
    cycles.memory = replace(cycles.memory, foreseen=(replace(quiet, dispersion=1.0),))
    need = cycles.alike(1, success_rate=40 / 60)
    assert need.rate.roomy
    assert rate(need) == pytest.approx(known, rel=1e-2)
    alike = tuple([replace(slot, amount=amount) for slot, amount in zip(quiet.slots, [20, 40] * 8, strict=False)])
    cycles.memory = replace(cycles.memory, foreseen=(replace(quiet, dispersion=8.0, at=cycles.now, slots=alike),))
    assert rate(cycles.alike(1, success_rate=40 / 60)) < rate(need)


def test_what_waits_is_told_and_nothing_shrinks():
    """A queue that does not grow is backlog and not demand, and the answer objects to a shrink."""
    need = ModelCycles().alike_twice(2, waiting=30)
    assert need.demand == pytest.approx(0.4)
    assert need.rate.backlog == 60
    assert need.objection == "60 requests wait"
    assert "; 60 requests wait; " in need.summary


def test_a_few_that_wait_for_a_moment_are_no_queue():
    """Many requests run beside the few that wait."""
    assert ModelCycles().alike_twice(2, running=100, waiting=4).objection == ""
    assert ModelCycles().alike_twice(2, waiting=1).objection == ""


def test_given_parameters_that_promise_too_much_end_when_requests_wait():
    """While requests wait, the parameters that WVA learned count, because they are slower than the given ones."""
    slow = {"inter_token_latency": 0.08, "kv_capacity_tokens": 100_000.0, "kv_usage": 0.1, "running": 30}
    calm, full = ModelCycles(), ModelCycles()
    assert calm.alike_twice(2, **slow).capacities[A].basis is CapacityBasis.DERIVED
    need = full.alike_twice(2, **slow, waiting=30)
    assert need.capacities[A].basis is CapacityBasis.OBSERVED
    assert "a takes" in need.summary
    assert "learned parameters" in need.summary
    right = ModelCycles().alike_twice(2, waiting=30, kv_capacity_tokens=100_000.0, kv_usage=0.1)
    assert right.capacities[A].basis is CapacityBasis.DERIVED


def test_the_kv_cache_limits_what_is_computed_at_once():
    """A replica with room for two requests in its cache takes fewer than one with room for its whole batch."""
    small = {"kv_capacity_tokens": 600.0, "kv_usage": 0.75, "running": 2}
    large = {"kv_capacity_tokens": 600_000.0, "kv_usage": 0.00075, "running": 2}
    assert rate(ModelCycles().alike_twice(1, **small)) < rate(ModelCycles().alike_twice(1, **large))
    wide = replace(KNOWN, service_targets=(replace(PREMIUM, ttft_milliseconds=0, itl_milliseconds=0),))
    limits = [ModelCycles(wide).alike_twice(1, **signals).capacities[A].limit for signals in (small, large)]
    assert limits == ["KV cache", "sequences"]


@pytest.mark.parametrize("lie", [6e8, 6e7, 10.0])
def test_one_pod_that_lies_about_its_kv_cache_is_not_believed(lie):
    """What most replicas on these GPUs report counts."""
    free = replace(KNOWN, service_targets=(replace(PREMIUM, ttft_milliseconds=0, itl_milliseconds=0),))
    small = {"kv_capacity_tokens": 600.0, "kv_usage": 0.75, "running": 2}
    pods = [pod(number=number, **small) for number in range(3)]
    lying = [pod(number=0, **small | {"kv_capacity_tokens": lie}), *pods[1:]]
    true, found = (ModelCycles(free).twice({variant(replicas=3): told}) for told in (pods, lying))
    assert (rate(found), found.capacities[A].limit) == (rate(true), "KV cache")


@pytest.mark.parametrize(
    ("signals", "demand"), [({"success_rate": None}, 0.4), ({"running": None}, 0.4), ({"waiting": INVALID}, 0.6)]
)
def test_a_replica_that_is_not_judged_keeps_the_others(signals, demand):
    """No replica goes; for growth WVA uses the replicas that it can judge."""
    need = ModelCycles().twice({variant(replicas=3): [pod(), pod(number=1, **signals), pod(number=2)]})
    assert need.demand == pytest.approx(demand)
    assert need.objection == "1 replica unread"


@pytest.mark.parametrize("signals", [{"success_rate": stale(0.2)}, {"running": None}])
def test_a_replica_that_falls_silent_is_as_busy_as_it_was(signals):
    """WVA credits the replica the load that it had before."""
    analysis = ModelCycles()
    whole = [pod(), pod(number=1)]
    analysis.twice({variant(replicas=2): whole})
    need = analysis.cycle({variant(replicas=2): [whole[0], pod(number=1, **signals)]})
    assert need.demand == pytest.approx(0.4)
    assert need.objection == "1 replica unread"


def test_a_pod_without_engine_signals_is_not_judged():
    """WVA did not ask for the pod's engine signals, so it knows nothing of the pod."""
    need = ModelCycles().twice({variant(replicas=2): [pod(), replace(pod(number=1), engine=None)]})
    assert need.objection == "1 replica unread"


@pytest.mark.parametrize(
    ("pods", "failure", "reason", "words"),
    [
        ([pod()], "no answer", Reason.PROMETHEUS_ERROR, "no answer"),
        ([], None, Reason.NO_READY_REPLICAS, "no ready replica"),
        ([pod(success_rate=None)], None, Reason.METRICS_INCOMPLETE, "no Ready pod tells anything"),
        ([pod(input_tokens=None)], None, Reason.METRICS_INCOMPLETE, "the size of the requests is not known yet"),
        ([pod(output_tokens=0)], None, Reason.METRICS_INCOMPLETE, "the size of the requests is not known yet"),
        (
            [pod(success_rate=0, input_tokens=None, waiting=5)],
            None,
            Reason.METRICS_INCOMPLETE,
            "the size of the requests is not known yet",
        ),
    ],
)
def test_nothing_is_decided_without_evidence(pods, failure, reason, words):
    """The answer has a reason, and never a 0."""
    need = ModelCycles().twice({variant(): pods}, failure=failure)
    assert need.hold.reason is reason
    assert need.hold.message.startswith(words)
    assert need.capacities == {}


def test_what_arrives_takes_two_looks():
    """WVA needs two looks with time between them."""
    analysis = ModelCycles()
    assert analysis.alike(1).hold.message == "this is the first measurement"
    kept = analysis.memory
    assert analysis.cycle({variant(): [pod()]}, seconds=0).hold.message == (
        "no time has passed since the last measurement"
    )
    assert analysis.memory == kept


def test_an_idle_model_needs_nothing_once_it_is_known_to_be_idle():
    """No request arrives and none waits: one replica is ample, whatever step 3 foresees."""
    idle = {"success_rate": 0, "running": 0, "input_tokens": None}
    need = ModelCycles().alike_twice(3, **idle)
    assert (need.demand, need.required, need.sufficient, need.objection) == (0, 0, 0, "")
    assert rate(need) == LARGEST
    assert need.summary == "nothing arrives and nothing waits"


def test_an_idle_model_needs_nothing_although_its_replicas_were_never_sized():
    """WVA knows the sizes of requests, but not the speed of the engines; without load the speed does not matter."""
    analysis = ModelCycles(Policy(service_targets=(PREMIUM,)))
    assert analysis.alike_twice(2).hold.message == "no performance parameters, neither known nor learned"
    need = analysis.alike_twice(2, success_rate=0, running=0)
    assert (need.hold, need.demand, need.objection) == (None, 0, "")
    assert rate(need) == LARGEST


def test_a_variant_without_parameters_keeps_its_share():
    """The other variants do not get its load; its capacity is unknown, and no replica goes."""
    pods = {
        variant("a", replicas=2): [pod(success_rate=0.3), pod(number=1, success_rate=0.3)],
        variant("b", accelerator="L40S"): [pod("b", success_rate=0.9)],
    }
    need = ModelCycles(replace(KNOWN, queueing=UNTUNED)).twice(pods)
    assert need.demand == need.required == need.sufficient == pytest.approx(0.6)
    assert need.capacities[B].per_replica == 0
    assert need.objection == "not every variant can be sized"


def test_no_variant_with_parameters_is_no_answer():
    """Parameters are neither given nor learned, so there is no answer. WVA learns from reports of request sizes."""
    one = {variant(): [pod()]}
    need = ModelCycles(Policy(service_targets=(PREMIUM,), queueing=UNTUNED)).twice(one)
    assert need.hold.message == "no performance parameters, neither known nor learned"
    assert ModelCycles(Policy(service_targets=(PREMIUM,))).twice(one).hold.message == need.hold.message
    told = {variant(): [pod(kv_capacity_tokens=100_000.0, kv_usage=0.01)]}
    assert ModelCycles(Policy(service_targets=(PREMIUM,))).twice(told).hold is None


@pytest.mark.parametrize(
    "profile",
    [replace(A100, alpha=float("nan")), replace(A100, beta=-1.0), replace(A100, alpha=0, beta=0, gamma=0, delta=0)],
)
def test_parameters_that_cannot_be_true_are_none(profile):
    """A variant with a NaN, negative or empty parameter has no capacity; the other variants have theirs."""
    policy = replace(KNOWN, profiles=(profile, H100), queueing=UNTUNED)
    need = ModelCycles(policy).twice({variant("a"): [pod()], variant("b", accelerator="H100"): [pod("b")]})
    assert rate(need, "a") == 0
    assert rate(need, "b") > 0


def test_targets_that_cannot_be_met_are_named_with_what_can_be_done_at_what_cost():
    """At every rate the latency is above its target: the answer says so, and names the nearest possible target."""
    policy = replace(KNOWN, service_targets=(replace(PREMIUM, itl_milliseconds=10),))
    need = ModelCycles(policy).twice({variant(cost=40.0): [pod(success_rate=2.0)]})
    assert (
        "no variant meets ITL 10 ms: a request alone takes 20.99 ms on a, so 41.98 ms are aimed at; "
        "that takes 5 replicas of a at a cost of 200"
    ) in need.summary
    assert rate(need) > 0.4
    policy = replace(KNOWN, service_targets=(replace(PREMIUM, ttft_milliseconds=10),))
    need = ModelCycles(policy).twice({variant(): [pod(success_rate=2.0)]})
    assert "no variant meets TTFT 10 ms" in need.summary


def test_a_variant_that_never_meets_the_targets_goes_first():
    """The other variant carries everything, and the answer names the price of that."""
    slow = replace(A100, alpha=30.0)
    policy = replace(KNOWN, profiles=(slow, H100), queueing=UNTUNED)
    pods = {
        variant("a", replicas=2): [pod(success_rate=4.0), pod(number=1, success_rate=4.0)],
        variant("b", accelerator="H100", cost=100.0): [pod("b", success_rate=4.0)],
    }
    need = ModelCycles(policy).twice(pods)
    assert "a never meets the targets: a request alone takes TTFT " in need.summary
    assert need.summary.endswith("that takes 2 replicas of b at a cost of 200")
    assert 0 < rate(need, "a") < 2 * LEFT_OUT


def test_variants_of_two_speeds_are_used_alike():
    """The router gives all replicas the same share of their sequences, so the slow one limits the fast one."""
    policy, fast = replace(KNOWN, queueing=UNTUNED), variant("b", accelerator="H100", minimum=0)
    alone = rate(ModelCycles(policy).twice({fast: [pod("b", success_rate=3.0)]}), "b")
    beside = ModelCycles(policy).twice({variant("a", cost=0.1): [pod("a")], fast: [pod("b", success_rate=3.0)]})
    assert rate(beside, "b") < alone
    assert rate(beside, "a") > 0.3
    dear = ModelCycles(policy).twice(
        {variant("a", cost=90.0, minimum=0): [pod("a")], fast: [pod("b", success_rate=3.0)]}
    )
    assert rate(dear, "b") > rate(beside, "b")
    assert 0 < rate(dear, "a") < 2 * LEFT_OUT


def test_what_replicas_get_through_is_more_than_they_carry_within_the_targets():
    """Above the first rate requests miss their targets; above the second they pile up."""
    need = ModelCycles().alike_twice(2)
    assert need.rate.answers({A: 2}) > 2 * rate(need)
    assert need.rate.answers({A: 2}) == pytest.approx(2 * need.rate.answers({A: 1}))
    assert need.rate.answers({}) == 0
    assert ModelCycles().alike_twice(1, success_rate=0, running=0, input_tokens=None).rate.answers is None


def test_targets_of_the_model_s_own_entry_come_first():
    """An entry of the queueing ConfigMap overrides the service class."""
    need = ModelCycles(replace(KNOWN, queueing=targets(1000, 30))).twice({variant(): [pod()]})
    assert "within TTFT 1000 ms and ITL 30 ms (its own targets)" in need.summary


def test_a_model_without_targets_is_planned_for_a_share_of_its_highest_rate():
    """1 - 1/multiplier of it: a multiplier of 5 plans with more than 3, and one that makes no sense is the default."""
    none = replace(KNOWN, service_targets=())
    most = 4 / 4060.71 * 1000
    need = ModelCycles(none).twice({variant(): [pod()]})
    assert "at 67% of its highest rate (no targets) a replica of a takes 0.6567 (sequences; " in need.summary
    assert rate(need) == pytest.approx(2 / 3 * most, rel=1e-3)
    for multiplier, share in ((5.0, 0.8), (0.5, 2 / 3)):
        loose = replace(none, queueing=QueueingRules(QueueingPolicy(slo_multiplier=multiplier)))
        assert rate(ModelCycles(loose).twice({variant(): [pod()]})) == pytest.approx(share * most, rel=1e-3)


def test_a_service_class_for_a_model_that_does_not_exist_changes_nothing():
    """WVA does not ask for the class."""
    ghost = replace(PREMIUM, model_id="ghost", class_name="Ghost")
    pods = {variant(): [pod(success_rate=2.0)]}
    with_ghost = ModelCycles(replace(KNOWN, service_targets=(ghost, PREMIUM))).twice(pods)
    assert without_functions(with_ghost) == without_functions(ModelCycles().twice(pods))


def test_promised_tokens_per_second_are_carried_before_they_arrive():
    """178 tokens per answer and 356 tokens per second are two requests per second."""
    need = ModelCycles(replace(KNOWN, service_targets=(replace(PREMIUM, tps=356),))).twice({variant(): [pod()]})
    assert (need.demand, need.required, need.sufficient) == (2, 2, 2)


def test_a_scheduler_s_queue_that_is_not_fresh_blocks_a_shrink():
    """WVA does not know what waits there, so no replica goes. Without an endpoint picker there is no such queue."""
    pods = {variant(replicas=2): [pod(), pod(number=1)]}
    assert ModelCycles().twice(pods, queue=SchedulerQueue(KEY, stale(3))).objection == "the scheduler's queue is stale"
    for told in (sample(0), sample(None)):
        assert ModelCycles().twice(pods, queue=SchedulerQueue(KEY, told)).objection == ""


def test_what_waits_at_the_scheduler_is_part_of_the_queue():
    """WVA counts a growing queue in front of the replicas like one inside them."""
    analysis = ModelCycles()
    one = {variant(): [pod(success_rate=0.5)]}
    analysis.cycle(one, queue=SchedulerQueue(KEY, sample(0)))
    need = analysis.cycle(one, queue=SchedulerQueue(KEY, sample(30)))
    assert need.demand == pytest.approx(1.0)
    assert need.rate.backlog == 30


LEARNED = {"kv_capacity_tokens": 100_000.0, "kv_usage": 0.01}
"""What a pod has to tell so that something can be learned of it."""


def test_what_is_learned_goes_with_the_accelerator_and_its_number():
    """A variant without replicas is like its sibling on the same GPUs; without one its capacity is unknown."""
    asleep = variant("b", replicas=0, minimum=0)
    other = variant("c", replicas=0, minimum=0, gpus_per_replica=2)
    unknown = variant("d", replicas=0, minimum=0, accelerator="")
    pods = {variant("a"): [pod("a", **LEARNED)], asleep: [], other: [], unknown: []}
    need = ModelCycles(Policy(service_targets=(PREMIUM,))).twice(pods)
    assert rate(need, "b") == pytest.approx(rate(need))
    assert (rate(need, "c"), rate(need, "d")) == (0, 0)
    assert need.capacities[A].basis is CapacityBasis.OBSERVED
    assert need.objection == ""


def test_variants_that_are_alike_teach_together():
    """Each variant knows what both have seen, so equal replicas carry the same, whatever their load is."""
    busy = LEARNED | {"running": 40, "inter_token_latency": 0.04, "kv_usage": 0.13}
    pods = {variant("a"): [pod("a", **LEARNED)], variant("b"): [pod("b", **busy)]}
    need = ModelCycles(Policy(service_targets=(PREMIUM,))).twice(pods)
    assert rate(need) == rate(need, "b")
    alone = ModelCycles(Policy(service_targets=(PREMIUM,))).twice({variant("a"): [pod("a", **LEARNED)]})
    assert rate(need) != pytest.approx(rate(alone))


def test_the_largest_batch_comes_from_the_profile_the_arguments_or_the_default():
    """The profile comes first, then the arguments, then the default."""
    free = replace(PREMIUM, ttft_milliseconds=0, itl_milliseconds=0)
    bare = replace(KNOWN, profiles=(replace(A100, max_batch_size=0),), service_targets=(free,))
    few, some = replace(bare, profiles=(replace(A100, max_batch_size=4),)), VllmParameters(max_num_seqs=32)
    cases = [(few, variant(parameters=some)), (bare, variant(parameters=some)), (bare, variant())]
    cases.append((bare, variant(parameters=VllmParameters(max_num_seqs=0))))
    found = [rate(ModelCycles(policy).twice({one: [pod()]})) for policy, one in cases]
    assert found[0] < found[1] < found[2] == found[3]


def test_a_model_that_is_gone_is_forgotten():
    """The memory is about the models of the last cycle."""
    analysis = ModelCycles()
    analysis.alike_twice(1)
    assert [entry.key.model_id for entry in analysis.memory.demand] == ["m"]
    analysis.cycle({variant("x", model="other"): [pod("x")]})
    assert [entry.key.model_id for entry in analysis.memory.demand] == ["other"]


def test_a_variant_at_zero_takes_part_with_what_is_known_of_its_accelerator():
    """WVA knows the capacity of the variant before it has a replica."""
    asleep = variant("b", replicas=0, accelerator="H100", minimum=0)
    need = ModelCycles().twice({variant("a"): [pod("a", success_rate=5.0)], asleep: []})
    assert rate(need, "b") > rate(need, "a")


def test_the_order_of_listing_changes_nothing():
    """WVA sorts the variants before it adds anything up."""
    a, b = variant("a"), variant("b", accelerator="H100")
    first = ModelCycles().twice({a: [pod("a")], b: [pod("b", success_rate=3.0)]})
    second = ModelCycles().twice({b: [pod("b", success_rate=3.0)], a: [pod("a")]})
    assert without_functions(first) == without_functions(second)
    assert first.rate.answers({A: 1, B: 2}) == second.rate.answers({B: 2, A: 1})


def test_no_models_are_no_needs():
    """An empty fleet has an empty answer."""
    assert measure([], Memory(), Policy(), NOW, {}) == ([], Memory())


def test_a_busier_replica_is_used_more_and_waits_longer():
    """All figures of a replica rise with its rate, and no step is shorter than that of a request alone."""
    service = known_service(A100, 100.0, 178.0, 4.0)
    calm, busy = under_load(service, 0.1, 1.0), under_load(service, 0.7, 1.0)
    assert calm.used < busy.used <= 1
    assert A100.alpha < calm.itl < busy.itl
    assert calm.ttft < busy.ttft
    assert 0 <= calm.wait < busy.wait
