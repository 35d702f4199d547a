"""Bad performance parameters in a simulated cluster with virtual time."""

from __future__ import annotations

import pytest

from wva.api.meta import Key
from wva.model.decision import HOLD_REASONS
from wva.sim.commands.demo import play
from wva.sim.world import objects
from wva.sim.world.objects import MODEL_ID, NAMESPACE
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

QUEUEING = "wva-queueing-model-config"
PROFILES = "wva-model-performance-config"


def profile(alpha="7.0", beta="0.03", batch="256", accelerator="H100"):
    """Return an entry of the performance ConfigMap."""
    return f"model_id: {MODEL_ID}\nacc: {accelerator}\nalpha: {alpha}\nbeta: {beta}\nmaxBatchSize: {batch}\n"


async def run(profiles, *, variants=("h100",), minutes=4):
    """Return the world after some minutes of load with the queueing analyzer."""
    scenario = demo_scenario(
        "bad-parameters",
        "parameters as nobody should write them",
        tuple(demo_variant(name, name.upper(), 40.0) for name in variants),
        between((0, 6), minutes=minutes),
        saturation={"default": "analyzerName: queueing\n"},
    )
    world = EmbeddedWorld(scenario, seed=1)
    metadata = {"name": PROFILES, "namespace": objects.SYSTEM_NAMESPACE}
    world.api.store.create("configmaps", {"metadata": metadata, "data": profiles})
    metadata = {"name": QUEUEING, "namespace": objects.SYSTEM_NAMESPACE}
    world.api.store.create("configmaps", {"metadata": metadata, "data": {"default": "tuningEnabled: false"}})

    async def nothing():
        return

    await play(world, duration_seconds=world.traffic.duration_seconds, tick=nothing)
    return world


def status_of(world, name):
    """Return the status of a variant."""
    return world.api.store.get("variantautoscalings.llmd.ai", Key(NAMESPACE, name))["status"]


def told(world, type_, name="h100"):
    """Return status, reason and message of a condition, None without the condition."""
    found = [each for each in status_of(world, name)["conditions"] if each["type"] == type_]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


def number(world, name):
    """Return the number in the status of a variant."""
    return status_of(world, name)["desiredOptimizedAlloc"]["numReplicas"]


@pytest.mark.timeout(300)
async def test_one_variant_without_usable_parameters_stops_no_other():
    """It keeps its number, and the other variant of the model is decided on. The condition names the entry."""
    profiles = {"bad": profile(beta="1e6"), "good": profile(accelerator="A100")}
    world = await run(profiles, variants=("h100", "a100"))
    for name in ("h100", "a100"):
        status, reason, message = told(world, "ConfigurationValid", name)
        assert (status, reason) == ("False", "InvalidConfiguration")
        assert message.startswith(f"ConfigMap {objects.SYSTEM_NAMESPACE}/{PROFILES}: bad.beta: got 2.56e+08 ms")
    assert told(world, "OptimizationReady", "a100")[0] == "True"
    assert number(world, "h100") == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("batch", "words"), [(1, "a replica of h100 takes 0.1958 "), (100_000, "a replica of h100 takes 19.16 ")]
)
async def test_any_batch_up_to_the_largest_is_sized(batch, words):
    """The analyzer uses the smallest and the largest batch, and is fast enough with both."""
    world = await run({"h100": profile(batch=str(batch), beta="0.0003")})
    status, _, message = told(world, "OptimizationReady")
    assert (status, told(world, "ConfigurationValid")) == ("True", None)
    assert "sized" not in message
    assert world.timeline.decisions[-1].reason not in HOLD_REASONS
    assert words in world.timeline.decisions[-1].message
