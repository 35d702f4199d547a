"""What cannot be taken in holds one model: an exception for one object or sample, wherever it is raised."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.collect.doubles import NOW
from wva.collect import inventory, replicas, request_counts, scheduler_queue, variants
from wva.collect.snapshot import Collector, CollectorSettings
from wva.model.variant import ModelKey, VariantKey

BAD = ModelKey("bad", "m")
GOOD = VariantKey("good", "va")


def breaking(monkeypatch, module, name, is_bad):
    """Make a function raise for what is bad."""
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
    return series.metric["namespace"] == "bad"


def pod_of_bad(_self, namespace, *_):
    """Tell whether a pod is in the tenant's namespace."""
    return namespace == "bad"


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
    """Return a cluster with a variant in each of two namespaces, which report."""
    for namespace in ("bad", "good"):
        cluster.variant(namespace=namespace)
        prometheus.put_replica(pod="va-0", namespace=namespace)
    return cluster


@pytest.mark.parametrize("stage", STAGES)
async def test_an_exception_while_reading_holds_that_model(two, collector, monkeypatch, stage):
    """The cause is in the snapshot and in one log line; the other model has all that it had."""
    assert two
    before = await collector.collect(NOW)
    module, name, is_bad, what = STAGES[stage]
    breaking(monkeypatch, module, name, is_bad)
    with capture_logs() as lines:
        snapshot = await collector.collect(NOW)
        await collector.collect(NOW + 60)
    ((unread),) = snapshot.unread
    assert unread.model == BAD
    assert unread.message.startswith(f"{what} failed: LookupError")
    assert "tenant" not in unread.message
    (line,) = [line for line in lines if line["event"] == "model_failed"]
    assert (line["model"], line["cause"], type(line["exc_info"])) == (str(BAD), unread.message, LookupError)
    assert [each for each in snapshot.variants if each.key == GOOD] == [
        each for each in before.variants if each.key == GOOD
    ]
    assert [each for each in snapshot.replicas if each.variant == GOOD] == [
        each for each in before.replicas if each.variant == GOOD
    ]
    assert VariantKey("bad", "va") in {each.key for each in snapshot.variants}


async def test_an_object_that_can_be_read_again_is(two, collector, monkeypatch):
    """Nothing of the failure stays."""
    assert two
    with monkeypatch.context() as patched:
        breaking(patched, variants, "bounds_of", of_bad)
        assert (await collector.collect(NOW)).unread
    assert (await collector.collect(NOW + 60)).unread == ()


def build(cluster, prometheus, instruments, **settings):
    """Return a collector with settings."""
    return Collector(
        cluster.stores, prometheus=prometheus, instruments=instruments, settings=CollectorSettings(**settings)
    )


@pytest.mark.parametrize("setting", ["engines_of", "retention_of"])
async def test_a_policy_that_cannot_be_read_holds_that_model(two, prometheus, instruments, setting):
    """It is asked for with every model."""

    def policy(model):
        if model == BAD:
            raise LookupError

    (unread,) = (await build(two, prometheus, instruments, **{setting: policy}).collect(NOW)).unread
    assert (unread.model, unread.message.partition(":")[0]) == (BAD, "reading its policy failed")


async def test_a_queue_that_cannot_be_read_holds_that_model(two, prometheus, instruments, monkeypatch):
    """The other models have theirs."""
    breaking(
        monkeypatch, scheduler_queue.SchedulerQueueJoin, "_queue", lambda _self, model, *_: model.namespace == "bad"
    )
    snapshot = await build(two, prometheus, instruments, engines_of=lambda _: True).collect(NOW)
    assert [unread.model for unread in snapshot.unread] == [BAD]
    assert [queue.model.namespace for queue in snapshot.queues] == ["good"]


async def test_requests_that_cannot_be_counted_are_unknown(two, prometheus, instruments, monkeypatch):
    """Unknown is not zero, so the model keeps its replicas."""

    def broken(*_):
        raise LookupError

    monkeypatch.setattr(request_counts, "_add", broken)
    prometheus.put("request_counts", "0", namespace="bad", signal="running")
    snapshot = await build(two, prometheus, instruments, retention_of=lambda _: 600.0).collect(NOW)
    bad, good = sorted(snapshot.request_counts, key=lambda counts: counts.model)
    assert bad.detail.startswith("reading requests failed: LookupError")
    assert bad.finished is bad.in_progress is None
    assert not good.detail.startswith("reading")


async def test_gpus_that_cannot_be_counted_are_unknown(two, prometheus, instruments):
    """The cycle goes on, and says why."""

    def count():
        raise LookupError

    snapshot = await build(two, prometheus, instruments, inventory=count).collect(NOW)
    assert snapshot.inventory is None
    assert snapshot.inventory_detail.startswith("counting GPUs failed: LookupError")
    assert snapshot.unread == ()


def test_an_object_whose_gpus_cannot_be_counted_is_left_out():
    """Nothing of it is given away, and the others count."""

    class Named:
        def __init__(self, name):
            self.metadata = type("Metadata", (), {"key": name})

    def read(obj):
        if obj.metadata.key == "bad":
            raise LookupError
        return [obj.metadata.key]

    with capture_logs() as lines:
        found = [each for name in ("bad", "good", "bad") for each in inventory._read(Named(name), read)]
    assert found == ["good"]
    assert [line["event"] for line in lines] == ["inventory_object_failed"]
