"""The demand analyzer: what arrives, and what a replica carries, from what pods report."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wva.decide.measure
from tests.builders import NOW
from tests.decide.measure.pods import (
    ANSWER,
    BASE,
    KV_TOKENS,
    NONE,
    PER_TOKEN,
    PROMPT,
    SLOPE,
    PodsOfModel,
    ReportingPod,
    batch_at,
    fresh,
    kind,
    readings,
)
from wva.decide.measure import measure
from wva.decide.measure.demand import need_of, observed
from wva.decide.measure.need import Need
from wva.model.memory import CapacityBasis, DemandMemory, Memory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics
from wva.model.objectives import DEFAULT_OBJECTIVES, AgreedObjectives, Objectives
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import ModelKey, Variant, VariantKey

MODEL = ModelKey("ns", "m")
NOTHING_REMEMBERED = DemandMemory(MODEL)


PATIENT = Objectives(ttft_seconds=10.0, itl_seconds=1.0)
"""Objectives that do not bind: the KV cache does."""
A, B = VariantKey("ns", "a"), VariantKey("ns", "b")


def measured(
    variants: Sequence[Variant],
    told: Mapping[VariantKey, Sequence[ReplicaMetrics]],
    queue: float | None,
    memory: DemandMemory,
    *,
    now: float,
    objectives: Objectives = DEFAULT_OBJECTIVES,
) -> tuple[Need, DemandMemory]:
    """Measure a model of these variants."""
    model = readings(variants, told, queue, now=now)
    return need_of(model, observed(model, memory, now), AgreedObjectives(objectives))


def looked(
    model: PodsOfModel,
    memory: DemandMemory,
    *,
    silent: Sequence[str] = (),
    queue: float | None = 0.0,
    objectives: Objectives = PATIENT,
) -> tuple[Need, DemandMemory]:
    """Measure a model of one variant as it is now."""
    variants = [kind(replicas=len(model.pods))]
    return measured(variants, model.told(silent), queue, memory, now=model.now, objectives=objectives)


def served(
    model: PodsOfModel, rate: float, cycles: int, memory: DemandMemory = NOTHING_REMEMBERED
) -> tuple[Need, DemandMemory]:
    """Serve a rate for some cycles and return the last measurement."""
    need = None
    for _ in range(cycles):
        model.serve(rate)
        need, memory = looked(model, memory)
    assert need is not None
    return need, memory


def test_a_steady_rate_is_measured() -> None:
    """What arrived is what finished plus the change of the requests in the pods."""
    need, _ = served(PodsOfModel(), 4.0, 5)
    assert need.hold is None
    assert need.demand == pytest.approx(4.0)
    assert need.rate.error == pytest.approx((4.0 / 15.0) ** 0.5)
    assert need.unit == "requests/s"
    assert need.rate is not None


@pytest.mark.parametrize("ready_since", [NOW - 3600.0, None])
def test_what_a_pod_counted_before_weighs_like_thirty_requests(ready_since: float | None) -> None:
    """The prompts of other times do not hide those that come now."""
    model = PodsOfModel([ReportingPod("a-0")])
    _, memory = served(model, 2.0, 2)
    old = ReportingPod("a-1", ready_since, replace(NONE, at=NOW - 3600.0), prompt=10.0 * PROMPT)
    old.serve(0.2, 3600.0 + model.now - NOW)
    old.prompt = PROMPT
    model.pods.append(old)
    model.serve(2.0)
    _, memory = looked(model, memory)
    count = model.pods[0].counters.prompts + 30.0
    assert (memory.prompt.many, memory.answer.many) == (pytest.approx(count), pytest.approx(count))
    assert memory.prompt.usual > 2.0 * PROMPT
    assert memory.answer.usual == pytest.approx(ANSWER)
    _, memory = served(model, 4.0, 6, memory)
    assert memory.prompt.usual < 1.2 * PROMPT


def test_a_first_reading_of_old_pods_weighs_little() -> None:
    """After a start of the controller, the means are soon those of what comes now."""
    model = PodsOfModel([ReportingPod(name, NOW - 3600.0, prompt=10.0 * PROMPT) for name in ("a-0", "a-1")])
    for pod in model.pods:
        pod.counters = replace(NONE, at=NOW - 3600.0)
        pod.serve(0.2, 3600.0)
        pod.prompt = PROMPT
    model.serve(1.0)
    _, memory = looked(model, NOTHING_REMEMBERED)
    assert (memory.prompt.many, memory.answer.many) == (60.0, 60.0)
    _, memory = served(model, 4.0, 3, memory)
    assert memory.prompt.usual == pytest.approx(PROMPT)


def test_what_few_requests_show_is_not_sure_to_pile_up() -> None:
    """Until several hundred requests have the present sizes, only what replicas cannot get through at all piles up."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 5)
    numbers = {A: 2}
    model.serve(4.0)
    need, memory = looked(model, memory, objectives=DEFAULT_OBJECTIVES)
    assert need.rate.answers is not None
    assert need.rate.answers(numbers) > 1.05 * need.carried(numbers)
    assert need.rate.answers({}) == 0.0
    need, memory = served(model, 4.0, 10, memory)
    assert memory.prompt.many > 550.0
    assert need.rate.answers is None  # what replicas carry within the targets counts
    for pod in model.pods:
        pod.prompt = 4.0 * PROMPT
    need, memory = served(model, 4.0, 3, memory)
    assert memory.prompt.many < 550.0
    assert need.rate.answers is not None


