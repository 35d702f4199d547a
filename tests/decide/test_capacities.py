"""From capacity to replicas: WVA adds the cheapest missing capacity, and removes the dearest spare capacity."""

from __future__ import annotations

import math

import pytest

from tests.builders import NOW, variant
from tests.decide.tokens import pod
from wva.decide.measure import ANALYZERS
from wva.decide.measure.need import Capacity, Need
from wva.decide.pipeline import decide
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import CapacityBasis, CapacityMemory, LearnedCapacity, Memory, VariantMemory
from wva.model.policy import Analyzer, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.service import ServiceTarget
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

MODEL = ModelKey("ns", "m")


class FixedAnalyzer:
    """An analyzer that returns the need of a test: capacity that is missing in future, or to spare now.

    ``sizes`` are what replicas carry by variant, ``default`` where nothing is said.
    """

    def __init__(self, sizes, default, *, required=0.0, spare=0.0, **limits) -> None:
        """See the class."""
        self.sizes, self.default, self.required, self.spare, self.limits = sizes, default, required, spare, limits

    def __call__(self, models, memory, _policy, _now, _seen):
        """Return the needs."""
        return [self._need(model) for model in models], memory

    def _need(self, model):
        sizes = {each.key: self.sizes.get(each.key.name, self.default) for each in model.variants}
        supply = sum(each.progress.serving * sizes[each.key] for each in model.variants)
        counted = supply + sum(each.progress.in_flight * sizes[each.key] for each in model.variants)
        blocked = self.limits.get("objection")
        required = counted + self.required if self.required else min(0.0 if blocked else supply - self.spare, counted)
        return Need(
            model.key,
            "tokens",
            0.0,
            required,
            supply - self.spare if self.spare else math.inf,
            {key: Capacity(size, CapacityBasis.OBSERVED) for key, size in sizes.items()},
            wish=f"{self.required:.4g} tokens missing (so it is)" if self.required else "",
            summary="so it is",
            **self.limits,
        )


@pytest.fixture
def closed(monkeypatch):
    """Return a function that decides on one model; its replicas are Ready unless ``ready`` says so."""

    def close(*variants, per_replica=None, entries=None, ready=None, pods=None, **capacity):
        counts = ready or {}
        found = [
            pod(f"{one.key.name}-{number}")
            for one in variants
            for number in range(counts.get(one.key.name, one.current_replicas))
        ]
        monkeypatch.setitem(ANALYZERS, Analyzer.TOKENS, FixedAnalyzer(per_replica or {}, 100.0, **capacity))
        memory = Memory(tuple((entries or {})[name] for name in sorted(entries or {})))
        decisions, _ = decide(Snapshot.of(list(variants), pods or found), memory, tokens_policy(), NOW)
        return {decision.key.name: decision for decision in decisions}

    return close


def outcome(decisions):
    """Return number and reason by name."""
    return {name: (decision.desired, decision.reason.value) for name, decision in decisions.items()}


def test_as_many_replicas_as_the_gap_needs_on_the_cheapest_per_capacity(closed):
    """300 for 50 cost less than 400 for 60. Of 350 missing, two replicas of the dear variant are cheaper per token."""
    decisions = closed(
        variant("a", cost=20), variant("b", cost=30), per_replica={"a": 100.0, "b": 200.0}, required=250.0
    )
    assert outcome(decisions) == {"a": (2, "ScaleUp"), "b": (2, "ScaleUp")}
    sizes = {"a": 100.0, "b": 200.0}
    decisions = closed(variant("a", cost=20), variant("b", cost=30), per_replica=sizes, required=350.0)
    assert outcome(decisions) == {"a": (1, "SiblingGrows"), "b": (3, "ScaleUp")}
    assert decisions["b"].message == (
        "350 tokens missing (so it is); 2 replicas more, the cheapest numbers have more of b (cost 30)"
    )


def test_what_does_not_fit_overflows_to_the_next(closed):
    """The cheapest variant is at its maximum after one replica."""
    decisions = closed(variant("a", cost=5, maximum=2), variant("b", cost=50), required=250.0)
    assert outcome(decisions) == {"a": (2, "ScaleUp"), "b": (3, "ScaleUp")}


