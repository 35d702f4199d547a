"""Numbers at the limits of floats and of Kubernetes: the decision is a number of replicas, and comes at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, sample, variant
from tests.decide.pipelines import (
    CACHE_TOKENS,
    HYBRID,
    HYBRID_TOKENS,
    KINDS,
    PROFILES,
    QUEUEING,
    engine,
    looked_at,
    policy_of,
)
from tests.timing import times_as_long
from wva.decide.allocate import AllocationPolicy, Offer, Stock, Want, allocate
from wva.decide.allocate.search import raised
from wva.decide.amounts import COUNTLESS, LARGEST, bounded_policy, bounded_snapshot, preferred, rounded_up
from wva.decide.pipeline import conclude
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.optimizers import BestEffort, SolverPolicy
from wva.model.policy import Policy, QueueingPolicy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue, Snapshot
from wva.model.variant import COUNTED_BY, ModelKey, VariantKey
from wva.numbers import MAX_REPLICAS

EXTREMES = (0.0, 5e-324, 1e-300, 1e15, 1.7e308)
MODEL = ModelKey("ns", "m")


def outcome_of(found: list, pods: list, policies: Policy = Policy(), memory: Memory = Memory()):  # noqa: B008 - frozen
    """Decide twice, since the second cycle compares with the first; return the second outcome."""
    snapshot = replace(Snapshot.of(found, pods), inventory=Inventory.of([AcceleratorPool("A100", 10**9, 0)]))
    first = conclude(snapshot, memory, policies, NOW)
    assert first.failures == ()
    second = conclude(snapshot, first.memory, policies, NOW + 60)
    assert second.failures == ()
    return second


@pytest.mark.long_story
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("kv", EXTREMES)
@pytest.mark.parametrize("queue", EXTREMES)
def test_thresholds_of_any_size_decide(kind, kv, queue):
    """Every replica reaches a threshold of 0, so its model wants to grow; no threshold makes a cycle fail."""
    thresholds = SaturationPolicy(kv, queue, min(kv, 0.1), min(queue, 3.0), scale_up_threshold=kv or 0.1)
    pods = [replace(replica(queue=2, kv=0.9), engine=engine(0.9))]
    outcome = outcome_of([variant(maximum=9)], pods, policy_of(kind, Policy(thresholds)))
    assert 1 <= outcome.decisions[0].desired <= 9


@pytest.mark.parametrize("threshold", [0.0, 1e-300])
def test_a_threshold_of_nothing_makes_every_replica_saturated(threshold):
    """A threshold of 0 says that every replica is full; the number still ends at the maximum."""
    thresholds = policy(queue_length_threshold=threshold, queue_spare_trigger=0.0)
    found = outcome_of([variant(maximum=2)], [replica(queue=1)], thresholds).decisions[0]
    assert found.desired == 2


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sample_beyond_any_engine_is_invalid(kind):
    """The sum of two replicas that report 1.7e308 would overflow; the number stays, and nothing counts as measured."""
    lie = sample(1.7e308)
    signals = replace(engine(0.3), running=lie, waiting=lie, success_rate=lie, kv_capacity_tokens=lie)
    pods = [ReplicaMetrics(f"a-{number}", VariantKey("ns", "a"), lie, lie, signals) for number in range(2)]
    outcome = outcome_of([variant(replicas=2)], pods, policy_of(kind, Policy(profiles=PROFILES)))
    assert outcome.decisions[0].desired == 2
    assert outcome.decisions[0].held
    assert "1.7e+308 is out of range" in outcome.decisions[0].metrics.message


def test_a_snapshot_within_reason_is_taken_as_it_is():
    """The replicas of a snapshot without impossible values are the same objects as before."""
    seen = Snapshot.of([variant()], [replace(replica(), engine=engine(0.3)), replica("a-1")])
    kept = bounded_snapshot(seen)
    assert kept == seen
    assert all(map(lambda new, old: new is old, kept.replicas, seen.replicas))


def test_a_sample_that_cannot_be_true_is_invalid_also_without_engine_signals():
    """The other values of the pod do not change."""
    (kept,) = bounded_snapshot(Snapshot.of([variant()], [replica(kv=-1.0)])).replicas
    assert kept == replace(replica(), kv_usage=kept.kv_usage)
    assert kept.kv_usage.value is None


def test_one_lie_leaves_the_other_signals_of_a_replica():
    """This is true of engine signals and of the two signals of a pod; a negative amount is impossible, too."""
    signals = replace(engine(0.3), running=sample(-1), waiting=sample(1e300))
    (found,) = bounded_snapshot(Snapshot.of([], [replace(replica(), engine=signals)])).replicas
    assert found.kv_usage.state is SampleState.FRESH
    assert found.engine.running.state is found.engine.waiting.state is SampleState.INVALID
    assert found.engine.kv_capacity_tokens.value == CACHE_TOKENS


def test_numbers_of_replicas_beyond_kubernetes_are_the_nearest_it_can_have():
    """This is true of the Deployment, the bounds and the GPUs; an impossible number in the status counts as none."""
    lies = variant(
        replicas=10**30, desired=-5, minimum=-1, maximum=10**30, gpus_per_replica=10**9, cost=-1.0, unplaced_pods=-3
    )
    (found,) = bounded_snapshot(Snapshot.of([lies], [])).variants
    assert (found.spec_replicas, found.current_replicas, found.ready_replicas) == (MAX_REPLICAS,) * 3
    assert (found.bounds.minimum, found.bounds.maximum, found.status_desired) == (0, MAX_REPLICAS, None)
    assert (found.gpus_per_replica, found.cost, found.unplaced_pods) == (1_000_000, 0.0, 0)


def test_a_policy_within_reason_is_taken_as_it_is():
    """A value outside its range becomes the nearest one in it."""
    usual = SaturationPolicy()
    assert bounded_policy(usual) is usual
    assert bounded_policy(replace(usual, kv_spare_trigger=-1.0)).kv_spare_trigger == 0
    assert bounded_policy(QueueingPolicy(1e300)).slo_multiplier == LARGEST


def test_no_number_is_above_what_kubernetes_counts_and_a_step_says_so():
    """A variant without a maximum has as many replicas as Kubernetes counts, and wants more."""
    full = variant(replicas=MAX_REPLICAS)
    pods = [replica(kv=0.95, queue=9)]
    memory = Memory((VariantMemory(full.key, MAX_REPLICAS, NOW - 700, 1),))
    found = conclude(Snapshot.of([full, variant("b", replicas=MAX_REPLICAS)], pods), memory, Policy(), NOW).decisions
    assert {each.desired for each in found} == {MAX_REPLICAS}


@pytest.mark.parametrize("kind", [QUEUEING, HYBRID, HYBRID_TOKENS], ids=str)
@pytest.mark.parametrize("budget", [False, True])
def test_a_thousand_million_requests_per_second_are_answered_at_once(kind, budget):
    """This is true without a maximum, for equal variants that share the replicas, and with a budget of GPUs."""
    found = [variant(name) for name in "abc"]
    policies = replace(policy_of(kind, Policy(profiles=PROFILES)), enable_limiter=budget)
    policies = replace(policies, solver=SolverPolicy(None, False, BestEffort.ROUND_ROBIN))

    def answer(rate):
        signals = replace(engine(1.0), success_rate=sample(rate))
        pods = [replace(replica(f"{name}-0", variant=name), engine=signals) for name in "abc"]
        return outcome_of(
            found,
            pods,
            policies,
            Memory(demand=looked_at([MODEL], pods, found)),
        )

    assert times_as_long(lambda: answer(1e9), lambda: answer(10.0)) < 100
    numbers = [decision.desired for decision in answer(1e9).decisions]
    assert all(1 <= number <= MAX_REPLICAS for number in numbers)
    assert budget or max(numbers) - min(numbers) <= 1


def test_a_rate_beyond_any_engine_asks_for_sixteen_times_what_serves():
    """The rate may be of any size. The load can ask for more as soon as the new replicas serve."""
    lot = replace(engine(1.0), success_rate=sample(1e10))
    slow = replace(PROFILES[0], alpha=1e5, beta=1e3)
    pods = [replace(replica(), engine=lot)]
    outcome = outcome_of(
        [variant()],
        pods,
        replace(policy_of(QUEUEING, Policy()), profiles=(slow,)),
        Memory(demand=looked_at([MODEL], pods, [variant()])),
    )
    assert outcome.decisions[0].desired == 16


def test_the_most_that_can_be_counted_is_cut_to_what_kubernetes_counts():
    """The limit names Kubernetes as the cause."""
    one = Offer(VariantKey("ns", "a"), 10.0, 1e-12, 1, 1, 1)
    plan = allocate([Want(MODEL, 1.0, (one,))], Stock(counted=False), AllocationPolicy())
    assert plan.numbers[one.key] == MAX_REPLICAS
    assert plan.limits[one.key].by == COUNTED_BY


def test_what_waits_is_charged_without_overflow():
    """The scheduler's queue has the largest number of requests of the largest size."""
    waiting = SchedulerQueue(MODEL, sample(LARGEST), sample(LARGEST))
    long = replace(engine(0.3), input_tokens=sample(LARGEST), output_tokens=sample(LARGEST))
    snapshot = replace(Snapshot.of([variant()], [replace(replica(), engine=long)]), queues=(waiting,))
    for kind in KINDS:
        assert conclude(snapshot, Memory(), policy_of(kind, Policy()), NOW).failures == ()


