"""The ConfigMaps of a namespace affect that namespace only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.api.meta import Key
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.model.variant import ModelKey

OWN, SATURATION, TO_ZERO = "wva", "wva-saturation-scaling-config", "wva-model-scale-to-zero-config"
VICTIMS = [ModelKey("victim", "m"), ModelKey("victim", "other"), ModelKey(OWN, "m")]
GLOBAL = {"default": "kvCacheThreshold: 0.7\nqueueLengthThreshold: 9\n"}


def configuration(*, admitted=True):
    """Return a configuration with global thresholds. The tenant's ConfigMaps are in force if ``admitted``."""
    given_ = Inputs({}, {"PROMETHEUS_BASE_URL": "https://p", "POD_NAMESPACE": OWN}, {})
    live = LiveConfiguration(load(given_).settings, given_, refusal=lambda _: "" if admitted else "not opted in")
    live.apply(Key(OWN, SATURATION), GLOBAL)
    return live


def seen(policy, models):
    """Return all settings of a policy for some models."""
    return [
        (policy.saturation_for(model), policy.scale_to_zero_for(model), policy.queueing_for(model)) for model in models
    ]


def switches(policy):
    """Return the settings of a policy that are the same for all models."""
    return policy.compatibility, policy.enable_limiter, policy.limited_mode, policy.unknown_inventory, policy.solver


ATTACKS = {
    "namespace of another": "model_id: m\nnamespace: victim\nkvCacheThreshold: 0.2\n",
    "own namespace of the controller": "model_id: m\nnamespace: wva\nkvCacheThreshold: 0.2\n",
    "no namespace": "model_id: m\nkvCacheThreshold: 0.2\n",
    "a switch for all": "kvCacheThreshold: 0.2\nenableLimiter: true\ncompatibility: v0.5\n",
    "a fail mode for all": "kvCacheThreshold: 0.2\nunknownInventory: unlimited\n",
}


@pytest.mark.parametrize("key", ["default", "x"])
@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS.keys())
def test_an_entry_of_a_tenant_stays_in_his_namespace(key, text):
    """An entry that names another namespace or a global switch has no effect there."""
    live = configuration()
    before = seen(live.policy, VICTIMS), switches(live.policy)
    live.apply(Key("tenant", SATURATION), {key: text})
    assert (seen(live.policy, VICTIMS), switches(live.policy)) == before


def test_a_tenant_who_is_admitted_sets_his_own():
    """The entries of an admitted namespace have an effect; otherwise the other tests here would prove nothing."""
    live = configuration()
    live.apply(Key("tenant", SATURATION), {"default": "kvCacheThreshold: 0.2\nkvSpareTrigger: 0.1\n"})
    assert live.policy.saturation_for(ModelKey("tenant", "m")).kv_cache_threshold == 0.2


def test_a_tenant_who_is_not_admitted_changes_nothing_at_all():
    """WVA ignores the ConfigMaps of a namespace that has neither one of its variants nor the label."""
    live = configuration(admitted=False)
    models = [*VICTIMS, ModelKey("tenant", "m")]
    before = seen(live.policy, models)
    live.apply(Key("tenant", SATURATION), {"default": "kvCacheThreshold: 0.2\nkvSpareTrigger: 0.1\n"})
    assert seen(live.policy, models) == before


LINES = """model_id: m
model_id: other
namespace: victim
namespace: wva
kvCacheThreshold: 0.2
queueLengthThreshold: 1
enableLimiter: true
unknownInventory: unlimited
unlimited: false
compatibility: v0.5
enable_scale_to_zero: true
x: {
- y
\u202e: 1"""
FIELD = st.sampled_from(LINES.splitlines())
ENTRIES = st.dictionaries(st.sampled_from(["default", "a", "b", "victim"]), st.lists(FIELD, max_size=6).map("\n".join))


@settings(deadline=None)
@given(st.sampled_from([SATURATION, TO_ZERO]), ENTRIES)
def test_no_config_map_of_a_tenant_moves_another(name, entries):
    """Valid and invalid entries of a tenant do not change the settings of other namespaces."""
    live = configuration()
    before = seen(live.policy, VICTIMS), switches(live.policy)
    live.apply(Key("tenant", name), entries)
    assert (seen(live.policy, VICTIMS), switches(live.policy)) == before
