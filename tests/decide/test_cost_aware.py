"""From capacity to replicas: what the gap needs, cheapest per capacity first, dearest down; scarce GPUs shared."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import NOW, variant
from tests.decide.tokens import pod
from wva.decide.analyze.saturation import VariantReport, assess, drafts
from wva.decide.optimize.by_capacity import Gap, cost_aware
from wva.decide.optimize.cost_aware import Candidate, grow, shrink, spread
from wva.decide.optimize.greedy import Need, share
from wva.decide.pipeline import decide
from wva.decide.settling import Moment, progress_of
from wva.model.capacity import CapacityMemory, LearnedCapacity, ModelCapacity, VariantCapacity
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import Analyzer, Policy, SaturationPolicy
from wva.model.service import ServiceTarget
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

MODEL = ModelKey("ns", "m")


def candidate(name="a", *, number=1, cost=10.0, per_replica=100.0, **fields) -> Candidate:
    """Return a variant that may change."""
    return Candidate(VariantKey("ns", name), cost, per_replica, number, **fields)


def closed(*variants, per_replica=None, entries=None, deadline=600.0, ready=None, **capacity):
    """Close the gap of one model; return the decisions by name. All replicas are Ready unless ``ready`` says so."""
    ready, entries, reports = ready or {}, entries or {}, []
    for one in variants:
        name = one.key.name
        count = ready.get(name, one.current_replicas)
        pods = tuple(pod(f"{name}-{number}") for number in range(count))
        progress = progress_of(one, replicas=pods, entry=entries.get(name), moment=Moment(NOW, deadline))
        reports.append(VariantReport(progress, pods))
    model = assess(MODEL, reports=reports, policy=SaturationPolicy(), failure=None, now=NOW)
    sizes = per_replica or {}
    found = tuple(
        VariantCapacity(one.key, "A100", one.cost, one.ready_replicas, 0, sizes.get(one.key.name, 100.0), 0.0)
        for one in variants
    )
    gap = Gap(model, ModelCapacity(MODEL, found, summary="so it is", **capacity))
    return {decision.key.name: decision for decision in cost_aware(gap, drafts(model, summary="so it is"))}


def outcome(decisions):
    """Return number and reason by name."""
    return {name: (decision.desired, decision.reason.value) for name, decision in decisions.items()}


def test_as_many_replicas_as_the_gap_needs_on_the_cheapest_per_capacity():
    """The dear one is the cheaper one per token: 250 missing are two of its replicas, each carries 200."""
    decisions = closed(
        variant("a", cost=20), variant("b", cost=30), per_replica={"a": 100.0, "b": 200.0}, required=250.0
    )
    assert outcome(decisions) == {"a": (1, "SiblingGrows"), "b": (3, "ScaleUp")}
    assert decisions["b"].message == "250 tokens missing (so it is); cost-aware: b +2"


def test_what_does_not_fit_overflows_to_the_next():
    """The cheapest is at its maximum after one."""
    decisions = closed(variant("a", cost=5, maximum=2), variant("b", cost=50), required=250.0)
    assert outcome(decisions) == {"a": (2, "ScaleUp"), "b": (3, "ScaleUp")}


def test_replicas_on_their_way_are_supply_and_no_obstacle():
    """The analyzer has counted them; the variant grows from the number asked for."""
    asked = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 30, 1)}
    decisions = closed(variant("a"), entries=asked, required=150.0)
    assert outcome(decisions) == {"a": (5, "ScaleUp")}


def test_stuck_and_placeless_variants_are_passed_over():
    """The next cheapest grows; with nobody else the stuck one does, if something of it serves."""
    stuck = variant("a", replicas=2, ready_replicas=1, cost=1, settling_since=NOW - 700)
    placeless = variant("b", replicas=2, ready_replicas=1, cost=2, unschedulable_pods=1)
    free = variant("c", cost=9)
    ready = {"a": 1, "b": 1}
    assert outcome(closed(stuck, placeless, free, ready=ready, required=50.0)) == {
        "a": (2, "SiblingGrows"),
        "b": (2, "SiblingGrows"),
        "c": (2, "ScaleUp"),
    }
    assert outcome(closed(stuck, placeless, ready=ready, required=50.0)) == {
        "a": (3, "ScaleUp"),
        "b": (2, "SiblingGrows"),
    }
    alone = closed(placeless, ready=ready, required=50.0)
    assert outcome(alone) == {"b": (2, "NoCandidate")}
    assert "no variant can grow (b: 1 pod without a node to run on)" in alone["b"].message


def test_growth_withdraws_an_unfinished_shrink():
    """Nobody takes replicas away from a model that needs more."""
    decisions = closed(variant("a", replicas=3, desired=2, maximum=3), variant("b"), required=50.0)
    assert outcome(decisions) == {"a": (3, "ScaleDownWithdrawn"), "b": (2, "ScaleUp")}


def test_the_limit_of_the_analyzer_is_obeyed():
    """While capacities are uncertain it allows one replica at a time."""
    assert outcome(closed(variant("a"), required=500.0, growth_limit=1)) == {"a": (2, "ScaleUp")}
    idle = closed(variant("a", replicas=5), spare=400.0, shrink_limit=1)
    assert outcome(idle) == {"a": (4, "ScaleDown")}


def test_spare_capacity_takes_the_dearest_first():
    """250 to spare: two of the dear one, which carry 100 each; nothing smaller is left."""
    decisions = closed(variant("a", replicas=2, cost=5), variant("b", replicas=4, cost=50), spare=250.0)
    assert outcome(decisions) == {"a": (2, "SiblingShrinks"), "b": (2, "ScaleDown")}
    assert decisions["b"].message == "250 tokens to spare (so it is); cost-aware: b -2"


def test_one_replica_of_each_stays_unless_its_scaler_goes_to_zero():
    """A minimum of 0 means that the variant can be brought back; the last of the model stays in any case."""
    assert outcome(closed(variant("a"), variant("b"), spare=900.0)) == {"a": (1, "Steady"), "b": (1, "Steady")}
    free = closed(variant("a", cost=5, minimum=0), variant("b", cost=50, minimum=0), spare=900.0)
    assert outcome(free) == {"a": (1, "SiblingShrinks"), "b": (0, "ScaleDown")}


def test_an_unfinished_shrink_stays_while_it_is_safe():
    """What is to go counts as gone: no more goes with it, and it is withdrawn when the spare is no longer there."""
    going = variant("a", replicas=3, desired=2)
    assert outcome(closed(going, spare=100.0)) == {"a": (2, "ScaleDownUnfinished")}
    assert outcome(closed(going, spare=0.0, objection="replicas are on their way")) == {"a": (2, "ScaleDownUnfinished")}
    back = closed(going, spare=50.0)
    assert outcome(back) == {"a": (3, "ScaleDownWithdrawn")}
    assert back["a"].message == "the unfinished shrink to 2 is withdrawn: so it is"


def test_what_is_to_go_is_not_given_away_twice():
    """150 to spare, 100 of them are promised already: the sibling keeps its replicas."""
    decisions = closed(variant("a", replicas=3, desired=2), variant("b", replicas=3), spare=150.0)
    assert outcome(decisions) == {"a": (2, "ScaleDownUnfinished"), "b": (3, "Steady")}


def test_growth_that_never_came_is_withdrawn_when_nothing_is_missing():
    """After the deadline; before it the replicas are waited for."""
    asked = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 30, 2)}
    assert outcome(closed(variant("a", replicas=2), entries=asked)) == {"a": (3, "ReplicasPending")}
    late = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 700, 2)}
    assert outcome(closed(variant("a", replicas=2), entries=late)) == {"a": (2, "ScaleUpWithdrawn")}


def test_nothing_shrinks_on_incomplete_metrics():
    """A replica that reports nothing may be full."""
    one = variant("a", replicas=2)
    pods = (pod("a-0"), pod("a-1", kv=None, queue=None, size=None, request=None))
    progress = progress_of(one, replicas=pods, entry=None, moment=Moment(NOW, 600.0))
    model = assess(MODEL, reports=[VariantReport(progress, pods)], policy=SaturationPolicy(), failure=None, now=NOW)
    capacity = ModelCapacity(MODEL, (VariantCapacity(one.key, "A100", 10.0, 2, 0, 100.0, 0.0),), objection="1 unread")
    (decision,) = cost_aware(Gap(model, capacity), drafts(model))
    assert (decision.desired, decision.reason.value) == (2, "MetricsIncomplete")


def test_a_step_that_the_scaler_ignores_is_enlarged_or_left_out():
    """Twenty replicas: 21 or 19 would be ignored."""
    assert outcome(closed(variant("a", replicas=20), required=50.0)) == {"a": (23, "ScaleUp")}
    assert outcome(closed(variant("a", replicas=20), spare=250.0)) == {"a": (20, "Steady")}
    assert outcome(closed(variant("a", replicas=20), spare=350.0)) == {"a": (17, "ScaleDown")}


def test_equal_variants_share_growth_and_shrink():
    """The arithmetic gives all to the first; here they stay equal to one."""
    assert outcome(closed(variant("a"), variant("b"), required=300.0)) == {"a": (3, "ScaleUp"), "b": (2, "ScaleUp")}
    shrunk = closed(variant("a", replicas=4), variant("b", replicas=3), spare=300.0)
    assert outcome(shrunk) == {"a": (2, "ScaleDown"), "b": (2, "ScaleDown")}
    unlike = (candidate("a"), candidate("b", cost=11.0))
    assert spread(unlike, grow(unlike, 300.0)) == [candidate("a", number=4), candidate("b", cost=11.0)]


def test_a_variant_of_unknown_capacity_neither_grows_nor_shrinks():
    """What it would add or take nobody knows."""
    unknown = candidate(per_replica=0.0)
    assert grow([unknown], 100.0) == [unknown]
    assert shrink([replace(unknown, number=5)], 100.0) == [replace(unknown, number=5)]
    assert share([Need(MODEL, 10.0, (replace(unknown, accelerator="A100"),))], {"A100": 5})[MODEL][0].number == 1


def test_scarce_gpus_are_shared_by_weight():
    """The model that lacks three times as much is served first, down to the other's need; then they take turns."""
    needs = [
        Need(ModelKey("ns", name), required, (candidate(name, accelerator="A100"),))
        for name, required in (("light", 200.0), ("heavy", 600.0))
    ]
    for free, light, heavy in ((2, 1, 3), (4, 1, 5), (6, 2, 6), (99, 3, 7)):
        found = share(needs, {"A100": free})
        assert [after[0].number for after in found.values()] == [light, heavy]


