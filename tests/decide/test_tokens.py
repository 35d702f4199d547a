"""The token analyzer: capacity, demand, the required and the spare capacity, and when it gives no answer."""

from __future__ import annotations

import pytest

from tests.builders import INVALID, NOW, stale, variant
from tests.decide.tokens import MODEL, analyzed, capacity, long_known, pod, report
from wva.decide.measure.tokens import FIRM_OBSERVATIONS, RELEARNING_SECONDS
from wva.model.decision import Reason
from wva.model.memory import (
    CapacityBasis,
    CapacityMemory,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedCapacity,
    LearnedFrom,
    LengthBucket,
    VariantMemory,
)
from wva.model.variant import VariantKey
from wva.model.vllm_parameters import VllmParameters

SHORT = EngineKind("A100", 1, 1, LengthBucket.SHORT)


def history(*values: int, kind: EngineKind = SHORT) -> K2History:
    """Return a history of k2 that was added to a minute ago."""
    return K2History(kind, values, NOW - 60)


def test_memory_bounds_a_replica_that_does_not_queue():
    """16,000 tokens at a threshold of 0.8 are 12,800; 8,000 are in use."""
    found = capacity(report(pod(kv=0.5)))
    (only,) = found.variants
    assert (only.per_replica, only.basis) == (12_800, CapacityBasis.KV_CACHE)
    assert (found.supply, found.demand, found.utilization) == (12_800, 8_000, 0.625)
    assert (found.required, found.objection) == (0, "")
    assert found.spare == pytest.approx(12_800 - 8_000 / 0.7)
    assert found.summary == "1 of 1 replica judged, demand 8000 tokens of 12800 (utilization 0.625)"


def test_a_model_grows_above_the_upper_threshold():
    """The model gets at once all the capacity that its demand needs at U, beyond the supply."""
    pods = [pod(f"a-{number}", kv=0.79) for number in range(10)]
    found = capacity(report(*pods))
    assert found.required == pytest.approx(126_400 / 0.85 - 128_000)
    assert (found.spare, found.most_added) == (0, None)


def test_between_the_thresholds_nothing_happens():
    """A utilization of 0.78 is above D and below U."""
    found = capacity(report(pod(kv=0.625)))
    assert (found.required, found.spare) == (0, 0)


def test_waiting_requests_are_charged_their_prompt_and_their_answer():
    """Four requests of 100 + 50 tokens wait."""
    assert capacity(report(pod(kv=0.5, queue=4))).demand == 8_000 + 4 * 150


def test_what_the_prefix_cache_holds_is_not_charged_again():
    """Half of each prompt is in the cache already."""
    assert capacity(report(pod(kv=0.5, queue=4, prefix_hit_rate=0.5))).demand == 8_000 + 4 * 100


def test_growth_looks_at_now_and_a_shrink_at_the_peak_of_the_minute():
    """WVA must not add replicas twice for a peak, and must not remove new ones at once."""
    relieved = pod(kv=0.75, queue=4, kv_usage=0.25, waiting=0)
    found = capacity(report(relieved))
    assert found.demand == 4_000
    assert found.required == 0
    assert found.spare == 0
    assert capacity(report(pod(kv=0.25))).spare > 0


def test_the_peak_of_a_shrink_includes_the_queue_there_was():
    """Four requests have waited within the last minute; none waits now."""
    found = capacity(report(pod(kv=0.3, queue=4, kv_usage=0.3, waiting=0)))
    assert found.spare == pytest.approx(12_800 - (4_800 + 600) / 0.7)


def test_engines_of_one_pod_are_counted_together():
    """The queues of all engines count, but the fullest engine decides whether computation is the bound."""
    found = capacity(report(pod(kv=0.5, queue=4, waiting=7, kv_usage=0.3)))
    assert found.demand == pytest.approx(4_800 + 7 * 150)


