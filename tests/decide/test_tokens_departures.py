"""Where the token analyzer differs from v0.5.1 (docs/token-analyzer.md#departures-from-the-original), one test each."""

from __future__ import annotations

from tests.builders import NOW, variant
from tests.decide.tokens import analyzed, capacity, long_known, pod, report
from wva.decide.measure.tokens import compatible_sibling
from wva.decide.pipeline import decide
from wva.model.memory import (
    CapacityBasis,
    CapacityMemory,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedFrom,
    LengthBucket,
    Memory,
)
from wva.model.policy import Analyzer, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey
from wva.model.vllm_parameters import VllmParameters

SHORT = EngineKind("A100", 1, 1, LengthBucket.SHORT)


def record(name: str, **fields) -> CapacityRecord:
    """Return a live record with known parameters."""
    known = CapacityRecord(VariantKey("ns", name), "A100", 1, 16_000, 9_000, LearnedFrom.LIVE, NOW, VllmParameters())
    return replace(known, **fields)


def test_a_fractional_queue_threshold_is_not_truncated():
    """A queue of 5 is below 5.9: nothing is observed."""
    given = report(pod(kv=0.5, queue=5))
    assert analyzed(given, queue_length_threshold=5.9)[1].histories == ()
    assert analyzed(given, queue_length_threshold=5.0)[1].histories != ()


def test_an_empty_variant_has_its_own_cost_and_accelerator():
    """Otherwise it would look like the cheapest variant, and grow instead of the busy one."""
    engines = VllmParameters()
    empty = variant("a", replicas=0, minimum=0, cost=40.0, parameters=engines)
    seen = Snapshot.of([empty, variant("b", cost=10.0, parameters=engines)], [pod("b-0", kv=0.79)])
    policy = Policy(SaturationPolicy(analyzer_name=Analyzer.TOKENS))
    decisions, _ = decide(seen, Memory(capacity=CapacityMemory((long_known(),))), policy, NOW)
    found = [(one.desired, one.cost, one.accelerator) for one in decisions]
    assert found == [(0, 40.0, "A100"), (2, 10.0, "A100")]


def test_engines_with_another_limit_of_sequences_are_not_compatible():
    """The limit changes how much an engine carries."""
    assert VllmParameters().compatible(VllmParameters())
    assert not VllmParameters().compatible(VllmParameters(max_num_seqs=8))


def test_k2_is_kept_apart_by_gpus_and_tensor_parallelism():
    """An engine on two GPUs carries another amount."""
    past = K2History(SHORT, (4_000,) * 3, NOW)
    for given, expected in (
        (variant(replicas=1), 4_000),
        (variant(replicas=1, gpus_per_replica=2), 12_800),
        (variant(replicas=1, parameters=VllmParameters(tensor_parallel_size=2, max_num_seqs=4096)), 12_800),
    ):
        found = capacity(report(pod(kv=0.2), variant=given), learned=long_known(histories=(past,)))
        assert found.variants[0].per_replica == expected


def test_one_odd_pod_does_not_speak_for_all():
    """Of three queueing replicas WVA learns the median, once per cycle."""
    pods = [pod("a-0", kv=0.01, queue=9), pod("a-1", kv=0.6, queue=9), pod("a-2", kv=0.7, queue=9)]
    _, learned = analyzed(report(*pods))
    assert learned.histories[0].values == (9_600,)


def test_a_k2_that_is_too_low_is_corrected():
    """A replica that holds more without queueing disproves the k2, until the mean has followed."""
    learned = long_known(histories=(K2History(SHORT, (1_000,) * 3, NOW),))
    for _ in range(20):
        found, learned = analyzed(report(pod(kv=0.5)), learned=learned)
    assert found.variants[0].per_replica == 8_000
    assert found.variants[0].basis is CapacityBasis.HISTORY


def test_a_compatible_record_is_found_the_same_way_every_time():
    """A live record comes first, then the first by name; records without capacity or of other engines do not count."""
    asking = variant("z", replicas=0, parameters=VllmParameters())
    found = [
        record("d", learned_from=LearnedFrom.DEPLOYMENT),
        record("c"),
        record("b"),
        record("a", effective=0),
        record("aa", parameters=None),
        record("ab", gpus_per_replica=4),
        record("z"),
    ]
    for order in (found, found[::-1]):
        sibling = compatible_sibling(asking, order)
        assert sibling is not None
        assert sibling.variant.name == "b"
    assert compatible_sibling(variant("z", replicas=0), found) is None


def test_a_live_record_takes_over_the_parameters_of_its_deployment():
    """This also holds if the Deployment is read after the replicas have been seen."""
    _, learned = analyzed(report(pod(kv=0.5)))
    assert learned.records[0].parameters is None
    parsed = variant("a", replicas=0, parameters=VllmParameters())
    _, learned = analyzed(report(variant=parsed), report(pod("b-0", kv=0.5)), learned=learned)
    assert learned.records[0].parameters == VllmParameters()
    assert learned.records[0].learned_from is LearnedFrom.LIVE
    unread = variant("a", replicas=1)
    _, learned = analyzed(report(pod(kv=0.5), variant=unread), learned=learned)
    assert learned.records[0].parameters == VllmParameters()


def test_a_record_of_former_engines_is_not_believed():
    """With another accelerator or other arguments, WVA reads the Deployment again."""
    past = long_known(records=(record("a"),))
    other = report(pod("b-0", kv=0.5))
    for given, expected in (
        (variant("a", replicas=0, accelerator="L4"), []),
        (variant("a", replicas=0), [LearnedFrom.LIVE]),
        (variant("a", replicas=0, parameters=VllmParameters(max_num_seqs=8)), [LearnedFrom.DEPLOYMENT]),
    ):
        _, learned = analyzed(report(variant=given), other, learned=past)
        assert [one.learned_from for one in learned.records if one.variant.name == "a"] == expected


def test_waiting_requests_are_charged_their_answers():
    """For requests with long answers, the prompts are a small part of the tokens."""
    assert capacity(report(pod(kv=0.5, queue=2, request=(100, 8_000)))).demand == 8_000 + 2 * 8_100
