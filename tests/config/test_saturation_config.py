"""The saturation ConfigMap: how entries merge, which ones are valid, and what WVA reports.

``tests/golden/test_misc.py`` compares golden entries of the original.
"""

from __future__ import annotations

import math
import tracemalloc

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.parsing import parse_saturation
from wva.config.declare import declarations
from wva.config.entries import EntryError, policy_fields
from wva.config.keys import SaturationFields
from wva.config.yaml_text import MAX_ENTRY_BYTES
from wva.model.optimizers import Optimizer
from wva.model.policy import (
    MAX_KEEP_WARM_SECONDS,
    Analyzer,
    Compatibility,
    ModelKey,
    Policy,
    SaturationPolicy,
)

EXPECTED = {each.key: each.form.expected for each in declarations(SaturationFields).values()}
BUILT_IN = SaturationPolicy()
THRESHOLDS = "kvCacheThreshold: 0.80\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.1\nqueueSpareTrigger: 3\n"
SHIPPED = f"analyzerName: demand\n{THRESHOLDS}"


def percentage(*values, **named):
    """Return thresholds of the percentage analyzer."""
    return SaturationPolicy(*values, **named, analyzer_name=Analyzer.PERCENTAGE)


def _only_error(data, **rest):
    (error,) = parse_saturation(data, **rest).errors
    return error


def test_no_entries_mean_the_built_in_values():
    """WVA decides without a default entry, too."""
    config = parse_saturation({})
    assert (config.policy, config.errors, config.warnings) == (Policy(), (), ())
    assert SaturationPolicy(0.80, 5, 0.1, 3, 600, Analyzer.DEMAND, 0.85, 0.70) == BUILT_IN


def test_the_shipped_default_is_the_built_in_one():
    """A cluster without the ConfigMap has the same policy as one with the shipped ConfigMap."""
    assert parse_saturation({"default": SHIPPED + "enableLimiter: false\n"}).policy == Policy()


def test_a_default_may_name_a_single_field():
    """The other thresholds keep their built-in values."""
    policy = parse_saturation({"default": "kvCacheThreshold: 0.9"}).policy
    assert policy.saturation == percentage(kv_cache_threshold=0.9)


def test_an_override_inherits_from_the_default_entry():
    """The default entry inherits from the built-in values."""
    config = parse_saturation(
        {
            "default": "kvCacheThreshold: 0.9\ntransitionDeadline: 20m",
            "chat": "model_id: org/chat\nnamespace: prod\nkvSpareTrigger: 0.35",
        }
    )
    assert config.errors == ()
    assert config.policy.saturation_for(ModelKey("prod", "org/chat")) == percentage(0.9, 5, 0.35, 3, 1200)
    assert config.policy.saturation_for(ModelKey("test", "org/chat")).kv_spare_trigger == 0.1


def test_an_override_without_a_namespace_is_for_every_namespace():
    """An override with a namespace has precedence in that namespace."""
    data = {"all": "model_id: m\nkvSpareTrigger: 0.2", "one": "model_id: m\nnamespace: prod\nkvSpareTrigger: 0.3"}
    policy = parse_saturation(data).policy
    triggers = [policy.saturation_for(ModelKey(namespace, "m")).kv_spare_trigger for namespace in ("prod", "test")]
    assert triggers == [0.3, 0.2]


def test_of_two_overrides_for_one_model_the_first_key_wins_with_a_warning():
    """WVA sorts the keys, because a ConfigMap does not keep their order."""
    entry = "model_id: m\nnamespace: n\nkvSpareTrigger: "
    config = parse_saturation({"b": entry + "0.3", "a": entry + "0.2"})
    assert [override.name for override in config.policy.overrides] == ["a"]
    (warning,) = config.warnings
    assert warning.startswith("b: has no effect")


def test_validation_follows_merging():
    """WVA rejects an override that contradicts the values it inherits."""
    error = _only_error({"default": "kvSpareTrigger: 0.5", "a": "model_id: m\nnamespace: n\nkvCacheThreshold: 0.4"})
    assert error == EntryError(
        "a",
        "kvCacheThreshold",
        "0.4",
        "at least kvSpareTrigger (0.5)",
        "0.8, and nothing of this entry",
        model_id="m",
        namespace="n",
    )


