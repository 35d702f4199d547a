"""Entries for scale to zero, queueing, service classes, costs and profiles: what they mean, and what a bad one does."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.config.parsing import parse_costs, parse_layered, parse_profiles, parse_service_classes
from wva.collect.retention import LONGEST_SECONDS
from wva.config import kinds
from wva.config.keys import ClassFields, ProfileFields, QueueingFields, ScaleToZeroFields, TargetFields
from wva.config.kinds import MAX_MODELS
from wva.config.yaml_text import MAX_ENTRY_BYTES, BadEntryError, read_tree
from wva.model.objectives import AskedObjectives
from wva.model.policy import Policy, QueueingPolicy, ScaleToZeroPolicy
from wva.model.service import AcceleratorCost, PerformanceProfile, ServiceTarget
from wva.model.variant import ModelKey

CHAT = ModelKey("prod", "acme/chat")


def zero(data, *, model=CHAT, previous=None):
    """Return the scale-to-zero policy of a model, and the parsed ConfigMap."""
    reading = parse_layered(kinds.ScaleToZero, data, previous=previous)
    return Policy(scale_to_zero=reading.held.everywhere).scale_to_zero_for(model), reading


def queue(data, *, model=CHAT, previous=None):
    """Return the queueing policy of a model, and the parsed ConfigMap."""
    reading = parse_layered(kinds.Queueing, data, previous=previous)
    return Policy(queueing=reading.held.everywhere).queueing_for(model), reading


# --- scale to zero ----------------------------------------------------------------------------------------------------


def test_the_documented_scale_to_zero_entries():
    """WVA takes each field from the entry of the model, or else from the default."""
    data = {
        "default": "enable_scale_to_zero: false\nretention_period: 15m",
        "chat": "model_id: acme/chat\nenable_scale_to_zero: true",
    }
    assert zero(data)[0] == ScaleToZeroPolicy(True, 900.0, given=True)
    assert zero(data, model=ModelKey("prod", "x"))[0] == ScaleToZeroPolicy(False, 900.0, given=True)


def test_the_namespace_of_a_scale_to_zero_entry_is_honoured():
    """An entry with a namespace has no effect in another namespace."""
    data = {"a": "model_id: acme/chat\nnamespace: prod\nenable_scale_to_zero: true"}
    assert zero(data)[0].enabled
    assert not zero(data, model=ModelKey("dev", "acme/chat"))[0].enabled


def test_of_two_scale_to_zero_entries_for_a_model_the_first_key_wins():
    """WVA warns about the second entry, and names the first."""
    entry = "model_id: acme/chat\nretention_period: "
    found, reading = zero({"b": entry + "2m", "a": entry + "1m"})
    assert found.retention_seconds == 60
    assert reading.warnings == ("b: has no effect: a is for the same model and comes first",)


@pytest.mark.parametrize("period", ["0s", "-5m", "soon", "15", "1d", "''", "[1m]"])
def test_a_retention_period_that_is_none_rejects_its_entry(period):
    """The last good text of the entry stays in force. Without one, the default is in force."""
    _, good = zero({"chat": "model_id: acme/chat\nenable_scale_to_zero: true\nretention_period: 3m"})
    text = {"chat": f"model_id: acme/chat\nretention_period: {period}"}
    found, reading = zero(text, previous=good)
    assert found == ScaleToZeroPolicy(True, 180.0, given=True)
    (error,) = reading.errors
    assert (error.key, error.field, error.model_id) == ("chat", "retention_period", CHAT.model_id)
    assert error.in_force == "180s, with the last valid text of this entry"
    assert zero(text)[0] == ScaleToZeroPolicy(False, 600.0)


def test_more_than_a_day_of_retention_is_only_a_warning():
    """WVA takes a retention period of 25 hours, and warns about it."""
    found, reading = zero({"default": "retention_period: 25h"})
    assert found.retention_seconds == 25 * 3600
    assert len(reading.warnings) == 1
    assert zero({"default": "retention_period: 24h"})[1].warnings == ()
    (warning,) = zero({"default": "retention_period: 169h"})[1].warnings
    assert warning.endswith("the model never goes to zero")
    assert kinds.LONGEST_RETENTION_SECONDS == LONGEST_SECONDS


@pytest.mark.parametrize(
    "text", ["enable_scale_to_zero: 1", "enable_scale_to_zero: 'true'", "enable_scale_to_zero: ja"]
)
def test_a_switch_takes_true_and_false_alone(text):
    """WVA rejects a number, a quoted word and any other word."""
    assert zero({"default": text})[1].errors[0].field == "enable_scale_to_zero"


# --- queueing ---------------------------------------------------------------------------------------------------------


def test_the_documented_queueing_entries():
    """The entry of a model inherits from the default."""
    data = {
        "default": "sloMultiplier: 4.0\ntuningEnabled: false",
        "chat": "model_id: acme/chat\nnamespace: prod\ntargetTTFT: 500\ntargetITL: 50",
    }
    assert queue(data)[0] == QueueingPolicy(4.0, False, 500, 50)
    assert queue(data, model=ModelKey("dev", "acme/chat"))[0] == QueueingPolicy(4.0, False)


def test_only_an_entry_switches_the_queueing_model_on():
    """An empty default switches it on for all models. An entry switches it on for its model alone."""
    assert queue({})[0] is None
    assert queue({"default": ""})[0] == QueueingPolicy()
    alone = {"chat": "model_id: acme/chat\nnamespace: prod"}
    assert queue(alone)[0] == QueueingPolicy()
    assert queue(alone, model=ModelKey("prod", "x"))[0] is None


def test_a_default_that_was_never_valid_switches_nothing_on():
    """A default that was valid once and is broken later stays in force."""
    assert queue({"default": "sloMultiplier: 1"})[0] is None
    _, good = queue({"default": "sloMultiplier: 2"})
    assert queue({"default": "sloMultiplier: x"}, previous=good)[0] == QueueingPolicy(2.0)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("sloMultiplier: 1", "sloMultiplier"),
        ("sloMultiplier: 0.5", "sloMultiplier"),
        ("sloMultiplier: -1", "sloMultiplier"),
        ("targetTTFT: 500", "targetITL"),
        ("targetITL: 50\ntargetTTFT: 0", "targetTTFT"),
        ("targetTTFT: -1\ntargetITL: 5", "targetTTFT"),
        ("tuningEnabled: perhaps", "tuningEnabled"),
    ],
)
def test_what_a_queueing_entry_may_not_say(text, field):
    """WVA rejects one target without the other, and a multiplier that is not above 1."""
    found, reading = queue({"default": text})
    assert found is None
    assert [error.field for error in reading.errors] == [field]


def test_a_multiplier_of_zero_means_the_default():
    """A ``sloMultiplier`` of 0 means the built-in multiplier 3, as in the original."""
    assert queue({"default": "sloMultiplier: 0"})[0] == QueueingPolicy(3.0)


@pytest.mark.parametrize("whom", ["model_id: acme/chat", "namespace: prod"])
def test_a_global_queueing_entry_names_model_and_namespace(whom):
    """WVA rejects an entry that names only one of the two."""
    _, reading = queue({"chat": whom})
    assert len(reading.errors) == 1
    assert reading.values == ()


def test_a_queueing_entry_of_a_namespace_speaks_for_that_namespace():
    """It need not name its namespace, and has no effect if it names another one."""
    data = {"a": "model_id: acme/chat", "b": "model_id: x\nnamespace: elsewhere"}
    local = parse_layered(kinds.Queueing, data, namespace="prod")
    assert [(entry.model_id, entry.namespace) for entry in local.values] == [("acme/chat", "prod")]
    assert len(local.warnings) == 1
    rules = local.held.local["prod"]
    assert [override.policy for override in rules.overrides] == [QueueingPolicy()]


# --- service classes --------------------------------------------------------------------------------------------------

FILES = {
    "premium.yaml": "name: Premium\npriority: 1\ndata:\n"
    "  - {model: default/default, slo-tpot: 24, slo-ttft: 500}\n  - {model: big, slo-tpot: 80, slo-ttft: 500}",
    "freemium.yaml": "name: Freemium\npriority: 10\ndata:\n- model: small\n  slo-tpot: 200\n  slo-ttft: 2000\n",
}
LIST = """
- name: Premium
  model: meta/llama
  priority: 1
  slo-itl: 24        # Time per output token (ms)
  slo-ttw: 500       # Time to first token (ms)

