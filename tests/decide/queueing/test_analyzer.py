"""The queueing analyzer: arrivals in, replicas per variant out; what is not known is never taken for nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import INVALID, NAMESPACE, NOW, sample, stale, variant
from tests.decide.queueing.samples import A100, H100, KNOWN, MODEL, PREMIUM, UNTUNED, Analysis, pod, targets
from wva.decide.queueing.trace import fleet_trace
from wva.model.capacity import CapacityBasis
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import VariantMemory
from wva.model.policy import Policy, QueueingPolicy, QueueingRules
from wva.model.queueing import Backlog, Estimate, Learned, Observation, QueueingMemory
from wva.model.service import PerformanceProfile
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey
from wva.model.vllm_parameters import VllmParameters

KEY = ModelKey(NAMESPACE, MODEL)


def test_replicas_for_the_arrivals():
    """0.6667 requests/s at 0.5476 per replica take two."""
    analysis = Analysis()
    opinion = analysis.cycle({variant(cost=40.0): [pod(success_rate=40 / 60)]})
    (one,) = opinion.variants
    assert one.desired == 2
    assert one.rate == pytest.approx(0.5475938, rel=1e-6)
    assert one.plan.cost == 80
    assert one.plan.value == 40
    assert opinion.capacity.required == pytest.approx(40 / 60 - 0.5475938, rel=1e-5)
    assert opinion.capacity.unit == "requests/s"
    assert opinion.capacity.variants[0].basis is CapacityBasis.DERIVED
    assert "its service class" in opinion.summary


def test_growing_queues_are_arrivals():
    """A replica that answers 0.5 requests/s while its queue grows by 0.5 per second is asked for one per second."""
    analysis = Analysis()
    assert analysis.desired(1, success_rate=0.5, waiting=0) == 1
    assert analysis.desired(1, success_rate=0.5, waiting=30) == 2
    assert analysis.desired(2, success_rate=0.25, waiting=15) == 2


def test_what_waits_at_the_scheduler_is_part_of_the_queue():
    """A growing queue in front of the replicas counts like one inside."""
    analysis = Analysis()
    one = {variant(): [pod(success_rate=0.5)]}
    analysis.cycle(one, queue=SchedulerQueue(KEY, sample(0)))
    assert analysis.cycle(one, queue=SchedulerQueue(KEY, sample(30))).arrivals == pytest.approx(1.0)


def test_a_shrinking_queue_takes_nothing_from_the_arrivals():
    """While a queue is worked off, what is answered counts in full."""
    analysis = Analysis()
    analysis.desired(2, success_rate=0.5, waiting=300)
    opinion = analysis.cycle({variant(replicas=2): [pod(number=n, success_rate=0.5) for n in range(2)]})
    assert opinion.arrivals == 1.0


def test_shrinks_as_far_as_the_load_allows_with_room_to_spare():
    """Five replicas for 0.8 requests/s: two would be in use to 73 %."""
    analysis = Analysis()
    assert analysis.desired(5, success_rate=0.16) == 5
    assert analysis.desired(5, success_rate=0.16) == 2


def test_does_not_shrink_below_a_tenth_of_room():
    """Two replicas for 0.52 requests/s: one could carry them, but only just."""
    analysis = Analysis()
    analysis.desired(2, success_rate=0.26)
    assert analysis.desired(2, success_rate=0.26) == 2


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ({"success_rate": None}, "1 replica unread; a-1: request rate missing"),
        ({"success_rate": stale(0.1)}, "1 replica unread; a-1: request rate stale"),
        ({"waiting": INVALID}, "1 replica unread; a-1: waiting requests invalid"),
        ({"running": None}, "1 replica unread; a-1: running requests missing"),
    ],
)
def test_a_replica_that_is_not_judged_counts_as_busy_and_keeps_the_others(signals, words):
    """Its load is that of the others, and nothing shrinks; growth is decided on what is seen."""
    analysis = Analysis()
    pods = {variant(replicas=3): [pod(), pod(number=1, **signals), pod(number=2)]}
    analysis.cycle(pods)
    opinion = analysis.cycle(pods)
    assert opinion.arrivals == pytest.approx(0.6)
    assert opinion.variants[0].desired == 3
    assert opinion.objection == words
    assert opinion.capacity.spare == 0


def test_a_pod_without_engine_signals_is_not_judged():
    """Nothing was asked of it, so nothing is known of it."""
    opinion = Analysis().cycle({variant(replicas=2): [pod(), replace(pod(number=1), engine=None)]})
    assert opinion.objection == "1 replica unread; a-1: nothing was asked of it"


def test_a_variant_that_nobody_reports_of_is_as_busy_as_the_others():
    """Its pods answer per replica what the others do, and are not shrunk around."""
    pods = {variant("a"): [pod()], variant("b"): [pod("b", success_rate=None)]}
    opinion = Analysis().cycle(pods)
    assert opinion.arrivals == pytest.approx(0.4)
    assert opinion.capacity.variants[1].demand == 0


@pytest.mark.parametrize(
    ("pods", "failure", "reason", "words"),
    [
        ([pod()], "no answer", Reason.PROMETHEUS_ERROR, "no answer"),
        ([], None, Reason.NO_READY_REPLICAS, "no ready replica"),
        ([pod(success_rate=None)], None, Reason.METRICS_INCOMPLETE, "no replica can be judged; a-0: request rate"),
        ([pod(input_tokens=None)], None, Reason.METRICS_INCOMPLETE, "the size of the requests is not known yet"),
        ([pod(output_tokens=0)], None, Reason.METRICS_INCOMPLETE, "the size of the requests is not known yet"),
    ],
)
def test_no_opinion_without_evidence(pods, failure, reason, words):
    """No opinion is None with a reason, never 0."""
    opinion = Analysis().cycle({variant(): pods}, failure=failure)
    assert opinion.variants[0].desired is None
    assert opinion.hold.reason is reason
    assert opinion.hold.message.startswith(words)
    assert opinion.capacity.hold == opinion.hold


def test_a_waiting_queue_without_answers_is_no_idleness():
    """Nothing was answered yet, but requests are inside: how large they are is not known."""
    opinion = Analysis().cycle({variant(): [pod(success_rate=0, input_tokens=None, waiting=5)]})
    assert opinion.variants[0].desired is None


def test_an_idle_model_goes_to_the_minimum_once_it_is_known_to_be_idle():
    """Nothing arrives and nothing waits: one replica, or the minimum of the scaler; not before the queues are known."""
    idle = {"success_rate": 0, "running": 0, "input_tokens": None}
    analysis = Analysis()
    assert analysis.desired(3, **idle) == 3
    assert analysis.desired(3, **idle) == 1
    opinion = analysis.cycle({variant(replicas=3): [pod(number=n, **idle) for n in range(3)]})
    assert opinion.capacity.required == 0
    assert opinion.capacity.spare // opinion.capacity.variants[0].per_replica == 2
    analysis = Analysis()
    pods = {variant(replicas=3, minimum=2): [pod(number=n, **idle) for n in range(3)]}
    analysis.cycle(pods)
    assert analysis.cycle(pods).variants[0].desired == 2


def test_a_variant_without_parameters_has_no_opinion_and_keeps_its_share():
    """What it answers is not asked of the others, and nothing shrinks."""
    analysis = Analysis(replace(KNOWN, queueing=UNTUNED))
    pods = {
        variant("a", replicas=2): [pod(success_rate=0.3), pod(number=1, success_rate=0.3)],
        variant("b", accelerator="L40S"): [pod("b", success_rate=0.9)],
    }
    analysis.cycle(pods)
    opinion = analysis.cycle(pods)
    assert [one.desired for one in opinion.variants] == [2, None]
    assert opinion.variants[1].words == "no performance parameters"
    assert opinion.capacity.demand == pytest.approx(0.6)
    assert opinion.objection == "not every variant can be sized"


def test_a_variant_without_load_has_a_number_and_no_plan():
    """All requests go to a variant that cannot be sized: nothing is left to say what the other one would do."""
    analysis = Analysis(replace(KNOWN, queueing=UNTUNED))
    opinion = analysis.cycle(
        {variant("a"): [pod(success_rate=0)], variant("b", accelerator="L40S"): [pod("b")]},
    )
    assert [one.desired for one in opinion.variants] == [1, None]
    assert opinion.variants[0].plan is None


def test_no_variant_with_parameters_is_no_opinion():
    """Neither known nor learned: the model says nothing."""
    opinion = Analysis(Policy(service_targets=(PREMIUM,))).cycle({variant(): [pod()]})
    assert opinion.hold.message == "no performance parameters, neither known nor learned"


@pytest.mark.parametrize("alpha", [float("nan"), -1.0, float("inf")])
def test_parameters_that_cannot_be_true_are_none(alpha):
    """A NaN, negative or infinite parameter leaves the variant without an opinion; the others go on."""
    broken = replace(A100, alpha=alpha)
    analysis = Analysis(replace(KNOWN, profiles=(broken, H100), queueing=UNTUNED))
    opinion = analysis.cycle({variant("a"): [pod()], variant("b", accelerator="H100"): [pod("b")]})
    assert [one.desired for one in opinion.variants] == [None, 1]


def test_targets_that_cannot_be_met_are_no_opinion():
    """At any rate the latency is above its target: more replicas would not help."""
    policy = replace(KNOWN, service_targets=(replace(PREMIUM, itl_milliseconds=10),))
    opinion = Analysis(policy).cycle({variant(): [pod()]})
    assert opinion.variants[0].desired is None
    assert "ITL is" in opinion.hold.message
    assert "target 10 ms" in opinion.hold.message


def test_a_variant_that_cannot_meet_the_targets_is_left_to_the_others():
    """One variant is infeasible, the other carries on."""
    slow = replace(A100, alpha=30.0)
    analysis = Analysis(replace(KNOWN, profiles=(slow, H100)))
    opinion = analysis.cycle({variant("a"): [pod()], variant("b", accelerator="H100"): [pod("b")]})
    assert [one.desired for one in opinion.variants] == [None, 1]
    assert "ITL is" in opinion.variants[0].words


def test_batches_beyond_the_bound_are_named():
    """A batch size of a million is not evaluated."""
    policy = replace(KNOWN, profiles=(replace(A100, max_batch_size=10**6),))
    opinion = Analysis(policy).cycle({variant(): [pod()]})
    assert opinion.hold.message == "no variant can be sized: batch size 1000000, expected 1 to 100000"


def test_targets_of_the_model_s_own_entry_come_first():
    """An entry of the queueing ConfigMap overrides the service class."""
    opinion = Analysis(replace(KNOWN, queueing=targets(1000, 30))).cycle({variant(): [pod()]})
    assert (opinion.ttft_milliseconds, opinion.itl_milliseconds) == (1000, 30)


def test_a_model_in_no_service_class_has_derived_targets():
    """They are named as such, and nothing else changes."""
    opinion = Analysis(replace(KNOWN, service_targets=())).cycle({variant(): [pod()]})
    assert opinion.itl_milliseconds == pytest.approx(3 * 20.58 + 0.41)
    assert "no service class: derived targets" in opinion.summary
    assert opinion.class_name == ""


def test_a_service_class_for_a_model_that_does_not_exist_changes_nothing():
    """It is not asked for."""
    ghost = replace(PREMIUM, model_id="ghost", class_name="Ghost")
    with_ghost = replace(KNOWN, service_targets=(ghost, PREMIUM))
    pods = {variant(): [pod(success_rate=2.0)]}
    assert Analysis(with_ghost).cycle(pods) == Analysis().cycle(pods)


def test_promised_tokens_per_second_are_carried_before_they_arrive():
    """178 tokens per answer and 356 tokens per second are two requests per second."""
    policy = replace(KNOWN, service_targets=(replace(PREMIUM, tps=356),))
    assert Analysis(policy).cycle({variant(): [pod()]}).capacity.demand == 2


def test_pending_replicas_count_and_block_a_shrink():
    """A replica on its way is supply; nothing shrinks until it is there."""
    analysis = Analysis()
    one = variant(replicas=3, current_replicas=3, settling_since=NOW)
    for _ in range(2):
        opinion = analysis.cycle({one: [pod(success_rate=0.5), pod(number=1, success_rate=0.5)]})
    assert opinion.variants[0].desired == 3
    assert opinion.objection == "replicas are on their way"
    assert opinion.capacity.variants[0].pending == 1


def test_replicas_that_do_not_come_are_not_relied_upon():
    """After the deadline a sibling grows, and a variant that needs them no more gives them up."""
    analysis = Analysis()
    stuck = variant("a", replicas=3, current_replicas=3)
    sibling = variant("b", cost=90.0)
    analysis.published[stuck.key] = VariantMemory(stuck.key, 3, NOW - 5000, 1)
    busy = {stuck: [pod(success_rate=0.5)], sibling: [pod("b", success_rate=1.0)]}
    assert [one.desired for one in analysis.cycle(busy).variants] == [3, 2]
    calm = {stuck: [pod(success_rate=0.1)], sibling: [pod("b", success_rate=0.1)]}
    analysis.cycle(calm)
    assert [one.desired for one in analysis.cycle(calm).variants] == [1, 1]


def test_the_maximum_is_never_passed_and_what_is_missing_is_said():
    """A demand that nobody can carry is named."""
    opinion = Analysis().cycle({variant(maximum=2): [pod(success_rate=5.0)]})
    assert opinion.variants[0].desired == 2
    assert "requests/s cannot be carried by any variant" in opinion.summary


def test_a_scheduler_s_queue_that_is_not_fresh_blocks_a_shrink():
    """What waits there is not known, so nothing may shrink."""
    analysis = Analysis()
    pods = {variant(replicas=2): [pod(), pod(number=1)]}
    opinion = analysis.cycle(pods, queue=SchedulerQueue(KEY, stale(3)))
    assert opinion.objection == "the scheduler's queue is stale"
    assert analysis.memory.backlogs == ()


def test_a_backlog_that_is_too_old_says_nothing():
    """After ten minutes without a cycle the growth of the queues is unknown again."""
    analysis = Analysis()
    analysis.desired(2)
    analysis.now += 3600
    assert analysis.cycle({variant(): [pod()]}).objection == "how fast the queues grow is not known yet"


def test_known_parameters_size_a_cold_start():
    """The first cycle of a process that has learned nothing grows at once to what is needed."""
    assert Analysis().desired(1, success_rate=4.0) == 8


def test_learned_parameters_replace_known_ones_when_they_are_firm():
    """After three observations the replica is sized as it behaves; without tuning it never is."""
    analysis, untuned = Analysis(), Analysis(replace(KNOWN, queueing=UNTUNED))
    pods = {variant(): [pod()]}
    for _ in range(5):
        tuned, plain = analysis.cycle(pods), untuned.cycle(pods)
    assert "known parameters" in plain.variants[0].basis
    assert tuned.variants[0].basis == "learned from 4 observations, error 1%"
    assert tuned.capacity.variants[0].basis is CapacityBasis.OBSERVED


def test_parameters_that_are_not_firm_grow_but_do_not_shrink():
    """One observation is enough to grow on."""
    analysis = Analysis(Policy(service_targets=(replace(PREMIUM, ttft_milliseconds=2000, itl_milliseconds=80),)))
    calm = {variant(replicas=4): [pod(number=n) for n in range(4)]}
    analysis.cycle(calm)
    opinion = analysis.cycle(calm)
    assert opinion.variants[0].desired == 4
    assert opinion.objection == "the parameters of a are not firm yet"
    busy = {variant(replicas=4): [pod(number=n, waiting=20000) for n in range(4)]}
    assert analysis.cycle(busy).variants[0].desired > 4


@pytest.mark.parametrize(
    ("one", "pods"),
    [
        (variant(), [pod(waiting=400)]),
        (variant(replicas=2, current_replicas=2), [pod()]),
        (variant(), [pod(time_to_first_token=None)]),
    ],
    ids=["queue grows", "replica missing", "no latency"],
)
def test_only_a_steady_settled_variant_teaches(one, pods):
    """A growing queue, a starting replica or a missing latency say nothing about the parameters."""
    analysis = Analysis()
    analysis.cycle({variant(): [pod()]})
    analysis.memory = replace(analysis.memory, learned=())
    analysis.cycle({one: pods})
    assert analysis.memory.learned == ()


def test_the_largest_batch_comes_from_the_profile_the_arguments_or_the_default():
    """In this order; an observation carries it."""
    bare = Policy(profiles=(replace(A100, max_batch_size=0),))
    plain, set_up = variant(), variant(parameters=VllmParameters(max_num_seqs=32))
    unset = variant(parameters=VllmParameters(max_num_seqs=0))
    for policy, one, batch in [(KNOWN, plain, 4), (bare, set_up, 32), (bare, plain, 256), (bare, unset, 256)]:
        analysis = Analysis(policy)
        for _ in range(2):
            analysis.cycle({one: [pod()]})
        assert analysis.memory.learned[0].observations[0].batch == batch


def test_what_is_learned_is_kept_per_accelerator_and_gpus():
    """Two variants on one accelerator teach together; more GPUs per replica, or no accelerator, are another thing."""
    analysis = Analysis()
    pods = {
        variant("a"): [pod("a")],
        variant("b"): [pod("b")],
        variant("c", gpus_per_replica=2): [pod("c")],
        variant("d", accelerator=""): [pod("d")],
    }
    for _ in range(2):
        analysis.cycle(pods)
    found = {each.accelerator: len(each.observations) for each in analysis.memory.learned}
    assert found == {"A100": 2, "A100*2": 1, "unknown/d": 1}


def test_fits_take_turns_within_a_budget():
    """Of three kinds whose states fill the budget one is fitted per cycle: the one that waited longest."""
    many = VllmParameters(max_num_seqs=60_000)
    analysis = Analysis(Policy())
    pods = {variant(name, accelerator=name, parameters=many): [pod(name)] for name in "abc"}
    analysis.cycle(pods)
    seen = []
    for _ in range(4):
        analysis.cycle(pods)
        seen.append([each.estimate.fitted if each.estimate else None for each in analysis.memory.learned])
    first, second, third, fourth = (NOW + 60 * cycle for cycle in range(2, 6))
    assert seen == [[first, None, None], [first, second, None], [first, second, third], [fourth, second, third]]


def test_observations_and_estimates_grow_old():
    """After an hour only the last observation is left, after a week nothing; the window has sixteen places."""
    seen = [Observation(NOW + n, 1, 100, 100, 50, 20, 8) for n in range(20)]
    learned = Learned(KEY, "A100").observing(seen, now=NOW + 20)
    assert [each.time for each in learned.observations] == [NOW + n for n in range(4, 20)]
    assert len(learned.observing([], now=NOW + 7200).observations) == 1
    memory = QueueingMemory((Backlog(KEY, NOW, 3),), (learned, Learned(KEY, "B", (), Estimate(1, 1, 1))))
    assert memory.updated([], [], now=NOW + 8 * 86400) == QueueingMemory()


def test_the_dear_variant_shrinks_and_the_cheap_one_grows():
    """Cost per request decides who moves."""
    analysis = Analysis()
    cheap, dear = variant("a", replicas=3, cost=10.0), variant("b", replicas=3, cost=90.0)
    calm = {cheap: [pod("a", n) for n in range(3)], dear: [pod("b", n) for n in range(3)]}
    analysis.cycle(calm)
    assert [one.desired for one in analysis.cycle(calm).variants] == [2, 1]
    busy = {cheap: [pod("a", n, success_rate=1.0) for n in range(3)], dear: [pod("b", n) for n in range(3)]}
    assert [one.desired for one in analysis.cycle(busy).variants] == [4, 3]


def test_a_variant_at_zero_may_grow_but_needs_no_replica():
    """It takes part when the scaler lets it: cheaper than its sibling it grows first, and idle it stays at zero."""
    asleep = variant("b", replicas=0, accelerator="H100", cost=10.0, minimum=0)
    analysis = Analysis()
    opinion = analysis.cycle({variant("a", cost=40.0): [pod("a", success_rate=5.0)], asleep: []})
    assert [one.desired for one in opinion.variants] == [1, 1]
    assert opinion.capacity.variants[1].ready == 0
    analysis = Analysis()
    for _ in range(2):
        opinion = analysis.cycle({variant("a", replicas=2): [pod("a"), pod("a", 1)], asleep: []})
    assert [one.desired for one in opinion.variants] == [1, 0]


def test_the_order_of_listing_changes_nothing():
    """Variants are sorted before anything is added up."""
    a, b = variant("a"), variant("b", accelerator="H100")
    first = Analysis().cycle({a: [pod("a")], b: [pod("b", success_rate=3.0)]})
    assert Analysis().cycle({b: [pod("b", success_rate=3.0)], a: [pod("a")]}) == first


def test_trace_of_all_models():
    """One line per variant with what it would do, then the cards; a variant without opinion says why."""
    opinions = [
        Analysis().cycle({variant("a", cost=40.0): [pod(success_rate=40 / 60)]}),
        Analysis(Policy()).cycle({variant("b"): [pod("b")]}),
    ]
    lines = fleet_trace(opinions, Inventory.of([AcceleratorPool("A100", 8, 1)]))
    assert lines[0].startswith("s=a:ns; c=Premium; m=m; rate=40; tk=178; sol=1, sat=false, alloc={acc=A100; num=2; ")
    assert "maxBatch=4; cost=80, val=40, servTime=21.49" in lines[0]
    assert lines[0].endswith("slo-itl=24, slo-ttft=500, slo-tps=0")
    assert lines[1].startswith("s=b:ns; c=-; m=m; rate=0; tk=178; sol=0, no allocation (no performance parameters")
    assert lines[2:] == ("AllocationByType:", "name=A100, count=2, limit=8, cost=80", "totalCost=80")
    assert "limit=0" in fleet_trace(opinions, None)[3]


def test_the_trace_counts_the_candidates_of_the_solver():
    """Two while it chooses which variant grows, one while nothing is missing."""
    pair = {
        variant("a", cost=40.0): [pod("a", success_rate=6.0)],
        variant("b", accelerator="H100", cost=60.0): [pod("b", success_rate=9.0)],
    }
    steady = {each: [pod(each.key.name)] for each in pair}
    for load, candidates in ((pair, 2), (steady, 1)):
        lines = fleet_trace([Analysis().cycle(load)], None)
        assert [f"; sol={candidates}, " in line for line in lines[:2]] == [True, True]


def test_no_models_are_no_opinions():
    """An empty fleet has nothing to say."""
    from wva.decide.analyze.queueing import analyze_queueing  # noqa: PLC0415 - the door itself

    assert analyze_queueing([], policy=Policy(), memory=QueueingMemory(), now=NOW) == ((), QueueingMemory())


def test_a_multiplier_derives_looser_targets():
    """A multiplier of 5 derives longer latencies than 3."""
    loose = QueueingRules(QueueingPolicy(slo_multiplier=5.0))
    profile = PerformanceProfile(20.58, 0.41, 5.2, 0.1, 4, model_id=MODEL, accelerator="A100")
    found = Analysis(Policy(queueing=loose, profiles=(profile,))).cycle({variant(): [pod()]})
    assert found.itl_milliseconds == pytest.approx(5 * 20.58 + 0.41)
