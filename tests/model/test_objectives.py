"""Whose objectives are in force: the nearest that says something, within the limit for tenants."""

from __future__ import annotations

import pytest

from wva.model.objectives import NOTHING_ASKED, TIGHTEST, AskedObjectives, Objectives
from wva.model.policy import NamespacePolicy, Policy, SaturationOverride, SaturationPolicy, SaturationRules
from wva.model.service import ServiceTarget
from wva.model.variant import ModelKey

CHAT = ModelKey("prod", "acme/chat")


def annotation(name="a", **said):
    """Return what the annotations of a variant say."""
    return AskedObjectives(**said, origin=f"annotation of {name}", tenant=True)


def saturation(ttft=0.0, itl=0.0, in_time=0.0):
    """Return a saturation policy with objectives, in milliseconds."""
    return SaturationPolicy(target_ttft_milliseconds=ttft, target_itl_milliseconds=itl, in_time=in_time)


def entry(namespace=None, **said):
    """Return an entry of the saturation ConfigMap for the chat model."""
    return SaturationOverride("chat", CHAT.model_id, namespace, SaturationPolicy(**said), tuple(said.items()))


def in_class(**said):
    """Return a policy with the chat model in a service class."""
    return Policy(service_targets=(ServiceTarget("Premium", 1, model_id=CHAT.model_id, **said),))


def found(policy, *asked):
    """Return the objectives of the chat model in force."""
    return policy.objectives_for(CHAT, asked).objectives


def test_without_a_word_the_defaults_hold_and_nothing_is_told():
    """Nobody asked, so that nobody has to be told."""
    assert Policy().objectives_for(CHAT) is NOTHING_ASKED
    assert NOTHING_ASKED.objectives == Objectives(1.0, 0.1, 0.99)


def test_the_nearest_place_that_says_a_value_counts():
    """Annotation, entry of the model, service class, default of the namespace, default of all: value by value."""
    local = NamespacePolicy("prod", saturation=SaturationRules(saturation(5000.0, 500.0)))
    policy = Policy(
        saturation(6000.0, 600.0, 0.6),
        (entry(target_ttft_milliseconds=3000.0),),
        namespaces=(local,),
        service_targets=(ServiceTarget("Premium", 1, 4000.0, 400.0, model_id=CHAT.model_id),),
    )
    agreed = policy.objectives_for(CHAT, [annotation(ttft_seconds=2.0)])
    assert agreed.objectives == Objectives(2.0, 0.4, 0.6)
    assert agreed.words == (
        "first token within 2 s (annotation of a), between tokens 400 ms (service class Premium), "
        "in time 60 % (default of all namespaces)"
    )
    assert found(policy) == Objectives(3.0, 0.4, 0.6)
    assert policy.objectives_for(ModelKey("prod", "other")).objectives == Objectives(5.0, 0.5, 0.6)
    assert policy.objectives_for(ModelKey("dev", "other")).objectives == Objectives(6.0, 0.6, 0.6)


def test_of_variants_that_disagree_the_tightest_counts_and_it_is_told():
    """They serve the same users."""
    asked = [annotation("a", ttft_seconds=3.0, in_time=0.9), annotation("b", ttft_seconds=2.0, in_time=0.95)]
    agreed = Policy().objectives_for(CHAT, asked)
    assert agreed.objectives == Objectives(2.0, 0.1, 0.95)
    assert "first token within 2 s (annotation of b, the tightest of 2)" in agreed.words
    assert "between tokens 100 ms (built in)" in agreed.words


def test_the_untouched_values_of_the_chart_say_nothing():
    """The chart writes 1000 and 10 ms into a service class for everybody: an upgrade must move no number."""
    assert in_class(ttft_milliseconds=1000.0, itl_milliseconds=10.0).objectives_for(CHAT) is NOTHING_ASKED
    assert found(in_class(ttft_milliseconds=3000.0, itl_milliseconds=10.0)) == Objectives(3.0, 0.1)
    assert found(in_class(ttft_milliseconds=1000.0, itl_milliseconds=50.0)) == Objectives(1.0, 0.05)
    assert found(in_class(in_time=0.95)) == Objectives(1.0, 0.1, 0.95)
    assert in_class().objectives_for(CHAT) is NOTHING_ASKED


@pytest.mark.parametrize(("ttft", "itl"), [(1e9, 120_000.0), (1e-300, 0.5), (0.5, 60_001.0)])
def test_a_time_out_of_its_range_in_a_service_class_says_nothing(ttft, itl):
    """The next place decides. The time is not brought into its range: nobody asked for the nearest one."""
    assert in_class(ttft_milliseconds=ttft, itl_milliseconds=itl).objectives_for(CHAT) is NOTHING_ASKED


@pytest.mark.parametrize("local", [False, True])
def test_a_tenant_who_asks_for_more_than_is_allowed_gets_what_is_in_force_without_it(local):
    """Neither an annotation nor a ConfigMap of a namespace takes GPUs by asking for 1 ms."""
    asked, policy = (), Policy(saturation(2000.0))
    if local:
        rules = SaturationRules(saturation(1.0), (entry("prod", target_itl_milliseconds=1.0),))
        policy = Policy(saturation(2000.0), namespaces=(NamespacePolicy("prod", saturation=rules),))
    else:
        asked = [annotation(ttft_seconds=0.001, itl_seconds=0.001, in_time=0.9999)]
    agreed = policy.objectives_for(CHAT, asked)
    assert agreed.objectives == Objectives(2.0)
    assert len(agreed.refused) == (2 if local else 3)
    told = "got time to the first token 1 ms, expected at least 100 ms, the tightest that a tenant may ask for; "
    assert agreed.refused[0].words.endswith(f"{told}in force: 2 s")


def test_the_administrator_sets_the_limit_and_is_not_bound_by_it():
    """What stands in the controller's namespace is the administrator's."""
    strict = Policy(saturation(50.0), tightest=Objectives(0.5, 0.05, 0.95))
    assert found(strict) == Objectives(0.05)
    assert found(strict, annotation(ttft_seconds=0.5, itl_seconds=0.05, in_time=0.95)) == Objectives(0.5, 0.05, 0.95)
    agreed = strict.objectives_for(
        CHAT, [annotation(ttft_seconds=0.4, in_time=0.96), annotation("b", ttft_seconds=0.6)]
    )
    assert agreed.objectives == Objectives(0.6)
    assert len(agreed.refused) == 2
    assert found(Policy(), annotation(ttft_seconds=TIGHTEST.ttft_seconds)) == Objectives(0.1)


def test_values_that_no_setting_lets_in_are_brought_into_their_range():
    """A recording may have any."""
    assert found(Policy(saturation(1e15, 1e-9, 5.0))) == Objectives(3600.0, 0.001, 0.999)