@pytest.mark.parametrize(
    ("amount", "number"),
    [
        (0.0, 0),
        (1.2, 2),
        (-1.2, -1),
        (1e300, COUNTLESS),
        (math.inf, COUNTLESS),
        (-math.inf, -COUNTLESS),
        (math.nan, 0),
    ],
)
def test_a_quotient_becomes_a_number_that_can_be_counted(amount, number):
    """This is true of any quotient."""
    assert rounded_up(amount) == number


keys = st.sampled_from([VariantKey("ns", name) for name in "abcdef"])
few = st.dictionaries(keys, st.integers(0, 9), min_size=1)


def balanced(numbers, change):
    """Share a change as the allocator does: a shrink is growth of mirrored numbers."""
    sign = 1 if change >= 0 else -1
    mirrored = {key: sign * number for key, number in numbers.items()}
    shared = raised(mirrored, abs(change), ties=sorted(numbers, reverse=sign < 0), most={})
    return {key: sign * number for key, number in shared.items()}


def one_by_one(numbers, change):
    """Share a change as it is defined: one replica at a time."""
    shared = dict(numbers)
    for _ in range(abs(change)):
        if change > 0:
            shared[min(shared, key=lambda key: (shared[key], key))] += 1
        else:
            shared[max(shared, key=lambda key: (shared[key], key))] -= 1
    return shared


