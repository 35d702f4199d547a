"""Endpoint pickers with bad answers, and pools without pods: WVA names them, and other variants are not affected."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.app.gateways import POOLS, QUEUE, FakePicker, install_pools, pool
from tests.app.stage import DEPLOYMENTS, MODEL, VARIANTS, until
from tests.bad_input.hostile import SECRET
from tests.rows import by_day
from wva.api.meta import Key
from wva.scale_from_zero import gateway

WAITING = f'{QUEUE}{{target_model_name="{MODEL}"}} 1\n'


@pytest.fixture
async def picker():
    """Return a picker that listens."""
    async with FakePicker().serving() as serving:
        yield serving


def replicas(stage, namespace="ns"):
    """Return ``spec.replicas`` of the stage's Deployment."""
    return stage.api.store.get(DEPLOYMENTS, Key(namespace, "d"))["spec"]["replicas"]


async def refuse(_):
    """Answer 401, with a secret in the text."""
    return web.Response(status=401, text=SECRET)


async def page(_):
    """Answer with the login page of a proxy."""
    return web.Response(text=f"<!DOCTYPE html><html><body>{SECRET}</body></html>", content_type="text/html")


async def flood(request):
    """Answer with 100 MB of comments."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b"# HELP a comment that goes on and on ......\n" * 25_000)
    return response


async def never(_):
    """Do not answer."""
    await asyncio.sleep(3600)


async def garble(_):
    """Answer the right metric with an invalid value."""
    return web.Response(text=WAITING.replace(" 1\n", f" 1{SECRET}\n"))


async def move(_):
    """Redirect to another address."""
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/metrics"})


ANSWERS = {
    "401": (refuse, " answered 401: the token of EPP_METRIC_READER_BEARER_TOKEN is not accepted"),
    "html": (page, " sent something that is no page of metrics, expected metrics as text"),
    "100-mb": (flood, " sent more than 1,048,576 bytes, expected metrics as text"),
    "never": (never, " did not answer within 2 s"),
    "garbled": (garble, " sent a line that cannot be read, expected metrics as text"),
    "moved": (move, " answered 307, expected 200"),
}


@pytest.mark.parametrize("name", by_day(list(ANSWERS), ["401", "100-mb", "never", "garbled"]))
async def test_a_picker_that_answers_nonsense_is_named(stage, picker, output, name, monkeypatch):
    """The variant behind it stays at zero and names the fault. It starts when the picker answers correctly."""
    monkeypatch.setattr(gateway, "MAX_PAGE_BYTES", 1024 * 1024)  # a busy machine does not read 16 MiB in time
    install_pools(stage)
    stage.scale("d", 0)
    pool(stage, picker.port)
    picker.answer, words = ANSWERS[name]
    async with stage.controller(interval="100ms", EPP_METRIC_READER_BEARER_TOKEN=SECRET):
        await until(lambda: stage.told("GatewayReadable") == ("False", "GatewayUnreadable"))
        message = stage.message("GatewayReadable")
        assert message == (
            f"InferencePool ns/pool: http://127.0.0.1:{picker.port}/metrics{words}; "
            "in force: requests that wait there start nothing until it is read"
        )
        await stage.works(model="org/other")
        assert (replicas(stage), stage.series()["va"]) == (0, 0)
        assert stage.told("GatewayReadable", "proof") is None
        picker.answer, picker.waiting = None, 1
        await until(lambda: replicas(stage) == 1)
        await until(lambda: stage.told("GatewayReadable") == ("True", "GatewayRead"))
    assert stage.metric("wva_cycles_total", result="error") == 0
    assert SECRET not in stage.everything_told()
    assert SECRET not in output()


async def test_a_pool_with_an_empty_selector_claims_nobody(stage, picker):
    """Variants without another pool name the fault; once the pool has a selector, WVA starts the variant behind it."""
    install_pools(stage)
    stage.scale("d", 0)
    pool(stage, picker.port, labels={})
    picker.waiting = 1
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.told("GatewayReadable") == ("False", "PoolSelectorEmpty"))
        message = stage.message("GatewayReadable")
        assert message.startswith(
            "InferencePool ns/pool: spec.selector is empty, expected labels of the pods behind it"
        )
        await stage.works(model="org/other")
        assert replicas(stage) == 0
        assert stage.metric("wva_gateway_reads_total", result="success") == 0
        stage.force(POOLS, "pool", lambda value: value["spec"].update(selector={"matchLabels": {"app": "d"}}))
        await until(lambda: replicas(stage) == 1)
        await until(lambda: stage.told("GatewayReadable") == ("True", "GatewayRead"))
        await until(lambda: stage.told("GatewayReadable", "proof") == ("True", "GatewayRead"))


async def test_two_pools_of_one_name_are_two(stage, picker):
    """Two namespaces have equal pools, labels and variants. A queue starts only the variant of its own namespace."""
    other = FakePicker()
    install_pools(stage)
    stage.scale("d", 0)
    stage.api.store.create("namespaces", {"metadata": {"name": "other"}})
    for resource, name in ((DEPLOYMENTS, "d"), (VARIANTS, "va")):
        spec = stage.api.store.get(resource, Key("ns", name))["spec"]
        stage.force(resource, name, lambda value, spec=spec: value.update(spec=spec), namespace="other")
    async with other.serving():
        pool(stage, picker.port)
        pool(stage, other.port, namespace="other")
        other.waiting = 1
        async with stage.controller(interval="100ms"):
            await until(lambda: replicas(stage, "other") == 1)
            await stage.works(model="org/other")
            assert replicas(stage) == 0
            assert stage.told("GatewayReadable") is None
            picker.waiting = 1
            await until(lambda: replicas(stage) == 1)