def test_all_requests_of_a_pod_that_has_just_become_ready_count() -> None:
    """They are of now."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 2)
    model.pods.append(ReportingPod("a-2", model.now, replace(NONE, at=model.now)))
    model.serve(12.0)
    _, memory = looked(model, memory)
    assert model.pods[2].counters.prompts > 30.0
    assert memory.prompt.many == pytest.approx(sum(pod.counters.prompts for pod in model.pods))


def test_requests_at_the_gateway_have_arrived() -> None:
    """They count as demand and as backlog; a queue that is not reported keeps its last length."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    model.serve(4.0)
    need, memory = looked(model, memory, queue=30.0)
    assert need.demand == pytest.approx(6.0)
    assert need.rate.backlog == 30.0
    model.serve(4.0)
    need, _ = looked(model, memory, queue=None)
    assert need.demand == pytest.approx(4.0)
    assert need.rate.backlog == 30.0


def test_capacity_is_learned_from_varied_loads() -> None:
    """WVA learns nearly the capacity of the true engine from loads up to half of it."""
    model, memory, need = PodsOfModel(), NOTHING_REMEMBERED, None
    for cycle in range(60):
        model.serve(2.0 + 0.1 * (cycle % 20))
        need, memory = looked(model, memory)
    assert need is not None
    capacity = need.capacities[A]
    # The largest mean batch that leaves room for its variation in the KV cache, by the true step.
    most = 0.97 * KV_TOKENS / (PROMPT + ANSWER / 2.0)
    true = most / (ANSWER * (BASE + SLOPE * most) + most * PER_TOKEN * PROMPT)
    assert 0.7 * true < capacity.per_replica < 1.05 * true
    assert capacity.basis is CapacityBasis.OBSERVED
    assert capacity.limit
    assert need.carried({A: 4}) > 3.9 * need.carried({A: 1})
    assert need.carried({A: 0}) == 0.0


def test_longer_prompts_lower_the_capacity() -> None:
    """The engine that WVA learned is the same, only the requests differ."""
    model = PodsOfModel()
    before, memory = served(model, 4.0, 20)
    for pod in model.pods:
        pod.prompt = 1000.0
    after, _ = served(model, 4.0, 6, memory)
    assert after.capacities[A].per_replica < 0.9 * before.capacities[A].per_replica


def test_a_model_is_observed_once_in_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """In hybrid mode two analyzers ask; the model has one memory of it."""
    served_model = PodsOfModel()
    _, memory = served(served_model, 4.0, 3)
    served_model.serve(4.0)
    model = readings([kind(replicas=2)], served_model.told(), now=served_model.now)
    seen = observed(model, memory, served_model.now)
    asked = []
    monkeypatch.setattr(wva.decide.measure, "observed", lambda *given: asked.append(given) or seen)
    (need,), after = measure([model], Memory(demand=(memory,)), Policy(proactive_model=True), served_model.now)
    assert asked == [(model, memory, served_model.now)]
    assert need.demand == need.second.demand == pytest.approx(4.0)
    assert after.demand == (need_of(model, seen)[1],)