- name: Standard
  model: meta/llama
  priority: 5
  slo-itl: 50
  slo-ttw: 1000
"""


def test_a_class_in_each_key():
    """WVA reads the form of the shipped files, with one class in each key."""
    found = parse_service_classes(FILES)
    assert found.values == (
        ServiceTarget("Premium", 1, 500, 80, 0, "big"),
        ServiceTarget("Premium", 1, 500, 24, 0, "default/default"),
        ServiceTarget("Freemium", 10, 2000, 200, 0, "small"),
    )
    assert (found.errors, found.warnings) == ((), ())


def test_a_class_says_how_many_requests_shall_be_in_time():
    """A share; the demand analyzer reads it."""
    text = "name: Premium\npriority: 1\ndata: [{{model: m, slo-ttft: 500, in-time: {}}}]"
    (target,) = parse_service_classes({"a": text.format("0.95")}).values
    assert target == ServiceTarget("Premium", 1, 500, 0, 0, "m", 0.95)
    (error,) = parse_service_classes({"a": text.format("95")}).errors
    assert (error.field, error.value) == ("data[0].in-time", "95")


def test_a_bad_share_is_told_with_the_share_in_force():
    """The message names what the class says of the model, and nothing that it does not say."""
    text = "name: Premium\npriority: 1\ndata: [{{model: m, slo-ttft: 500, in-time: {}}}, {{model: n, slo-tps: {}}}]"
    before = parse_service_classes({"a": text.format("0.95", "7")})
    share, rate = parse_service_classes({"a": text.format("95", "fast")}, previous=before).errors
    assert share.in_force == "class Premium, priority 1, ttft 500 ms, in-time 0.95"
    assert rate.in_force == "class Premium, priority 1, tps 7"


@pytest.mark.parametrize(
    ("name", "written", "most"),
    [
        *[(name, text, "3,600,000") for name in ("slo-ttft", "slo-ttw") for text in ("1e9", "0.0001", "1e-300")],
        *[(name, text, "60,000") for name in ("slo-tpot", "slo-itl") for text in ("120000", "0.5")],
    ],
)
def test_a_time_that_is_no_objective_is_told_and_the_model_stays_in_its_class(name, written, most):
    """The default analyzer takes the time as not given. The queueing analyzer reads it as earlier releases do."""
    text = f"name: Premium\npriority: 1\ndata: [{{model: m, {name}: {written}, in-time: 0.9}}]"
    found = parse_service_classes({"a": text})
    (target,) = found.values
    assert target.asked == AskedObjectives(in_time=0.9, origin="service class Premium")
    assert target.ttft_milliseconds + target.itl_milliseconds == float(written)
    (error,) = found.errors
    assert (error.model_id, error.refused) == ("m", False)
    assert str(error) == (
        f"a.data[0].{name}: got {written}, expected a number from 1 to {most} of milliseconds, or 0 for none; "
        "in force: no objective of this class; the queueing model takes it as it is written"
    )


@pytest.mark.parametrize(("ttft", "itl"), [("0", "0"), ("1", "1"), ("3600000", "60000")])
def test_a_time_of_zero_or_at_an_end_of_its_range_is_no_mistake(ttft, itl):
    """Zero is not given."""
    text = f"name: Premium\npriority: 1\ndata: [{{model: m, slo-ttft: {ttft}, slo-tpot: {itl}}}]"
    found = parse_service_classes({"a": text})
    assert found.errors == ()
    asked = found.values[0].asked
    assert (asked.ttft_seconds or 0.0, asked.itl_seconds or 0.0) == (float(ttft) / 1000.0, float(itl) / 1000.0)


def test_a_list_of_classes_with_their_models():
    """WVA reads the older form, a list. A model in several classes gets the most important one, in any order."""
    expected = (ServiceTarget("Premium", 1, 500, 24, 0, "meta/llama"),)
    found = parse_service_classes({"serviceClasses": LIST})
    assert (found.values, found.errors) == (expected, ())
    assert "model meta/llama is in several classes; Premium with priority 1 decides" in found.warnings[0]
    entries = yaml.safe_dump(list(reversed(yaml.safe_load(LIST))))
    assert parse_service_classes({"serviceClasses": entries}).values == expected


def test_a_model_in_several_keys_belongs_to_the_most_important_class():
    """Among classes of equal priority, the one of the first key gets the model."""
    text = "name: {}\npriority: {}\ndata: [{{model: m, slo-tpot: 1}}]"
    found = parse_service_classes(
        {"a": text.format("Low", 9), "b": text.format("High", 2), "c": text.format("Same", 2)}
    )
    assert [target.class_name for target in found.values] == ["High"]
    assert len(found.warnings) == 2


TOLD, LOST = "model: m, slo-ttft: 3000, in-time: 0.9", "model: m, slo-tpot: 50"
CLASS_A = "name: A\npriority: 1\ndata: "


@pytest.mark.parametrize(
    ("data", "key", "field"),
    [
        ({"a": f"{CLASS_A}[{{{TOLD}}}, {{{LOST}}}]"}, "a", "data[1].model"),
        ({"a": f"[{{name: A, priority: 2, {LOST}}}, {{name: A, priority: 1, {TOLD}}}]"}, "a", "[1].model"),
        ({"a": f"{CLASS_A}[{{{TOLD}}}]", "b": f"{CLASS_A}[{{{LOST}}}]"}, "b", "model"),
    ],
)
def test_a_model_named_twice_in_one_class_is_told(data, key, field):
    """One of the two counts, and what the other says is lost. The status of the model's variants says so."""
    found = parse_service_classes(data)
    assert found.values == (ServiceTarget("A", 1, 3000, 0, 0, "m", 0.9),)
    (error,) = found.errors
    assert (error.key, error.field, error.model_id, error.refused) == (key, field, "m", False)
    assert str(error) == (
        f"{key}.{field}: got m, expected it once in class A; in force: class A, priority 1, ttft 3000 ms, in-time 0.9"
    )
    assert found.warnings == ()


