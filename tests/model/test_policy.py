"""Which entry of the policy holds for a model, and how a policy is written as JSON."""

from __future__ import annotations

import msgspec
import pytest

from wva.model.optimizers import Optimizer, SolverPolicy
from wva.model.policy import (
    Analyzer,
    NamespacePolicy,
    Policy,
    QueueingOverride,
    QueueingPolicy,
    QueueingRules,
    SaturationOverride,
    SaturationPolicy,
    SaturationRules,
    ScaleToZeroEntry,
    ScaleToZeroPolicy,
    ScaleToZeroRules,
)
from wva.model.records import replace
from wva.model.service import AcceleratorCost, PerformanceProfile, ServiceTarget
from wva.model.variant import ModelKey

CHAT = ModelKey("prod", "acme/chat")


def saturation(kv=0.8, analyzer=Analyzer.PERCENTAGE):
    """Return thresholds that tests can tell apart."""
    return SaturationPolicy(kv_cache_threshold=kv, analyzer_name=analyzer)


def override(kv, *, namespace=None, analyzer=None):
    """Return an override for the chat model."""
    policy = saturation(kv, analyzer or Analyzer.PERCENTAGE)
    return SaturationOverride("o", CHAT.model_id, namespace, policy, names_analyzer=analyzer is not None)


def test_the_entries_of_a_namespace_hold_there_alone():
    """WVA looks in the entries of the namespace first. The global rules hold in all other namespaces."""
    local = NamespacePolicy("prod", saturation=SaturationRules(saturation(0.5), (override(0.6, namespace="prod"),)))
    policy = Policy(saturation(0.8), (override(0.7),), namespaces=(NamespacePolicy("a"), local, NamespacePolicy("z")))
    found = [policy.saturation_for(model).kv_cache_threshold for model in (CHAT, ModelKey("prod", "x"))]
    assert found == [0.6, 0.5]
    elsewhere = [policy.saturation_for(ModelKey(name, CHAT.model_id)).kv_cache_threshold for name in ("a", "b", "zz")]
    assert elsewhere == [0.7, 0.7, 0.7]


def test_what_a_namespace_takes_over_is_laid_over_its_default():
    """Its named fields hold over the default of the namespace, unless they contradict it."""
    default = replace(saturation(0.5), queue_length_threshold=9.0)
    for trigger, expected in ((0.3, replace(default, kv_spare_trigger=0.3)), (0.7, default)):
        taken = SaturationOverride(
            "o", CHAT.model_id, None, SaturationPolicy(kv_spare_trigger=trigger), given=(("kv_spare_trigger", trigger),)
        )
        local = NamespacePolicy("prod", saturation=SaturationRules(default))
        policy = Policy(overrides=(taken,), namespaces=(local,))
        assert policy.saturation_for(CHAT) == expected
        assert policy.saturation_for(ModelKey("dev", CHAT.model_id)) == taken.policy
        assert policy.misfits(CHAT) == (() if trigger < 0.5 else ("o",))
        assert policy.misfits(ModelKey("dev", CHAT.model_id)) == ()


@pytest.mark.parametrize(
    ("analyzer", "engines", "counters"),
    [
        (Analyzer.PERCENTAGE, False, False),
        (Analyzer.TOKENS, True, False),
        (Analyzer.QUEUEING, True, True),
        (Analyzer.DEMAND, False, True),
    ],
)
def test_each_analyzer_asks_for_what_it_reads(analyzer, engines, counters):
    """In HYBRID mode WVA asks for the metrics of all analyzers."""
    policy = Policy(SaturationPolicy(analyzer_name=analyzer))
    assert (policy.asks_engines(CHAT), policy.asks_counters(CHAT)) == (engines, counters)
    hybrid = replace(policy, proactive_model=True)
    assert (hybrid.asks_engines(CHAT), hybrid.asks_counters(CHAT)) == (True, True)


def test_an_analyzer_that_contradicts_the_default_of_a_namespace_is_not_taken_over():
    """The name of the analyzer holds in the namespace only if its thresholds fit the default there."""
    taken = override(0.7, analyzer=Analyzer.TOKENS)
    for up, expected in ((0.5, Analyzer.DEMAND), (0.9, Analyzer.TOKENS)):
        local = NamespacePolicy("prod", saturation=SaturationRules(SaturationPolicy(scale_up_threshold=up)))
        assert Policy(overrides=(taken,), namespaces=(local,)).analyzer_for(CHAT) is expected


@pytest.mark.parametrize(
    ("given", "optimizer", "expected"),
    [
        ((("kv_spare_trigger", 0.2),), None, Analyzer.PERCENTAGE),
        ((), Optimizer.ONE_STEP, Analyzer.PERCENTAGE),
        ((("transition_deadline_seconds", 60.0),), None, Analyzer.DEMAND),
    ],
)
def test_thresholds_that_a_namespace_takes_over_hold_over_its_demand_analyzer(given, optimizer, expected):
    """A global entry with thresholds or with an optimizer selects the percentage analyzer there, too."""
    own = SaturationPolicy(optimizer_name=optimizer or Optimizer.BY_ANALYZER)
    taken = SaturationOverride("o", CHAT.model_id, None, own, given=given, names_optimizer=optimizer is not None)
    local = NamespacePolicy("prod", saturation=SaturationRules(SaturationPolicy()))
    policy = Policy(overrides=(taken,), namespaces=(local,))
    assert policy.analyzer_for(CHAT) is expected
    assert policy.misfits(CHAT) == ()


