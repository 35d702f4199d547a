"""An exception about the tenant's model harms only that model; the controller restarts a loop that raises."""

from __future__ import annotations

import asyncio

import pytest

from tests.app.stage import DEPLOYMENTS, SATURATION
from tests.attack.harness import Attack, ExpectedCondition, ExpectedEvent, ExpectedNumber, Says, survive
from tests.attack.world import TENANT
from wva.collect import inventory, replicas, variants
from wva.collect.answer_cache import BackgroundFetch
from wva.collect.pools import PoolStores
from wva.collect.variants import Claims
from wva.config.entries import LayeredMap
from wva.config.live import LiveConfiguration
from wva.decide import explain as explaining
from wva.decide import pipeline
from wva.kube.backoff import Backoff
from wva.kube.cache import Store
from wva.kube.controller import Controller
from wva.kube.events import EventRecorder
from wva.kube.informer import Informer
from wva.model.variant import ModelKey, VariantKey
from wva.optimizer import OptimizerLoop
from wva.prometheus import client
from wva.publish import metrics
from wva.publish.announce import Announcer
from wva.publish.ledger import Ledger
from wva.scale_from_zero.loop import ScaleFromZero

TEXT = "a secret of the tenant"


HELD = (
    ExpectedCondition("OptimizationReady", "False", "ModelFailed", contains="LookupError in wva."),
    ExpectedEvent("DesiredReplicasHeld", contains="ModelFailed"),
    Says("the hold is counted", lambda world: world.metric("wva_holds_total", reason="ModelFailed") > 0),
    Says("its text is told nowhere", lambda world: TEXT not in str(world.status_of("bad", TENANT))),
    ExpectedNumber(1),
)


def of_tenant(*args):
    """Tell whether an argument of a call, or a part of one, names the tenant's namespace."""
    return any(_concerns(arg) for arg in args)


def _concerns(value):
    if isinstance(value, list | tuple) and not isinstance(value, ModelKey | VariantKey):
        return any(_concerns(each) for each in value)
    for name in ("key", "model", "metadata", "decision", "assessment"):
        inner = getattr(value, name, None)
        if inner is not None and not callable(inner) and _concerns(inner):
            return True
    if isinstance(value, str):
        return value == TENANT
    return getattr(value, "namespace", None) == TENANT


def raising(where, name, about=of_tenant):
    """Return a step that makes a function or method raise when a call is about the tenant."""

    def step(world):
        original = getattr(where, name)

        def broken(*args, **kwargs):
            if about(*args, *kwargs.values()):
                raise LookupError(TEXT)
            return original(*args, **kwargs)

        world._monkeypatch.setattr(where, name, broken)

    return step


def series_of_tenant(_self, _query, series):
    """Tell whether a series has the tenant's namespace."""
    return series.metric.get("namespace") == TENANT


def fault(name, where, function, **rest):
    """Return an attack that makes a function raise once the victim has its number; it shows ``HELD`` by default."""
    return Attack(
        name, during=raising(where, function, rest.pop("about", of_tenant)), shows=rest.pop("shows", HELD), **rest
    )


FAULTS = [
    fault("reading_the_target_raises", variants, "resolve", about=lambda va, *_: va.metadata.namespace == TENANT),
    fault("reading_the_bounds_raises", variants, "bounds_of", about=lambda va, *_: va.metadata.namespace == TENANT),
    fault("reading_the_pods_raises", variants, "pods_of"),
    fault("reading_the_variant_raises", variants, "variant_of", about=lambda va, *_: va.metadata.namespace == TENANT),
    fault("joining_a_series_raises", replicas.ReplicaJoin, "_place", about=series_of_tenant),
    fault("judging_a_replica_raises", replicas.ReplicaJoin, "_replica"),
    fault("finding_the_terms_raises", pipeline, "terms"),
    fault("settling_raises", pipeline, "settle"),
    fault("explaining_raises", pipeline, "explain"),
    fault("remembering_raises", explaining, "clocked"),
    fault(
        "recording_the_decision_raises",
        Ledger,
        "_tell",
        about=lambda _self, key, _old, new: key.namespace == TENANT and new is not None and not new.held,
        shows=ExpectedNumber(1),
    ),
    fault("showing_the_replicas_raises", metrics, "output", shows=ExpectedNumber(1)),
    fault("explaining_the_number_raises", metrics, "explanation", shows=ExpectedNumber(1)),
]


def poison(world):
    """Make the decoder of Prometheus answers raise when an answer has a sample of the tenant."""
    original = client.decode_vector

    def broken(body, **rest):
        if TENANT.encode() in body:
            raise LookupError(TEXT)
        return original(body, **rest)

    world.set("wva.prometheus.client.decode_vector", broken)


def claims_of_tenant(_self, va, _now):
    """Tell whether a variant belongs to the tenant."""
    return va.metadata.namespace == TENANT