def test_a_tighter_target_lowers_the_capacity() -> None:
    """The batch is bounded by the time between tokens."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 20)
    model.serve(4.0)
    told = model.told()
    found = [
        measured([kind(replicas=2)], told, 0.0, memory, now=model.now, objectives=objectives)[0].capacities[A]
        for objectives in (PATIENT, replace(PATIENT, itl_seconds=0.05), replace(PATIENT, ttft_seconds=0.2))
    ]
    assert found[1].per_replica < found[0].per_replica
    assert [each.limit for each in found] == ["KV cache", "time between tokens", "time to first token"]


def long_prompts() -> tuple[PodsOfModel, DemandMemory]:
    """Return pods that have served long prompts at several loads, and what WVA knows of them."""
    model = PodsOfModel([ReportingPod(f"a-{place}", prompt=4000.0, cache=10.0 * KV_TOKENS) for place in range(40)])
    memory = NOTHING_REMEMBERED
    for rate in (10.0, 20.0, 30.0, 40.0):
        _, memory = served(model, rate, 5, memory)
    model.serve(40.0)
    return model, memory


def test_long_prompts_bind_by_the_first_token() -> None:
    """Long prompts occupy the engine, so the wait for the engine limits the capacity."""
    model, memory = long_prompts()
    need, _ = looked(model, memory, objectives=DEFAULT_OBJECTIVES)
    assert need.capacities[A].limit == "time to first token"


def test_looser_objectives_let_a_replica_carry_more() -> None:
    """More time for the first token, more time between tokens, or more requests late: each is cheaper."""
    model, memory = long_prompts()
    usual = DEFAULT_OBJECTIVES
    for harder, easier in (
        (replace(usual, ttft_seconds=0.7), usual),
        (usual, replace(usual, ttft_seconds=3.0)),
        (replace(usual, in_time=0.999), usual),
        (usual, replace(usual, in_time=0.9)),
        (replace(PATIENT, itl_seconds=0.05), replace(PATIENT, itl_seconds=0.07)),
    ):
        asked, given = (looked(model, memory, objectives=each)[0].of(A) for each in (harder, easier))
        assert asked < given, (harder, easier)


def test_what_no_number_of_replicas_reaches_is_told_with_the_nearest_that_one_does() -> None:
    """A step of an empty engine and a long prompt alone bound what users can get; who asked for nothing is not told."""
    model, memory = long_prompts()
    seen = observed(readings([kind(replicas=40)], model.told(), 0.0, now=model.now), memory, model.now)
    found = {}
    for name, asked in {"none": Objectives(0.001, 0.001), "prompt": Objectives(0.001, 5.0), "all": PATIENT}.items():
        of = readings([kind(replicas=40)], model.told(), 0.0, now=model.now)
        found[name] = need_of(of, seen, AgreedObjectives(asked, "asked"))[0].aims[A]
    none, prompt, everything = found["none"], found["prompt"], found["all"]
    assert none.objectives.ttft_seconds == prompt.objectives.ttft_seconds > 0.1
    assert (prompt.objectives.itl_seconds, everything.objectives) == (5.0, PATIENT)
    assert none.beyond.startswith("no number of replicas of a reaches the first token within 1 ms: ")
    assert " is the nearest and the time between tokens within 1 ms: " in none.beyond
    assert "between tokens" not in prompt.beyond
    assert everything.beyond == ""
    assert everything.summary == "asked"
    quiet = need_of(
        readings([kind(replicas=40)], model.told(), 0.0, now=model.now), seen, AgreedObjectives(Objectives(0.001))
    )
    assert quiet[0].aims[A].summary == ""
    assert quiet[0].aims[A].objectives.ttft_seconds == none.objectives.ttft_seconds


def test_a_lost_scrape_loses_nothing() -> None:
    """When a silent pod reports again, WVA corrects what it credited to the pod."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 5)
    begun = sum(pod.arrived for pod in model.pods)
    counted = 0.0
    for silent in (["a-0"], ["a-0"], [], ["a-1"], []):
        model.serve(6.0)
        need, memory = looked(model, memory, silent=silent)
        counted += need.demand * 15.0
    assert counted == pytest.approx(sum(pod.arrived for pod in model.pods) - begun)


def test_too_much_credit_is_owed() -> None:
    """Traffic ended while a pod was silent; WVA subtracts the excess credit from later arrivals."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 5)
    model.serve(4.0)
    _, memory = looked(model, memory, silent=["a-0"])
    model.serve(0.0, 0.5)
    for pod in model.pods:
        pod.arrived = 0.0
        pod.counters = replace(pod.counters, at=model.now)
    # The credit was for 15 s at the last rate, and the pod has had none of it.
    model.pods[0].counters = replace(memory.variants[0].pods[1].counters, at=model.now)
    need, memory = looked(model, memory)
    assert need.demand == 0.0
    assert memory.owed > 0.0
    model.serve(4.0)
    need, memory = looked(model, memory)
    assert 0.0 <= need.demand < 4.0
    assert memory.owed == 0.0


def test_a_new_pod_that_gets_everything_is_no_surge() -> None:
    """In a cycle of a second only the new pod reports. The next cycles count what is left, so nothing is lost."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 20)
    new = ReportingPod("a-2", model.now, replace(NONE, at=model.now))
    model.pods.append(new)
    counted, begun = 0.0, sum(pod.arrived for pod in model.pods)
    demands = []
    for seconds, silent in ((3.0, []), (11.0, ["a-2"]), (1.0, ["a-0", "a-1"]), (15.0, [])):
        model.now += seconds
        for pod in model.pods:
            pod.serve(4.0 if pod is new else 0.0, seconds)
        need, memory = looked(model, memory, silent=silent)
        demands.append(need.demand)
        counted += need.demand * seconds
    assert max(demands[2:]) < 3.0 * 4.0
    assert counted == pytest.approx(sum(pod.arrived for pod in model.pods) - begun)


