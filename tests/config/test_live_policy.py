"""What the live configuration reports: in the log, in conditions, and about the ConfigMaps that are in force."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.config.configured import OWN, ConfiguredCluster
from wva.api.meta import Key
from wva.config.entries import MAX_LOCAL_ENTRIES, LayeredMap
from wva.model.objectives import TIGHTEST, Objectives
from wva.model.records import replace
from wva.model.variant import ModelKey

SATURATION = "wva-saturation-scaling-config"
ALIAS = "saturation-scaling-config"
COSTS = "accelerator-unit-costs"


@pytest.fixture
def cluster():
    """Return a cluster whose changes the controllers follow."""
    cluster = ConfiguredCluster()
    cluster.start()
    return cluster


def write(cluster, namespace, data, *, name=SATURATION):
    """Write a ConfigMap and return the log lines about its changes."""
    with capture_logs() as lines:
        cluster.config_map(namespace, name, data)
        cluster.settle()
    return [line for line in lines if line["event"].startswith("Updated")]


def problem(cluster, namespace="a", model="m"):
    """Return the problem that the status of a variant shows."""
    cluster.va(namespace, model=model)
    cluster.settle()
    return cluster.configuration.problem_for(cluster.variants.get(Key(namespace, "va")))


def test_a_change_is_logged_with_what_was_in_force_before(cluster):
    """The line has the text that operators search for. It has the number of entries, and the changed entries."""
    write(cluster, OWN, {"default": "kvCacheThreshold: 0.7", "same": "model_id: m"})
    (line,) = write(cluster, OWN, {"default": "kvCacheThreshold: 0.6", "same": "model_id: m", "new": "model_id: n"})
    assert line["event"] == "Updated saturation config"
    assert (line["oldEntries"], line["newEntries"]) == (2, 3)
    assert line["old"] == {"default": {"kvCacheThreshold": 0.7}}
    assert line["new"] == {"default": {"kvCacheThreshold": 0.6}, "new": {"model_id": "n"}}
    assert "scope" not in line


def test_the_tightest_objectives_of_tenants_are_those_of_the_global_default(cluster):
    """A namespace cannot change its own limit, and an objective beyond it is not in force."""
    assert cluster.configuration.policy.tightest == TIGHTEST
    write(cluster, OWN, {"default": "analyzerName: demand\ntightestTTFT: 300\ntightestITL: 30"})
    assert cluster.configuration.policy.tightest == replace(TIGHTEST, ttft_seconds=0.3, itl_seconds=0.03)
    cluster.va("a", model="m")
    write(cluster, "a", {"default": "targetTTFT: 200\ntargetITL: 50\ntightestTTFT: 1"})
    policy = cluster.configuration.policy
    assert policy.tightest.ttft_seconds == 0.3
    assert policy.objectives_for(ModelKey("a", "m")).objectives == Objectives(1.0, 0.05)


def test_a_bad_limit_of_tenants_is_told_with_the_limit_in_force(cluster):
    """It is that of the global default, also where an entry beside it or a namespace says one in vain."""
    expected = "got soon, expected a number from 1 to 3,600,000, without quotes; in force:"
    write(cluster, OWN, {"default": "tightestTTFT: soon", "a": "model_id: m\nenableLimiter: soon"})
    assert f"default.tightestTTFT: {expected} 100, and nothing of this entry" in problem(cluster)
    assert problem(cluster).endswith("in force: false, and nothing of this entry")
    write(cluster, OWN, {"default": "tightestTTFT: 300"})
    bad = {"a": "model_id: m\ntightestTTFT: soon"}
    write(cluster, OWN, {"default": "tightestTTFT: soon"})
    assert f"default.tightestTTFT: {expected} 300, with the last valid text of this entry" in problem(cluster)
    write(cluster, OWN, {"default": "tightestTTFT: 400", **bad})
    assert f"a.tightestTTFT: {expected} 400, and nothing of this entry" in problem(cluster)
    write(cluster, OWN, {"default": "tightestTTFT: 400"})
    write(cluster, "a", {"default": "tightestTTFT: soon"})
    assert problem(cluster).endswith(f"default.tightestTTFT: {expected} 400, and nothing of this entry")
    write(cluster, OWN, {"default": "compatibility: v9"})
    assert "got v9, expected v0.5; in force: none, with the last valid text of this entry" in problem(cluster)


def test_what_changes_nothing_is_not_logged(cluster):
    """The same text again, or a new comment, gives no log line."""
    write(cluster, OWN, {"default": "kvCacheThreshold: 0.7"})
    assert write(cluster, OWN, {"default": "kvCacheThreshold: 0.7 # as before"}) == []


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("wva-model-scale-to-zero-config", {"default": "enable_scale_to_zero: true"}, "Updated scale-to-zero config"),
        ("wva-queueing-model-config", {"default": ""}, "Updated queueing model config"),
        ("serviceclass", {"a": "- {name: A, priority: 1, model: m}"}, "Updated service class config"),
        (COSTS, {"A100": '{"cost": "40"}'}, "Updated accelerator cost config"),
        ("wva-model-performance-config", {"a": "{name: m, acc: x, alpha: 1, beta: 1}"}, "Updated performance config"),
    ],
)
def test_every_kind_is_followed_and_logged(cluster, name, data, text):
    """WVA applies a change without a restart, and undoes it when the ConfigMap is deleted."""
    before = cluster.configuration.policy
    (line,) = write(cluster, OWN, data, name=name)
    assert line["event"] == text
    assert cluster.configuration.policy != before
    (line,) = write(cluster, OWN, None, name=name)
    assert (line["event"], line["newEntries"]) == (text, 0)
    assert cluster.configuration.policy == before


def test_a_change_of_a_namespace_names_it(cluster):
    """The line has the namespace, so that it is not taken for one about the global ConfigMap."""
    cluster.va("a")
    (line,) = write(cluster, "a", {"default": "kvCacheThreshold: 0.7"})
    assert line["scope"] == "a"


def test_thousands_of_changes_are_one_short_line(cluster):
    """The line has twenty changed entries and the number of the others."""
    (line,) = write(cluster, OWN, {f"k{number:04}": f"model_id: m{number}" for number in range(3000)})
    assert (len(line["new"]), line["moreChanged"], line["newEntries"]) == (20, 2980, 3000)


def test_a_namespace_cannot_say_without_end(cluster):
    """WVA takes the first thousand entries of a namespace and reports this; globally it takes all."""
    cluster.va("a")
    data = {f"k{number:05}": f"model_id: m{number}\nkvCacheThreshold: 0.6" for number in range(MAX_LOCAL_ENTRIES + 5)}
    write(cluster, "a", {**data, "default": "kvCacheThreshold: 0.7"})
    last = MAX_LOCAL_ENTRIES - 2
    assert [cluster.kv("a", f"m{number}") for number in (0, last, last + 1)] == [0.6, 0.6, 0.7]
    assert "k00999: got 1006 entries, expected at most 1,000 in a namespace" in problem(cluster)
    write(cluster, OWN, data)
    assert cluster.kv("b", f"m{MAX_LOCAL_ENTRIES + 4}") == 0.6


def test_kinds_without_a_namespace_are_not_looked_at_in_one(cluster):
    """WVA does not read a cost ConfigMap in a namespace, because costs are global."""
    cluster.va("a")
    assert cluster.configuration.apply(Key("a", COSTS), {"A100": "cost: 1"}) is None
    assert cluster.configuration.policy.accelerator_costs == ()


def test_a_variant_is_told_what_concerns_it(cluster):
    """A variant shows errors of entries for its model, of its namespace, and of entries that could be for any model."""
    cluster.va("a")
    bad = "model_id: {}\nkvSpareTrigger: 7"
    write(cluster, OWN, {"m": bad.format("m"), "n": bad.format("n"), "x": "["})
    write(cluster, "a", {"default": "kvSpareTrigger: 8"})
    assert [part.split(":")[1].strip() for part in problem(cluster).split("; ConfigMap")] == [
        "m.kvSpareTrigger",
        "x",
        "default.kvSpareTrigger",
    ]
    assert [part.split(":")[1].strip() for part in problem(cluster, "b", "n").split("; ConfigMap")] == [
        "n.kvSpareTrigger",
        "x",
    ]


def test_a_global_entry_that_contradicts_the_default_of_a_namespace_is_told_there(cluster):
    """The entry stays in force everywhere else. Neither ConfigMap is wrong by itself."""
    write(cluster, OWN, {"chat": "model_id: m\nkvSpareTrigger: 0.6"})
    cluster.va("a")
    write(cluster, "a", {"default": "kvCacheThreshold: 0.5"})
    assert cluster.kv("a") == 0.5
    assert problem(cluster) == (
        "chat of the global ConfigMap contradicts the default of namespace a, which is in force"
    )
    assert problem(cluster, "b") == ""
    policy = cluster.configuration.policy
    assert policy.saturation_for(ModelKey("b", "m")).kv_spare_trigger == 0.6


def test_a_local_entry_that_no_longer_fits_is_told(cluster):
    """The entry contradicts the global default, which has changed since the entry was read."""
    cluster.va("a")
    write(cluster, "a", {"chat": "model_id: m\nkvSpareTrigger: 0.6"})
    assert problem(cluster) == ""
    write(cluster, OWN, {"default": "kvCacheThreshold: 0.5"})
    assert "chat.kvCacheThreshold: got 0.5, expected at least kvSpareTrigger (0.6)" in problem(cluster)
    assert cluster.kv("a") == 0.5
    write(cluster, OWN, None)
    assert problem(cluster) == ""


def test_which_config_maps_are_in_force(cluster):
    """WVA says for each kind which ConfigMap is in force or absent, and how many namespaces have their own."""
    cluster.va("a")
    write(cluster, OWN, {}, name=ALIAS)
    write(cluster, "a", {"default": ""})
    told = cluster.configuration.config_maps_in_effect()
    assert told["saturation"] == f"{OWN}/{ALIAS}, local in 1 namespaces"
    assert told["service class"] == f"{OWN}/service-classes-config (absent: built-in defaults)"


@pytest.mark.parametrize("name", ["scale_to_zero_default", "limited_mode"])
def test_the_feature_flags_that_decisions_need_stay_what_they_were(cluster, name):
    """The policy keeps them until a restart, even if the main ConfigMap changes."""
    assert not getattr(cluster.configuration.policy, name)
    taken = cluster.configuration.apply_main({"WVA_SCALE_TO_ZERO": "true", "WVA_LIMITED_MODE": "true"})
    assert not getattr(cluster.configuration.policy, name)
    assert "WVA_SCALE_TO_ZERO: (not set) -> true" in taken.rejected


def test_the_only_namespace_that_is_watched_has_its_say():
    """Its annotation changes nothing. ConfigMaps of other namespaces do not count."""
    cluster = ConfiguredCluster(watched="a")
    cluster.start()
    cluster.namespace("a", excluded="true")
    for namespace in ("a", "b"):
        cluster.va(namespace)
        write(cluster, namespace, {"default": "kvCacheThreshold: 0.6"})
    assert (cluster.kv("a"), cluster.kv("b")) == (0.6, 0.8)


def test_a_status_of_a_variant_is_no_reason_to_look_again(cluster):
    """WVA does not read the ConfigMap again, because hundreds of variants write their status all the time."""
    cluster.va("a")
    cluster.config_map("a", SATURATION, {})
    cluster.settle()
    cluster.va("a")
    assert len(cluster.controller.queue) == 0


def test_what_is_given_up_counts_again_with_another_text(cluster):
    """WVA reads a ConfigMap that it gave up again when its text changes, or when it is deleted and created anew."""
    cluster.va("a")
    write(cluster, "a", {"default": "kvCacheThreshold: 0.4\nkvSpareTrigger: 0.1\n"})
    assert cluster.kv("a") == 0.4
    (key,) = cluster.configuration.give_up("a", "LookupError in wva.decide.spare, line 1")
    assert key == Key("a", SATURATION)
    assert cluster.kv("a") == 0.8
    assert "all entries: got LookupError in wva.decide.spare, line 1" in problem(cluster)
    assert "LookupError" not in problem(cluster, "b")
    outcome = cluster.configuration.apply(key, {"default": "kvCacheThreshold: 0.4\nkvSpareTrigger: 0.1\n"})
    assert (len(outcome.problems), cluster.kv("a")) == (1, 0.8)
    outcome = cluster.configuration.apply(key, {"default": "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.1\n"})
    assert (outcome.problems, cluster.kv("a"), problem(cluster)) == ((), 0.5, "")
    cluster.configuration.give_up("a", "LookupError")
    cluster.configuration.apply(key, None)
    cluster.configuration.apply(key, {"default": "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.1\n"})
    assert cluster.kv("a") == 0.5


def failing(monkeypatch, name, *, place):
    """Make the saturation ConfigMap of one namespace raise when it is read or merged."""
    original = getattr(LayeredMap, name)

    def broken(self, namespace, *rest):
        if namespace == place:
            raise LookupError("text of a tenant")
        return original(self, namespace, *rest)

    monkeypatch.setattr(LayeredMap, name, broken)


def test_a_config_map_of_a_namespace_that_cannot_be_taken_is_out_of_force(cluster, monkeypatch):
    """The variants of the namespace show the error. Other namespaces keep their own ConfigMaps."""
    failing(monkeypatch, "take", place="a")
    cluster.va("a")
    cluster.va("b")
    for namespace in ("a", "b"):
        write(cluster, namespace, {"default": "kvCacheThreshold: 0.4\nkvSpareTrigger: 0.1\n"})
    assert (cluster.kv("a"), cluster.kv("b")) == (0.8, 0.4)
    assert "LookupError" in problem(cluster, "a")
    assert "tenant" not in problem(cluster, "a")
    assert problem(cluster, "b") == ""


def test_a_global_change_reaches_all_namespaces_but_the_one_with_which_it_fails(cluster, monkeypatch):
    """The variants of that namespace show the error."""
    for namespace in ("a", "b"):
        cluster.va(namespace)
        write(cluster, namespace, {"e": "model_id: other\nkvCacheThreshold: 0.6\n"})
    failing(monkeypatch, "_resolve", place="a")
    write(cluster, OWN, {"default": "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.1\n"})
    assert (cluster.kv("a"), cluster.kv("b")) == (0.5, 0.5)
    assert "LookupError" in problem(cluster, "a")
    assert problem(cluster, "b") == ""