def test_a_bad_entry_is_rejected_alone():
    """The other entries stay in force. The default holds for the model of the rejected one."""
    config = parse_saturation(
        {"default": "kvCacheThreshold: 0.9", "bad": "model_id: x\nkvSpareTrigger: 7", "good": "model_id: y"}
    )
    assert [override.name for override in config.policy.overrides] == ["good"]
    assert [(error.key, error.field, error.model_id) for error in config.errors] == [("bad", "kvSpareTrigger", "x")]
    assert config.policy.saturation_for(ModelKey("n", "x")) == config.policy.saturation


def test_a_bad_default_leaves_the_last_good_one_in_force():
    """A typing error changes no thresholds. Overrides inherit from the last good default."""
    good = parse_saturation({"default": "kvCacheThreshold: 0.9\ncompatibility: v0.5"})
    data = {"default": "kvCacheThreshold: 9", "a": "model_id: m\nkvSpareTrigger: 0.2"}
    config = parse_saturation(data, previous=good)
    assert config.policy.saturation.kv_cache_threshold == 0.9
    assert config.policy.compatibility is Compatibility.V0_5
    assert config.policy.overrides[0].policy.kv_cache_threshold == 0.9
    assert config.errors[0].in_force == "0.9, with the last valid text of this entry"


def test_a_bad_default_without_a_last_good_one_means_the_built_in_values():
    """There is no last good default when the process starts."""
    assert parse_saturation({"default": "kvCacheThreshold: 9"}).policy == Policy()


def test_a_removed_default_means_the_built_in_values():
    """The last good default does not stay in force when the entry is removed."""
    good = parse_saturation({"default": "kvCacheThreshold: 0.9"})
    assert parse_saturation({}, previous=good).policy == Policy()


@pytest.mark.parametrize(("good", "words"), [("auto", "auto"), ("off", "off"), ("90m", "5400s")])
def test_how_long_replicas_are_kept_warm_is_told_as_it_is_written(good, words):
    """The error of a bad entry shows the last good ``keepWarm`` in words or as a duration."""
    first = parse_saturation({"default": f"keepWarm: {good}"})
    (error,) = parse_saturation({"default": "keepWarm: 2d"}, previous=first).errors
    assert str(error) == (
        "default.keepWarm: got 2d, expected auto, off or a duration such as 90s, 10m or 1h30m, at most 24h;"
        f" in force: {words}, with the last valid text of this entry"
    )


@pytest.mark.parametrize(("name", "good"), [("targetTTFT", "3000"), ("targetITL", "50"), ("inTime", "0.9")])
@pytest.mark.parametrize("key", ["default", "a"])
def test_a_bad_objective_is_told_without_a_number_that_another_place_may_replace(name, good, key):
    """Service classes and annotations say objectives, too. So the error only says what of its entry is in force."""
    head, beneath = ("", {}) if key == "default" else ("model_id: m\n", {"default": f"{name}: {good}"})
    bad = {**beneath, key: f"{head}{name}: soon"}
    assert _only_error(bad).in_force == "nothing of this entry"
    for text, words in ((f"{name}: {good}", f"with {name} {good}"), ("keepWarm: off", f"which has no {name}")):
        before = parse_saturation({**beneath, key: head + text})
        (error,) = parse_saturation(bad, previous=before).errors
        assert error.in_force == f"the last valid text of this entry, {words}"


def test_an_entry_with_a_bad_field_is_told_to_count_as_a_whole():
    """Of three fields one is bad, and none of them is in force. The message must not read as if two were."""
    bad = {"default": "targetTTFT: 3000\nkeepWarm: off\nkvCacheThreshold: 80"}
    assert _only_error(bad).in_force == "0.8, and nothing of this entry"
    before = parse_saturation({"default": "targetTTFT: 2000\nkvCacheThreshold: 0.7\nanalyzerName: demand"})
    config = parse_saturation(bad, previous=before)
    assert config.errors[0].in_force == "0.7, with the last valid text of this entry"
    assert config.policy == before.policy


