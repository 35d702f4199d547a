"""An exception for one object or sample holds one model, wherever it is raised."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.collect.doubles import NOW
from wva.collect import inventory, replicas, request_counts, variants
from wva.collect.snapshot import Collector
from wva.model.variant import ModelKey, VariantKey

BAD = ModelKey("bad", "m")
GOOD = VariantKey("good", "va")


def breaking(monkeypatch, module, name, is_bad):
    """Make a function raise if ``is_bad`` is true for its arguments."""
    original = getattr(module, name)

    def broken(*args, **kwargs):
        if is_bad(*args):
            raise LookupError("text of a tenant")
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, broken)


def of_bad(obj, *_):
    """Tell whether an object is in the tenant's namespace."""
    return obj.metadata.namespace == "bad"


def named_bad(_self, _query, series):
    """Tell whether a series is about the tenant's namespace."""
    return series.metric.namespace == "bad"


def pod_of_bad(_self, pod, *_):
    """Tell whether a pod is in the tenant's namespace."""
    return pod.model == BAD


STAGES = {
    "resolve": (variants, "resolve", of_bad, "reading variant va"),
    "bounds": (variants, "bounds_of", of_bad, "reading variant va"),
    "pods": (variants, "pods_of", of_bad, "reading variant va"),
    "cost": (variants, "variant_of", of_bad, "reading variant va"),
    "pod": (replicas.ReplicaJoin, "_replica", pod_of_bad, "reading the samples of pod va-0"),
    "series": (replicas.ReplicaJoin, "_place", named_bad, "reading the samples of pod va-0"),
}


@pytest.fixture
def two(cluster, prometheus):
    """Return a cluster with one variant in each of two namespaces; both report."""
    for namespace in ("bad", "good"):
        cluster.variant(namespace=namespace)
        prometheus.put_replica(pod="va-0", namespace=namespace)
    return cluster


@pytest.mark.parametrize("stage", STAGES)
async def test_an_exception_while_reading_holds_that_model(two, collector, monkeypatch, stage):
    """The snapshot and one log line have the cause; the other model keeps its data."""
    assert two
    before = await collector.collect(NOW)
    module, name, is_bad, what = STAGES[stage]
    breaking(monkeypatch, module, name, is_bad)
    with capture_logs() as lines:
        seen = await collector.collect(NOW)
        await collector.collect(NOW + 60)
    ((unread),) = seen.unread
    assert unread.model == BAD
    assert unread.message.startswith(f"{what} failed: LookupError")
    assert "tenant" not in unread.message
    (line,) = [line for line in lines if line["event"] == "model_failed"]
    assert (line["model"], line["cause"], type(line["exc_info"])) == (str(BAD), unread.message, LookupError)
    assert [each for each in seen.variants if each.key == GOOD] == [
        each for each in before.variants if each.key == GOOD
    ]
    assert [each for each in seen.replicas if each.variant == GOOD] == [
        each for each in before.replicas if each.variant == GOOD
    ]
    assert VariantKey("bad", "va") in {each.key for each in seen.variants}


async def test_an_object_that_can_be_read_again_is(two, collector, monkeypatch):
    """The next cycle without the exception reads the model again."""
    assert two
    with monkeypatch.context() as patched:
        breaking(patched, variants, "bounds_of", of_bad)
        assert (await collector.collect(NOW)).unread
    assert (await collector.collect(NOW + 60)).unread == ()


def build(cluster, prometheus, instruments, **settings):
    """Return a collector with settings."""
    return Collector(cluster.stores, prometheus=prometheus, instruments=instruments, **settings)


@pytest.mark.parametrize("setting", ["engines_of", "counters_of", "retention_of"])
async def test_a_policy_that_cannot_be_read_holds_that_model(two, prometheus, instruments, setting):
    """An exception in the policy of one model holds that model."""

    def policy(model):
        if model == BAD:
            raise LookupError

    (unread,) = (await build(two, prometheus, instruments, **{setting: policy}).collect(NOW)).unread
    assert (unread.model, unread.message.partition(":")[0]) == (BAD, "reading its policy failed")


async def test_a_queue_that_cannot_be_read_holds_that_model(two, prometheus, instruments, monkeypatch):
    """The other models have their queues."""
    breaking(monkeypatch, replicas.ReplicaJoin, "_queue", lambda _self, model, *_: model.namespace == "bad")
    seen = await build(two, prometheus, instruments, engines_of=lambda _: True).collect(NOW)
    assert [unread.model for unread in seen.unread] == [BAD]
    assert [queue.model.namespace for queue in seen.queues] == ["good"]


async def test_requests_that_cannot_be_counted_are_unknown(two, prometheus, instruments, monkeypatch):
    """Unknown is not zero, so the model keeps its replicas."""
    breaking(monkeypatch, request_counts, "_sum", lambda model, *_: model == BAD)
    prometheus.put("request_counts", "0", namespace="bad", signal="running")
    seen = await build(two, prometheus, instruments, retention_of=lambda _: 600.0).collect(NOW)
    bad, good = sorted(seen.request_counts, key=lambda counts: counts.model)
    assert bad.detail.startswith("reading requests failed: LookupError")
    assert bad.finished is bad.in_progress is None
    assert not good.detail.startswith("reading")


async def test_gpus_that_cannot_be_counted_are_unknown(two, prometheus, instruments):
    """The cycle goes on, and the snapshot has the reason."""

    def count():
        raise LookupError

    seen = await build(two, prometheus, instruments, inventory=count).collect(NOW)
    assert seen.inventory is None
    assert seen.inventory_detail.startswith("counting GPUs failed: LookupError")
    assert seen.unread == ()


async def test_an_answer_that_cannot_be_read_holds_the_namespace_that_spoils_it(
    two, collector, prometheus, monkeypatch
):
    """WVA asks again by halves, so the other namespace has its answer in the same cycle."""
    original = prometheus.query

    async def query(text, **rest):
        if "bad" in text:
            raise LookupError("text of a tenant")
        return await original(text, **rest)

    monkeypatch.setattr(prometheus, "query", query)
    seen = await collector.collect(NOW)
    (failure,) = seen.failures
    assert failure.namespaces == ("bad",)
    assert "its answer cannot be read: LookupError" in failure.message
    assert "tenant" not in failure.message
    assert [each.variant for each in seen.replicas if each.complete] == [GOOD]
    assert two


def test_an_object_whose_gpus_cannot_be_counted_is_left_out():
    """WVA logs the object once and counts the others."""

    class NamedModel:
        def __init__(self, name):
            self.metadata = type("Metadata", (), {"key": name})

    def read(obj):
        if obj.metadata.key == "bad":
            raise LookupError
        return [obj.metadata.key]

    with capture_logs() as lines:
        found = [each for name in ("bad", "good", "bad") for each in inventory._read(NamedModel(name), read)]
    assert found == ["good"]
    assert [line["event"] for line in lines] == ["inventory_object_failed"]