def test_a_bad_second_text_of_a_model_is_told_with_the_first_one():
    """The first one is in force, and not the last good text."""
    before = parse_service_classes({"a": f"{CLASS_A}[{{model: m, slo-ttft: 500}}]"})
    text = f"{CLASS_A}[{{model: m, slo-ttft: 600}}, {{model: m, slo-ttft: soon}}]"
    (error,) = parse_service_classes({"a": text}, previous=before).errors
    assert error.in_force == "class A, priority 1, ttft 600 ms"


def test_a_bad_model_is_rejected_alone():
    """The last good targets of the model stay in force, and WVA takes the other models of the class."""
    before = parse_service_classes(FILES)
    text = FILES["premium.yaml"].replace("slo-tpot: 80", "slo-tpot: fast")
    found = parse_service_classes({**FILES, "premium.yaml": text}, previous=before)
    assert found.values == before.values
    (error,) = found.errors
    assert (error.key, error.field, error.value, error.model_id) == ("premium.yaml", "data[1].slo-tpot", "fast", "big")
    assert error.in_force == "class Premium, priority 1, ttft 500 ms, itl 80 ms"
    alone = parse_service_classes({"premium.yaml": text})
    assert [target.model_id for target in alone.values] == ["default/default"]
    assert alone.errors[0].in_force == "nothing of this model"