def test_an_override_keeps_warm_what_the_default_does_not():
    """The override holds also with ``auto``, and over the default of a namespace."""
    data = {"default": "keepWarm: off", "a": "model_id: a\nkeepWarm: auto", "b": "model_id: b\nkvSpareTrigger: 0.2"}
    policy = parse_saturation(data).policy
    kept = [policy.saturation_for(ModelKey("n", model)).keep_warm for model in ("a", "b", "c")]
    assert kept == [MAX_KEEP_WARM_SECONDS, 0.0, 0.0]
    (first, second) = (override.over(SaturationPolicy(keep_warm=60.0)) for override in policy.overrides)
    assert (first.policy.keep_warm, second.policy.keep_warm) == (MAX_KEEP_WARM_SECONDS, 60.0)


def test_an_error_is_a_sentence_with_what_is_in_force():
    """The sentence becomes an event and the message of a condition."""
    error = _only_error({"default": 'kvCacheThreshold: "0.8"'})
    assert str(error) == (
        'default.kvCacheThreshold: got "0.8", expected a number from 0 to 1, without quotes; '
        "in force: 0.8, and nothing of this entry"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kvCacheThreshold", "1.1"),
        ("kvCacheThreshold", "-0.1"),
        ("kvCacheThreshold", ".nan"),
        ("kvCacheThreshold", ".inf"),
        ("kvCacheThreshold", "1e999"),
        ("kvCacheThreshold", "'0.8'"),
        ("kvCacheThreshold", "true"),
        ("kvCacheThreshold", "80%"),
        ("kvCacheThreshold", "[0.8]"),
        ("kvCacheThreshold", "{a: 1}"),
        ("kvCacheThreshold", "!!float 0.8"),
        ("queueLengthThreshold", "-1"),
        ("queueLengthThreshold", ".inf"),
        ("kvSpareTrigger", "2"),
        ("queueSpareTrigger", "-0.5"),
        ("enableLimiter", '"true"'),
        ("enableLimiter", "maybe"),
        ("enableLimiter", "1"),
        ("scaleUpThreshold", "0"),
        ("scaleDownBoundary", "1.5"),
        ("compatibility", "v0.6"),
        ("transitionDeadline", "600"),
        ("transitionDeadline", "0s"),
        ("transitionDeadline", "-1m"),
        ("transitionDeadline", "1d"),
        ("keepWarm", "0s"),
        ("keepWarm", "-10m"),
        ("keepWarm", "600"),
        ("keepWarm", "25h"),
        ("keepWarm", "300000h"),
        ("keepWarm", "on"),
        ("keepWarm", "always"),
        ("keepWarm", "[auto]"),
        ("surgeFactor", "0.9"),
        ("surgeFactor", "16.1"),
        ("surgeFactor", "25%"),
        ("targetTTFT", "0"),
        ("targetTTFT", "3s"),
        ("targetITL", "60001"),
        ("inTime", "99"),
        ("tightestTTFT", "0.5"),
    ],
)
def test_a_value_outside_its_field_is_rejected(field, value):
    """The error names the field and says what the field takes."""
    error = _only_error({"default": f"{field}: {value}"})
    assert (error.key, error.field) == ("default", field)
    assert error.expected in {EXPECTED[field], "a single value"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kvCacheThreshold: 1", percentage(kv_cache_threshold=1.0)),
        ("kvSpareTrigger: 0", percentage(kv_spare_trigger=0.0)),
        ("kvSpareTrigger: 5e-1", percentage(kv_spare_trigger=0.5)),
        ("kvCacheThreshold: 0.5\nkvSpareTrigger: .49", percentage(0.5, kv_spare_trigger=0.49)),
        ("queueLengthThreshold: 3.5", percentage(queue_length_threshold=3.5)),
        ("queueSpareTrigger: 5", percentage(queue_spare_trigger=5)),
        ("kvCacheThreshold:", BUILT_IN),
        ("kvCacheThreshold: ~", BUILT_IN),
        ("transitionDeadline: '1h30m'", SaturationPolicy(transition_deadline_seconds=5400)),
        ("keepWarm: auto", BUILT_IN),
        ("keepWarm: 'auto'", BUILT_IN),
        ("keepWarm: 24h", BUILT_IN),
        ("keepWarm: off", SaturationPolicy(keep_warm=0.0)),
        ("keepWarm: 'off'", SaturationPolicy(keep_warm=0.0)),
        ("keepWarm: false", SaturationPolicy(keep_warm=0.0)),
        ("keepWarm: 90m", SaturationPolicy(keep_warm=5400.0)),
        ("surgeFactor: 1.25", SaturationPolicy(surge_factor=1.25)),
        ("surgeFactor: 1", SaturationPolicy(surge_factor=1.0)),
        ("surgeFactor: 3", BUILT_IN),
        ("targetTTFT: 3000", SaturationPolicy(target_ttft_milliseconds=3000.0)),
        ("targetITL: 50\ninTime: 0.95", SaturationPolicy(target_itl_milliseconds=50.0, in_time=0.95)),
        ("tightestTTFT: 300\ntightestITL: 30", BUILT_IN),
        ("analyzerName: ''", percentage()),
        ("analyzerName: percentage", percentage()),
        ("analyzerName: demand\nkvSpareTrigger: 0.2", SaturationPolicy(kv_spare_trigger=0.2)),
        ("optimizerName: sized", percentage(optimizer_name=Optimizer.SIZED)),
        ("optimizerName: ''", BUILT_IN),
        ("scaleUpThreshold: 0.85\nscaleDownBoundary: 0.7", BUILT_IN),
        ("scaleUpThreshold: 0.5", SaturationPolicy(scale_up_threshold=0.5)),
        ("", BUILT_IN),
        ("# nothing", BUILT_IN),
        ("---\n{}\n---\nkvCacheThreshold: 9", BUILT_IN),
    ],
)
def test_accepted_notations(text, expected):
    """WVA accepts the notations of the original's YAML library, except ambiguous ones."""
    config = parse_saturation({"default": text})
    assert (config.errors, config.policy.saturation) == ((), expected)