def test_nothing_told_is_no_answer_and_changes_no_memory() -> None:
    """The next measurement then covers the whole time."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    model.serve(4.0)
    need, after = looked(model, memory, silent=["a-0", "a-1"])
    assert need.hold is not None
    assert need.rate is None
    assert after == memory


def test_the_first_look_is_no_answer() -> None:
    """WVA has nothing to compare with in its first cycle, nor if no time has passed."""
    model = PodsOfModel()
    model.serve(4.0)
    need, memory = looked(model, NOTHING_REMEMBERED)
    assert need.hold is not None
    again, same = looked(model, memory)
    assert again.hold is not None
    assert same == memory


def test_demand_is_told_while_capacity_is_not_known() -> None:
    """Requests that wait at the gateway of a model without replicas are demand; the capacity is unknown."""
    memory = NOTHING_REMEMBERED
    for cycle in range(3):
        need, memory = measured([kind(replicas=0)], {}, 15.0 * cycle, memory, now=NOW + 15.0 * cycle)
    assert need.hold is not None
    assert need.rate is not None
    assert need.demand == pytest.approx(1.0)


def test_a_variant_that_was_never_seen_is_taken_to_carry_a_little_less_for_its_price() -> None:
    """WVA takes the variant for an engine like the other, as fast as its price suggests."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 5)
    model.serve(4.0)
    variants = [kind(replicas=2, cost=10.0), kind("b", replicas=0, cost=20.0)]
    need, _ = measured(variants, model.told(), 0.0, memory, now=model.now)
    assert need.capacities[B].basis is CapacityBasis.BORROWED
    assert need.capacities[B].per_replica == pytest.approx(1.8 * need.capacities[A].per_replica, rel=0.15)
    assert need.carried({A: 1, B: 1}) > need.carried({A: 1})


def test_a_pod_that_is_silent_for_long_objects_to_a_shrink_and_is_credited_no_more() -> None:
    """For the first two minutes a silent pod is no objection."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    objections, demands = [], []
    for _ in range(24):
        model.serve(4.0)
        need, memory = looked(model, memory, silent=["a-0"])
        objections.append(need.objection)
        demands.append(need.demand)
    assert objections[0] == ""
    assert objections[-1]
    assert demands[0] == pytest.approx(4.0)
    assert demands[-1] == pytest.approx(2.0)


def test_a_new_pod_has_counted_from_the_time_when_it_became_ready() -> None:
    """A pod that has gone leaves a part of its requests in no counter."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    model.pods.append(ReportingPod("a-2", model.now + 5.0, EngineCounters(model.now, *[0.0] * 8)))
    model.serve(6.0)
    need, memory = looked(model, memory)
    assert need.demand == pytest.approx(6.0)
    assert need.rate.unsettled
    model.pods.pop()
    model.serve(6.0)
    need, _ = looked(model, memory)
    # A pod that has gone had the arrivals of half a cycle that were never told.
    assert need.demand == pytest.approx(7.2, rel=0.05)
    assert need.rate.unsettled