@pytest.mark.parametrize(
    "text",
    [
        "[broken",
        "text",
        "name: [x]",
        "priority: 1\ndata: []",
        "name: x\npriority: high",
        "name: x\ndata: {model: m}",
        "x" * (MAX_ENTRY_BYTES + 1),
    ],
)
def test_a_bad_class_leaves_what_its_key_said_last(text):
    """The last good text of its key stays in force, and WVA takes the other keys."""
    before = parse_service_classes(FILES)
    found = parse_service_classes({**FILES, "premium.yaml": text}, previous=before)
    assert found.values == before.values
    assert [error.key for error in found.errors] == ["premium.yaml"]
    assert found.errors[0].in_force == "what it said last of 2 models"
    alone = parse_service_classes({**FILES, "premium.yaml": text})
    assert [target.model_id for target in alone.values] == ["small"]


@pytest.mark.parametrize(
    "item", ["model", "{slo-tpot: 1}", "{model: ''}", "{model: [m]}", "[a]", "{name: x, model: m}"]
)
def test_what_is_no_class_of_a_list(item):
    """An item of the list needs a name and a model. WVA rejects an item without them, and takes its neighbours."""
    found = parse_service_classes({"serviceClasses": f"- {item}\n- {{name: A, priority: 2, model: n}}"})
    if item == "{name: x, model: m}":
        assert [(target.model_id, target.priority) for target in found.values] == [("m", 100), ("n", 2)]
        assert "none is given" in found.warnings[0]
    else:
        assert [target.model_id for target in found.values] == ["n"]
        assert found.errors[0].field.startswith("[0]")


