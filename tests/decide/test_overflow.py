"""If growth finds no GPUs, WVA grows the next variant of the model."""

from __future__ import annotations

from collections import Counter

from hypothesis import event, given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from tests.decide.story import BUSY, FULL, IDLE, Story, numbers, reasons
from tests.decide.tokens import pod
from wva.decide.pipeline import decide
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import CapacityMemory, LearnedCapacity, Memory, VariantMemory
from wva.model.policy import Analyzer, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.service import ServiceTarget
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey


def free(**gpus: int) -> tuple[AcceleratorPool, ...]:
    """Return pools with so many free GPUs."""
    return tuple(AcceleratorPool(name, 100, 100 - count) for name, count in gpus.items())


def story(*quotas: GpuQuota, policy: Policy | None = None, **gpus: int) -> Story:
    """Return a story with the limiter on."""
    inventory = Inventory.of(list(free(**gpus)), list(quotas))
    return Story(replace(policy or Policy(), enable_limiter=True), inventory=inventory)


def cheap(**fields):
    """Return the variant that an optimizer without a GPU budget would always choose."""
    return variant("cheap", cost=1, **fields)


def dear(**fields):
    """Return the dearer sibling, which uses other GPUs."""
    return variant("dear", **{"cost": 50, "accelerator": "H100", **fields})


def test_what_finds_no_gpus_goes_to_the_next_variant():
    """Three more are wanted: the cheap variant gets one, its sibling two, and both messages say so."""
    decisions = story(A100=1, H100=8).cycle(cheap(replicas=2), dear(), cheap=[FULL] * 2, dear=[FULL])
    assert numbers(decisions) == {"cheap": 3, "dear": 3}
    assert reasons(decisions) == {"cheap": "GpuLimited", "dear": "ScaleUp"}
    assert decisions["cheap"].message.startswith("limited to 3: 2 replicas fewer than wanted (gpu-limiter A100); ")


def test_the_next_variant_has_limits_of_its_own():
    """What the second variant cannot take goes to the third; a variant that was full at the start keeps its number."""
    decisions = story(A100=1, H100=1, L40S=9).cycle(
        cheap(replicas=4),
        dear(),
        variant("dearest", cost=90, accelerator="L40S"),
        variant("full", cost=5, accelerator="L40S", maximum=1),
        cheap=[FULL] * 4,
        dear=[FULL],
        dearest=[FULL],
        full=[FULL],
    )
    assert numbers(decisions) == {"cheap": 5, "dear": 2, "dearest": 6, "full": 1}


def test_a_quota_of_the_namespace_binds_the_next_variant_as_well():
    """The quota limits the cheap variant, and the next variant keeps its number."""
    quota = GpuQuota("ns", "nvidia.com/gpu", hard=4, used=3, name="team")
    decisions = story(quota, A100=9, H100=9).cycle(cheap(replicas=2), dear(), cheap=[FULL] * 2, dear=[FULL])
    assert numbers(decisions) == {"cheap": 3, "dear": 1}
    assert {step.limited_by for step in decisions["cheap"].limits} == {"ResourceQuota ns/team"}


def test_without_a_sibling_the_words_stay():
    """No sibling can take the growth, so the message names the limit only."""
    decision = story(A100=0).cycle(cheap(replicas=2), cheap=[FULL] * 2)["cheap"]
    assert (decision.desired, decision.reason) == (2, Reason.GPU_LIMITED)
    assert "but there are no GPUs for it" in decision.message


def test_who_overflows_takes_nothing_from_a_model_of_higher_priority():
    """Both models want the same GPUs in the end, and the premium model gets them."""
    premium = ServiceTarget("premium", priority=1, model_id="n")
    decisions = story(A100=0, H100=2, policy=Policy(service_targets=(premium,))).cycle(
        cheap(replicas=2),
        dear(),
        variant("other", model="n", replicas=2, accelerator="H100", cost=99),
        cheap=[FULL] * 2,
        dear=[FULL],
        other=[FULL] * 2,
    )
    assert numbers(decisions) == {"cheap": 2, "dear": 1, "other": 4}


def test_who_overflows_with_higher_priority_pushes_on_who_was_there():
    """The premium model takes the GPU that the other model had at first, and the other one moves on in turn."""
    premium = ServiceTarget("premium", priority=1, model_id="m")
    decisions = story(A100=0, H100=1, L40S=9, policy=Policy(service_targets=(premium,))).cycle(
        cheap(),
        dear(),
        variant("other", model="n", accelerator="H100", cost=1),
        variant("otherwhere", model="n", accelerator="L40S", cost=9),
        cheap=[FULL],
        dear=[FULL],
        other=[FULL],
        otherwhere=[FULL],
    )
    assert numbers(decisions) == {"cheap": 1, "dear": 2, "other": 1, "otherwhere": 3}