def test_the_limit_of_the_analyzer_holds_while_gpus_are_shared():
    """One replica at a time, in several turns."""
    need = Need(MODEL, 500.0, (candidate(accelerator="A100"),), limit=2)
    assert share([need], {"A100": 9})[MODEL][0].number == 3


def tokens_policy(**fields) -> Policy:
    """Return a policy with the token analyzer."""
    return Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.TOKENS), **fields)


def in_need(*names: str) -> Snapshot:
    """Return models of one busy variant each."""
    variants = [variant(name, model=name) for name in names]
    return Snapshot.of(variants, [pod(f"{name}-0", kv=0.79) for name in names])


def known(*names: str) -> Memory:
    """Return the memory of models that have been looked at for an hour."""
    learned = [LearnedCapacity(ModelKey("ns", name), NOW - 3600) for name in names]
    return Memory(capacity=CapacityMemory(tuple(learned)))


def test_the_pipeline_shares_the_last_gpu_by_priority():
    """Two models under the token analyzer, one free GPU: the premium one grows, by its share and not by chance."""
    premium = ServiceTarget("premium", priority=1, model_id="b")
    policy = tokens_policy(enable_limiter=True, service_targets=(premium,))
    seen = replace(in_need("a", "b"), inventory=Inventory.of([AcceleratorPool("A100", 3, 2)]))
    decisions, _ = decide(seen, known("a", "b"), policy, NOW)
    assert {decision.key.name: decision.desired for decision in decisions} == {"a": 1, "b": 2}
    assert "greedy-by-score: b +1" in decisions[1].message