@pytest.mark.parametrize(("written", "counted"), [("0", 100), ("101", 100), ("1", 1), ("100", 100)])
def test_a_priority_outside_of_its_range_is_the_lowest(written, counted):
    """WVA uses priority 100, as the original does, and warns."""
    found = parse_service_classes({"a": f"name: A\npriority: {written}\ndata: [{{model: m}}]"})
    assert found.values[0].priority == counted
    assert bool(found.warnings) == (written in {"0", "101"})


@pytest.mark.parametrize("form", ["{}", "name: A\npriority: 1\ndata:\n{}"])
def test_a_class_has_a_limit(form):
    """WVA takes an entry with ``MAX_MODELS`` models, and rejects an entry with one model more."""
    item = "- {{name: A, priority: 1, model: m{}}}\n"
    for count, taken in ((MAX_MODELS, MAX_MODELS), (MAX_MODELS + 1, 0)):
        found = parse_service_classes({"a": form.format("".join(item.format(number) for number in range(count)))})
        assert (len(found.values), len(found.errors)) == (taken, int(not taken))


def test_unknown_fields_of_classes_are_warnings():
    """WVA warns about an unknown field of a class and of a model."""
    found = parse_service_classes({"a": "name: A\npriority: 1\nowner: x\ndata: [{model: m, slo-p99: 1}]"})
    assert len(found.values) == 1
    assert [warning.split(":")[0] for warning in found.warnings] == ["a", "a.data[0]"]


# --- costs and profiles -----------------------------------------------------------------------------------------------


def test_costs_as_json_and_as_yaml():
    """A cost may be in quotes, because the shipped ones are."""
    data = {"G2": '{"device": "Intel-Gaudi-2-96GB", "cost": "23.00"}', "A100": "cost: 40"}
    found = parse_costs(data)
    assert found.values == (AcceleratorCost("A100", 40.0), AcceleratorCost("G2", 23.0, "Intel-Gaudi-2-96GB"))
    assert (found.errors, found.warnings) == ((), ())