def test_a_queueing_entry_that_is_taken_over_is_laid_over_the_default_of_the_namespace():
    """An entry that gives one target alone contradicts a default without targets, so the default holds."""
    whole = QueueingPolicy(target_ttft_milliseconds=500, target_itl_milliseconds=50)
    for given, expected in (
        ((("target_ttft_milliseconds", 9.0), ("target_itl_milliseconds", 8.0)), QueueingPolicy(5.0, True, 9.0, 8.0)),
        ((("target_ttft_milliseconds", 9.0),), QueueingPolicy(5.0)),
    ):
        taken = QueueingOverride("q", CHAT.model_id, "prod", whole, given)
        local = NamespacePolicy("prod", queueing=QueueingRules(QueueingPolicy(5.0)))
        policy = Policy(queueing=QueueingRules(None, (taken,)), namespaces=(local,))
        assert policy.queueing_for(CHAT) == expected
        assert policy.misfits(CHAT) == (() if len(given) == 2 else ("q",))
        assert Policy(queueing=QueueingRules(None, (taken,))).queueing_for(CHAT) == whole


def test_the_own_entries_of_a_namespace_win_for_each_kind():
    """They have precedence over global entries for the same model and namespace."""
    local = NamespacePolicy(
        "prod",
        scale_to_zero=ScaleToZeroRules(None, (ScaleToZeroEntry("l", CHAT.model_id, "prod", True),)),
        queueing=QueueingRules(None, (QueueingOverride("l", CHAT.model_id, "prod", QueueingPolicy(7.0)),)),
    )
    policy = Policy(
        scale_to_zero=ScaleToZeroRules(None, (ScaleToZeroEntry("g", CHAT.model_id, "prod", False, 60.0),)),
        queueing=QueueingRules(QueueingPolicy(), (QueueingOverride("g", CHAT.model_id, "prod", QueueingPolicy(6.0)),)),
        namespaces=(local,),
    )
    assert policy.scale_to_zero_for(CHAT) == ScaleToZeroPolicy(True, 600.0)
    assert policy.queueing_for(CHAT) == QueueingPolicy(7.0)
    assert policy.misfits(CHAT) == ()


def test_an_entry_for_the_namespace_beats_one_for_every_namespace():
    """The order of the two entries does not matter."""
    for overrides in (
        (override(0.6, namespace="prod"), override(0.7)),
        (override(0.7), override(0.6, namespace="prod")),
    ):
        assert Policy(overrides=overrides).saturation_for(CHAT).kv_cache_threshold == 0.6


@pytest.mark.parametrize(
    ("own", "queueing", "default", "expected"),
    [
        (None, QueueingRules(), "", Analyzer.PERCENTAGE),
        (None, QueueingRules(), "saturation", Analyzer.TOKENS),
        (None, QueueingRules(QueueingPolicy()), "saturation", Analyzer.QUEUEING),
        (None, QueueingRules(None, (QueueingOverride("q", CHAT.model_id, "prod", QueueingPolicy()),)), "", "queueing"),
        (None, QueueingRules(None, (QueueingOverride("q", CHAT.model_id, "dev", QueueingPolicy()),)), "", ""),
        (Analyzer.TOKENS, QueueingRules(QueueingPolicy()), "", Analyzer.TOKENS),
        (Analyzer.PERCENTAGE, QueueingRules(QueueingPolicy()), "saturation", Analyzer.PERCENTAGE),
        (Analyzer.QUEUEING, QueueingRules(), "", Analyzer.QUEUEING),
    ],
)
def test_the_nearest_of_three_switches_selects_the_analyzer(own, queueing, default, expected):
    """The entry of the model selects it, else a queueing entry, else the default."""
    overrides = () if own is None else (override(0.7, analyzer=own),)
    policy = Policy(saturation(analyzer=Analyzer(default)), overrides, queueing=queueing)
    assert policy.analyzer_for(CHAT) == expected


def test_an_override_that_names_no_analyzer_does_not_count_as_naming_one():
    """A queueing entry has precedence over the analyzer that the override inherits."""
    plain = SaturationOverride("o", CHAT.model_id, None, saturation(0.7, Analyzer.TOKENS))
    policy = Policy(saturation(analyzer=Analyzer.TOKENS), (plain,), queueing=QueueingRules(QueueingPolicy()))
    assert policy.analyzer_for(CHAT) is Analyzer.QUEUEING