def test_the_pipeline_decides_alone_without_a_budget():
    """Cost-aware, with what has been learned kept for the next cycle."""
    decisions, memory = decide(in_need("a", "b"), known("a", "b"), tokens_policy(), NOW)
    assert [decision.desired for decision in decisions] == [2, 2]
    assert "cost-aware: a +1" in decisions[0].message
    assert [learned.model.model_id for learned in memory.capacity.models] == ["a", "b"]


def test_the_pipeline_shares_nothing_that_is_not_in_the_inventory():
    """A model on GPUs that nobody has gets none of them."""
    policy = tokens_policy(limited_mode=True)
    seen = in_need("a", "b")
    odd = (replace(seen.variants[0], accelerator="L4"), seen.variants[1])
    seen = replace(seen, variants=odd, inventory=Inventory.of([AcceleratorPool("A100", 9, 2)]))
    decisions, _ = decide(seen, known("a", "b"), policy, NOW)
    assert [decision.desired for decision in decisions] == [1, 2]


def test_the_pipeline_holds_what_cannot_be_judged_in_tokens():
    """No size of a KV cache, no capacity, no number."""
    seen = Snapshot.of([variant("a", model="a")], [pod("a-0", size=None)])
    (decision,), _ = decide(seen, known("a"), tokens_policy(), NOW)
    assert (decision.desired, decision.held) == (1, True)