@pytest.mark.parametrize("text", ["{", '{"cost": "much"}', '{"device": "x"}', '{"cost": "-1"}', "cost: .inf", "40"])
def test_a_bad_cost_leaves_the_last_one_of_its_accelerator(text):
    """An accelerator without an earlier cost has none."""
    before = parse_costs({"A100": "cost: 40", "G2": "cost: 23"})
    found = parse_costs({"A100": text, "G2": "cost: 24"}, previous=before)
    assert found.values == (AcceleratorCost("A100", 40.0), AcceleratorCost("G2", 24.0))
    assert [error.key for error in found.errors] == ["A100"]
    assert parse_costs({"A100": text}).values == ()


def test_a_profile_with_the_names_of_the_log():
    """The field ``name`` is the model, as in the lines of the log."""
    text = "name: default/default\nacc: A100\naccCount: 1\nalpha: 20.58\nbeta: 0.41\nmaxBatchSize: 4\natTokens: 0"
    found = parse_profiles({"any": text})
    assert found.values == (
        PerformanceProfile(20.58, 0.41, max_batch_size=4, model_id="default/default", accelerator="A100"),
    )
    assert found.errors == ()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("alpha: 0\nbeta: 1", "alpha"),
        ("alpha: .nan\nbeta: 1", "alpha"),
        ("alpha: 1\nbeta: -1", "beta"),
        ("alpha: 1", "beta"),
        ("alpha: 1\nbeta: 1\nmaxBatchSize: 2.5", "maxBatchSize"),
        ("alpha: 1\nbeta: 1\nmaxBatchSize: 100001", "maxBatchSize"),
        ("alpha: 1000001\nbeta: 0", "beta"),
        ("alpha: 1\nbeta: 11\nmaxBatchSize: 100000", "beta"),
        ("alpha: 1\nbeta: 0\ndelta: 11\nmaxBatchSize: 100000", "delta"),
        ("alpha: 1e-9\nbeta: 0", "alpha"),
        ("alpha: 1\nbeta: 1\naccCount: x", "accCount"),
    ],
)
def test_parameters_that_no_engine_has_are_rejected(text, field):
    """WVA cannot calculate with such parameters. The last good ones stay in force."""
    whose = "model_id: m\nacc: A100\n"
    before = parse_profiles({"a": whose + "alpha: 2\nbeta: 3"})
    found = parse_profiles({"a": whose + text}, previous=before)
    assert found.values == before.values
    assert [(error.field, error.model_id) for error in found.errors] == [(field, "m")]
    (error,) = parse_profiles({"a": "name: n\n" + text, "b": whose + "alpha: 1\nbeta: 1"}).errors
    assert error.model_id == "n"


def test_a_profile_that_cannot_be_read_may_be_for_anybody():
    """The error names no model, so it concerns all models."""
    (error,) = parse_profiles({"a": "["}).errors
    assert error.model_id == ""


@pytest.mark.parametrize("text", ["acc: A100\nalpha: 1\nbeta: 1", "model_id: m\nalpha: 1\nbeta: 1"])
def test_a_profile_names_model_and_accelerator(text):
    """WVA rejects a profile without a model or without an accelerator."""
    assert len(parse_profiles({"a": text}).errors) == 1


def test_of_two_profiles_for_one_pair_the_first_key_wins():
    """WVA warns about the second profile."""
    text = "model_id: m\nacc: A100\nbeta: 1\nalpha: "
    found = parse_profiles({"b": text + "2", "a": text + "1"})
    assert [profile.alpha for profile in found.values] == [1.0]
    assert found.warnings == ("b: has no effect: a is for the same model and accelerator and comes first",)


# --- any text ---------------------------------------------------------------------------------------------------------