GROWS = ": the model grows to its maximum at any load"


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("kvCacheThreshold: 0\nkvSpareTrigger: 0", "kvCacheThreshold", "0", "at least 0.01 above kvSpareTrigger (0)"),
        ("kvCacheThreshold: 1e-300\nkvSpareTrigger: 0", "kvCacheThreshold", "1e-300", "above kvSpareTrigger (0)"),
        ("kvCacheThreshold: .5\nkvSpareTrigger: .5", "kvCacheThreshold", "0.5", "above kvSpareTrigger (0.5)"),
        ("queueLengthThreshold: 0", "queueLengthThreshold", "0", "above 0 and at least queueSpareTrigger (3)"),
        ("queueLengthThreshold: 0\nqueueSpareTrigger: 0", "queueLengthThreshold", "0", "above 0"),
        ("queueLengthThreshold: 1e-300", "queueLengthThreshold", "1e-300", "at least queueSpareTrigger (3)"),
        ("queueSpareTrigger: 50", "queueLengthThreshold", "5", "at least queueSpareTrigger (50)"),
        ("analyzerName: saturation\nkvCacheThreshold: .001\nkvSpareTrigger: 0", "kvCacheThreshold", "0.001", "0.01"),
        ("analyzerName: saturation\nqueueLengthThreshold: 0", "queueLengthThreshold", "0", "above 0"),
        (
            "analyzerName: saturation\nscaleUpThreshold: 1e-300\nscaleDownBoundary: 5e-324",
            "scaleUpThreshold",
            "1e-300",
            "at least 0.01",
        ),
    ],
)
def test_thresholds_that_no_load_is_below_are_in_force_and_told(text, field, value, expected):
    """The original takes them, so WVA does; with them a model grows to its maximum, and the error says so."""
    config = parse_saturation({"default": text})
    in_force = config.policy.saturation
    assert all(getattr(in_force, name) == said for name, said in policy_fields(config.good["default"].fields).items())
    (error,) = config.errors
    assert (error.key, error.field, error.value, error.in_force) == ("default", field, value, value + GROWS)
    assert expected in error.expected