def test_a_pod_that_is_seen_late_has_not_got_all_its_requests_now() -> None:
    """The pod was Ready for an hour before its first scrape: its mean rate counts, for one cycle."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 10)
    late = ReportingPod("a-2", ready_since=NOW - 3600.0, counters=replace(NONE, at=model.now, finished=7500.0))
    model.pods.append(late)
    model.serve(6.0)
    need, _ = looked(model, memory)
    assert need.demand == pytest.approx(6.0, rel=0.05)


def while_away(
    model: PodsOfModel, memory: DemandMemory, cycles: int, *, scrape_seconds: float | None = None
) -> tuple[ReportingPod, list[float], DemandMemory]:
    """Let the last pod be not Ready for some cycles of 4 requests/s; return it, the demands, and the memory."""
    left, demands = model.pods.pop(), []
    variants = [kind(replicas=2, oldest_unready_since=NOW - 100.0)]
    for _ in range(cycles):
        model.serve(4.0)
        told = scraped(model, scrape_seconds)
        need, memory = measured(variants, told, 0.0, memory, now=model.now)
        demands.append(need.demand)
    left.ready_since = model.now + 5.0
    left.counters = replace(left.counters, at=model.now)
    model.pods.append(left)
    return left, demands, memory


def scraped(
    model: PodsOfModel, seconds: float | None, *, created: float = NOW - 100.0
) -> Mapping[VariantKey, Sequence[ReplicaMetrics]]:
    """Return what the pods tell if they are scraped this often; all were ``created`` then."""
    return {
        key: [replace(pod, scrape_seconds=seconds, created=created) for pod in pods]
        for key, pods in model.told().items()
    }


def looked_at_first_pod(model: PodsOfModel, memory: DemandMemory) -> tuple[Need, DemandMemory]:
    """Return what WVA knows after the same three cycles if only the pods that were Ready all the time tell of them."""
    model = copy.deepcopy(model)
    for _ in range(3):
        model.serve(4.0)
        told = {A: [pod.told() for pod in model.pods if pod.ready_since == NOW]}
        need, memory = measured([kind(replicas=2)], told, 0.0, memory, now=model.now)
    return need, memory


@pytest.mark.parametrize("scrape_seconds", [None, 30.0, 60.0])
@pytest.mark.parametrize("cycles", [1, 4, 40])
def test_a_pod_that_is_ready_again_has_not_got_all_its_requests_now(cycles: int, scrape_seconds: float | None) -> None:
    """A probe that fails for a while, as those of busy engines do, does not make hours of requests those of a cycle."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 40)
    _, demands, memory = while_away(model, memory, cycles, scrape_seconds=scrape_seconds)
    first, _ = looked_at_first_pod(model, memory)
    for _ in range(3):
        model.serve(4.0)
        told = scraped(model, scrape_seconds)
        need, memory = measured([kind(replicas=2)], told, 0.0, memory, now=model.now)
        demands.append(need.demand)
    assert demands == pytest.approx([4.0] * len(demands), rel=0.4)
    assert demands[-1] == pytest.approx(4.0, rel=0.05)
    assert need.of(A) == pytest.approx(first.of(A), rel=0.03)
    assert not memory.variants[0].away


def test_a_pod_that_was_restarted_while_it_was_not_ready_has_counted_from_zero() -> None:
    """All that it has counted since then came since it is Ready."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 40)
    back, _, memory = while_away(model, memory, 2)
    back.counters, back.batch = replace(NONE, at=model.now), 0.0
    model.serve(4.0)
    need, memory = looked(model, memory)
    assert need.demand == pytest.approx(4.0, rel=0.05)


def test_a_pod_of_the_same_name_is_not_the_one_that_was_ready() -> None:
    """Pods of a StatefulSet have the name of the one before. A new one has counted from zero, whatever it counted."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 40)
    again, _, memory = while_away(model, memory, 2)
    again.counters, again.batch = replace(again.counters, finished=again.counters.finished + 30.0), 0.0
    counted = again.counters.finished
    model.serve(4.0)
    told = scraped(model, None, created=model.now - 10.0)
    need, _ = measured([kind(replicas=2)], told, 0.0, memory, now=model.now)
    assert need.demand > counted / 15.0


def test_pods_that_ended_are_not_remembered() -> None:
    """If each pod that is not Ready is younger than their last scrapes, none of these is one of them."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 10)
    model.pods.pop()
    for oldest in (None, model.now + 1.0):
        variants = [kind(replicas=2, oldest_unready_since=oldest)]
        _, after = measured(variants, model.told(), 0.0, replace(memory, at=model.now - 15.0), now=model.now)
        assert not after.variants[0].away


def test_counters_older_than_the_readiness_of_a_pod_that_was_never_seen_tell_no_rate() -> None:
    """WVA was down when the pod was not Ready. The pod cannot have served so many at once since it is Ready."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 10)
    old = replace(NONE, at=model.now, finished=1e5, prompts=1e5, answers=1e5, gaps=2e7, gap_seconds=8e5)
    model.pods.append(ReportingPod("a-2", ready_since=model.now + 5.0, counters=old))
    first, _ = looked_at_first_pod(model, memory)
    demands = []
    for _ in range(3):
        model.serve(4.0)
        need, memory = looked(model, memory)
        demands.append(need.demand)
    assert demands == pytest.approx([4.0] * 3, rel=0.2)
    assert need.of(A) == pytest.approx(first.of(A), rel=0.1)