@given(few, st.integers(-30, 30))
def test_a_change_is_shared_as_if_replica_by_replica(numbers, change):
    """This is true of growth and shrink, from any numbers."""
    assert balanced(numbers, change) == one_by_one(numbers, change)


@given(few, st.integers(0, 60), st.dictionaries(keys, st.integers(0, 12)), st.permutations("abcdef"))
def test_numbers_are_raised_as_if_replica_by_replica(numbers, count, most, order):
    """Up to the largest of each; among equals the first of the order is first. What finds no room is left out."""
    ties = [key for name in order if (key := VariantKey("ns", name)) in numbers]
    expected = dict(numbers)
    for _ in range(count):
        free = [key for key in ties if expected[key] < most.get(key, math.inf)]
        if free:
            expected[min(free, key=lambda key: (expected[key], ties.index(key)))] += 1
    assert raised(numbers, count, ties=ties, most=most) == expected


def test_as_many_replicas_as_can_be_counted_are_shared_at_once():
    """The sharing takes no step for each replica."""
    numbers = {VariantKey("ns", str(number)): number for number in range(300)}
    assert times_as_long(lambda: balanced(numbers, COUNTLESS), lambda: balanced(numbers, 1_000)) < 100
    shared = balanced(numbers, COUNTLESS)
    assert max(shared.values()) - min(shared.values()) <= 1
    assert balanced({}, 3) == {}


@pytest.mark.parametrize(
    ("amount", "told"), [(0.0, 0.0), (1.0, 1.0), (1.01, 1.2), (0.85, 1.0), (0.031, 0.04), (47.0, 50.0), (81.0, 100.0)]
)
def test_a_preferred_number_is_the_next_larger_one(amount, told):
    """Small changes of what was learned do not change the words."""
    assert preferred(amount) == pytest.approx(told)
