"""ConfigMaps that change while the process runs: valid values apply at once, invalid ones are reported and ignored."""

from __future__ import annotations

from tests.app.stage import MAIN, MODEL, SATURATION, SYSTEM, until
from wva.api.meta import Key

GOOD = {"default": "kvCacheThreshold: 0.8\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.1\nqueueSpareTrigger: 3\n"}
TIGHT = {"default": "kvCacheThreshold: 0.4\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.1\nqueueSpareTrigger: 3\n"}
LOOSE = {"default": "kvCacheThreshold: 0.95\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.1\nqueueSpareTrigger: 3\n"}
BROKEN = {"default": "kvCacheThreshold: [nonsense\n"}


async def test_a_broken_saturation_config_is_told_in_three_places(stage):
    """An event on the ConfigMap, a condition of the variant and a gauge report it, until the ConfigMap is fixed."""
    stage.deployment()
    stage.va()
    stage.config_map(SATURATION, GOOD)
    async with stage.controller():
        await until(lambda: stage.number() == 1)
        assert stage.told("ConfigurationValid") is None
        stage.config_map(SATURATION, BROKEN)
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        assert f"ConfigMap wva/{SATURATION}: default" in stage.message("ConfigurationValid")
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert event["type"] == "Warning"
        assert event["involvedObject"]["kind"] == "ConfigMap"
        assert event["involvedObject"]["name"] == SATURATION
        assert event["metadata"]["namespace"] == "wva"
        assert stage.metric("wva_config_invalid_entries", config_map=SATURATION) == 1
        stage.config_map(SATURATION, GOOD)
        await until(lambda: stage.told("ConfigurationValid") == ("True", "ConfigurationAccepted"))
        assert stage.metric("wva_config_invalid_entries", config_map=SATURATION) == 0


async def test_the_last_good_thresholds_stay_in_force(stage):
    """A broken ConfigMap does not change the thresholds."""
    stage.deployment(replicas=2)
    stage.va()
    stage.load["d"] = (0.5, 0)
    await stage.scrape()
    stage.config_map(SATURATION, TIGHT)
    async with stage.controller(interval="20ms"):
        await until(lambda: (stage.number() or 0) > 2)
        stage.config_map(SATURATION, BROKEN)
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        stage.scale("d", 5)
        await stage.scrape()
        await until(lambda: (stage.number() or 0) > 5)  # at the shipped threshold of 0.8 five replicas would do


async def test_thresholds_apply_with_the_next_cycle(stage):
    """New thresholds apply without a restart."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    stage.config_map(SATURATION, GOOD)
    async with stage.controller(interval="20ms"):
        await until(lambda: (stage.told("OptimizationReady") or ("",))[0] == "True")
        stage.config_map(SATURATION, TIGHT)
        await until(lambda: (stage.number() or 0) > 2)


async def test_a_deleted_saturation_config_brings_back_the_shipped_thresholds(stage):
    """After the ConfigMap is deleted, the shipped thresholds are in force."""
    stage.deployment(replicas=2)
    stage.va()
    stage.load["d"] = (0.75, 0)
    await stage.scrape()
    stage.config_map(SATURATION, LOOSE)
    async with stage.controller(interval="20ms"):
        await until(lambda: (stage.told("OptimizationReady") or ("",))[0] == "True")
        assert stage.number() == 2
        stage.api.store.delete("configmaps", Key(SYSTEM, SATURATION))
        await until(lambda: stage.number() == 3)


async def test_a_broken_override_concerns_its_own_model_only(stage):
    """The condition is set only on variants of the model that the entry names."""
    for name in ("a", "b"):
        stage.deployment(name)
        stage.va(name, target=name)
    stage.patch_va({"spec": {"modelID": "org/other"}}, "b")
    async with stage.controller():
        await until(lambda: stage.number("a") == stage.number("b") == 1)
        entry = f"model_id: {MODEL}\nnamespace: ns\nkvCacheThreshold: 7\n"
        stage.config_map(SATURATION, {**GOOD, "bad": entry})
        await until(lambda: stage.told("ConfigurationValid", "a") == ("False", "InvalidConfiguration"))
        await until(lambda: stage.app.idle)
        assert stage.told("ConfigurationValid", "b") is None


async def test_a_new_interval_applies_while_the_loop_waits(stage):
    """A shorter interval applies at once, not after the old interval has passed."""
    stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "1h"})
    async with stage.controller(interval=None):
        await until(lambda: stage.metric("wva_cycles_total", result="success") == 1)
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms"})
        await stage.cycles(3)


async def test_a_bad_interval_leaves_the_old_one(stage):
    """An event on the ConfigMap reports the bad value, and the old interval stays in force."""
    stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms"})
    async with stage.controller(interval=None, config_map={"GLOBAL_OPT_INTERVAL": "20ms"}):
        await stage.cycles(1)
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "soon"})
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert "GLOBAL_OPT_INTERVAL='soon'" in event["message"]
        assert event["message"].endswith("in force: 0.02s")
        await stage.cycles(3)


async def test_a_config_map_that_is_not_ours_is_ignored(stage):
    """WVA ignores other ConfigMaps in its namespace."""
    async with stage.controller():
        await until(lambda: stage.metric("wva_leader"))
        stage.config_map("kube-root-ca.crt", BROKEN)
        await until(lambda: stage.app.idle)
        assert stage.events("InvalidConfiguration") == []


async def test_freshness_limits_in_the_wrong_order_are_told(stage):
    """Both old limits stay in force, because WVA cannot know which of the two is wrong."""
    stage.config_map(MAIN, {"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "45s"})
    async with stage.controller():
        await until(lambda: stage.metric("wva_leader"))
        stage.config_map(MAIN, {"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "10m"})
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD='600s'" in event["message"]
        assert event["message"].endswith("in force: 45s and 300s")
