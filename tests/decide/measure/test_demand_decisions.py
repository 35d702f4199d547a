"""Decisions of the demand analyzer when scrapes are lost and pods are new."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import NOW, variant
from tests.decide.measure.pods import PodsOfModel, ReportingPod, fresh
from tests.timing import times_as_long
from wva.decide.pipeline import decide
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.model.vllm_parameters import VllmParameters

POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))


def told(pod: ReportingPod, *, silent: bool) -> ReplicaMetrics:
    """Return what WVA knows of a pod; if its scrape was lost, only that it is Ready."""
    known = pod.told(silent=silent)
    return known if silent else replace(known, kv_usage=fresh(0.1), queue_length=fresh(0.0))


def cycle(model: PodsOfModel, memory: Memory, silent: set[int]) -> tuple[Decision, Memory]:
    """Decide on the pods of a model, some of which are silent."""
    replicas = [told(pod, silent=place in silent) for place, pod in enumerate(model.pods)]
    one = replace(variant("a", replicas=len(model.pods)), parameters=VllmParameters())
    (decision,), memory = decide(Snapshot.of([one], replicas), memory, POLICY, model.now)
    return decision, memory


def test_lost_scrapes_keep_no_replicas() -> None:
    """In each cycle one pod of ten misses a scrape. WVA counts it as before, and the model shrinks."""
    model, memory, desired = PodsOfModel([ReportingPod(f"a-{place}") for place in range(10)]), Memory(), 10
    for turn in range(60):
        model.serve(4.0)
        decision, memory = cycle(model, memory, {turn % 10})
        desired = min(desired, decision.desired)
    assert desired < 6


def test_a_cycle_in_which_no_pod_tells_forgets_nothing() -> None:
    """What WVA foresees of a model continues from the cycle before."""
    model, memory = PodsOfModel(), Memory()
    for _ in range(20):
        model.serve(4.0)
        _, memory = cycle(model, memory, set())
    model.serve(4.0)
    _, later = cycle(model, memory, {0, 1})
    assert later.foreseen == memory.foreseen
    assert later.foreseen[0].begun is not None


def lying(model: PodsOfModel, memory: Memory, lie: Mapping[str, float]) -> tuple[Decision, Memory]:
    """Decide on the pods of a model; the first one also reports something untrue."""
    known = told(model.pods[0], silent=False)
    assert known.engine is not None
    assert known.counters is not None
    gauges = {name: fresh(value) for name, value in lie.items() if name in EngineSignals.__struct_fields__}
    counts = {name: value for name, value in lie.items() if name in EngineCounters.__struct_fields__}
    liar = replace(known, engine=replace(known.engine, **gauges), counters=replace(known.counters, **counts))
    replicas = [liar, *[told(pod, silent=False) for pod in model.pods[1:]]]
    one = replace(variant("a", replicas=len(model.pods)), parameters=VllmParameters())
    (decision,), memory = decide(Snapshot.of([one], replicas), memory, POLICY, model.now)
    return decision, memory


@pytest.mark.parametrize(
    "lie", [{"finished": 1e14}, {"running": 1e15}, {"waiting": 1e15}, {"finished": 1e14, "waiting": 1e15}], ids=str
)
def test_one_scrape_that_is_not_true_costs_a_known_number_and_is_forgotten(lie: dict[str, float]) -> None:
    """The number is 16 times what serves at most; a few minutes later the demand is the true one again."""
    model, memory = PodsOfModel(), Memory()
    for _ in range(20):
        model.serve(8.0)
        _, memory = cycle(model, memory, set())
    model.serve(8.0)
    decision, memory = lying(model, memory, lie)
    assert 2 < decision.desired <= 32
    for _ in range(12):
        model.serve(8.0)
        _, memory = cycle(model, memory, set())
    assert memory.demand[0].owed == 0.0
    assert memory.foreseen[0].slots[-1].amount == pytest.approx(8.0 * 15.0)


@pytest.mark.parametrize("lie", [{"aborted": 1e14}, {"at": NOW + 1e9}], ids=str)
def test_counters_that_cannot_be_count_as_a_lost_scrape(lie: dict[str, float]) -> None:
    """More aborts than ends cannot be true, nor can a scrape that is yet to come."""
    model, memory, honest = PodsOfModel(), Memory(), 0
    for turn in range(30):
        model.serve(8.0)
        before = memory.demand
        decision, memory = (
            cycle(model, memory, set()) if turn < 25 else lying(model, memory, {**lie, "at": lie.get("at", model.now)})
        )
        assert turn < 2 or before[0].at < memory.demand[0].at
        honest = decision.desired if turn < 25 else honest
        assert decision.desired == honest
    assert memory.foreseen[0].slots[-1].amount == pytest.approx(8.0 * 15.0, rel=0.1)


def test_a_pod_that_lies_of_its_cache_does_not_speak_for_the_others() -> None:
    """The capacity of a replica is that of most pods, or the smaller one of two."""
    model, memory = PodsOfModel([ReportingPod("a-0"), ReportingPod("a-1"), ReportingPod("a-2")]), Memory()
    for _ in range(20):
        model.serve(8.0)
        honest, memory = cycle(model, memory, set())
    model.serve(8.0)
    for size in (1.0, 1e15):
        assert lying(model, memory, {"kv_capacity_tokens": size})[0].desired == honest.desired


def test_a_pod_that_never_starts_tells_nothing_of_starts() -> None:
    """One pod has been crashing for three days; WVA orders and removes what it would without that pod."""
    model, memory, others = PodsOfModel(), Memory(), Memory()
    for rate in [4.0] * 20 + [0.5] * 30:
        model.serve(rate)
        replicas = [told(pod, silent=False) for pod in model.pods]
        one = replace(variant("a", replicas=2), parameters=VllmParameters())
        ill = replace(one, oldest_unready_since=NOW - 3 * 86400.0)
        (decision,), memory = decide(Snapshot.of([one], replicas), memory, POLICY, model.now)
        (crashing,), others = decide(Snapshot.of([ill], replicas), others, POLICY, model.now)
        assert crashing.desired == decision.desired
    assert decision.desired == 1


def test_a_model_without_counters_says_so_with_the_cause() -> None:
    """The percentage analyzer decides, and the decision says why."""
    silent = [
        replace(told(pod, silent=True), kv_usage=fresh(0.1), queue_length=fresh(0.0)) for pod in PodsOfModel().pods
    ]
    silent[1] = replace(silent[1], counters_detail="no counter finished")
    (decision,), _ = decide(Snapshot.of([variant("a", replicas=2)], silent), Memory(), POLICY, NOW)
    assert "demand is not known: no Ready pod tells anything (a-1: no counter finished)" in decision.steps[0].reason


@pytest.mark.long_story
def test_many_models_without_counters_cost_no_more_each() -> None:
    """WVA puts the memory of the percentage analyzer together only once."""

    def first_cycle(count: int) -> object:
        models = [replace(variant(f"v{number}"), model=ModelKey("ns", f"m{number}")) for number in range(count)]
        pods = [ReplicaMetrics(f"{one.key.name}-0", one.key, fresh(0.3), fresh(0.0)) for one in models]
        snapshot = Snapshot.of(models, pods)
        _, memory = decide(snapshot, Memory(), POLICY, NOW)
        return decide(snapshot, memory, POLICY, NOW + 15.0)

    assert times_as_long(lambda: first_cycle(800), lambda: first_cycle(100)) < 20


def test_a_pod_that_is_long_ready_is_not_new() -> None:
    """While another pod starts, WVA does not take an old pod that misses a scrape for a new one."""
    model = PodsOfModel([ReportingPod("a-0"), ReportingPod("a-1"), ReportingPod("a-2", ready_since=NOW + 300.0)])
    model.serve(4.0, 310.0)
    replicas = [told(pod, silent=place != 1) for place, pod in enumerate(model.pods)]
    one = replace(variant("a", replicas=3, desired=3, settling_since=model.now - 60.0), parameters=VllmParameters())
    (decision,), _ = decide(Snapshot.of([one], replicas), Memory(), Policy(), model.now)
    assert decision.reason is Reason.METRICS_INCOMPLETE
    assert "a-0: KV usage missing" in decision.message


def test_nothing_shrinks_in_the_first_cycle() -> None:
    """A controller that starts anew remembers no demand, so a lull of one cycle takes no replica away."""
    model = PodsOfModel([ReportingPod(f"a-{place}") for place in range(6)])
    model.serve(4.0)
    decision, memory = cycle(model, Memory(), set())
    assert (decision.desired, decision.reason) == (6, Reason.SHRINK_UNSAFE)
    assert decision.message == "nothing shrinks in the first cycle"
    model.serve(4.0)
    assert cycle(model, memory, set())[0].desired == 6  # and until the demand has been seen for a while