def test_a_model_is_told_once_which_threshold_makes_it_grow():
    """What an entry inherits is told of the default alone; what it says itself is told of the entry."""
    data = {"default": "queueLengthThreshold: 0", "a": "model_id: a\nkvSpareTrigger: 0.2"}
    assert [error.key for error in parse_saturation(data).errors] == ["default"]
    config = parse_saturation({"default": "", "a": "model_id: a\nqueueLengthThreshold: 0", "b": "model_id: b"})
    assert [(error.key, error.model_id) for error in config.errors] == [("a", "a")]
    corrected = parse_saturation({"default": ""}, previous=config)
    assert corrected.errors == ()


def test_the_queueing_analyzer_reads_no_thresholds():
    """A threshold that it does not read is no problem of the model."""
    assert parse_saturation({"default": "analyzerName: queueing\nqueueLengthThreshold: 0"}).errors == ()


@pytest.mark.parametrize("given", ["scaleUpThreshold: 0.7\nscaleDownBoundary: 0.7", "scaleUpThreshold: 0.6"])
def test_the_token_analyzer_wants_scale_up_above_scale_down(given):
    """WVA checks this only for an entry that names the token analyzer."""
    entry = f"analyzerName: saturation\n{given}"
    assert _only_error({"default": entry}).field == "scaleUpThreshold"
    assert parse_saturation({"default": given}).errors == ()


def test_the_demand_analyzer_has_no_choice_of_optimizers():
    """Its own optimizer has no name."""
    error = _only_error({"default": "analyzerName: demand\noptimizerName: sized"})
    assert (error.field, error.expected) == ("optimizerName", '"", which go with analyzerName "demand"')
    policy = parse_saturation({"default": "analyzerName: demand"}).policy
    assert policy.optimizer_for(ModelKey("n", "m")) is Optimizer.BY_ANALYZER


@pytest.mark.parametrize("name", ["saturation", "queueing", "demand"])
def test_an_analyzer_is_selected_by_its_name(name):
    """An override without a name inherits the analyzer, and does not count as naming one."""
    data = {"default": f"analyzerName: {name}", "a": "model_id: a", "b": "model_id: b\nanalyzerName: ''"}
    config = parse_saturation(data)
    assert (config.errors, config.warnings) == ((), ())
    assert config.policy.saturation.analyzer_name == name
    inherited, own = config.policy.overrides
    assert (inherited.policy.analyzer_name, inherited.names_analyzer) == (name, False)
    assert (own.policy.analyzer_name, own.names_analyzer) == ("", True)


def test_thresholds_without_an_analyzer_are_those_of_the_percentage_analyzer():
    """Version 0.5 had no other analyzer, and the demand analyzer does not use thresholds."""
    assert parse_saturation({"default": THRESHOLDS}).policy == Policy(percentage())
    assert parse_saturation({"default": "transitionDeadline: 20m"}).policy.saturation == SaturationPolicy(
        transition_deadline_seconds=1200
    )


@pytest.mark.parametrize("beneath", ["analyzerName: demand", "", THRESHOLDS])
def test_an_override_with_thresholds_takes_its_model_from_the_demand_analyzer(beneath):
    """An override without thresholds inherits the analyzer. An override that names an analyzer gets that one."""
    data = {
        "default": beneath,
        "a": "model_id: a\nkvSpareTrigger: 0.2",
        "b": "model_id: b\ntransitionDeadline: 20m",
        "c": "model_id: c\nkvSpareTrigger: 0.2\nanalyzerName: demand",
    }
    config = parse_saturation(data)
    found = [config.policy.analyzer_for(ModelKey("n", model)) for model in "abc"]
    inherited = Analyzer.PERCENTAGE if beneath == THRESHOLDS else Analyzer.DEMAND
    assert (config.errors, found) == ((), [Analyzer.PERCENTAGE, inherited, Analyzer.DEMAND])


@pytest.mark.parametrize("name", ["saturation", "queueing"])
def test_an_override_with_thresholds_keeps_an_analyzer_other_than_demand(name):
    """The token analyzer reads thresholds, too, and the queueing model was chosen by name."""
    policy = parse_saturation({"default": f"analyzerName: {name}", "a": "model_id: a\nkvCacheThreshold: 0.7"}).policy
    assert policy.analyzer_for(ModelKey("n", "a")) == name


