"""Replicas of a pool start and end while requests arrive."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.fleet.services import traffic
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.columns import BROKEN, REFUSED, TIMED_OUT
from wva.sim.fleet.load import Arrivals, LoadSpec
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.pool import ModelPool
from wva.sim.fleet.replica import PodKey, PoolVariant, ReplicaState
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.streams import stream

H100 = PoolVariant("ns", "h100", "m", "H100", PRESETS["H100"])
A100 = PoolVariant("ns", "a100", "m", "A100", PRESETS["A100"])
POD = PodKey("ns", "h-1")


def pool(rate=10.0, *, drain=30.0, limit=1000, **settings):
    """Return a pool with short requests at a steady rate."""
    spec = LoadSpec(RateProfile.constant(rate), prompt=TokenLengths(64), output=TokenLengths(64))
    return ModelPool(
        Arrivals(spec, seeds=stream(1, "x")),
        settings=GatewaySettings(queue_limit=limit, **settings),
        drain_seconds=drain,
        start_seconds=0.0,
    )


def pods(target, state=ReplicaState.READY):
    """Return the names of the pods in a state."""
    return sorted(key.name for key, replica in target.replicas.items() if target.state(replica) is state)


def inside(target):
    """Count the requests in the pods."""
    return sum(target.running(replica) + target.waiting(replica) for replica in target.replicas.values())


def accounted(target):
    """Count the requests in all states."""
    return target.log.requests + sum(target.failed.values()) + target.queued + inside(target) + target.retrying


def finished(target, pod=POD):
    """Return the finished requests on a pod's page."""
    (sample,) = target.samples(target.replicas[pod])
    return sample.finished


def test_replica_serves_from_its_ready_time_on():
    """Requests wait at the gateway until the replica is Ready, and then go to it at once."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 20.0})
    target.advance(20.0)
    queued = target.queued
    assert queued > 100
    assert pods(target, ReplicaState.STARTING) == ["h-1"]
    target.advance(20.1)
    assert pods(target) == ["h-1"]
    assert target.queued == 0
    assert inside(target) >= queued


def test_ready_time_can_be_postponed():
    """A later Ready time replaces an earlier one."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 20.0})
    target.set_pods(H100, ready={"h-1": 40.0})
    target.advance(39.0)
    assert pods(target) == []
    target.advance(41.0)
    assert pods(target) == ["h-1"]


def test_naming_a_ready_pod_again_changes_nothing():
    """The world repeats its list of pods. A Ready replica stays Ready, with any time in the list."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(5.0)
    replica = target.replicas[POD]
    target.set_pods(H100, ready={"h-1": 9.0})
    assert target.replicas[POD] is replica
    assert pods(target) == ["h-1"]


def test_variants_of_a_model_do_not_touch_each_others_pods():
    """Setting the pods of one Deployment leaves the other's alone."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.set_pods(A100, ready={"a-1": 0.0})
    target.set_pods(A100, ready={})
    assert pods(target) == ["h-1"]


def test_pods_of_a_variant_are_what_it_was_when_they_came():
    """A new definition of a variant does not change its existing pods."""
    target = pool()
    target.set_pods(A100, ready={"a-1": 0.0})
    target.advance(10.0)
    target.set_pods(PoolVariant("ns", "a100", "m", "MI300X", PRESETS["MI300X"]), ready={"a-1": 0.0, "a-2": 10.0})
    target.advance(30.0)
    assert [replica.variant.accelerator for replica in target.replicas.values()] == ["A100", "MI300X"]
    assert accounted(target) == target.arrived
    assert target.log.requests > 250


def test_terminating_replica_finishes_what_it_has_and_takes_nothing_new():
    """The replica finishes its requests and is then forgotten. No user has to retry."""
    target = pool(rate=80.0)
    target.set_pods(H100, ready={"h-1": 0.0, "h-2": 0.0})
    target.advance(30.0)
    leaving = target.replicas[PodKey("ns", "h-2")]
    served, left = finished(target, leaving.pod)["stop"], target.running(leaving) + target.waiting(leaving)
    assert left > 0
    target.set_pods(H100, ready={"h-1": 0.0})
    while leaving.pod in target.replicas:
        assert pods(target, ReplicaState.DRAINING) == ["h-2"]
        done = finished(target, leaving.pod)
        assert done["stop"] + target.running(leaving) + target.waiting(leaving) == served + left
        target.advance(target.now_seconds + 0.1)
    assert 31.0 < target.now_seconds < 59.0
    assert (target.retried, sum(target.failed.values())) == (0, 0)