def test_scale_to_zero_is_answered_field_by_field():
    """Each field comes from the entry of the model, else from the default, else from the setting and ten minutes."""
    default = ScaleToZeroEntry("default", "", None, enabled=False, retention_seconds=900.0)
    entry = ScaleToZeroEntry("chat", CHAT.model_id, None, enabled=True)
    rules = ScaleToZeroRules(default, (entry,))
    assert Policy(scale_to_zero=rules).scale_to_zero_for(CHAT) == ScaleToZeroPolicy(True, 900.0, given=True)
    other = ModelKey("prod", "other")
    assert Policy(scale_to_zero=rules, scale_to_zero_default=True).scale_to_zero_for(other).enabled is False
    assert Policy(scale_to_zero_default=True).scale_to_zero_for(other) == ScaleToZeroPolicy(True, 600.0)
    assert Policy().scale_to_zero_for(other) == ScaleToZeroPolicy(False, 600.0)


def test_each_kind_of_rules_falls_back_by_itself():
    """A namespace with scale-to-zero entries alone keeps the global queueing and saturation rules."""
    local = NamespacePolicy("prod", scale_to_zero=ScaleToZeroRules(ScaleToZeroEntry("default", "", enabled=True)))
    policy = Policy(saturation(0.5), queueing=QueueingRules(QueueingPolicy(slo_multiplier=4)), namespaces=(local,))
    assert policy.scale_to_zero_for(CHAT).enabled
    assert policy.saturation_for(CHAT).kv_cache_threshold == 0.5
    assert policy.queueing_for(CHAT) == QueueingPolicy(slo_multiplier=4)


def test_classes_costs_and_profiles_are_found_by_name():
    """The search finds each name in the sorted tuples, and None for a name that is absent."""
    targets = tuple(ServiceTarget("Premium", 1, 500, 24, model_id=name) for name in ("a", "b", "c"))
    costs = tuple(AcceleratorCost(name, cost) for name, cost in (("A100", 40.0), ("G2", 23.0)))
    profiles = tuple(
        PerformanceProfile(20.58, 0.41, model_id=model, accelerator=name) for model in "ab" for name in ("A100", "G2")
    )
    policy = Policy(service_targets=targets, accelerator_costs=costs, profiles=profiles)
    assert [policy.service_target_for(ModelKey("x", name)) for name in "abcd"] == [*targets, None]
    assert [policy.accelerator_cost(name) for name in ("A100", "G2", "H100")] == [40.0, 23.0, None]
    found = [policy.profile_for(model, name) for model in "ab" for name in ("A100", "G2")]
    assert found == list(profiles)
    assert policy.profile_for("a", "H100") is None
    assert policy.profile_for("", "") is None


FULL = Policy(
    saturation(0.5, Analyzer.TOKENS),
    (SaturationOverride("o", "m", "prod", saturation(0.7), (("kv_cache_threshold", 0.7),), True),),
    enable_limiter=True,
    scale_to_zero=ScaleToZeroRules(ScaleToZeroEntry("default", "", None, True, 60.0)),
    queueing=QueueingRules(
        QueueingPolicy(4.0, False, 500.0, 50.0),
        (QueueingOverride("q", "m", "n", QueueingPolicy(), (("tuning_enabled", True), ("slo_multiplier", 3.0))),),
    ),
    namespaces=(NamespacePolicy("prod", SaturationRules(), ScaleToZeroRules(), QueueingRules()),),
    service_targets=(ServiceTarget("Premium", 1, 500, 24, 0, "m"),),
    accelerator_costs=(AcceleratorCost("A100", 40.0, "NVIDIA-A100-PCIE-80GB"),),
    profiles=(PerformanceProfile(20.58, 0.41, 5.2, 0.1, 4, 1, 0, "m", "A100"),),
    limited_mode=True,
    proactive_model=True,
    scale_to_zero_default=True,
)


def test_a_policy_can_be_written_down_and_compared():
    """A policy reads back from JSON unchanged, and can be the key of a dictionary."""
    assert msgspec.json.decode(msgspec.json.encode(FULL), type=Policy) == FULL
    assert len({FULL, Policy(), Policy()}) == 2


def test_what_was_recorded_before_a_field_existed_means_its_default():
    """WVA loads recordings of older versions."""
    old = (
        b'{"saturation":{"kv_cache_threshold":0.5,"queue_length_threshold":5.0,"kv_spare_trigger":0.1,'
        b'"queue_spare_trigger":3.0,"transition_deadline_seconds":600.0},'
        b'"overrides":[{"name":"o","model_id":"m","namespace":null,"policy":{}}],"compatibility":null}'
    )
    read = msgspec.json.decode(old, type=Policy)
    assert read == Policy(SaturationPolicy(0.5), (SaturationOverride("o", "m", None, SaturationPolicy()),))


@pytest.mark.parametrize(
    ("limiter", "unlimited", "expected"),
    [
        (False, None, (False, False, False)),
        (True, None, (True, True, True)),
        (True, True, (True, False, True)),
        (False, False, (False, True, True)),
        (True, False, (True, True, True)),
    ],
)
def test_who_counts_gpus(limiter, unlimited, expected):
    """The limiter counts GPUs for all growth; ``unlimited`` decides for the model-based optimizer."""
    for policy in (Policy(enable_limiter=limiter), Policy(limited_mode=limiter)):
        asked = replace(policy, solver=SolverPolicy(unlimited))
        assert (asked.limited, asked.model_limited, asked.counts_gpus) == expected