def test_a_queueing_replica_teaches_k2():
    """While requests queue, the tokens in use are all that the engine can hold."""
    found, learned = analyzed(report(pod(kv=0.5, queue=5)))
    (only,) = found.variants
    assert (only.per_replica, only.basis) == (8_000, CapacityBasis.OBSERVED)
    assert learned.histories == (K2History(SHORT, (8_000,), NOW),)


def test_k2_is_remembered_when_the_queue_has_gone():
    """The mean of the k2 values that WVA has seen bounds the replica."""
    found = capacity(report(pod(kv=0.3)), learned=long_known(histories=(history(6_000, 8_000),)))
    (only,) = found.variants
    assert (only.per_replica, only.basis) == (7_000, CapacityBasis.HISTORY)


def test_only_the_last_ten_values_count():
    """WVA drops the oldest value."""
    _, learned = analyzed(report(pod(kv=0.5, queue=9)), learned=long_known(histories=(history(*range(100, 110)),)))
    assert learned.histories[0].values == (*range(101, 110), 8_000)


def test_k2_of_short_answers_says_nothing_of_long_ones():
    """How many tokens an engine holds depends on how much of a request is decoding."""
    found = capacity(report(pod(kv=0.3, request=(100, 600))), learned=long_known(histories=(history(6_000),)))
    assert found.variants[0].basis is CapacityBasis.KV_CACHE


def test_while_the_length_of_answers_is_unknown_the_smallest_k2_counts():
    """No request has finished lately, so the bucket is unknown; the k2 of another engine does not matter."""
    histories = (
        history(9_000),
        history(5_000, kind=EngineKind("A100", 1, 1, LengthBucket.LONG)),
        history(1_000, kind=EngineKind("A100", 2, 1, LengthBucket.LONG)),
    )
    found = capacity(report(pod(kv=0.1, request=None)), learned=long_known(histories=histories))
    assert found.variants[0].per_replica == 5_000
    assert capacity(report(pod(kv=0.1, request=None))).variants[0].per_replica == 12_800


def test_the_arguments_of_vllm_stand_in_for_a_k2_never_seen():
    """64 sequences of 100 + 50/2 tokens at a time."""
    parameters = VllmParameters(max_num_seqs=64)
    given = variant(replicas=1, parameters=parameters)
    found, learned = analyzed(report(pod(kv=0.3), variant=given))
    (only,) = found.variants
    assert (only.per_replica, only.basis) == (64 * 125, CapacityBasis.DERIVED)
    assert learned.records[0].parameters == parameters


def test_a_variant_at_zero_is_judged_by_what_it_carried():
    """WVA uses the live record as it is."""
    _, learned = analyzed(report(pod(kv=0.5)))
    found = capacity(report(pod("b-0", kv=0.5)), report(replicas=0), learned=learned)
    idle = found.variants[0]
    assert (idle.key.name, idle.ready, idle.per_replica, idle.basis) == ("a", 0, 12_800, CapacityBasis.RECORD)


def test_a_variant_never_seen_is_judged_by_its_deployment():
    """Derived from arguments and the model's workload, bounded by its own memory and by a live sibling alike."""
    for parameters, expected, basis in (
        (VllmParameters(), 256 * 125, CapacityBasis.DERIVED),
        (VllmParameters(num_gpu_blocks_override=1000), 12_800, CapacityBasis.KV_CACHE),
    ):
        given = variant("b", replicas=0, parameters=parameters)
        found = capacity(report(pod(kv=0.5)), report(variant=given))
        assert (found.variants[1].per_replica, found.variants[1].basis) == (expected, basis)
    both = VllmParameters()
    live, at_zero = variant("a", replicas=1, parameters=both), variant("b", replicas=0, parameters=both)
    found = capacity(report(pod(kv=0.5), variant=live), report(variant=at_zero))
    assert (found.variants[1].per_replica, found.variants[1].basis) == (12_800, CapacityBasis.BORROWED)


