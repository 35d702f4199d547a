"""Variants at zero replicas: a variant that its scaler can bring back may grow when its siblings are saturated."""

from __future__ import annotations

from tests.builders import NOW, variant
from tests.decide.story import BUSY, FULL, HOT, Story, numbers, reasons
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import VariantMemory
from wva.model.policy import Policy

ASLEEP = {"replicas": 0, "minimum": 0, "cost": 5.0}


def test_the_cheapest_is_called_back_when_its_sibling_is_saturated():
    """WVA starts the cheapest variant. The Go controller never considered a variant at zero replicas."""
    decisions = Story().cycle(variant("a", **ASLEEP), variant("b", cost=50), b=[FULL])
    assert numbers(decisions) == {"a": 1, "b": 1}
    assert reasons(decisions) == {"a": "ScaleUp", "b": "SiblingGrows"}
    assert decisions["a"].settling_since == NOW


def test_a_variant_that_its_scaler_does_not_bring_back_stays():
    """An HPA with a minimum of 1 ignores a target at zero. A user has switched this one off."""
    for minimum in (None, 1):
        asleep = variant("a", replicas=0, minimum=minimum, cost=5)
        assert numbers(Story().cycle(asleep, variant("b", cost=50), b=[HOT])) == {"a": 0, "b": 2}


def test_it_stays_asleep_while_its_siblings_have_spare():
    """The variant looks like any variant at zero."""
    decision = Story().cycle(variant("a", **ASLEEP), variant("b"), b=[BUSY])["a"]
    assert (decision.desired, decision.reason, decision.settling_since) == (0, Reason.INACTIVE, None)


def test_a_whole_model_at_zero_is_the_business_of_scale_from_zero():
    """No replica reports, so no replica is saturated."""
    decisions = Story().cycle(variant("a", **ASLEEP), variant("b", **ASLEEP))
    assert reasons(decisions) == {"a": "Inactive", "b": "Inactive"}


def test_what_was_called_back_is_waited_for():
    """The variant counts as starting, and WVA keeps its number in the next cycle."""
    story = Story()
    story.cycle(variant("a", **ASLEEP), variant("b", cost=50), b=[HOT])
    decisions = story.cycle(variant("a", **ASLEEP), variant("b", cost=50), after=30, b=[HOT])
    assert numbers(decisions) == {"a": 1, "b": 1}
    assert reasons(decisions) == {"a": "ReplicasPending", "b": "PendingReplicasSuffice"}
    arrived = variant("a", replicas=1, minimum=0, cost=5)
    decisions = story.cycle(arrived, variant("b", cost=50), after=60, a=[BUSY], b=[BUSY])
    assert numbers(decisions) == {"a": 1, "b": 1}


def test_a_call_that_nobody_follows_is_withdrawn():
    """The scaler does nothing and the model no longer needs the variant, so WVA withdraws the number."""
    story = Story()
    story.cycle(variant("a", **ASLEEP), variant("b", cost=50), b=[HOT])
    decisions = story.cycle(variant("a", **ASLEEP), variant("b", cost=50), after=600, b=[BUSY])
    assert numbers(decisions) == {"a": 0, "b": 1}


def test_the_past_of_a_variant_that_was_switched_off_says_nothing():
    """The last number is from before the user switched the variant off, so the variant does not count as starting."""
    story = Story()
    story.cycle(variant("a", replicas=2, minimum=0), variant("b"), a=[BUSY] * 2, b=[BUSY])
    assert story.remembers("a") == VariantMemory(story.remembers("a").key, 2, None, 2)
    decisions = story.cycle(variant("a", replicas=0, minimum=0, desired=2), variant("b"), after=30, b=[BUSY])
    assert numbers(decisions) == {"a": 0, "b": 1}


def test_who_keeps_a_variant_at_zero_is_said():
    """No GPU is free for the variant: the steps say so, although the variant looks like any other at zero."""
    story = Story(Policy(enable_limiter=True), inventory=Inventory.of([AcceleratorPool("A100", 1, 1)]))
    decision = story.cycle(variant("a", **ASLEEP), variant("b", maximum=1), b=[HOT])["a"]
    assert (decision.desired, decision.reason) == (0, Reason.INACTIVE)
    assert decision.message.startswith("scaled to zero; limited to 0: 1 replica fewer than wanted (gpu-limiter A100)")
    assert [(step.stage, step.limited_by, step.fewer) for step in decision.limits] == [
        ("allocate", "gpu-limiter A100", 1)
    ]
    assert story.remembers("a").desired == 0
