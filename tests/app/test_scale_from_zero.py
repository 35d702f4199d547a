"""Scale from zero: a request waits at the gateway, and WVA starts the cheapest variant."""

from __future__ import annotations

import pytest

from tests.app.gateways import POOLS, FakePicker, install_pools, pool
from tests.app.stage import DEPLOYMENTS, VARIANTS, until
from wva.api.meta import Key
from wva.sim.apiserver import Patch, matching


@pytest.fixture
async def gateway():
    """Return a picker that listens."""
    async with FakePicker().serving() as serving:
        yield serving


def replicas(stage, name="d"):
    """Return ``spec.replicas`` of the Deployment."""
    return stage.api.store.get(DEPLOYMENTS, Key("ns", name))["spec"]["replicas"]


async def test_a_waiting_request_starts_the_model(stage, gateway):
    """WVA changes Deployment, series and status, although the CRD of the pools came after its start."""
    stage.deployment(replicas=0)
    stage.va()
    gateway.waiting = 3
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 0})
        install_pools(stage)
        pool(stage, gateway.port)
        await until(lambda: replicas(stage) == 1, seconds=60.0)
        await until(lambda: stage.number() == 1)
        assert stage.series() == {"va": 1}
        await until(lambda: stage.metric("wva_activations_total", result="success") == 1)


async def test_nothing_is_started_without_a_request(stage, gateway):
    """WVA starts nothing while the gateway reports no waiting request."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    async with stage.controller():
        await until(lambda: (stage.metric("wva_gateway_reads_total", result="success") or 0) > 2)
        assert replicas(stage) == 0
        gateway.waiting = 1
        await until(lambda: replicas(stage) == 1)


async def test_a_start_that_fails_is_a_condition_an_event_and_a_series(stage, gateway):
    """They report the failure until an attempt succeeds."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    gateway.waiting = 1
    scaling = matching(verb="patch", resource=DEPLOYMENTS, subresource="scale")
    stage.api.faults.answer(403, times=None, match=scaling)
    async with stage.controller():
        await until(lambda: stage.told("Limited") == ("True", "ScaleFromZeroFailed"))
        (event,) = await until(lambda: stage.events("ScaleFromZeroFailed"))
        assert event["message"] == stage.message("Limited")
        labels = {"variant_name": "va", "namespace": "ns", "reason": "ScaleFromZeroFailed"}
        await until(lambda: stage.metric("wva_variant_obstacle", **labels) == 1)
        stage.api.faults.clear()
        await until(lambda: replicas(stage) == 1)
        await until(lambda: stage.told("Limited") == ("False", "NotLimited"))
        await until(lambda: stage.series("wva_variant_obstacle") == {})


async def test_at_zero_concurrency_the_gateway_is_left_alone(stage, gateway):
    """With concurrency 0 WVA neither queries the gateway nor starts a variant."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    gateway.waiting = 1
    async with stage.controller(interval="1s", SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY="0"):
        await until(lambda: (stage.metric("wva_cycles_total", result="success") or 0) >= 2)
        assert not stage.metric("wva_gateway_reads_total", result="success")
        assert replicas(stage) == 0


async def test_only_the_cheapest_is_started(stage, gateway):
    """The other variants of the model stay at zero."""
    install_pools(stage)
    for name in ("dear", "cheap"):
        stage.deployment(name, replicas=0)
        body = {"spec": {"template": {"metadata": {"labels": {"model": "m"}}}}}
        stage.api.store.patch(DEPLOYMENTS, Key("ns", name), Patch(body=body))
        stage.va(name, target=name)
        cost = {"dear": "40.0", "cheap": "20.0"}[name]
        stage.api.store.patch(VARIANTS, Key("ns", name), Patch(body={"spec": {"variantCost": cost}}))
    pool(stage, gateway.port)
    stage.api.store.patch(
        POOLS,
        Key("ns", "pool"),
        Patch(body={"spec": {"selector": {"matchLabels": {"app": None, "model": "m"}}}}),
    )
    gateway.waiting = 1
    async with stage.controller():
        await until(lambda: replicas(stage, "cheap") == 1)
        await until(lambda: stage.series() == {"cheap": 1, "dear": 0})
    assert replicas(stage, "dear") == 0


async def test_two_pools_over_one_model_start_one_variant(stage, gateway):
    """Requests wait at two pools of one model, and WVA starts only the cheapest variant."""
    install_pools(stage)
    for name, cost in (("dear", "40.0"), ("cheap", "20.0")):
        stage.deployment(name, replicas=0)
        stage.va(name, target=name)
        stage.api.store.patch(VARIANTS, Key("ns", name), Patch(body={"spec": {"variantCost": cost}}))
    async with FakePicker().serving() as other:
        pool(stage, gateway.port, labels={"app": "dear"})
        pool(stage, other.port, labels={"app": "cheap"}, name="other", picker="other-epp")
        gateway.waiting = other.waiting = 3
        async with stage.controller(interval="1s"):
            await until(lambda: replicas(stage, "cheap") == 1)
            await until(lambda: stage.metric("wva_activations_total", result="success") == 1)
            cycles = stage.metric("wva_cycles_total", result="success")
            await until(lambda: stage.metric("wva_cycles_total", result="success") >= cycles + 3)
            await until(lambda: stage.series() == {"cheap": 1, "dear": 0})
            assert stage.metric("wva_activations_total", result="success") == 1
    assert replicas(stage, "dear") == 0


async def test_a_cycle_does_not_take_the_start_back(stage, gateway):
    """Cycles after the start keep the number."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    async with stage.controller(interval="10ms"):
        await until(lambda: stage.series() == {"va": 0})
        gateway.waiting = 1
        await until(lambda: stage.series() == {"va": 1})
        await until(lambda: replicas(stage) == 1)
        for _ in range(20):
            await stage.cycles(1)
            assert stage.series() == {"va": 1}