def test_of_a_variant_that_nobody_knows_nothing_is_made_up():
    """The variant was neither seen nor described: its capacity is 0, and no optimizer picks it."""
    found = capacity(report(pod("b-0", kv=0.5)), report(replicas=0))
    assert (found.variants[0].per_replica, found.variants[0].basis) == (0, CapacityBasis.UNKNOWN)


def test_a_record_without_capacity_borrows_from_a_sibling_with_the_same_engine():
    """Such a record comes from an engine whose arguments give no capacity."""
    record = CapacityRecord(VariantKey("ns", "b"), "A100", 1, 0, 0, LearnedFrom.LIVE, NOW, VllmParameters())
    given = variant("b", replicas=0, parameters=VllmParameters())
    live = variant("a", replicas=1, parameters=VllmParameters())
    found = capacity(report(pod(kv=0.5), variant=live), report(variant=given), learned=long_known(records=(record,)))
    assert (found.variants[1].per_replica, found.variants[1].basis) == (12_800, CapacityBasis.BORROWED)


def test_the_scheduler_queue_is_demand():
    """The larger guess at the prompts, and the answers."""
    assert capacity(report(pod(kv=0.5)), queue=(10, 8_000)).demand == 8_000 + 2_000 + 500
    assert capacity(report(pod(kv=0.5)), queue=(10, 400)).demand == 8_000 + 1_000 + 500
    assert capacity(report(pod(kv=0.5)), queue=(None, None)).demand == 8_000


def test_a_scheduler_queue_of_unknown_length_never_permits_a_shrink():
    """The bytes tell something about the prompts, but nothing about the answers."""
    idle = report(pod(kv=0.1, request=None))
    found = capacity(idle, queue=(10, 400))
    assert found.demand == 1_600 + 100
    assert found.objection == "the length of the requests in the scheduler's queue is not known"
    assert capacity(idle, queue=(stale(3), 400)).objection == "the scheduler's queue is stale (120 s old)"
    assert capacity(idle, queue=(None, 400)).objection == "the scheduler's queue is missing"
    assert capacity(idle, queue=(0, 0)).spare > 0


def test_a_scheduler_queue_without_any_replica_asks_for_some():
    """Requests wait, and no replica serves."""
    learned = analyzed(report(pod(kv=0.5)))[1]
    found = capacity(report(replicas=0), queue=(10, 40_000), learned=learned)
    assert found.hold is None
    assert found.required == pytest.approx(10_000 / 0.85)
    assert found.utilization == 0
    assert found.summary == "0 of 0 replicas judged, demand 10000 tokens, no supply"


def test_replicas_on_their_way_are_supply_to_come_but_nothing_to_spare():
    """One replica is overloaded and one is starting, which is enough; meanwhile no replica goes."""
    found = capacity(report(pod(kv=0.8), replicas=2, desired=2))
    assert (found.variants[0].ready, found.variants[0].pending) == (1, 1)
    assert (found.supply, found.anticipated, found.required) == (12_800, 25_600, 0)
    assert found.objection == "replicas are on their way"


def test_replicas_that_do_not_come_are_no_supply():
    """After the deadline only the Ready replicas count for the demand; the others no longer block a shrink."""
    late = VariantMemory(VariantKey("ns", "a"), 2, NOW - 601, 1)
    found = capacity(report(pod(kv=0.8), replicas=2, entry=late))
    assert found.required > 0
    assert capacity(report(pod(kv=0.1), replicas=2, entry=late)).objection == ""


def test_more_ready_pods_than_replicas_never_permit_a_shrink():
    """The caches disagree, also after the deadline, so WVA does not know how many replicas exist."""
    late = VariantMemory(VariantKey("ns", "a"), 1, NOW - 601, 1)
    found = capacity(report(pod("a-0", kv=0.1), pod("a-1", kv=0.1), replicas=1, entry=late))
    assert (found.spare, found.objection) == (0, "replicas are on their way")


