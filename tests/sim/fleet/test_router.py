"""Where requests go."""

from dataclasses import replace

from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import Replica, VariantSpec
from wva.sim.fleet.requests import Request
from wva.sim.fleet.router import Router

BIG = replace(PRESETS["H100"], num_gpu_blocks=4096, max_num_seqs=64)
HALF = replace(BIG, num_gpu_blocks=2048, max_num_seqs=32)


def replica(pod, *, deployment="a", parameters=BIG, engines=1):
    """Return an idle replica."""
    spec = VariantSpec("ns", deployment, "m", "H100", parameters, data_parallel_size=engines)
    return Replica(spec, pod=pod, start_seconds=0.0)


def router(limit=10):
    """Return a gateway without replicas."""
    return Router(queue_limit=limit, tokens_per_sequence=640)


def offer(target, *numbers, at=0.0):
    """Offer equal requests."""
    for number in numbers:
        target.offer(Request(number, at, 512, 256), at_seconds=at)


def test_equal_replicas_get_equal_shares():
    """Load goes round, beginning with the first by name whatever the order they came in."""
    target, one, two = router(), replica("a-1"), replica("a-2")
    target.use([two, one], at_seconds=0.0)
    offer(target, 1)
    assert (one.unfinished, two.unfinished) == (1, 0)
    offer(target, *range(2, 21))
    assert (one.unfinished, two.unfinished) == (10, 10)


def test_share_follows_capacity_across_variants():
    """A replica of twice the capacity holds about twice the requests."""
    target, big, half = router(), replica("a-1"), replica("b-1", deployment="b", parameters=HALF)
    target.use([big, half], at_seconds=0.0)
    offer(target, *range(30))
    assert (big.unfinished, half.unfinished) == (20, 10)


def test_engines_of_one_pod_share_its_load():
    """Data-parallel engines are targets of their own."""
    target, pod = router(), replica("a-1", engines=2)
    target.use([pod], at_seconds=0.0)
    offer(target, *range(6))
    assert [engine.unfinished for engine in pod.engines] == [3, 3]


def test_finished_requests_no_longer_count():
    """The picker sees the load at the time of the arrival, not at the last look."""
    target, one, two = router(), replica("a-1"), replica("a-2")
    target.use([one], at_seconds=0.0)
    offer(target, *range(8))
    target.use([one, two], at_seconds=0.0)
    offer(target, 8, 9, at=0.0)
    assert (one.unfinished, two.unfinished) == (8, 2)
    offer(target, 10, at=1000.0)
    assert (one.unfinished, two.unfinished) == (1, 0)


def test_requests_wait_at_the_gateway_until_a_replica_comes():
    """Without replicas they queue in order, and go out when one is ready."""
    target, one = router(), replica("a-1")
    offer(target, 1, 2, 3)
    assert len(target.queue) == 3
    assert target.queued_prompt_tokens == 3 * 512
    target.use([one], at_seconds=5.0)
    assert (len(target.queue), one.unfinished) == (0, 3)
    one.advance(1000.0)
    assert [finished.request.number for finished in one.engines[0].finished] == [1, 2, 3]
    assert one.engines[0].finished[0].time_to_first_token_seconds > 5.0


def test_full_gateway_drops():
    """What exceeds the bound is dropped and counted."""
    target = router(limit=2)
    offer(target, 1, 2, 3)
    assert (len(target.queue), target.dropped) == (2, 1)


def test_prompt_too_long_for_the_model_is_dropped():
    """The engine would refuse it for ever."""
    target, one = router(), replica("a-1")
    target.use([one], at_seconds=0.0)
    target.offer(Request(1, 0.0, 8192, 1), at_seconds=0.0)
    assert (one.unfinished, target.dropped) == (0, 1)


def test_offering_again_counts_a_retry_and_keeps_the_arrival():
    """The user has been waiting since the first attempt."""
    target = router()
    target.offer_again([Request(1, 3.0, 10, 10)], at_seconds=9.0)
    assert target.retried == 1
    assert (target.queue[0].arrival_seconds, target.queue[0].retries) == (3.0, 1)
