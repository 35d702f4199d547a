"""ConfigMaps of namespaces in a whole process: when they are in force, and when not."""

from __future__ import annotations

import pytest

from tests.app.stage import MODEL, SATURATION, SYSTEM, until
from wva.api.core import CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION
from wva.api.meta import Key
from wva.decide import pipeline
from wva.model.variant import ModelKey
from wva.sim.apiserver import Patch

TIGHT = {"default": "kvCacheThreshold: 0.4\nkvSpareTrigger: 0.1\n"}
BROKEN = {"default": "kvCacheThreshold: 7\n"}
ALIAS = "saturation-scaling-config"


def threshold(stage, namespace="ns"):
    """Return the KV threshold in force."""
    key = ModelKey(namespace, MODEL)
    return stage.app.configuration.policy.saturation_for(key).kv_cache_threshold


def local_map(stage, data, *, name=SATURATION, namespace="ns"):
    """Create a ConfigMap in a namespace of users, or replace its data. If ``data`` is None, delete it."""
    key = Key(namespace, name)
    old = stage.api.store.find("configmaps", key)
    if data is None:
        stage.api.store.delete("configmaps", key)
    elif old is None:
        stage.api.store.create("configmaps", {"metadata": {"name": name, "namespace": namespace}, "data": data})
    else:
        stage.api.store.update("configmaps", {**old, "data": data})


def relabel(stage, *, enabled=None, excluded=None, namespace="ns"):
    """Set or remove the label and the annotation of a namespace."""
    metadata = {"labels": {CONFIG_ENABLED_LABEL: enabled}, "annotations": {EXCLUDE_ANNOTATION: excluded}}
    stage.api.store.patch("namespaces", Key("", namespace), Patch(body={"metadata": metadata}))


def state(stage, type_):
    """Return the status of a condition, empty if it is not set."""
    conditions = stage.status().get("conditions", [])
    return next((entry["status"] for entry in conditions if entry["type"] == type_), "")


async def test_a_local_override_decides_whether_it_came_before_the_variant_or_after(stage):
    """A local ConfigMap is in force while its namespace has a variant.

    When it is deleted, the global thresholds return.
    """
    stage.deployment(replicas=2)
    await stage.scrape()
    local_map(stage, TIGHT)
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.metric("wva_leader") and stage.app.idle)
        assert threshold(stage) == 0.8
        stage.va()
        await until(lambda: (stage.number() or 0) > 2)
        local_map(stage, None)
        await until(lambda: threshold(stage) == 0.8)
        (event,) = await until(lambda: stage.events("ConfigurationDeleted"))
        assert "the global saturation configuration is in force in namespace ns" in event["message"]
        local_map(stage, TIGHT)
        await until(lambda: threshold(stage) == 0.4)


async def test_label_and_annotation_are_followed(stage):
    """The label puts it in force without a variant. The annotation has precedence over label and variant."""
    local_map(stage, TIGHT)
    async with stage.controller():
        await until(lambda: stage.metric("wva_leader") and stage.app.idle)
        assert threshold(stage) == 0.8
        relabel(stage, enabled="true")
        await until(lambda: threshold(stage) == 0.4)
        stage.deployment()
        stage.va()
        relabel(stage, enabled="true", excluded="true")
        await until(lambda: threshold(stage) == 0.8)
        relabel(stage)
        await until(lambda: threshold(stage) == 0.4)  # because the namespace has a variant
        stage.delete_va()
        await until(lambda: threshold(stage) == 0.8)


async def test_a_broken_local_entry_concerns_the_variants_of_its_namespace(stage):
    """Condition, event and gauge name the local ConfigMap."""
    stage.deployment()
    stage.va()
    local_map(stage, BROKEN)
    async with stage.controller():
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        assert f"ConfigMap ns/{SATURATION}: default.kvCacheThreshold" in stage.message("ConfigurationValid")
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert event["involvedObject"]["namespace"] == "ns"
        assert stage.metric("wva_config_invalid_entries", config_map=f"ns/{SATURATION}") == 1
        local_map(stage, TIGHT)
        await until(lambda: stage.told("ConfigurationValid") == ("True", "ConfigurationAccepted"))
        assert stage.metric("wva_config_invalid_entries", config_map=f"ns/{SATURATION}") == 0


async def test_the_name_of_an_older_guide_gives_way_to_the_canonical_one(stage):
    """The ConfigMap with the old name is in force only while the canonical one does not exist.

    Events report both changes.
    """
    stage.config_map(ALIAS, TIGHT)
    async with stage.controller():
        await until(lambda: threshold(stage) == 0.4)
        stage.config_map(SATURATION, {"default": "kvCacheThreshold: 0.9"})
        await until(lambda: threshold(stage) == 0.9)
        (event,) = await until(lambda: stage.events("ConfigurationIgnored"))
        assert event["involvedObject"]["name"] == ALIAS
        stage.api.store.delete("configmaps", Key(SYSTEM, SATURATION))
        await until(lambda: threshold(stage) == 0.4)
        (event,) = await until(lambda: stage.events("ConfigurationDeleted"))
        assert event["involvedObject"]["name"] == SATURATION
        assert f"ConfigMap {SYSTEM}/{ALIAS} is in force instead" in event["message"]