def test_a_replica_without_a_node_is_no_supply_to_come_and_permits_no_shrink():
    """Until the deadline the scheduler may still find a node."""
    found = capacity(report(pod(kv=0.1), replicas=2, unschedulable_pods=1))
    assert (found.variants[0].pending, found.spare) == (0, 0)


def test_growth_waits_for_replicas_of_which_nobody_knows_what_they_carry():
    """The starting replicas may be enough; the deadline bounds the wait."""
    busy = report(pod("b-0", kv=0.8))
    assert capacity(busy, report(replicas=1)).required == 0
    late = VariantMemory(VariantKey("ns", "a"), 1, NOW - 601, 0)
    assert capacity(busy, report(replicas=1, entry=late)).required > 0


def test_a_replica_that_cannot_be_judged_is_as_busy_as_the_others():
    """The replica gets the mean of its variant; in a variant without any reading it gets the mean of the model."""
    found = capacity(report(pod("a-0", kv=0.5), pod("a-1", kv=None)), report(pod("b-0", kv=None)))
    assert [one.demand for one in found.variants] == [16_000, 8_000]
    assert found.spare == 0
    assert found.objection == "2 of 3 replicas unread; a-1: KV usage missing"


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"queue": stale(1)}, "queue length stale (120 s old)"),
        ({"size": None}, "KV cache size missing"),
        ({"size": INVALID}, "KV cache size invalid ('NaN' is not a number)"),
        ({"size": 0}, "KV cache size 0"),
        ({"kv": 0.0, "size": None}, "KV cache size missing"),
    ],
)
def test_a_gap_in_the_samples_is_named(lacking, words):
    """Each of the three samples is needed to judge a replica."""
    given = report(pod("a-0", kv=0.1), pod("a-1", **{"kv": 0.1, **lacking}))
    assert capacity(given).objection == f"1 of 2 replicas unread; a-1: {words}"


def test_without_a_single_judged_replica_the_number_is_held():
    """WVA knows nothing of the replicas, so it asks for none and removes none."""
    found = capacity(report(pod(size=None)))
    assert found.hold is not None
    assert found.hold.reason is Reason.METRICS_INCOMPLETE
    assert found.hold.message == "none of 1 replica can be judged in tokens; a-0: KV cache size missing"
    assert (found.required, found.spare, found.objection) == (0, 0, found.hold.message)


def test_a_pod_whose_engine_nobody_asked_for_is_not_judged():
    """Samples that another analyzer needs are not enough."""
    bare = pod().__class__("a-0", VariantKey("ns", "a"), pod().kv_usage, pod().queue_length)
    assert capacity(report(bare)).hold is not None


@pytest.mark.parametrize(
    ("given", "failure", "reason"),
    [
        (report(pod()), "connection refused", Reason.PROMETHEUS_ERROR),
        (report(replicas=0), None, Reason.NO_READY_REPLICAS),
        (report(pod(kv=None, queue=None)), None, Reason.METRICS_MISSING),
    ],
)
def test_what_holds_the_percentage_analyzer_holds_this_one(given, failure, reason):
    """A failed collection, no replica, or no sample."""
    found = capacity(given, failure=failure)
    assert found.hold is not None
    assert found.hold.reason is reason


def test_a_failed_collection_holds_whatever_waits():
    """The scheduler's queue comes from the same source."""
    assert capacity(report(replicas=0), failure="refused", queue=(10, 4_000)).hold is not None


def test_requests_of_unknown_length_never_permit_a_shrink():
    """Requests wait, and none has finished yet."""
    found = capacity(report(pod(kv=0.1, queue=2, request=None)))
    assert (found.spare, found.objection) == (0, "the length of the waiting requests is not known")


def test_the_model_lends_its_mean_request_to_a_replica_that_finished_none():
    """All replicas of the model get requests of the same model."""
    found = capacity(report(pod("a-0", kv=0.1), pod("a-1", kv=0.1, queue=2, request=None)))
    assert found.demand == 3_200 + 2 * 150
    assert found.objection == ""