@pytest.mark.parametrize("finished", [0.0, 1e6], ids=["restarted", "an engine is missing"])
def test_counters_that_went_back_count_from_there(finished: float) -> None:
    """After a restart WVA credits the pod its last rate, and never all that its counters say."""
    model = PodsOfModel()
    for pod in model.pods:
        pod.counters = replace(pod.counters, finished=2e6, gaps=2e8)
    _, memory = served(model, 4.0, 10)
    pod = model.pods[0]
    pod.counters = replace(NONE, at=model.now, finished=finished, gaps=100.0 * finished)
    model.serve(4.0)
    need, memory = looked(model, memory)
    assert need.demand == pytest.approx(4.0, rel=0.02)
    model.serve(4.0)
    need, _ = looked(model, memory)
    assert need.demand == pytest.approx(4.0, rel=0.02)


def test_means_do_where_there_are_no_counters() -> None:
    """WVA counts a pod without counters by the rate and the sizes of its requests."""
    memory, need = NOTHING_REMEMBERED, None
    batch = batch_at(2.0)
    signals = EngineSignals(
        kv_capacity_tokens=fresh(KV_TOKENS),
        kv_usage=fresh(batch * 200.0 / KV_TOKENS),
        input_tokens=fresh(PROMPT),
        output_tokens=fresh(ANSWER),
        running=fresh(batch),
        inter_token_latency=fresh(BASE + SLOPE * batch),
    )
    for cycle in range(5):
        rate = replace(fresh(2.0), timestamp=NOW + 15.0 * cycle)
        pod = ReplicaMetrics("a-0", A, engine=replace(signals, success_rate=rate), ready_since=NOW - 60.0)
        need, memory = measured([kind()], {A: [pod]}, 0.0, memory, now=NOW + 15.0 * cycle)
    assert need is not None
    assert need.demand == pytest.approx(2.0)
    assert need.capacities[A].per_replica > 1.0
    # When it tells counters again, they are not compared with those that followed from means: it has what it had.
    counters = EngineCounters(NOW + 75.0, 9e6, 0.0, 9e6, 9e6, 9e6, 9e6, 9e6, 9e6)
    pod = ReplicaMetrics("a-0", A, engine=signals, ready_since=NOW - 60.0, counters=counters)
    need, memory = measured([kind()], {A: [pod]}, 0.0, memory, now=NOW + 75.0)
    assert need.demand == pytest.approx(2.0)
    # And a pod that has told counters is silent when it tells none: means do not go on from them.
    pod = ReplicaMetrics("a-0", A, engine=replace(signals, success_rate=fresh(2.0)), ready_since=NOW - 60.0)
    need, _ = measured([kind()], {A: [pod]}, 0.0, memory, now=NOW + 90.0)
    assert need.hold is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_counters_that_cannot_be_true_tell_nothing(value: float) -> None:
    """WVA credits the pod what it had before."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    model.serve(4.0)
    model.pods[0].counters = replace(model.pods[0].counters, prompt_tokens=value)
    need, _ = looked(model, memory)
    assert need.demand == pytest.approx(4.0)


def test_a_pod_that_has_told_nothing_yet_is_not_counted() -> None:
    """The pod was scraped before it was Ready, or reports neither a rate nor counters."""
    model = PodsOfModel()
    _, memory = served(model, 4.0, 3)
    early = ReportingPod("a-2", model.now + 10.0, EngineCounters(model.now, *[0.0] * 8))
    mute = ReportingPod("a-3", model.now).told()
    model.serve(4.0)
    told = {A: [*model.told()[A], early.told(), replace(mute, counters=None)]}
    need, memory = measured([kind(replicas=4)], told, 0.0, memory, now=model.now)
    assert need.demand == pytest.approx(4.0)
    assert [pod.name for pod in memory.variants[0].pods] == ["a-0", "a-1", "a-2"]


def test_steps_that_no_engine_takes_are_not_learned() -> None:
    """A time between tokens of hours changes nothing that WVA has learned."""
    model = PodsOfModel()
    before, memory = served(model, 4.0, 5)
    model.serve(4.0)
    model.pods[0].counters = replace(model.pods[0].counters, gap_seconds=1e12)
    after, later = looked(model, memory)
    assert later.variants[0].fit == memory.variants[0].fit
    assert after.capacities[A].per_replica == pytest.approx(before.capacities[A].per_replica, rel=0.01)


@pytest.mark.parametrize("counted", [False, True], ids=["nowhere", "as aborted"])
def test_users_who_give_up_have_left(*, counted: bool) -> None:
    """Demand excludes users who give up, also if the engine does not count them; users who retry count once."""
    model = PodsOfModel()
    for pod in model.pods:
        pod.waiting = 100.0
    _, memory = served(model, 4.0, 3)
    model.serve(4.0)
    pod = model.pods[0]
    pod.waiting -= 30.0
    if counted:
        old = pod.counters
        pod.counters = replace(old, finished=old.finished + 30.0, aborted=old.aborted + 30.0)
    need, memory = looked(model, memory)
    assert need.demand == pytest.approx(4.0 - 30.0 / 15.0)
    model.serve(4.0)
    model.pods[1].waiting += 30.0
    need, _ = looked(model, memory)
    assert need.demand == pytest.approx(4.0 + 30.0 / 15.0)


def test_more_leave_than_come() -> None:
    """What one pod loses and another gets cancels out, even if more requests leave a pod than it serves."""
    model = PodsOfModel()
    model.pods[0].waiting = 500.0
    _, memory = served(model, 4.0, 3)
    model.serve(4.0)
    model.pods[0].waiting, model.pods[1].waiting = 0.0, 500.0
    need, _ = looked(model, memory)
    assert need.demand == pytest.approx(4.0)


def test_prompts_of_many_lengths_wait_longer_for_the_engine() -> None:
    """If prompts limit the engine, a replica carries fewer prompts of many lengths than of one length."""

    def carries(odd: float, even: float) -> tuple[float, float]:
        model, memory, need = PodsOfModel([ReportingPod("a-0"), ReportingPod("a-1")]), NOTHING_REMEMBERED, None
        for turn in range(200):
            for pod in model.pods:
                pod.prompt = odd if turn % 2 else even
            model.serve(0.3 if turn % 4 < 2 else 0.6)
            need, memory = looked(model, memory, objectives=Objectives(1.0, 10.0))
        assert need is not None
        return need.capacities[A].per_replica, memory.variability

    alike, none = carries(4000.0, 4000.0)
    mixed, much = carries(1000.0, 7000.0)
    assert none == pytest.approx(0.0, abs=0.01)
    assert much > 0.5
    assert mixed < alike


def test_uneven_loads_are_seen_and_need_more_replicas() -> None:
    """A replica carries less if chance routes requests than if the gateway evens the loads out."""
    model = PodsOfModel()
    even, memory = served(model, 6.0, 60)
    assert memory.unevenness < 0.1
    for _ in range(60):
        model.serve(6.0)
        model.pods[0].batch += 30.0
        _, memory = looked(model, memory)
    assert memory.unevenness > 0.5
    model, memory = PodsOfModel(), served(PodsOfModel(), 6.0, 60)[1]
    model.now += 900.0
    uneven, _ = looked(model, replace(memory, unevenness=1.0))
    assert uneven.carried({A: 8}) < 0.95 * even.carried({A: 8})


@pytest.mark.long_story
@pytest.mark.parametrize(("places", "least", "most"), [("by chance", 0.7, 1.3), ("evenly", 0.0, 0.1)])
def test_few_requests_tell_how_even_a_gateway_is(places, least, most) -> None:
    """Of 12 requests 8 replicas cannot have the same number each. Placed evenly is told from placed by chance."""
    draw = Random(1)
    model = PodsOfModel([ReportingPod(f"a-{place}") for place in range(8)])
    _, memory = served(model, 1.5, 20)
    told = []
    for cycle in range(600):
        model.serve(1.5)
        counts = Counter(draw.randrange(8) if places == "by chance" else place % 8 for place in range(12))
        for place, pod in enumerate(model.pods):
            pod.batch = float(counts[place])
        _, memory = looked(model, memory)
        if cycle >= 300:
            told.append(memory.unevenness)
    assert least <= sum(told) / len(told) <= most


def test_one_request_tells_nothing_of_a_gateway() -> None:
    """One request is at one replica, however even the gateway is: what was believed stays."""
    model = PodsOfModel([ReportingPod(f"a-{place}") for place in range(8)])
    _, memory = served(model, 1.5, 20)
    before = memory.unevenness
    for cycle in range(100):
        model.serve(0.1)
        for place, pod in enumerate(model.pods):
            pod.batch = float(place == cycle % 8)
        _, memory = looked(model, memory)
    assert memory.unevenness == pytest.approx(before, abs=0.02)


def test_a_mix_carries_what_the_gateways_split_allows() -> None:
    """The gateway gives replicas of two kinds the same load, so the small one fills up first."""
    model, other = PodsOfModel(), [ReportingPod("b-0"), ReportingPod("b-1")]
    memory = NOTHING_REMEMBERED
    variants = [kind(replicas=2), kind("b", replicas=2)]
    for _ in range(40):
        model.serve(8.0)
        for pod in other:
            pod.serve(1.0, 15.0)
            pod.waiting = 20.0
        told = dict(model.told()) | {B: [replace(pod.told("b"), variant=B) for pod in other]}
        need, memory = measured(variants, told, 0.0, memory, now=model.now, objectives=PATIENT)
    alone = 0.5 * (need.carried({A: 4}) + need.carried({B: 4}))
    assert need.carried({A: 2, B: 2}) < 0.99 * alone
    assert memory.variants[0].load + memory.variants[1].load == pytest.approx(1.0)


amounts = st.sampled_from([0.0, 1.0, 30.0, 1e3, 1e6, 1e14]) | st.floats(0.0, 1e6)
any_counters = (
    st.builds(EngineCounters, st.floats(0.0, 300.0).map(lambda seconds: NOW + seconds), *[amounts] * 8) | st.none()
)


@st.composite
def any_pods(draw: st.DrawFn) -> list[ReplicaMetrics]:
    """Draw what pods of two variants tell: anything, as far as it may be told."""
    pods = []
    for place in range(draw(st.integers(0, 4))):
        engine = EngineSignals(
            **{
                name: fresh(draw(amounts))
                for name in ("kv_capacity_tokens", "kv_usage", "running", "waiting", "success_rate", "output_tokens")
                if draw(st.integers(0, 3))
            }
        )
        ready = draw(st.none() | st.floats(NOW - 600.0, NOW + 300.0))
        pods.append(
            ReplicaMetrics(
                f"p-{place}",
                draw(st.sampled_from([A, B])),
                engine=engine,
                ready_since=ready,
                counters=draw(any_counters),
            )
        )
    return pods


@given(st.lists(any_pods(), min_size=1, max_size=6), st.none() | amounts, st.floats(0.1, 900.0))
def test_whatever_pods_tell_the_answer_is_a_number_and_the_memory_small(
    looks: list[list[ReplicaMetrics]], queue: float | None, seconds: float
) -> None:
    """No answer has NaN, the memory has no more than the pods, and JSON can hold it."""
    memory = NOTHING_REMEMBERED
    for turn, pods in enumerate(looks):
        told = {key: [pod for pod in pods if pod.variant == key] for key in (A, B)}
        variants = [kind(replicas=1), kind("b", replicas=3, cost=0.0, parameters=None)]
        need, memory = measured(variants, told, queue, memory, now=NOW + turn * seconds)
        assert isfinite(need.demand)
        assert need.rate is None or all(isfinite(value) for value in (need.rate.backlog, need.rate.error))
        assert need.demand >= 0.0
        if need.hold is None:
            assert all(isfinite(each.per_replica) and each.per_replica >= 0.0 for each in need.capacities.values())
            assert isfinite(need.carried({A: 3, B: 2}))
        assert sum(len(entry.pods) for entry in memory.variants) <= len(pods) or need.hold is not None
        assert msgspec.json.decode(msgspec.json.encode(memory), type=DemandMemory) == memory


@given(st.permutations([0, 1, 2]), st.floats(1.0, 9.0))
def test_the_order_of_pods_and_variants_does_not_matter(order: list[int], rate: float) -> None:
    """The snapshot is sorted; without that, the measurement would be the same up to rounding."""
    model = PodsOfModel([ReportingPod("a-0"), ReportingPod("a-1"), ReportingPod("a-2")])
    _, memory = served(model, rate, 4)
    model.serve(rate)
    told = model.told()
    variants = [kind(replicas=3), kind("b", replicas=0)]
    straight, _ = measured(variants, told, 0.0, memory, now=model.now)
    shuffled, _ = measured(variants[::-1], {A: [told[A][place] for place in order]}, 0.0, memory, now=model.now)
    assert shuffled.demand == pytest.approx(straight.demand)
    for key in (A, B):
        assert shuffled.capacities[key].per_replica == pytest.approx(straight.capacities[key].per_replica)


@given(st.integers(0, 12), st.integers(0, 12))
def test_more_replicas_of_a_kind_carry_more(first: int, second: int) -> None:
    """One replica more of a kind never lowers the capacity."""
    need, _ = served(PodsOfModel(), 4.0, 5)
    low, high = sorted((first, second))
    assert need.carried({A: low}) <= need.carried({A: high})
