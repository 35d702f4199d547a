"""The optimizer of a model is chosen by name: what each does with the same need, and under the same GPUs."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.builders import NOW, variant
from tests.decide.queueing.samples import H100, KNOWN, UNTUNED, pod, steady
from tests.decide.story import BUSY, FULL, IDLE, Story, numbers
from tests.decide.test_capacities import in_need, known, tokens_policy
from tests.publish.statuses import FOUND, VALID, va
from wva import log
from wva.decide.pipeline import decide
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, UnknownInventory
from wva.model.optimizers import Analyzer, BestEffort, Optimizer, SolverPolicy
from wva.model.policy import Compatibility, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.service import AcceleratorCost, ServiceTarget
from wva.model.snapshot import Snapshot
from wva.model.variant import Bounds
from wva.publish.announce import log_decision
from wva.publish.conditions import conditions_of

QUEUEING = replace(KNOWN, saturation=SaturationPolicy(analyzer_name=Analyzer.QUEUEING))
HYBRID = replace(KNOWN, proactive_model=True)
LOADED = 1.0
"""Requests per second that one replica on an A100 answers; it takes two within the targets."""


def gpus(free, *, kind="A100"):
    """Return an inventory with so many free GPUs of one kind."""
    return Inventory.of([AcceleratorPool(kind, 100, 100 - free)])


def fleet(*models, rate=0.9):
    """Return a snapshot of models with one loaded replica each: three are needed, and two are missing."""
    variants = [variant(name, model=name, cost=40.0) for name in models]
    return Snapshot.of(variants, [pod(name, success_rate=rate) for name in models])


def premium(*models, rank=1):
    """Return service classes and parameters for models."""
    return {
        "service_targets": tuple(
            ServiceTarget("c", rank + place, 500, 24, model_id=name) for place, name in enumerate(models)
        ),
        "profiles": tuple(replace(KNOWN.profiles[0], model_id=name) for name in models),
    }


def decided(snapshot, policy, inventory=None, detail=""):
    """Return the decisions by variant, after an hour of the same load."""
    memory = steady(snapshot, policy)
    decisions, _ = decide(replace(snapshot, inventory=inventory, inventory_detail=detail), memory, policy, NOW)
    return {decision.key.name: decision for decision in decisions}


# --- the percentage analyzer ------------------------------------------------------------------------------------------


def test_one_step_adds_a_single_replica_where_sized_growth_adds_what_is_missing():
    """Both optimizers shrink a model alike."""
    for optimizer, expected in ((Optimizer.SIZED, 8), (Optimizer.ONE_STEP, 5)):
        story = Story(Policy(SaturationPolicy(analyzer_name=Analyzer.PERCENTAGE, optimizer_name=optimizer)))
        assert story.cycle(variant(replicas=4), a=[FULL] * 4)["a"].desired == expected
        assert "1 replica more" in story.decisions["a"].message or optimizer is Optimizer.SIZED
        assert Story(story.policy).cycle(variant(replicas=4), a=[IDLE] * 4)["a"].desired == 3
        assert Story(story.policy).cycle(variant(replicas=2), a=[BUSY] * 2)["a"].desired == 2


def test_what_a_maximum_keeps_from_sized_growth_is_counted_for_the_cheapest_variant():
    """Two full replicas want to double; the maximum allows one more or none, and a sibling takes the rest."""
    three = Bounds(None, 3, maximum_origin="HPA ns/a")

    def limits(*others, maximum=three):
        one = variant(replicas=2, cost=1.0, bounds=maximum)
        found = Story().cycle(one, *others, a=[FULL] * 2, **{each.key.name: [FULL] for each in others})
        steps = [(name, step) for name, decision in found.items() for step in decision.limits]
        return numbers(found), [(name, step.stage, step.limited_by, step.fewer) for name, step in steps]

    assert limits() == ({"a": 3}, [("a", "allocate", "HPA ns/a", 1)])
    full = Bounds(None, 2, maximum_origin="HPA ns/a")
    assert limits(maximum=full) == ({"a": 2}, [("a", "allocate", "HPA ns/a", 2)])
    assert limits(variant("b")) == ({"a": 3, "b": 3}, [])
    both = limits(variant("b", bounds=Bounds(None, 1)), maximum=full)
    assert both == ({"a": 2, "b": 1}, [("a", "allocate", "HPA ns/a", 3)])


# --- analyzers that know capacities -----------------------------------------------------------------------------------


def test_scarce_gpus_go_by_priority_or_by_score():
    """Three GPUs for two models that need two each: one model gets two, or each model lacks one or less."""
    for optimizer, expected in (
        (Optimizer.BY_ANALYZER, [2, 2]),
        (Optimizer.GREEDY_BY_SCORE, [2, 2]),
        (Optimizer.COST_AWARE, [2, 2]),
    ):
        policy = tokens_policy(enable_limiter=True)
        policy = replace(policy, saturation=replace(policy.saturation, optimizer_name=optimizer))
        seen = replace(in_need("a", "b"), inventory=gpus(9))
        decisions, _ = decide(seen, known("a", "b"), policy, NOW)
        assert [decision.desired for decision in decisions] == expected
    chosen = SaturationPolicy(analyzer_name=Analyzer.QUEUEING, optimizer_name=Optimizer.GREEDY_BY_SCORE)
    same = tuple(replace(target, priority=1) for target in premium("x", "y")["service_targets"])
    by_score = replace(
        QUEUEING, **(premium("x", "y") | {"service_targets": same}), enable_limiter=True, saturation=chosen
    )
    assert numbers(decided(fleet("x", "y"), by_score, gpus(2))) == {"x": 2, "y": 2}
    by_priority = replace(by_score, saturation=QUEUEING.saturation)
    assert numbers(decided(fleet("x", "y"), by_priority, gpus(2))) == {"x": 3, "y": 1}


def test_who_gets_less_of_shared_gpus_says_who_limited_it_and_by_how_much():
    """The step of the allocation and the beginning of the message name the limit."""
    policy = tokens_policy(enable_limiter=True, service_targets=(ServiceTarget("p", priority=1, model_id="b"),))
    seen = replace(in_need("a", "b"), inventory=gpus(1))
    (loser, winner), _ = decide(seen, known("a", "b"), policy, NOW)
    (step,) = loser.limits
    assert (step.stage, step.limited_by, step.fewer) == ("allocate", "gpu-limiter A100", 1)
    assert loser.reason is Reason.GPU_LIMITED
    assert loser.message.startswith("limited to 1: 1 replica fewer than wanted (gpu-limiter A100); ")
    assert not winner.limits


# --- the queueing model -----------------------------------------------------------------------------------------------


def test_without_a_budget_the_model_based_optimizer_gives_what_is_needed():
    """0.9 requests/s at 0.4147 per replica take three."""
    found = decided(fleet("x", "y"), replace(QUEUEING, **premium("x", "y")))
    assert numbers(found) == {"x": 3, "y": 3}
    assert "2 replicas more" in found["x"].message


@pytest.mark.parametrize(
    ("policy", "delayed", "expected"),
    [
        (BestEffort.NONE, False, {"x": 3, "y": 2, "z": 1}),
        (BestEffort.PRIORITY_EXHAUSTIVE, False, {"x": 3, "y": 2, "z": 1}),
        (BestEffort.PRIORITY_ROUND_ROBIN, True, {"x": 3, "y": 2, "z": 1}),
        (BestEffort.ROUND_ROBIN, True, {"x": 3, "y": 2, "z": 1}),
    ],
)
def test_three_free_gpus_go_by_service_class(policy, delayed, expected):
    """The first class gets the two that it needs and the second class the last one, under each of these policies."""
    solver = SolverPolicy(best_effort=policy, delayed=delayed)
    asked = replace(QUEUEING, **premium("x", "y", "z"), enable_limiter=True, solver=solver)
    found = decided(fleet("x", "y", "z"), asked, gpus(3))
    assert numbers(found) == expected
    for name, decision in found.items():
        fewer = 3 - expected[name]
        limits = [(step.stage, step.limited_by, step.fewer) for step in decision.limits]
        assert limits == ([("allocate", "gpu-limiter A100", fewer)] if fewer else [])
    assert found["z"].reason is Reason.GPU_LIMITED
    assert "there are no GPUs for it" in found["z"].message


def test_round_robin_takes_turns_among_equals():
    """Four GPUs for three models of one class that need two each; no model may have all."""
    classes = premium("x", "y", "z")
    same = tuple(replace(target, priority=1) for target in classes["service_targets"])
    solver = SolverPolicy(best_effort=BestEffort.ROUND_ROBIN)
    asked = replace(QUEUEING, **(classes | {"service_targets": same}), enable_limiter=True, solver=solver)
    assert numbers(decided(fleet("x", "y", "z", rate=2.5), asked, gpus(3))) == {"x": 2, "y": 2, "z": 2}


def test_the_cheapest_accelerator_that_has_gpus_is_taken():
    """One H100 carries all of it for 100; without a free one the model takes four A100 more, at 400 each."""
    policy = replace(QUEUEING, enable_limiter=True)
    pair = Snapshot.of(
        [variant("a", cost=400.0), variant("h", accelerator="H100", cost=100.0, gpus_per_replica=2)],
        [pod("a", success_rate=0.8), pod("h", success_rate=8.4)],
    )
    pools = [AcceleratorPool("A100", 10, 5), AcceleratorPool("H100", 8, 6)]
    assert numbers(decided(pair, policy, Inventory.of(pools))) == {"a": 1, "h": 2}
    pools[1] = AcceleratorPool("H100", 8, 7)
    found = decided(pair, policy, Inventory.of(pools))
    assert numbers(found) == {"a": 5, "h": 1}
    assert [(step.stage, step.limited_by, step.fewer) for step in found["h"].limits] == [
        ("allocate", "gpu-limiter H100", 1)
    ]


def test_a_quota_of_the_namespace_binds_the_solver_by_its_name():
    """Nine GPUs are free, but the quota of the namespace leaves one of them."""
    quota = GpuQuota("ns", "nvidia.com/gpu", 4, 3, "team")
    inventory = Inventory.of([AcceleratorPool("A100", 100, 91)], [quota])
    solver = SolverPolicy(best_effort=BestEffort.PRIORITY_EXHAUSTIVE)
    policy = replace(QUEUEING, **premium("x"), enable_limiter=True, solver=solver)
    found = decided(fleet("x"), policy, inventory)["x"]
    assert found.desired == 2
    assert [(step.limited_by, step.fewer) for step in found.limits] == [("ResourceQuota ns/team", 1)]
    seen = fleet("x")
    seen = replace(seen, variants=(replace(seen.variants[0], gpus_per_replica=2),))
    twice = Inventory.of([AcceleratorPool("A100", 100, 91)], [replace(quota, used=1)])
    found = decided(seen, policy, twice)["x"]
    assert (found.desired, [step.limited_by for step in found.limits]) == (2, ["ResourceQuota ns/team"])


def test_the_solver_may_be_limited_alone_or_not_at_all():
    """With ``unlimited`` false it keeps to the GPUs without a limiter; with a limiter every optimizer does."""
    base = replace(QUEUEING, **premium("x"))
    alone = decided(fleet("x"), replace(base, solver=SolverPolicy(unlimited=False)), gpus(1))["x"]
    assert (alone.desired, [step.stage for step in alone.limits]) == (2, ["allocate"])
    cut = decided(fleet("x"), replace(base, solver=SolverPolicy(unlimited=True), limited_mode=True), gpus(1))["x"]
    assert (cut.desired, [step.stage for step in cut.limits]) == (2, ["allocate"])


@pytest.mark.parametrize("solver", [SolverPolicy(), SolverPolicy(unlimited=False)])
def test_an_unknown_inventory_stops_growth_or_is_declared_unlimited(solver):
    """The configured fail mode decides, and the message names it."""
    policy = replace(QUEUEING, **premium("x"), enable_limiter=True, solver=solver)
    closed = decided(fleet("x"), policy, detail="nodes may not be listed")["x"]
    assert (closed.desired, closed.reason) == (1, Reason.GPU_LIMITED)
    assert [(step.stage, step.limited_by, step.fewer) for step in closed.limits] == [
        ("allocate", "gpu-limiter inventory", 2)
    ]
    declared = replace(policy, unknown_inventory=UnknownInventory.UNLIMITED)
    opened = decided(fleet("x"), declared, detail="nodes may not be listed")["x"]
    assert (opened.desired, opened.reason) == (3, Reason.SCALE_UP)
    assert opened.limits == ()


def test_what_the_limiter_denies_goes_to_the_next_variant():
    """The queueing model may look at no GPUs; with the ceiling of the limiter the next variant grows."""
    policy = replace(QUEUEING, enable_limiter=True, solver=SolverPolicy(unlimited=True))
    pair = Snapshot.of(
        [variant("a", cost=400.0), variant("h", accelerator="H100", cost=100.0)],
        [pod("a", success_rate=0.8), pod("h", success_rate=8.4)],
    )
    found = decided(pair, policy, Inventory.of([AcceleratorPool("A100", 10, 1), AcceleratorPool("H100", 8, 8)]))
    assert numbers(found) == {"a": 5, "h": 1}


def test_a_variant_whose_pods_find_no_node_is_left_out():
    """WVA counts on no replica of the variant and asks for no more of them."""
    pair = Snapshot.of(
        [variant("a", cost=40.0), variant("h", accelerator="H100", cost=1.0, unschedulable_pods=1)],
        [pod("a", success_rate=0.8), pod("h", success_rate=8.4)],
    )
    assert numbers(decided(pair, QUEUEING)) == {"a": 5, "h": 1}


def test_when_no_variant_may_grow_the_reason_is_that_of_the_bounds():
    """No GPU limit denied anything, so the message names the bounds only."""
    seen = Snapshot.of([variant(cost=40.0, bounds=Bounds(1, 1))], [pod(success_rate=0.9)])
    found = decided(seen, QUEUEING)["a"]
    assert (found.desired, found.reason) == (1, Reason.NO_CANDIDATE)
    assert "at the maximum 1" in found.message
    assert [(step.stage, step.limited_by, step.fewer) for step in found.limits] == [("allocate", "the scaler", 2)]


def test_a_variant_with_room_and_no_known_capacity_says_so():
    """The sibling is at its maximum; each variant gives its own reason."""
    pair = Snapshot.of(
        [variant("a", cost=40.0, bounds=Bounds(1, 1)), variant("l", accelerator="L4", cost=1.0)],
        [pod("a", success_rate=6.0), pod("l", success_rate=6.0)],
    )
    found = decided(pair, replace(QUEUEING, queueing=UNTUNED))["a"]
    assert found.reason is Reason.NO_CANDIDATE
    assert "(a: at the maximum 1; l: what one of its replicas carries is not known)" in found.message


def test_what_a_maximum_leaves_missing_is_counted():
    """Three are needed and the scaler allows two; the missing one counts for the cheapest variant at its maximum."""
    two = Bounds(None, 2, maximum_origin="HPA ns/a")
    for policy in (
        QUEUEING,
        replace(QUEUEING, saturation=replace(QUEUEING.saturation, optimizer_name=Optimizer.COST_AWARE)),
    ):
        found = decided(Snapshot.of([variant(cost=40.0, bounds=two)], [pod(success_rate=0.9)]), policy)["a"]
        assert found.desired == 2
        assert [(step.stage, step.limited_by, step.fewer) for step in found.limits] == [("allocate", "HPA ns/a", 1)]


def test_shrinks_once_nothing_speaks_against_it():
    """A load of one cycle may come back; after an hour of lower load the spare replicas go."""
    seen = Snapshot.of([variant(replicas=4, cost=40.0)], [pod(number=n, success_rate=0.1) for n in range(4)])
    (first,), _ = decide(seen, replace(steady(seen, QUEUEING), foreseen=()), QUEUEING, NOW)
    assert first.desired == 4
    decision = decided(seen, QUEUEING)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SCALE_DOWN)


def test_cost_aware_may_be_chosen_for_the_queueing_model():
    """The other optimizer answers the need of the queueing model."""
    chosen = SaturationPolicy(analyzer_name=Analyzer.QUEUEING, optimizer_name=Optimizer.COST_AWARE)
    found = decided(fleet("x"), replace(KNOWN, **premium("x"), saturation=chosen))["x"]
    assert found.desired == 3


def test_unit_costs_count_where_no_variant_states_a_cost():
    """Unit costs are per GPU. They do not count if a variant states a cost or an accelerator has no unit cost.

    Of equally dear variants the one that carries more is taken.
    """
    costs = (AcceleratorCost("A100", 4000.0), AcceleratorCost("H100", 40.0))
    pair = [variant("a"), variant("h", accelerator="H100", gpus_per_replica=2)]
    pods = [pod("a", success_rate=0.8), pod("h", success_rate=6.4)]
    policy = replace(QUEUEING, profiles=(KNOWN.profiles[0], H100), accelerator_costs=costs)
    assert numbers(decided(Snapshot.of(pair, pods), policy)) == {"a": 1, "h": 2}
    stated = [replace(pair[0], cost=9.0), pair[1]]
    assert numbers(decided(Snapshot.of(stated, pods), policy)) == {"a": 2, "h": 1}
    unknown = replace(policy, accelerator_costs=costs[:1])
    assert numbers(decided(Snapshot.of(pair, pods), unknown)) == {"a": 1, "h": 2}
    dear = replace(policy, accelerator_costs=(costs[0], AcceleratorCost("H100", 2001.0)))
    assert numbers(decided(Snapshot.of(pair, pods), dear)) == {"a": 2, "h": 1}


def test_unit_costs_that_count_are_those_of_the_decision_and_of_its_message():
    """What the plan compares is what people read: in the message, and as the cost of the decision.

    The cost of a variant that is held, or that sleeps, is the same, so that ``wva_variant_cost`` does not jump.
    """
    costs = (AcceleratorCost("A100", 4000.0), AcceleratorCost("H100", 40.0))
    trio = [
        variant("a"),
        variant("h", accelerator="H100", gpus_per_replica=2),
        variant("zero", accelerator="H100", spec_replicas=0, current_replicas=0, ready_replicas=0),
    ]
    pods = [pod("a", success_rate=0.8), pod("h", success_rate=6.4)]
    policy = replace(QUEUEING, profiles=(KNOWN.profiles[0], H100), accelerator_costs=costs)
    found = decided(Snapshot.of(trio, pods), policy)
    assert {name: each.cost for name, each in found.items()} == {"a": 4000.0, "h": 80.0, "zero": 40.0}
    assert "h (cost 80)" in found["h"].message
    held = decided(Snapshot.of(trio, []), policy)
    assert held["a"].held
    assert {name: each.cost for name, each in held.items()} == {"a": 4000.0, "h": 80.0, "zero": 40.0}
    before = replace(policy, compatibility=Compatibility.V0_5)
    assert {each.cost for each in decided(Snapshot.of(trio, pods), before).values()} == {10.0}


# --- HYBRID -----------------------------------------------------------------------------------------------------------


def test_the_second_need_keeps_to_the_gpus_that_there_are():
    """The second need wants three replicas; pools, quotas, missing or unknown GPUs and the maximum limit it."""
    policy = replace(HYBRID, **premium("x"), enable_limiter=True)

    def limits(inventory, **fields):
        seen = fleet("x")
        seen = replace(seen, variants=(replace(seen.variants[0], **fields),))
        found = decided(seen, policy, inventory, detail="not read")["x"]
        return found.desired, [(step.stage, step.limited_by, step.fewer) for step in found.limits]

    a100 = "gpu-limiter A100"
    assert limits(gpus(9)) == (3, [])
    assert limits(gpus(1)) == (2, [("allocate", a100, 1)])
    assert limits(gpus(0)) == (1, [("allocate", a100, 2)])
    assert limits(gpus(3), gpus_per_replica=2) == (2, [("allocate", a100, 1)])
    assert limits(gpus(9, kind="H100")) == (1, [("allocate", a100, 2)])
    assert limits(None) == (1, [("allocate", "gpu-limiter inventory", 2)])
    assert limits(None, status_desired=2) == (2, [("allocate", "gpu-limiter inventory", 1)])
    quota = GpuQuota("ns", "nvidia.com/gpu", 4, 4, "team")
    bound = limits(Inventory.of([AcceleratorPool("A100", 9, 1)], [quota]))
    assert bound == (1, [("allocate", "ResourceQuota ns/team", 2)])
    assert limits(gpus(9), bounds=Bounds(None, 2, maximum_origin="HPA ns/x")) == (2, [("allocate", "HPA ns/x", 1)])
    free = replace(policy, unknown_inventory=UnknownInventory.UNLIMITED)
    assert decided(fleet("x"), free, None, detail="not read")["x"].desired == 3


# --- a limit in words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["HPA ns/x", "gpu-limiter A100"])
def test_message_condition_and_log_of_a_limited_variant_have_the_same_figures(limit):
    """All of them say which limit withholds how many replicas, whatever the reason of the number is."""
    bounds = Bounds(None, 2, maximum_origin=limit) if limit.startswith("HPA") else Bounds()
    seen = fleet("x", rate=2.5)
    seen = replace(seen, variants=(replace(seen.variants[0], bounds=bounds),))
    found = decided(
        seen, replace(QUEUEING, **premium("x"), enable_limiter=True), gpus(1 if not bounds.maximum else 99)
    )["x"]
    said = {each.type: each.message for each in conditions_of(va(), FOUND, found, VALID, numbered=True)}
    with capture_logs() as lines:
        log_decision(log.get("test"), found)
    assert found.desired == 2
    assert said["Limited"] == f"limited by {limit}: 13 fewer"
    assert (lines[0]["limited_by"], lines[0]["fewer"]) == ([limit], [13])
    for text in (found.message, lines[0]["message"], said["OptimizationReady"]):
        assert "13 replicas fewer than wanted" in text
        assert limit in text