def test_a_granted_step_that_the_scaler_ignores_goes_to_the_sibling_too():
    """A step from twenty by two is within the tolerance of an HPA, so the sibling gets the whole step."""
    decisions = story(A100=2, H100=99).cycle(cheap(replicas=20), dear(), cheap=[FULL] * 20, dear=[FULL])
    assert numbers(decisions) == {"cheap": 20, "dear": 22}
    assert [step.limited_by for step in decisions["cheap"].limits] == ["gpu-limiter A100"]


def test_growth_overflows_under_the_token_analyzer_too():
    """Under the cost-aware optimizer the sibling gets what the cheapest variant cannot have."""
    policy = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.TOKENS), enable_limiter=True)
    learned = Memory(capacity=CapacityMemory((LearnedCapacity(ModelKey("ns", "m"), NOW - 3600),)))
    pods = [pod("cheap-0", kv=0.79), pod("dear-0", kv=0.79)]
    seen = Snapshot.of([cheap(), dear()], pods)
    for gpus, expected in (({"A100": 9, "H100": 9}, {"cheap"}), ({"A100": 0, "H100": 9}, {"dear"})):
        limited = replace(seen, inventory=Inventory.of(list(free(**gpus))))
        decisions, _ = decide(limited, learned, policy, NOW)
        assert {decision.key.name for decision in decisions if decision.desired > 1} == expected


def test_while_the_gpus_are_unknown_the_sibling_is_not_asked():
    """No variant grows, and the message is on the variant that would have grown."""
    limited = story()
    limited.inventory = None
    decisions = limited.cycle(cheap(), dear(), cheap=[FULL], dear=[FULL])
    assert numbers(decisions) == {"cheap": 1, "dear": 1}
    assert reasons(decisions) == {"cheap": "GpuLimited", "dear": "NoCandidate"}


def test_what_is_only_asked_for_gives_way_to_a_shrink_that_is_withdrawn():
    """Replicas that do not exist yet have no GPUs, and none are free; replicas that were to go keep theirs."""
    told = story(A100=0)
    told.memory = Memory(
        variants=(VariantMemory(variant("a").key, 4, None, 3), VariantMemory(variant("c").key, 1, None, 5))
    )
    c = variant("c", replicas=5, unschedulable_pods=1)
    decisions = told.cycle(variant("a", replicas=3), c, a=[IDLE] * 3, c=[IDLE] * 4 + [(0.0, 5.0)])
    assert numbers(decisions) == {"a": 3, "c": 5}
    assert reasons(decisions) == {"a": "ScaleUpWithdrawn", "c": "ScaleDownWithdrawn"}
    assert decisions["a"].message == "4 replicas no longer needed: other variants cover the need"


def test_a_budget_without_models_is_no_problem():
    """Without models the answer is empty, and a model that asks for nothing gets nothing."""
    assert story(A100=1).cycle() == {}
    assert numbers(story(A100=0).cycle(cheap(), cheap=[BUSY])) == {"cheap": 1}


@st.composite
def crowds(draw):
    """Draw full models with variants on two kinds of GPUs, and how many of each are free."""
    variants, loads = [], {}
    for name in "abcdef"[: draw(st.integers(1, 6))]:
        count = draw(st.integers(1, 12))
        variants.append(
            variant(
                name,
                replicas=count,
                model=draw(st.sampled_from("mn")),
                accelerator=draw(st.sampled_from(["A100", "H100"])),
                cost=draw(st.sampled_from([1.0, 5.0])),
                maximum=draw(st.none() | st.integers(count, 14)),
                gpus_per_replica=draw(st.integers(1, 3)),
            )
        )
        loads[name] = [FULL] * count
    return variants, loads, {"A100": draw(st.integers(0, 9)), "H100": draw(st.integers(0, 9))}


@given(crowds())
def test_no_gpu_is_promised_twice(crowd):
    """All growth together fits into the free GPUs and the bounds, and no model loses what exists."""
    variants, loads, gpus = crowd
    limited = story(**gpus)
    decisions = limited.cycle(*variants, **loads)
    promised: Counter[str] = Counter()
    for one in variants:
        promised[one.accelerator] += (decisions[one.key.name].desired - one.current_replicas) * one.gpus_per_replica
    if any(decision.limits for decision in decisions.values()):
        event("limited")
    assert all(promised[name] <= count for name, count in gpus.items())
    for one in variants:
        assert one.current_replicas <= decisions[one.key.name].desired <= (one.bounds.maximum or 99)
