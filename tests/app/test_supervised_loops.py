"""WVA starts each loop again that raises an exception, and the process goes on."""

from __future__ import annotations

import pytest

from tests.app.stage import until
from wva.collect.answer_cache import BackgroundFetch
from wva.kube import supervision
from wva.kube.backoff import Backoff
from wva.kube.controller import Controller
from wva.kube.events import EventRecorder
from wva.kube.informer import Informer
from wva.optimizer import OptimizerLoop
from wva.scale_from_zero.loop import ScaleFromZero

LOOPS = {
    "informer pods": Informer,
    "informer variantautoscalings.llmd.ai": Informer,
    "event recorder": EventRecorder,
    "scale from zero": ScaleFromZero,
    "variantautoscaling controller": Controller,
    "configmap controller": Controller,
    "optimizer": OptimizerLoop,
    "background fetch": BackgroundFetch,
}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(Backoff, "next", lambda *_, **__: 0.01)


def breaking(monkeypatch, kind, times):
    """Make the first runs of each loop of a kind raise."""
    original, broken = kind.run, {}

    async def run(self, *args):
        broken[id(self)] = broken.get(id(self), 0) + 1
        if broken[id(self)] <= times:
            raise LookupError("text of a tenant")
        await original(self, *args)

    monkeypatch.setattr(kind, "run", run)


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_that_raises_is_started_again(stage, monkeypatch, name):
    """The restarts are counted, and afterwards everything works."""
    breaking(monkeypatch, LOOPS[name], 3)
    stage.deployment()
    stage.va()
    async with stage.controller(interval="20ms") as task:
        await until(stage.series)
        await until(lambda: stage.metric("wva_loop_restarts_total", loop=name) == 3)
        await until(lambda: stage.metric("wva_cycles_total", result="success") > 2)
        assert stage.app.supervisor.unhealthy() == []
        assert not task.done()


async def test_a_loop_that_never_comes_back_makes_the_probe_fail(stage, monkeypatch):
    """Liveness names the loop. The other loops go on until the kubelet restarts the process."""
    monkeypatch.setattr(supervision, "AWAY_SECONDS", 0.2)
    breaking(monkeypatch, ScaleFromZero, 10**9)
    async with stage.controller(interval="20ms") as task:
        (reason,) = await until(stage.app.supervisor.unhealthy)
        assert reason.startswith("scale from zero: fails for ")
        assert "tenant" not in reason
        before = stage.metric("wva_cycles_total", result="success")
        await until(lambda: stage.metric("wva_cycles_total", result="success") > before)
        assert not task.done()