def test_replicas_on_their_way_are_supply_and_no_obstacle(closed):
    """The analyzer has counted the starting replicas, and the variant grows from the number that WVA asked for."""
    asked = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 30, 1)}
    decisions = closed(variant("a"), entries=asked, required=150.0)
    assert outcome(decisions) == {"a": (5, "ScaleUp")}


def test_stuck_and_placeless_variants_are_passed_over(closed):
    """The next cheapest variant grows; without another one the stuck variant grows, if some of its replicas serve."""
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


def test_growth_withdraws_an_unfinished_shrink(closed):
    """A model that needs more replicas gives none away."""
    decisions = closed(variant("a", replicas=3, desired=2, maximum=3), variant("b"), required=50.0)
    assert outcome(decisions) == {"a": (3, "ScaleDownWithdrawn"), "b": (2, "ScaleUp")}


def test_the_limit_of_the_analyzer_is_obeyed(closed):
    """While capacities are uncertain, the analyzer allows one replica at a time."""
    assert outcome(closed(variant("a"), required=500.0, most_added=1)) == {"a": (2, "ScaleUp")}
    idle = closed(variant("a", replicas=5), spare=400.0, most_removed=1)
    assert outcome(idle) == {"a": (4, "ScaleDown")}


def test_spare_capacity_takes_the_dearest_first(closed):
    """250 are to spare: two replicas of the dear variant go, which carry 100 each; no smaller one is left."""
    decisions = closed(variant("a", replicas=2, cost=5), variant("b", replicas=4, cost=50), spare=250.0)
    assert outcome(decisions) == {"a": (2, "SiblingShrinks"), "b": (2, "ScaleDown")}
    words = "4 replicas can carry the load; the cheapest numbers have fewer of b (cost 50)"
    assert decisions["b"].message == f"{words}; so it is"


def test_one_replica_of_each_stays_unless_its_scaler_goes_to_zero(closed):
    """A scaler with a minimum of 0 can start the variant again. The last replica of the model stays in any case."""
    assert outcome(closed(variant("a"), variant("b"), spare=900.0)) == {"a": (1, "Steady"), "b": (1, "Steady")}
    free = closed(variant("a", cost=5, minimum=0), variant("b", cost=50, minimum=0), spare=900.0)
    assert outcome(free) == {"a": (1, "SiblingShrinks"), "b": (0, "ScaleDown")}


def test_an_unfinished_shrink_stays_while_it_is_safe(closed):
    """Replicas that are to go count as gone: no more go, and WVA withdraws the shrink when the spare is used up."""
    going = variant("a", replicas=3, desired=2)
    assert outcome(closed(going, spare=100.0)) == {"a": (2, "ScaleDownUnfinished")}
    assert outcome(closed(going, spare=0.0, objection="replicas are on their way")) == {"a": (2, "ScaleDownUnfinished")}
    back = closed(going, spare=50.0)
    assert outcome(back) == {"a": (3, "ScaleDownWithdrawn")}
    assert back["a"].message.endswith(
        "250 tokens needed, 200 there (so it is), so the unfinished shrink to 2 is withdrawn"
    )


def test_what_is_to_go_is_not_given_away_twice(closed):
    """150 are to spare and a shrink has taken 100 of them: the sibling keeps its replicas."""
    decisions = closed(variant("a", replicas=3, desired=2), variant("b", replicas=3), spare=150.0)
    assert outcome(decisions) == {"a": (2, "ScaleDownUnfinished"), "b": (3, "SiblingShrinks")}


def test_growth_that_never_came_is_withdrawn_when_nothing_is_missing(closed):
    """WVA waits for the new replicas until the deadline, and then withdraws the growth."""
    asked = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 30, 2)}
    assert outcome(closed(variant("a", replicas=2), entries=asked)) == {"a": (3, "ReplicasPending")}
    late = {"a": VariantMemory(VariantKey("ns", "a"), 3, NOW - 700, 2)}
    assert outcome(closed(variant("a", replicas=2), entries=late)) == {"a": (2, "ScaleUpWithdrawn")}