def test_an_unknown_analyzer_is_the_percentage_analyzer():
    """It uses the thresholds of the entry, as in the original. The error says that the name is not in force."""
    config = parse_saturation({"default": "analyzerName: whatever\nkvSpareTrigger: 0.2"})
    assert config.policy.saturation == percentage(kv_spare_trigger=0.2)
    (error,) = config.errors
    assert str(error) == (
        "default.analyzerName: got whatever, expected percentage, saturation, queueing, demand; "
        "in force: percentage, with the rest of the entry"
    )
    (error,) = parse_saturation({"a": "model_id: m\nnamespace: n\nanalyzerName: whatever"}).errors
    assert (error.key, error.model_id, error.namespace) == ("a", "m", "n")


def test_the_limiter_is_switched_on_by_the_default_entry_alone():
    """WVA warns about it in an override."""
    assert parse_saturation({"default": "enableLimiter: true"}).policy.enable_limiter
    config = parse_saturation({"default": "", "a": "model_id: m\nenableLimiter: true"})
    assert not config.policy.enable_limiter
    assert len(config.warnings) == 1


def test_a_bad_override_leaves_its_last_good_one_in_force():
    """The model does not fall back to the default."""
    good = parse_saturation({"a": "model_id: m\nkvSpareTrigger: 0.3"})
    data = {"default": "kvCacheThreshold: 0.9", "a": "model_id: m\nkvSpareTrigger: x"}
    config = parse_saturation(data, previous=good)
    (error,) = config.errors
    assert (error.key, error.field) == ("a", "kvSpareTrigger")
    assert error.in_force == "0.3, with the last valid text of this entry"
    assert config.policy.saturation_for(ModelKey("n", "m")) == percentage(0.9, kv_spare_trigger=0.3)


def test_a_kept_override_that_no_longer_fits_the_default_gives_way():
    """The default holds for its model then. WVA reports the bad text and the contradiction."""
    good = parse_saturation({"a": "model_id: m\nkvSpareTrigger: 0.5"})
    config = parse_saturation({"default": "kvCacheThreshold: 0.4", "a": "model_id: ["}, previous=good)
    assert [error.key for error in config.errors] == ["a", "a"]
    assert config.policy.saturation_for(ModelKey("n", "m")) == percentage(0.4)
    assert [error.in_force.split(", ")[-1] for error in config.errors] == ["and nothing of this entry"] * 2
    assert config.errors[1].in_force == "0.4, and nothing of this entry"


def test_a_model_id_of_digits_is_text():
    """A model id need not be quoted."""
    assert parse_saturation({"a": "model_id: 123\nnamespace: on"}).policy.overrides[0].model_id == "123"


@pytest.mark.parametrize("text", ["kvSpareTrigger: 0.2", "model_id: ''", "model_id: m\nnamespace: Not_A_Namespace"])
def test_an_override_must_say_for_which_model(text):
    """WVA rejects an override without a model, or with a namespace that cannot exist."""
    assert _only_error({"a": text}).field in {"model_id", "namespace"}


def test_what_has_no_effect_is_a_warning():
    """WVA warns about unknown fields, a model in the default, and fields that only the default may have."""
    config = parse_saturation(
        {
            "default": "model_id: m\nkvCacheTreshold: 0.9",
            "a": "model_id: m\ncompatibility: v0.5\nenableLimiter: true",
        }
    )
    assert config.errors == ()
    assert config.policy.compatibility is None
    warned = " | ".join(config.warnings)
    for word in ("kvCacheTreshold", "model_id and namespace", "a: compatibility", "a: enableLimiter"):
        assert word in warned