NAMES = sorted(
    {*ScaleToZeroFields.names(), *QueueingFields.names(), *ProfileFields.names(), "cost", "device", "data"}
    | TargetFields.names()
    | ClassFields.names()
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 2000),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(("5m", "m", "1")),
)
MAPPINGS = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=4)), SCALARS, max_size=8)
TREES = st.one_of(
    SCALARS,
    MAPPINGS,
    st.lists(st.one_of(MAPPINGS, SCALARS), max_size=4),
    st.builds(lambda own, data: {**own, "data": data}, MAPPINGS, st.one_of(SCALARS, st.lists(MAPPINGS, max_size=3))),
    st.recursive(
        SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner))
    ),
)
TEXTS = st.one_of(
    TREES.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)),
    st.text(max_size=60),
    st.text("[]{}&*:-? \n\"'a1!|>#", max_size=60),
)
MAPS = st.dictionaries(st.sampled_from(("default", "a", "b")), TEXTS)


def _all_of(first, second):
    """Yield the result of every parser for the second text, after it has taken the first."""
    yield zero(second, previous=zero(first)[1])[1]
    yield queue(second, previous=queue(first)[1])[1]
    for parse in (parse_service_classes, parse_costs, parse_profiles):
        yield parse(second, previous=parse(first))


@settings(deadline=None)
@given(MAPS, MAPS)
def test_no_text_raises_and_every_rejection_is_told(first, second):
    """WVA reports each rejected entry, and every number in force is within its range."""
    for found in _all_of(first, second):
        assert {error.key for error in found.errors} <= set(second)
        assert all(str(error).isprintable() and len(str(error)) < 1500 for error in found.errors)
    policy, _ = queue(second, previous=queue(first)[1])
    if policy is not None:
        assert 1 < policy.slo_multiplier < math.inf
        assert (policy.target_ttft_milliseconds > 0) == (policy.target_itl_milliseconds > 0)
    assert 0 < zero(second, previous=zero(first)[1])[0].retention_seconds < math.inf
    for profile in parse_profiles(second, previous=parse_profiles(first)).values:
        assert profile.alpha > 0 or profile.gamma > 0
        assert all(0 <= value < math.inf for value in (profile.alpha, profile.beta, profile.gamma, profile.delta))
    targets = parse_service_classes(second, previous=parse_service_classes(first)).values
    assert all(1 <= target.priority <= 100 and target.class_name and target.model_id for target in targets)


@settings(deadline=None)
@given(MAPS)
def test_what_was_good_stays_while_its_key_is_broken(good):
    """When nonsense replaces every entry, all good entries stay in force."""
    broken = dict.fromkeys(good, "[")
    for before, after in zip(_all_of({}, good), _all_of(good, broken), strict=True):
        assert dict(after.good) == dict(before.good)
        assert {error.key for error in after.errors} == set(good)


@settings(deadline=None)
@given(MAPS)
def test_the_outcome_does_not_depend_on_the_order_of_the_keys(data):
    """The keys of a ConfigMap have no order."""
    assert list(_all_of({}, data)) == list(_all_of({}, dict(reversed(data.items()))))


@pytest.mark.parametrize(
    "text",
    ["[" * 60_000, "{a: " * 15_000, "- " * 30_000, "&a [*a]", "a: !!set {b}", "? [a]\n: b", "a: 1\na: 2", "\x00"],
)
def test_a_document_is_neither_deep_nor_clever(text):
    """The parser refuses deep nesting, aliases, tags, complex keys and duplicate keys."""
    with pytest.raises(BadEntryError):
        read_tree(text, nested=True)


def test_a_document_keeps_quotes_apart_and_drops_nulls():
    """A nested document is read as a flat entry is."""
    assert read_tree("a: [1, '1', {b: ~, c: x}]\nd:", nested=True) == {"a": ["1", "1", {"c": "x"}]}
    assert read_tree("", nested=True) == read_tree("~", nested=True) == {}
