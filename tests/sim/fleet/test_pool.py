"""Replicas come and go while requests arrive."""

from hypothesis import given
from hypothesis import strategies as st

from wva.sim.fleet.load import ArrivalProcess, LoadSpec, RateProfile, TokenLengths
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.pool import Pool
from wva.sim.fleet.replica import PodKey, ReplicaState, VariantSpec
from wva.sim.fleet.router import Router

H100 = VariantSpec("ns", "h100", "m", "H100", PRESETS["H100"])
A100 = VariantSpec("ns", "a100", "m", "A100", PRESETS["A100"])


def pool(rate=10.0, *, drain=30.0, limit=1000):
    """Return a pool with short requests at a steady rate."""
    spec = LoadSpec(RateProfile.constant(rate), prompt=TokenLengths(64), output=TokenLengths(64))
    return Pool(
        ArrivalProcess(spec, seed="x"),
        router=Router(queue_limit=limit, tokens_per_sequence=spec.resident_tokens),
        drain_seconds=drain,
        start_seconds=0.0,
    )


def pods(target, state=ReplicaState.READY):
    """Return the names of the pods in a state."""
    return sorted(key.name for key, replica in target.replicas.items() if replica.state is state)


def accounted(target):
    """Count the requests wherever they are."""
    return (
        target.log.requests
        + target.router.dropped
        + len(target.router.queue)
        + sum(replica.unfinished for replica in target.replicas.values())
    )


def test_replica_serves_from_its_ready_time_on():
    """Before that, requests wait at the gateway; then they are served at once."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 20.0})
    target.advance(20.0)
    queued = len(target.router.queue)
    assert queued > 100
    assert pods(target, ReplicaState.STARTING) == ["h-1"]
    target.advance(20.1)
    assert pods(target) == ["h-1"]
    assert len(target.router.queue) == 0
    assert target.replicas[PodKey("ns", "h-1")].unfinished >= queued


def test_ready_time_can_be_postponed():
    """A later plan replaces an earlier one."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 20.0})
    target.set_pods(H100, ready={"h-1": 40.0})
    target.advance(39.0)
    assert pods(target) == []
    target.advance(41.0)
    assert pods(target) == ["h-1"]


def test_naming_a_ready_pod_again_changes_nothing():
    """The world repeats its list; a replica that is ready stays so, whatever the time named."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(5.0)
    replica = target.replicas[PodKey("ns", "h-1")]
    target.set_pods(H100, ready={"h-1": 9.0})
    assert target.replicas[PodKey("ns", "h-1")] is replica
    assert pods(target) == ["h-1"]


def test_variants_of_a_model_do_not_touch_each_others_pods():
    """Setting the pods of one Deployment leaves the other's alone."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.set_pods(A100, ready={"a-1": 0.0})
    target.set_pods(A100, ready={})
    assert pods(target) == ["h-1"]


def test_terminating_replica_finishes_what_runs_and_takes_nothing_new():
    """It drains, then is forgotten; nobody has to ask again."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0, "h-2": 0.0})
    target.advance(30.0)
    leaving = target.replicas[PodKey("ns", "h-2")]
    submitted = leaving.engines[0].counters.submitted
    assert leaving.running > 0
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(31.0)
    assert pods(target, ReplicaState.DRAINING) == ["h-2"]
    target.advance(59.0)
    assert leaving.engines[0].counters.submitted == submitted
    assert leaving.engines[0].counters.finished == {"stop": submitted, "length": 0, "abort": 0}
    assert list(target.replicas) == [PodKey("ns", "h-1")]
    assert target.router.retried == 0


def test_queue_of_a_terminating_replica_is_routed_anew():
    """Requests that wait in its engine move to the others at once."""
    target = pool(rate=80.0)
    target.set_pods(A100, ready={"a-1": 0.0})
    target.advance(60.0)
    waiting = target.replicas[PodKey("ns", "a-1")].waiting
    assert waiting > 10
    target.set_pods(H100, ready={"h-1": 0.0})
    target.set_pods(A100, ready={})
    assert target.router.retried == waiting
    assert target.replicas[PodKey("ns", "a-1")].waiting == 0
    assert target.replicas[PodKey("ns", "h-1")].unfinished == waiting


def test_what_still_runs_after_the_grace_period_is_retried():
    """A replica that is killed gives its running requests back to the gateway."""
    target = pool(drain=0.2)
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(30.0)
    running = target.replicas[PodKey("ns", "h-1")].unfinished
    target.set_pods(H100, ready={})
    target.advance(30.3)
    assert target.replicas == {}
    assert 0 < target.router.retried <= running
    assert accounted(target) == target.arrived


def test_replica_that_returns_while_draining_goes_on():
    """A pod listed again takes requests again, with what it still has."""
    target = pool()
    target.set_pods(H100, ready={"h-1": 0.0})
    target.advance(30.0)
    target.set_pods(H100, ready={})
    target.set_pods(H100, ready={"h-1": 30.0})
    target.advance(90.0)
    assert pods(target) == ["h-1"]
    assert target.replicas[PodKey("ns", "h-1")].engines[0].counters.finished["abort"] == 0
    assert target.log.requests > 800


changes = st.lists(
    st.tuples(st.floats(0.1, 8), st.sampled_from([H100, A100]), st.sets(st.sampled_from("123")), st.floats(0, 4)),
    max_size=8,
)


@given(changes=changes, looks=st.lists(st.floats(0, 70), max_size=6))
def test_no_request_is_lost_and_no_look_changes_anything(changes, looks):
    """Arrived = served + dropped + waiting + running, whatever the pods do and however time is divided."""
    plain, watched = pool(30.0, drain=1.0, limit=50), pool(30.0, drain=1.0, limit=50)
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
    assert (plain.router.dropped, plain.router.retried) == (watched.router.dropped, watched.router.retried)