@pytest.mark.parametrize(
    "text",
    [
        "just text",
        "[1, 2]",
        "kvCacheThreshold: [0.8",
        "kvCacheThreshold: 0.8\nkvCacheThreshold: 0.9",
        "? [a, b]\n: c",
        "? {a: b}\n: c",
        "\tkvCacheThreshold: 0.8",
        "a: b: c",
        "%YAML 9.9\n---\na: b",
        "kvCacheThreshold: *nowhere",
        "!!python/object/apply:os.system ['true']",
        "kvCacheThreshold: !!python/name:os.system",
        "&a {kvCacheThreshold: *a}",
        "x: &x [1]\nkvCacheThreshold: *x",
        "[" * 60_000,
        "{a: " * 15_000,
        "- " * 30_000,
        "a: " + "[" * 50_000,
        "\ud800",
        "\x00",
        "x" * (MAX_ENTRY_BYTES + 1),
        "x" * 1_000_000,
        "\n".join(f"k{number}: 1" for number in range(4_000)),
    ],
)
def test_what_is_no_mapping_of_values_is_rejected_whole(text):
    """Large, deep, tagged or aliased texts give an error, and nothing else."""
    config = parse_saturation({"default": text, "a": "model_id: m"})
    assert [error.key for error in config.errors] == ["default"]
    assert config.policy.saturation == BUILT_IN
    assert len(str(config.errors[0])) < 1000


@pytest.mark.parametrize("value", ["!x m", "!!str m", "!!python/name:os.system m"])
def test_a_tag_is_refused_even_on_text(value):
    """WVA refuses every tag, because a tag asks the parser to build an object."""
    assert _only_error({"a": f"model_id: {value}"}).value == "a tagged value"


def test_the_size_counts_comments_too():
    """The limit is on all bytes that WVA has to read."""
    assert _only_error({"default": "kvCacheThreshold: 0.9\n#" + "x" * MAX_ENTRY_BYTES}).expected == "at most 64 KiB"


def test_an_alias_bomb_costs_nothing():
    """WVA never expands aliases."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 30)]
    tracemalloc.start()
    config = parse_saturation({"default": "\n".join(lines)})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert config.policy == Policy()
    assert peak < 2_000_000


def test_long_texts_are_shortened_in_messages():
    """The texts of entries end up in events."""
    data = {"k" * 10_000: "model_id: " + "m" * 10_000 + "\nkvSpareTrigger: " + "9" * 10_000}
    error = _only_error(data)
    assert all(len(text) <= 203 for text in (error.key, error.value, error.model_id))


def _in_force(policy):
    return [policy.saturation, *(override.policy for override in policy.overrides)]


def _is_valid(thresholds):
    assert 0 <= thresholds.kv_spare_trigger <= thresholds.kv_cache_threshold <= 1
    assert 0 <= thresholds.queue_length_threshold < math.inf
    assert 0 <= thresholds.queue_spare_trigger < math.inf
    assert 0 < thresholds.transition_deadline_seconds < math.inf


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10), st.floats(), st.floats(0, 1), st.text(max_size=10), st.just("5m")
)
ENTRIES = st.dictionaries(
    st.one_of(st.sampled_from(sorted(SaturationFields.names())), st.text(max_size=5)),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=3)),
    max_size=8,
).map(lambda entry: yaml.safe_dump(entry, allow_unicode=True))
NOISE = st.one_of(st.text(max_size=60), st.text("[]{}&*:-? \n\"'a1", max_size=60))
MAPS = st.dictionaries(st.sampled_from(["default", "a", "b"]), st.one_of(ENTRIES, NOISE))


@settings(deadline=None)
@given(MAPS, MAPS)
def test_whatever_stands_in_the_map_the_policy_in_force_is_valid(first, second):
    """No text raises an exception, and no invalid number gets into the policy."""
    before = parse_saturation(first)
    config = parse_saturation(second, previous=before)
    for thresholds in _in_force(config.policy):
        _is_valid(thresholds)
    assert {error.key for error in config.errors} <= set(second)
    # WVA reports an unknown analyzer, and the rest of its entry stays in force.
    rejected = {error.key for error in config.errors if error.field != "analyzerName"}
    kept = {override.name for override in before.policy.overrides}
    assert {override.name for override in config.policy.overrides} & rejected <= kept


@settings(deadline=None)
@given(MAPS)
def test_the_outcome_does_not_depend_on_the_order_of_the_keys(data):
    """The keys of a ConfigMap have no order."""
    assert parse_saturation(data) == parse_saturation(dict(reversed(data.items())))