@pytest.mark.parametrize("lacking", ["prompt", "answer"])
def test_half_a_mean_request_is_none(lacking):
    """The analyzer uses the mean lengths only if it has both."""
    request = (None, 50) if lacking == "prompt" else (100, None)
    found = capacity(report(pod(kv=0.1, queue=2, request=request)))
    assert found.demand == 1_600


def test_a_process_that_has_just_begun_shrinks_nothing():
    """The process does not have the k2 of its predecessor."""
    found, learned = analyzed(report(pod(kv=0.1)), learned=LearnedCapacity(MODEL, NOW))
    assert found.spare == 0
    assert found.objection == "capacity is being learned again; nothing shrinks for 300 s"
    later = NOW + RELEARNING_SECONDS
    assert capacity(report(pod(kv=0.1)), learned=learned, now=later - 1).spare == 0
    assert capacity(report(pod(kv=0.1)), learned=learned, now=later).spare > 0


def test_a_process_that_has_just_begun_grows_by_one_replica_at_a_time():
    """However much seems to be missing, the process asks for one replica of the smallest variant."""
    flooded = [pod(f"a-{number}", kv=0.8, queue=400) for number in range(3)]
    found = capacity(report(*flooded), learned=LearnedCapacity(MODEL, NOW))
    assert (found.required, found.most_added) == (12_800, 1)
    assert capacity(report(*flooded), learned=long_known(histories=(history(*[12_800] * 5),))).required > 12_800


def test_a_variant_at_zero_does_not_keep_a_process_that_has_just_begun_from_growing():
    """A variant at zero serves nothing, so the process misses no reading of it."""
    full = [pod(f"b-{number}", kv=0.8, queue=400) for number in range(3)]
    assert capacity(report(*full), report(replicas=0), learned=LearnedCapacity(MODEL, NOW)).required > 0


def test_a_process_that_has_just_begun_does_not_estimate():
    """The predecessor saw more than the arguments say."""
    given = variant(replicas=1, parameters=VllmParameters(max_num_seqs=8))
    found = capacity(report(pod(kv=0.5), variant=given), learned=LearnedCapacity(MODEL, NOW))
    assert (found.required, found.variants[0].basis) == (0, CapacityBasis.KV_CACHE)


def test_a_process_that_has_just_begun_waits_for_variants_it_has_not_seen():
    """A variant without readings might carry anything."""
    found = capacity(
        report(pod("b-0", kv=0.8)), report(pod("a-0", kv=None, queue=1)), learned=LearnedCapacity(MODEL, NOW)
    )
    assert found.required == 0


def test_a_k2_seen_too_seldom_moves_one_replica_at_a_time():
    """One flood of requests proves nothing; the third is enough."""
    flooded = report(pod("a-0", kv=0.1, queue=100), pod("a-1", kv=0.1, queue=100))
    learned = long_known()
    limits = []
    for _ in range(FIRM_OBSERVATIONS):
        found, learned = analyzed(flooded, learned=learned)
        limits.append((found.most_added, found.required <= 1_600))
    assert limits == [(1, True), (1, True), (None, False)]


def test_what_was_never_seen_to_queue_is_given_back_one_by_one():
    """Memory is only an upper bound of what a replica carries."""
    idle = report(*(pod(f"a-{number}", kv=0.1) for number in range(5)))
    assert capacity(idle).most_removed == 1
    assert capacity(idle, learned=long_known(histories=(history(9_000, 9_000),))).most_removed == 1


def test_at_most_half_of_the_replicas_go_at_once():
    """Fewer replicas hold each request for longer, so the present load does not show how few are enough."""
    learned = long_known(histories=(history(9_000, 9_000, 9_000),))
    limits = [
        capacity(report(*(pod(f"a-{number}", kv=0.1) for number in range(count))), learned=learned).most_removed
        for count in (1, 2, 5, 8)
    ]
    assert limits == [1, 1, 2, 4]