FAULTS += [
    Attack(
        "decoding_an_answer_raises",
        during=poison,
        shows=(
            ExpectedCondition("OptimizationReady", "False", "PrometheusError", contains="its answer cannot be read"),
            Says("its text is told nowhere", lambda world: TEXT not in str(world.status_of("bad", TENANT))),
            ExpectedNumber(1),
        ),
    ),
    fault("telling_whose_variant_it_is_raises", Claims, "mine", about=claims_of_tenant, shows=()),
    fault(
        "announcing_an_event_raises",
        Announcer,
        "__call__",
        about=lambda _self, key, *_: of_tenant(key),
        shows=ExpectedNumber(1),
    ),
    fault(
        "telling_what_is_wrong_raises",
        LiveConfiguration,
        "problem_for",
        shows=(
            ExpectedCondition("ConfigurationValid", "False", contains="a check failed: LookupError"),
            ExpectedNumber(1),
        ),
    ),
    fault("counting_the_gpus_of_nodes_raises", inventory, "node_pools", about=lambda *_: True, shows=ExpectedNumber(1)),
    fault(
        "looking_at_pools_raises",
        PoolStores,
        "pools_of",
        about=lambda _self, namespace, _labels: namespace == TENANT,
        shows=ExpectedNumber(1),
        gateway=True,
    ),
]


@pytest.mark.parametrize("attack", FAULTS, ids=str)
async def test_a_fault_about_one_model_is_that_model_s(world, attack):
    """The controller holds the tenant's model and says so, and decides on the victim in every cycle."""
    await survive(world, attack)


def from_the_start(name, *steps, **rest):
    """Return an attack whose faults exist before the controller starts."""

    def before(world):
        for step in steps:
            step(world)

    return Attack(name, before=before, **rest)


def local_map(world):
    """Give the tenant's namespace valid thresholds of its own."""
    world.tenant_map(SATURATION, {"default": "kvCacheThreshold: 0.77\nkvSpareTrigger: 0.1\n"})


def with_the_local_map(model, *_rest):
    """Tell whether the controller uses the thresholds of ``local_map`` for the model."""
    return model.policy.kv_cache_threshold == 0.77


OUT_OF_FORCE = (
    ExpectedCondition("ConfigurationValid", "False", "InvalidConfiguration", contains="LookupError"),
    ExpectedEvent("InvalidConfiguration", contains="LookupError"),
    ExpectedNumber(1),
)
FROM_THE_START = [
    from_the_start("everything_about_a_variant_raises_from_the_start", raising(variants, "variant_of"), shows=HELD),
    from_the_start(
        "a_config_map_makes_decisions_raise",
        local_map,
        raising(pipeline, "terms", with_the_local_map),
        shows=(*OUT_OF_FORCE, ExpectedCondition("OptimizationReady", "True")),
    ),
    from_the_start(
        "reading_a_config_map_raises",
        local_map,
        raising(LayeredMap, "take", lambda _self, namespace, _data: namespace == TENANT),
        shows=OUT_OF_FORCE,
    ),
]


@pytest.mark.parametrize("attack", FROM_THE_START, ids=str)
async def test_a_fault_that_is_there_first_is_that_model_s_as_well(world, attack):
    """A fault about the tenant's model harms only that model, also if the model has no number yet."""
    await survive(world, attack)


def ending(kind, *, is_bad=lambda _loop: True, times=2):
    """Return a step that makes each loop of a kind raise in its first turns."""

    def step(world):
        original, turns = kind.run, {}

        async def run(self, *args):
            turns[id(self)] = turns.get(id(self), 0) + 1
            if is_bad(self) and turns[id(self)] <= times:
                raise LookupError(TEXT)
            await original(self, *args)

        world._monkeypatch.setattr(kind, "run", run)
        world._monkeypatch.setattr(Backoff, "next", lambda *_, **__: 0.02)

    return step


def restarted(name, times=2):
    """Return a check that the controller has restarted a loop this many times."""
    return Says(f"{name} was started again", lambda world: world.metric("wva_loop_restarts_total", loop=name) == times)


def informer_of(name):
    """Return a predicate that is true for the informer of one kind."""
    return lambda informer: informer.resource.name == name


def changed_by_tenant(_self, obj):
    """Tell whether a watch event is about an object of the tenant."""
    return obj.metadata.namespace == TENANT


async def churn(world):
    """Make the cache raise at each change of the tenant's objects, and change the Deployment ten times."""
    raising(Store, "upsert", changed_by_tenant)(world)
    world.set("wva.kube.backoff.Backoff.next", lambda *_, **__: 0.02)
    for number in range(10):
        world.patch(DEPLOYMENTS, "bad", {"metadata": {"labels": {"turn": str(number)}}})
        await asyncio.sleep(0.03)


LOOPS = [
    Attack(
        "taking_a_change_of_the_tenant_raises",
        during=churn,
        shows=Says(
            "the watch was started again",
            lambda world: world.metric("wva_loop_restarts_total", loop="informer deployments.apps") > 3,
        ),
    ),
    from_the_start("the_optimizer_raises", ending(OptimizerLoop), shows=restarted("optimizer")),
    from_the_start("the_recorder_of_events_raises", ending(EventRecorder), shows=restarted("event recorder")),
    from_the_start("the_background_fetch_raises", ending(BackgroundFetch), shows=restarted("background fetch")),
    from_the_start(
        "the_controllers_raise",
        ending(Controller),
        shows=(restarted("variantautoscaling controller"), restarted("configmap controller")),
    ),
    from_the_start(
        "the_watch_of_pods_raises",
        ending(Informer, is_bad=informer_of("pods")),
        shows=restarted("informer pods"),
    ),
    from_the_start("scale_from_zero_raises", ending(ScaleFromZero), gateway=True, shows=restarted("scale from zero")),
]


@pytest.mark.parametrize("attack", LOOPS, ids=str)
async def test_a_loop_that_raises_is_started_again(world, attack):
    """The controller restarts a loop that raises, and the victim keeps its right number."""
    await survive(world, attack)