def test_queue_of_a_terminating_replica_stays_there():
    """A terminating replica computes the requests that wait in its engine, even if another replica is idle."""
    target = pool(rate=80.0)
    target.set_pods(A100, ready={"a-1": 0.0})
    target.advance(60.0)
    leaving = target.replicas[PodKey("ns", "a-1")]
    waiting = target.waiting(leaving)
    assert waiting > 10
    target.set_pods(H100, ready={"h-1": 0.0})
    target.set_pods(A100, ready={})
    assert target.waiting(leaving) == waiting
    assert target.running(target.replicas[POD]) + target.waiting(target.replicas[POD]) == 0
    target.advance(70.0)
    assert target.waiting(leaving) < waiting
    assert sum(target.failed.values()) == 0


def test_what_is_left_after_the_grace_period_breaks():
    """A killed replica fails its requests. The page of a new replica with the same name starts at zero."""
    target = pool(drain=0.2)
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(30.0)
    running = inside(target)
    target.set_pods(H100, ready={})
    target.advance(30.3)
    assert target.replicas == {}
    assert 0 < target.failed[BROKEN] <= running
    assert accounted(target) == target.arrived
    target.set_pods(H100, ready={"h-1": 31.0})
    assert finished(target) == {"stop": 0, "length": 0}


def test_users_whose_replica_was_killed_may_ask_again():
    """Another replica serves their second attempt. Latencies count from the first attempt."""
    target = pool(drain=0.2, attempts=2, retry_seconds=3.0)
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(30.0)
    target.set_pods(H100, ready={"h-2": 30.0})
    target.advance(30.3)
    broken = target.retrying
    assert broken > 0
    assert accounted(target) == target.arrived
    target.advance(34.0)
    assert (target.retrying, target.retried) == (0, broken)
    target.advance(60.0)
    assert sum(target.failed.values()) == 0
    assert max(target.log._ttft_seconds) > 3.2


def test_replica_that_returns_while_draining_goes_on():
    """A draining pod that is listed again takes new requests beside those that it has."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(30.0)
    target.set_pods(H100, ready={})
    target.set_pods(H100, ready={"h-1": 30.0})
    target.advance(90.0)
    assert pods(target) == ["h-1"]
    assert target.log.requests > 800


changes = st.lists(
    st.tuples(st.floats(0.1, 8), st.sampled_from([H100, A100]), st.sets(st.sampled_from("123")), st.floats(0, 4)),
    max_size=8,
)
users = st.sampled_from([{}, {"patience_seconds": 2.0, "attempts": 2, "retry_seconds": 0.7}])


@given(changes=changes, looks=st.lists(st.floats(0, 70), max_size=6), users=users)
def test_no_request_is_lost_and_no_look_changes_anything(changes, looks, users):
    """Arrived = served + failed + waiting + running + retrying, for any changes of pods and any division of time."""
    plain, watched = (pool(30.0, drain=1.0, limit=50, **users) for _ in range(2))
    now = 0.0
    for pause, variant, names, delay in changes:
        now += pause
        for look in sorted(looks):
            if watched.now_seconds <= look <= now:
                watched.advance(look)
        for target in (plain, watched):
            target.advance(now)
            target.set_pods(variant, ready={f"{variant.deployment}-{name}": now + delay for name in sorted(names)})
            assert accounted(target) == target.arrived
    for target in (plain, watched):
        target.advance(now + 5)
        assert accounted(target) == target.arrived
    assert sorted(plain.log._finish_seconds) == sorted(watched.log._finish_seconds)
    assert (plain.failed, plain.retried) == (watched.failed, watched.retried)
    assert plain.failed.keys() == {REFUSED, TIMED_OUT, BROKEN}


def test_a_pool_in_roles_uses_its_rows_again():
    """For minutes requests go from prefill to decode pods; all are accounted for, and rows are used again."""
    target = pool(20.0, transfer=KvTransfer(1e-5, 0.05, 32))
    prefill, decode = (replace(H100, deployment=role, role=role) for role in (PREFILL, DECODE))
    target.set_pods(prefill, ready={"p-1": 0.0})
    target.set_pods(decode, ready={"d-1": 0.0})
    target.advance(200.0)
    rows = len(target._service.columns.prompt)
    target.advance(600.0)
    assert target.log.requests > 11_000
    assert len(target._service.columns.prompt) == rows
    counts = {name: sum(finished(target, PodKey("ns", name)).values()) for name in ("p-1", "d-1")}
    assert counts["d-1"] == target.log.requests
    assert 0.8 * counts["d-1"] < counts["p-1"] < counts["d-1"]


def test_a_pool_in_roles_has_no_prefixes():
    """Prompts that begin alike are refused."""
    alike = replace(traffic(0.0), group=np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="prompts begin alike"):
        ModelPool(
            Arrivals(alike, seeds=stream(1, "x")),
            settings=GatewaySettings(transfer=KvTransfer(1e-5)),
            drain_seconds=30.0,
            start_seconds=0.0,
        )
