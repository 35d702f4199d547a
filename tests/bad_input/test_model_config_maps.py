"""Names, parameters and service classes that WVA cannot use: only the variants of their model report the fault."""

from __future__ import annotations

import pytest

from tests.app.stage import MODEL, SATURATION, SYSTEM, until
from wva.model.policy import Analyzer

PROFILES = "wva-model-performance-config"
CLASSES = "service-classes-config"
COSTS = "accelerator-unit-costs"
QUEUEING = "wva-queueing-model-config"
INVALID = ("False", "InvalidConfiguration")


def profile(alpha="7.0", beta="0.03", batch="256", model=MODEL):
    """Return an entry of the performance ConfigMap."""
    return f"model_id: {model}\nacc: H100\nalpha: {alpha}\nbeta: {beta}\nmaxBatchSize: {batch}\n"


async def named(stage, name, words):
    """Wait until the variant reports the fault.

    Assert that a variant of another model does not, and gets its number.
    """
    await until(lambda: stage.told("ConfigurationValid") == INVALID)
    assert stage.message("ConfigurationValid").startswith(f"ConfigMap {SYSTEM}/{name}: {words}")
    assert "; in force: " in stage.message("ConfigurationValid")
    await until(lambda: stage.events("InvalidConfiguration"))
    await stage.works(model="org/other")
    assert stage.series()["va"] == 2
    assert stage.told("ConfigurationValid", "proof") is None
    assert stage.metric("wva_cycles_total", result="error") == 0


NAMES = {
    "analyzer": (
        SATURATION,
        "analyzerName: oracle",
        "x.analyzerName: got oracle, expected percentage, saturation, queueing, demand",
    ),
    "optimizer": (SATURATION, "optimizerName: oracle", "x.optimizerName: got oracle, expected "),
    "policy": (SATURATION, "compatibility: v9", "x.compatibility: got v9, expected v0.5"),
    "inventory": (SATURATION, "unknownInventory: guess", "x.unknownInventory: got guess, expected "),
    "shortage": (QUEUEING, "saturationPolicy: First", "x.saturationPolicy: got First, expected None, "),
}


@pytest.mark.parametrize(("config_map", "text", "words"), NAMES.values(), ids=NAMES.keys())
async def test_an_unknown_name_is_named(stage, config_map, text, words):
    """The message lists the valid names. The entry of a model affects that model only."""
    async with stage.controller(interval="100ms"):
        stage.config_map(config_map, {"x": f"model_id: {MODEL}\nnamespace: ns\n{text}\n"})
        await named(stage, config_map, words)
        stage.config_map(config_map, {})
        await until(lambda: stage.told("ConfigurationValid") == ("True", "ConfigurationAccepted"))


async def test_an_unknown_analyzer_leaves_the_rest_of_its_entry(stage):
    """WVA uses the percentage analyzer, with the thresholds of the entry."""
    async with stage.controller(interval="100ms"):
        stage.config_map(SATURATION, {"default": "analyzerName: oracle\nkvCacheThreshold: 0.3\nkvSpareTrigger: 0.05"})
        await until(lambda: stage.told("ConfigurationValid") == INVALID)
        policy = stage.app.configuration.policy.saturation
        assert (policy.analyzer_name, policy.kv_cache_threshold) == (Analyzer.PERCENTAGE, 0.3)
        await stage.scrape()
        await until(lambda: stage.series().get("va", 0) > 2)  # usage 0.5 is above 0.3


UNUSABLE = {
    "nan": ({"alpha": ".nan"}, "alpha: got .nan, expected a number from 0 to 1,000,000,000"),
    "infinite": ({"alpha": ".inf"}, "alpha: got .inf, expected a number from 0 to 1,000,000,000"),
    "negative": ({"beta": "-0.03"}, "beta: got -0.03, expected a number from 0 to 1,000,000,000"),
    "no-number": ({"alpha": "fast"}, "alpha: got fast, expected a number from 0 to 1,000,000,000"),
    "no-time": ({"alpha": "0", "beta": "0"}, "alpha: got 0, expected above 0, or gamma above 0"),
    "next-to-no-time": ({"alpha": "1e-9", "beta": "0"}, "alpha: got 1e-09 ms, expected a step, or gamma, of at least"),
    "years": ({"beta": "1e6"}, "beta: got 2.56e+08 ms, expected alpha + beta * maxBatchSize at most 1,000,000 ms"),
    "batch": ({"batch": "100001"}, "maxBatchSize: got 100001, expected a whole number from 0 to 100,000"),
    "no-batch": ({"batch": "-1"}, "maxBatchSize: got -1, expected a whole number from 0 to 100,000"),
}


@pytest.mark.parametrize(("wrong", "words"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_parameters_that_no_engine_has_are_named(stage, wrong, words):
    """WVA rejects parameters such as NaN and negative numbers, and the last good ones stay in force."""
    async with stage.controller(interval="100ms"):
        stage.config_map(PROFILES, {"bad": profile()})
        await until(lambda: stage.app.configuration.policy.profiles)
        (before,) = stage.app.configuration.policy.profiles
        stage.config_map(PROFILES, {"bad": profile(**wrong)})
        await named(stage, PROFILES, f"bad.{words}")
        assert stage.message("ConfigurationValid").endswith("; in force: what it said last")
        assert stage.app.configuration.policy.profiles == (before,)


CLASS = "name: Premium\npriority: 1\ndata:\n"


async def test_a_service_class_for_a_model_that_does_not_exist_waits_for_it(stage):
    """No variant reports a fault, and the class applies when a variant of its model appears."""
    text = f"{CLASS}  - model: org/nowhere\n    slo-tpot: 24\n    slo-ttft: 500\n"
    async with stage.controller(interval="100ms"):
        stage.config_map(CLASSES, {"premium.yaml": text})
        await until(lambda: stage.app.configuration.policy.service_targets)
        await stage.works(model="org/other")
        assert stage.series()["va"] == 2
        assert stage.told("ConfigurationValid") is None
        assert stage.told("ConfigurationValid", "proof") is None
        stage.patch_va({"spec": {"modelID": "org/nowhere"}})
        await stage.cycles(2)
        assert stage.series()["va"] == 2


async def test_a_service_class_with_an_objective_that_is_none_is_named(stage):
    """The variants of its model report the invalid objective."""
    text = f"{CLASS}  - model: {MODEL}\n    slo-tpot: soon\n"
    async with stage.controller(interval="100ms"):
        stage.config_map(CLASSES, {"premium.yaml": text})
        await named(stage, CLASSES, "premium.yaml.data[0].slo-tpot: got soon, expected a number from 0 to ")


@pytest.mark.parametrize("cost", ["-40", ".nan", "1e30", "much"])
async def test_an_absurd_cost_of_an_accelerator_is_named(stage, cost):
    """The variant reports an invalid cost in the ConfigMap."""
    async with stage.controller(interval="100ms"):
        stage.config_map(COSTS, {"H100": f"cost: {cost}"})
        await until(lambda: stage.told("ConfigurationValid") == INVALID)
        expected = f"H100.cost: got {cost}, expected a number from 0 to 1,000,000,000; in force: nothing of it"
        assert stage.message("ConfigurationValid") == f"ConfigMap {SYSTEM}/{COSTS}: {expected}"
        await stage.works(model="org/other")
        assert stage.series()["va"] == 2
