"""Bodies of the API server: objects of every kind, lists, lines of a watch, refusals. WVA reads values from them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from contextlib import aclosing

import msgspec
from prometheus_client import CollectorRegistry

from tests.builders import decoded_list
from tests.fuzz.harness import short
from wva import targets
from wva.api import kinds
from wva.api.core import InferencePool, InferencePoolAlpha, Node, Pod, ResourceQuota, Service
from wva.api.resource import Resource
from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.inventory import GPU_RESOURCES, gpu_count, pod_gpus, without_idle_containers
from wva.collect.resolution import ScalerStores, bound_problems, bounds_of
from wva.collect.surplus import (
    MAX_CONDITIONS,
    MAX_MODEL_ID_CHARACTERS,
    bounded_target,
    bounded_variant,
    model_id_fits,
    surplus_problems,
)
from wva.collect.variants import COST, cost_problems, variant_of
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.cache import Store
from wva.kube.watch import WatchTarget, one_request
from wva.numbers import MAX_REPLICAS
from wva.targets import Deployment, LeaderWorkerSet, StatefulSet

_NO_SCALERS = ScalerStores()
_NO_SCALERS.add_indexes()

KINDS = [value for value in (*vars(kinds).values(), *vars(targets).values()) if isinstance(value, Resource)]
MOST_GPUS = 1_000_000
MOST_PROBLEMS = 10
NOW = 1_767_225_600.0
_LAST = b'{"type":"ADDED","object":{"metadata":{"name":"last","namespace":"ns","resourceVersion":"99"}}}'
_INSTRUMENTS = Instruments(CollectorRegistry())
_LOOP = asyncio.new_event_loop()


def words():
    """Return every field that WVA reads, and other texts that a body may contain."""
    for kind in KINDS:
        yield from _fields(kind.type, set())
    yield from ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "type", "object", "items", "continue", "details")
    yield from ("retryAfterSeconds", "code", "Expired", "Failure", "null", "True", "Ready", "nvidia.com/gpu", "Always")
    yield from (
        "Deployment",
        "apps/v1",
        "2026-01-02T03:04:05Z",
        "autoscaling.keda.sh/paused-replicas",
        "500m",
        "\\ud800",
    )
    yield from ("wva.llmd.ai/min-replicas", "wva.llmd.ai/max-replicas", "PodScheduled", "Unschedulable", "llmd.ai")


def _fields(kind, seen):
    """Yield the names that a struct and its inner structs have in JSON."""
    if kind in seen:
        return
    seen.add(kind)
    for field in msgspec.structs.fields(kind):
        yield field.encode_name
        for inner in _structs(msgspec.inspect.type_info(field.type)):
            yield from _fields(inner, seen)


def _structs(info):
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
    for inner in (getattr(info, "item_type", None), getattr(info, "value_type", None), *getattr(info, "types", ())):
        if inner is not None:
            yield from _structs(inner)


def check(data):
    """WVA raises only DecodeError and ApiError; numbers stay in range; one bad body hides no later object."""
    taken = [_object(resource, data) for resource in KINDS]
    _list(data)
    _line(data)
    _refusal(data)
    return any(taken)


def _object(resource, data):
    try:
        found = resource.decode(data)
    except msgspec.DecodeError as error:
        short(error)
        return False
    assert isinstance(found, resource.type)
    assert resource.decode(msgspec.json.encode(found)) == found
    created = found.metadata.creation_timestamp
    assert created is None or isinstance(created, str)
    read = _READ.get(resource.type)
    if read is not None:
        read(found)
    return found.metadata.name != ""


def _pod(pod):
    assert pod.ready in {True, False}
    assert pod.ready_since is None or math.isfinite(pod.ready_since)
    for resource in GPU_RESOURCES:
        gpus = pod_gpus(pod.spec, resource)
        assert 0 <= gpus <= MOST_GPUS * (len(pod.spec.containers) + len(pod.spec.init_containers))
        assert pod_gpus(without_idle_containers(pod).spec, resource) == gpus


def _target(target):
    kept = bounded_target(target)
    assert bounded_target(kept) == kept
    assert len(surplus_problems(VariantAutoscaling(), kept)) <= MOST_PROBLEMS
    _variant(VariantAutoscaling(), kept)
    assert 1 <= target.pods_per_replica <= MAX_REPLICAS
    assert len(target.pod_labels) >= len(target.template.metadata.labels)
    for number in (target.spec_replicas, target.current_replicas, target.ready_replicas(())):
        assert 0 <= number <= MAX_REPLICAS


def _va(va):
    kept = bounded_variant(va)
    assert len(kept.status.conditions) <= MAX_CONDITIONS
    assert len(kept.spec.model_id) <= MAX_MODEL_ID_CHARACTERS + 1
    assert model_id_fits(kept) == model_id_fits(va)
    short(*bound_problems(kept, _NO_SCALERS), *cost_problems(kept), *surplus_problems(kept, None))
    _variant(kept, Deployment())


def _variant(va, target):
    variant = variant_of(va, target=target, pods=(), bounds=bounds_of(va, _NO_SCALERS), now=NOW)
    assert 0 <= variant.cost <= COST.maximum
    assert variant.status_desired is None or 0 <= variant.status_desired <= MAX_REPLICAS
    assert variant.gpus_per_replica >= 1
    for moment in (variant.settling_since, variant.oldest_unready_since, variant.activated_at):
        assert moment is None or math.isfinite(moment)
    assert 0 <= variant.bounds.clamp(variant.current_replicas) <= MAX_REPLICAS


def _scaler(scaler):
    """Assert that the bounds of a scaler stay in the range of replicas."""
    stores = ScalerStores(Store(), Store())
    stores.add_indexes()
    store = stores.hpas if isinstance(scaler, HorizontalPodAutoscaler) else stores.scaled_objects
    reference = scaler.spec.scale_target_ref
    store.upsert(scaler)
    target = {"name": reference.name, "kind": reference.kind or "Deployment"}
    va = msgspec.convert(
        {"metadata": {"namespace": scaler.metadata.namespace}, "spec": {"scaleTargetRef": target}}, VariantAutoscaling
    )
    bounds = bounds_of(va, stores)
    for bound in (bounds.minimum, bounds.maximum):
        assert bound is None or 0 <= bound <= MAX_REPLICAS
    assert 0 <= bounds.clamp(3) <= MAX_REPLICAS
    assert len(list(scaler.problems())) <= MOST_PROBLEMS
    short(*scaler.problems())


def _node(node):
    assert node.usable in {True, False}
    assert all(0 <= gpu_count(quantity) <= MOST_GPUS for quantity in node.status.allocatable.values())


def _quota(quota):
    for quantity in (*quota.status.hard.values(), *quota.status.used.values()):
        assert 0 <= gpu_count(quantity) <= MOST_GPUS


def _service(service):
    assert all(isinstance(port.name, str) for port in service.spec.ports)


def _pool(pool):
    assert isinstance(pool.picker, str)
    assert isinstance(pool.match_labels, dict)


_READ = {
    Pod: _pod,
    Deployment: _target,
    StatefulSet: _target,
    LeaderWorkerSet: _target,
    VariantAutoscaling: _va,
    HorizontalPodAutoscaler: _scaler,
    ScaledObject: _scaler,
    Node: _node,
    ResourceQuota: _quota,
    Service: _service,
    InferencePool: _pool,
    InferencePoolAlpha: _pool,
}


def _list(data):
    for body in (data, b'{"items":[' + data + b',{"metadata":{"name":"last"}}]}'):
        try:
            listed = decoded_list(kinds.PODS, body)
        except msgspec.DecodeError:
            continue
        assert listed.undecodable >= 0
        assert body is data or listed.items[-1].metadata.name == "last"


def _line(data):
    """WVA skips a bad line of a watch and reads the next event on the same stream."""
    for line in (data, b'{"type":"MODIFIED","object":' + data + b"}"):
        if b"\n" in line:
            continue
        changes = _LOOP.run_until_complete(_changes([line, _LAST]))
        assert changes is None or changes[-1].obj.metadata.name == "last"


async def _changes(lines):
    """Return the changes of one request; None if a line ended the request with an error."""
    target = WatchTarget(client=_Client(lines), resource=kinds.PODS, instruments=_INSTRUMENTS)
    changes = []
    with contextlib.suppress(errors.ApiError):
        async with aclosing(one_request(target, resource_version="1")) as found:
            async for change in found:
                changes.append(change)  # noqa: PERF401 - keeps the changes before an error
        return changes
    return None


class _Client:
    """Answers a watch request with some lines."""

    def __init__(self, lines):
        self._lines = lines

    async def stream(self, resource, **_):
        """Yield the lines."""
        assert resource is kinds.PODS
        for line in self._lines:
            yield line


def _refusal(data):
    for status in (0, 403, 410, 429, 500):
        error = errors.from_status(status, data, attempted="GET /x")
        assert isinstance(error, errors.ApiError)
        assert len(error.message) <= errors.MAX_TEXT_CHARACTERS + len("...")
        wait = error.retry_after_seconds
        assert wait is None or math.isfinite(wait)