async def test_a_process_for_one_namespace_asks_for_nothing_beyond_it(stage):
    """Its local ConfigMaps are always in force. It does not read label and annotation of the namespace."""
    relabel(stage, excluded="true")
    local_map(stage, TIGHT)
    async with stage.controller(WATCH_NAMESPACE="ns"):
        await until(lambda: stage.app.idle)
        await until(lambda: threshold(stage) == 0.4)
        assert stage.api.requests.count("list", resource="namespaces") == 0


@pytest.mark.parametrize("resource", ["namespaces", "configmaps"])
async def test_without_permission_there_is_no_local_configuration_and_nobody_waits(stage, resource):
    """WVA decides and is ready even if it may not list namespaces or ConfigMaps of the cluster."""
    stage.deployment()
    stage.va()
    local_map(stage, TIGHT)
    stage.api.access.authorize = lambda _, wish: (wish.resource, wish.namespace) != (resource, "")
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.number() is not None)
        await until(lambda: threshold(stage) == (0.4 if resource == "namespaces" else 0.8))
        await until(lambda: not stage.app.not_ready())


async def test_scale_to_zero_and_queueing_follow_their_config_maps(stage):
    """Changes of these ConfigMaps apply without a restart."""
    model = ModelKey("ns", MODEL)
    async with stage.controller(WVA_SCALE_TO_ZERO="true"):
        policy = lambda: stage.app.configuration.policy  # noqa: E731 - the policy is replaced at each change
        await until(lambda: policy().scale_to_zero_for(model).enabled)
        stage.config_map("model-scale-to-zero-config", {"default": "enable_scale_to_zero: false"})
        await until(lambda: not policy().scale_to_zero_for(model).enabled)
        stage.config_map("wva-queueing-model-config", {"default": "sloMultiplier: 4"})
        await until(lambda: policy().analyzer_for(model) == "queueing")
        stage.api.store.delete("configmaps", Key(SYSTEM, "wva-queueing-model-config"))
        await until(lambda: policy().analyzer_for(model) == "demand")
        (event,) = await until(lambda: stage.events("ConfigurationDeleted"))
        assert "the built-in queueing model defaults are in force" in event["message"]


async def test_the_variants_of_an_excluded_namespace_are_left_alone(stage):
    """WVA publishes and writes nothing for them while the annotation is set. An event gives the reason."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await until(lambda: stage.series().get("va") is not None)
        relabel(stage, excluded="true")
        await until(lambda: stage.series().get("va") is None)
        (event,) = await until(lambda: stage.events("NamespaceExcluded"))
        assert (event["type"], event["involvedObject"]["name"]) == ("Normal", "va")
        await until(lambda: stage.app.idle)
        before = stage.patches()
        await stage.cycles(3)
        assert stage.patches() == before
        assert stage.series() == {}
        relabel(stage)
        await until(lambda: stage.series().get("va") is not None)


async def test_the_only_namespace_that_is_watched_cannot_be_excluded(stage):
    """The annotation has no effect on a controller for one namespace."""
    relabel(stage, excluded="true")
    stage.deployment()
    stage.va()
    async with stage.controller(WATCH_NAMESPACE="ns"):
        await until(lambda: stage.number() == 1)


async def test_configuration_that_makes_decisions_fail_is_out_of_force_until_it_changes(stage, monkeypatch):
    """Condition, event and metric report it. Meanwhile the global configuration is in force in this namespace."""
    original = pipeline.terms

    def broken(model, need, *rest):
        if model.policy.kv_cache_threshold == 0.4:
            raise LookupError("text of a tenant")
        return original(model, need, *rest)

    monkeypatch.setattr(pipeline, "terms", broken)
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    local_map(stage, TIGHT)
    async with stage.controller(interval="20ms"):
        await until(lambda: state(stage, "ConfigurationValid") == "False")
        message = stage.message("ConfigurationValid")
        assert f"ConfigMap ns/{SATURATION}: all entries: got LookupError in wva.decide.pipeline" in message
        assert "in force: the global configuration until a text changes" in message
        assert "tenant" not in message
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert event["involvedObject"]["name"] == SATURATION
        await until(lambda: stage.metric("wva_config_invalid_entries", config_map=f"ns/{SATURATION}") == 1)
        assert threshold(stage) == 0.8
        await until(lambda: state(stage, "OptimizationReady") == "True")
        assert not stage.decision().held
        local_map(stage, {"default": "kvCacheThreshold: 0.45\nkvSpareTrigger: 0.1\n"})
        await until(lambda: threshold(stage) == 0.45)
        await until(lambda: state(stage, "ConfigurationValid") == "True")
        await until(lambda: stage.metric("wva_config_invalid_entries", config_map=f"ns/{SATURATION}") == 0)
        local_map(stage, TIGHT)
        await until(lambda: state(stage, "ConfigurationValid") == "False")