def test_a_step_that_the_scaler_ignores_is_enlarged_or_left_out(closed):
    """The scaler of twenty replicas would ignore a change to 21 or 19."""
    assert outcome(closed(variant("a", replicas=20), required=50.0)) == {"a": (23, "ScaleUp")}
    assert outcome(closed(variant("a", replicas=20), spare=250.0)) == {"a": (20, "Steady")}
    assert outcome(closed(variant("a", replicas=20), spare=350.0)) == {"a": (17, "ScaleDown")}


def test_equal_variants_share_growth_and_shrink(closed):
    """The arithmetic gives all to the first variant; here the numbers differ by one at most."""
    assert outcome(closed(variant("a"), variant("b"), required=300.0)) == {"a": (3, "ScaleUp"), "b": (2, "ScaleUp")}
    shrunk = closed(variant("a", replicas=4), variant("b", replicas=3), spare=300.0)
    assert outcome(shrunk) == {"a": (2, "ScaleDown"), "b": (2, "ScaleDown")}
    unlike = closed(variant("a"), variant("b", cost=11.0), required=300.0)
    assert outcome(unlike) == {"a": (4, "ScaleUp"), "b": (1, "SiblingGrows")}


def test_a_variant_of_unknown_capacity_neither_grows_nor_shrinks(closed):
    """WVA does not know what a replica of the variant would add or remove."""
    sizes = {"a": 0.0}
    assert outcome(closed(variant("a"), per_replica=sizes, required=100.0)) == {"a": (1, "NoCandidate")}
    assert outcome(closed(variant("a", replicas=5), per_replica=sizes, spare=100.0)) == {"a": (5, "Steady")}


def test_nothing_shrinks_on_incomplete_metrics(closed):
    """A replica that does not report may be full."""
    pods = [pod("a-0"), pod("a-1", kv=None, queue=None, size=None, request=None)]
    assert outcome(closed(variant("a", replicas=2), pods=pods, spare=100.0)) == {"a": (2, "MetricsIncomplete")}


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
    """Two models under the token analyzer share one free GPU: the premium one grows, by its priority."""
    premium = ServiceTarget("premium", priority=1, model_id="b")
    policy = tokens_policy(enable_limiter=True, service_targets=(premium,))
    seen = replace(in_need("a", "b"), inventory=Inventory.of([AcceleratorPool("A100", 3, 2)]))
    decisions, _ = decide(seen, known("a", "b"), policy, NOW)
    assert {decision.key.name: decision.desired for decision in decisions} == {"a": 1, "b": 2}
    assert decisions[0].limits[0].limited_by == "gpu-limiter A100"


def test_the_pipeline_decides_alone_without_a_budget():
    """Without a GPU budget the pipeline keeps what it has learned for the next cycle."""
    decisions, memory = decide(in_need("a", "b"), known("a", "b"), tokens_policy(), NOW)
    assert [decision.desired for decision in decisions] == [2, 2]
    assert "1 replica more, the cheapest numbers have more of a (cost 10)" in decisions[0].message
    assert [learned.model.model_id for learned in memory.capacity.models] == ["a", "b"]


def test_the_pipeline_shares_nothing_that_is_not_in_the_inventory():
    """A model whose accelerator is not in the inventory gets no GPUs."""
    policy = tokens_policy(limited_mode=True)
    seen = in_need("a", "b")
    odd = (replace(seen.variants[0], accelerator="L4"), seen.variants[1])
    seen = replace(seen, variants=odd, inventory=Inventory.of([AcceleratorPool("A100", 9, 2)]))
    decisions, _ = decide(seen, known("a", "b"), policy, NOW)
    assert [decision.desired for decision in decisions] == [1, 2]


def test_the_pipeline_holds_what_cannot_be_judged_in_tokens():
    """Without a KV cache size the analyzer knows no capacity, so WVA keeps the number."""
    seen = Snapshot.of([variant("a", model="a")], [pod("a-0", size=None)])
    (decision,), _ = decide(seen, known("a"), tokens_policy(), NOW)
    assert (decision.desired, decision.held) == (1, True)