def test_a_queue_that_has_piled_up_is_not_answered_all_at_once():
    """For growth the queue counts as no more than the load that replicas hold; the reported demand has all of it."""
    learned = long_known(histories=(history(12_800, 12_800, 12_800),))
    some, many = (
        capacity(report(pod(kv=0.8, queue=waiting)), queue=outside, learned=learned)
        for waiting, outside in ((85, (0, 0)), (1_000, (1_000, 0)))
    )
    assert some.required == pytest.approx((12_800 + 85 * 150) / 0.85 - 12_800)
    assert many.required == pytest.approx(2 * 12_800 / 0.85 - 12_800)
    assert many.demand == 12_800 + 2_000 * 150


def test_a_queue_that_gets_shorter_asks_for_nothing():
    """Below nine tenths of the last minute's peak, replicas reduce the queue; the scheduler's queue has no peak."""
    learned = long_known(histories=(history(12_800, 12_800, 12_800),))
    shorter, as_long = (
        capacity(report(pod(kv=0.8, queue=100, waiting=now, kv_usage=0.5)), learned=learned) for now in (89, 90)
    )
    assert (shorter.required, as_long.required > 0) == (0, True)
    outside = capacity(report(pod(kv=0.8, queue=100, waiting=0, kv_usage=0.5)), queue=(100, 0), learned=learned)
    assert outside.required == pytest.approx(2 * 8_000 / 0.85 - 12_800)


def test_where_nothing_is_held_all_that_waits_counts():
    """A replica that has just started holds nothing yet."""
    found = capacity(report(pod(kv=0.0, queue=100)))
    assert found.required == pytest.approx(15_000 / 0.85 - 12_800)


def test_before_any_replica_serves_those_on_their_way_have_to_do():
    """The queue grows while the starting replicas load."""
    learned = analyzed(report(pod(kv=0.5)))[1]
    found = capacity(report(replicas=1), queue=(10_000, 4_000_000), learned=learned)
    assert found.hold is None
    assert (found.demand, found.required) == (1_000_000, 0)


def test_thresholds_of_zero_turn_their_half_off():
    """The recorded cases do the same."""
    found = capacity(report(pod(kv=0.9)), scale_up_threshold=0.0, scale_down_boundary=0.0)
    assert (found.required, found.spare) == (0, 0)


def test_capacity_of_a_variant_without_supply_is_not_divided_by():
    """Without supply the utilization is 0."""
    found = capacity(report(pod("b-0", kv=0.4)), report(replicas=0))
    assert [one.utilization for one in found.variants] == [0, 0.5]


def test_what_is_too_old_is_forgotten():
    """WVA forgets histories after a day and records after a week, also of models that have gone."""
    day, record = 86_400.0, CapacityRecord(VariantKey("ns", "z"), "A100", 1, 0, 9, LearnedFrom.LIVE, NOW)
    learned = LearnedCapacity(MODEL, NOW, (record,), (K2History(SHORT, (1,), NOW),))
    kept = [
        CapacityMemory((learned,)).updated([], now=NOW + age).of(MODEL) for age in (day, day + 1, 7 * day, 7 * day + 1)
    ]
    assert [None if one is None else (len(one.records), len(one.histories)) for one in kept] == [
        (1, 1),
        (1, 0),
        (1, 0),
        None,
    ]
    _, found = analyzed(report(pod(kv=0.3)), learned=learned, now=NOW + 8 * day)
    assert [one.variant.name for one in found.records] == ["a"]
    assert found.histories == ()


def test_a_model_that_is_analysed_keeps_its_start_without_anything_learned():
    """Without its start time the model would count as new in every cycle."""
    memory = CapacityMemory().updated([LearnedCapacity(MODEL, NOW)], now=NOW)
    assert memory.of(MODEL) == LearnedCapacity(MODEL, NOW)
    assert K2History(SHORT, (), NOW).mean == 0
