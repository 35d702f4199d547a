"""What is true of the token analyzer for any input: no shrink without evidence, no jump without memory."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, sample
from tests.builders import variant as build_variant
from tests.decide.strategies import samples
from tests.decide.tokens import MODEL, FoundNeed, analyzed, long_known, pod, report
from wva.decide.measure.tokens import RELEARNING_SECONDS
from wva.decide.progress import Moment, progress_of
from wva.model.memory import (
    NOTHING_LEARNED,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedCapacity,
    LearnedFrom,
    LengthBucket,
    Memory,
)
from wva.model.metrics import SampleState
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters

parameters = st.none() | st.builds(
    VllmParameters,
    max_num_seqs=st.sampled_from([1, 8, 256]),
    tensor_parallel_size=st.sampled_from([1, 2]),
    num_gpu_blocks_override=st.sampled_from([0, 500]),
)
kinds = st.builds(
    EngineKind, st.sampled_from(["A100", ""]), st.sampled_from([1, 2]), st.just(1), st.sampled_from(list(LengthBucket))
)
requests = st.none() | st.tuples(
    st.sampled_from([10.0, 100.0, 99.9, 1e15]), st.sampled_from([10.0, 150.0, 900.0, 1e15])
)


@st.composite
def learned_capacities(draw: st.DrawFn) -> LearnedCapacity:
    """Draw what a process may know after it has looked at the model for long."""
    histories = [
        K2History(kind, tuple(draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=10))), NOW - 60)
        for kind in sorted(draw(st.sets(kinds, max_size=3)))
    ]
    records = [
        CapacityRecord(
            VariantKey("ns", name),
            "A100",
            1,
            draw(st.sampled_from([0, 16_000])),
            draw(st.integers(0, 16_000)),
            draw(st.sampled_from(list(LearnedFrom))),
            NOW - 60,
            draw(parameters),
        )
        for name in sorted(draw(st.sets(st.sampled_from("abc"))))
    ]
    return long_known(records=tuple(records), histories=tuple(histories))


@st.composite
def pods(draw: st.DrawFn, name: str, *, queues: st.SearchStrategy[float]):
    """Draw a pod in any state."""
    kv = st.sampled_from([0.0, 0.1, 0.5, 0.8, 1.0]) | st.floats(0, 1)
    return pod(
        name,
        kv=draw(samples(kv)),
        queue=draw(samples(queues)),
        size=draw(st.sampled_from([16_000.0, 16_000.0, 8_000.0, None, 1e15])),
        request=draw(requests),
        kv_usage=draw(st.none() | kv),
        waiting=draw(st.none() | queues),
        prefix_hit_rate=draw(st.none() | st.sampled_from([0.0, 0.5, 1.0])),
    )


any_queue = st.sampled_from([0.0, 1.0, 4.0, 5.0, 60.0, 1e15])


@st.composite
def models(draw: st.DrawFn, *, queues: st.SearchStrategy[float] = any_queue):
    """Draw the reports of a model with up to three variants, settled or not."""
    reports = []
    for name in sorted(draw(st.sets(st.sampled_from("abc"), min_size=1))):
        found = [draw(pods(f"{name}-{number}", queues=queues)) for number in range(draw(st.integers(0, 3)))]
        replicas = max(0, len(found) + draw(st.sampled_from([0, 0, 0, 1, 2, -1])))
        given_variant: Variant = build_variant(
            name,
            replicas=replicas,
            accelerator=draw(st.sampled_from(["A100", "A100", ""])),
            parameters=draw(parameters),
            desired=draw(st.none() | st.just(replicas)),
            settling_since=draw(st.sampled_from([None, NOW - 30, NOW - 700])),
        )
        reports.append(report(*found, variant=given_variant))
    return reports


queues_of_the_scheduler = st.none() | st.tuples(
    samples(st.sampled_from([0.0, 3.0, 1e15])), samples(st.sampled_from([0.0, 500.0, 1e15]))
)


def assert_the_result_is_sound(reports, learned, queue):
    """Check that the result is finite, not negative, not both up and down, and does not depend on the order."""
    found, after = analyzed(*reports, learned=learned, queue=queue)
    numbers = [found.required, found.spare, found.demand, found.supply, found.anticipated, found.utilization]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert not (found.required and found.spare)
    assert [one.key for one in found.variants] == sorted(one.key for one in found.variants)
    assert analyzed(*reversed(reports), learned=learned, queue=queue) == (found, after)


def assert_every_shrink_has_fresh_samples(reports, learned):
    """Check that a missing, stale or invalid sample never leads to a shrink."""
    found, _ = analyzed(*reports, learned=learned)
    if found.spare > 0:
        replicas = [replica for one in reports for replica in one.replicas]
        assert all(replica.tokens_in_use.state is SampleState.FRESH for replica in replicas)
        assert all(replica.queue_length.state is SampleState.FRESH for replica in replicas)
        assert found.anticipated == found.supply


def assert_a_missing_sample_permits_no_shrink(reports, learned, data):
    """Check that without a sample a shrink may stop, but never become larger."""
    count = sum(len(one.replicas) for one in reports)
    if not count:
        return
    position = data.draw(st.integers(0, count - 1))
    field = data.draw(st.sampled_from(["kv_usage", "queue_length", "engine"]))
    blinded = []
    for one in reports:
        found = list(one.replicas)
        if 0 <= position < len(found):
            missing = None if field == "engine" else sample(None)
            found[position] = replace(found[position], **{field: missing})
        position -= len(found)
        progress = progress_of(one.progress.variant, replicas=found, entry=None, moment=Moment(NOW, 600.0))
        blinded.append(replace(one, replicas=tuple(found), progress=progress))
    spare = analyzed(*reports, learned=learned)[0].spare
    assert analyzed(*blinded, learned=learned)[0].spare <= spare


def assert_a_process_without_memory_is_careful(reports, queue):
    """Check that a process removes nothing in its first cycles, and adds one replica of any variant at most."""
    learned = None
    for cycle in range(4):
        start = learned or LearnedCapacity(MODEL, NOW)
        found, learned = analyzed(*reports, learned=start, queue=queue, now=NOW + cycle)
        assert found.spare == 0
        assert found.hold is not None or found.most_added == 1
        assert all(found.required <= one.per_replica for one in found.variants if one.per_replica > 0)


@given(models(queues=st.sampled_from([0.0, 1.0, 4.0])), learned_capacities(), queues_of_the_scheduler)
def test_a_process_without_memory_asks_for_no_more_than_its_predecessor(reports, learned, queue):
    """While no request queues, the successor is content with the replicas with which its predecessor was content."""
    before, _ = analyzed(*reports, learned=learned, queue=queue)
    after, _ = analyzed(*reports, learned=LearnedCapacity(MODEL, NOW), queue=queue)
    assert before.required > 0 or after.required == 0


def assert_what_is_learned_survives_json(reports, learned, queue):
    """Check that the next cycle finds the same memory as without writing and reading."""
    _, after = analyzed(*reports, learned=learned, queue=queue)
    memory = Memory(capacity=NOTHING_LEARNED.updated([after], now=NOW))
    back = msgspec.json.decode(msgspec.json.encode(memory), type=Memory)
    assert back == memory
    assert back.capacity.of(MODEL) == after.without_old(NOW)


@given(models(), learned_capacities(), queues_of_the_scheduler, st.data())
def test_what_holds_for_every_model(reports, learned, queue, data):
    """Each of these is one of every drawn model: drawing one takes longer than analyzing it."""
    assert_the_result_is_sound(reports, learned, queue)
    assert_every_shrink_has_fresh_samples(reports, learned)
    assert_a_missing_sample_permits_no_shrink(reports, learned, data)
    assert_a_process_without_memory_is_careful(reports, queue)
    assert_what_is_learned_survives_json(reports, learned, queue)


def test_a_memory_of_the_former_form_still_loads():
    """Recordings from before capacity was learned have no such memory."""
    assert msgspec.json.decode(b'{"variants":[]}', type=Memory) == Memory()


def test_a_change_of_leader_is_smooth():
    """A model is held down by k2: the successor keeps its replicas, and learns k2 when requests queue."""
    steady = [pod(f"a-{number}", kv=0.4) for number in range(4)]
    histories = (K2History(EngineKind("A100", 1, 1, LengthBucket.SHORT), (8_000,) * 5, NOW - 60),)
    before, _ = analyzed(report(*steady), learned=long_known(histories=histories))
    assert (before.required, before.spare) == (0, 0)
    learned = LearnedCapacity(MODEL, NOW)
    results: list[FoundNeed] = []
    for cycle in range(10):
        found, learned = analyzed(report(*steady), learned=learned, now=NOW + 30 * cycle)
        results.append(found)
    assert {(found.required, found.spare) for found in results} == {(0, 0)}
    later = NOW + RELEARNING_SECONDS
    found, _ = analyzed(report(*steady), learned=learned, now=later)
    assert found.most_removed == 1
    queueing = [pod(f"a-{number}", kv=0.5, queue=6) for number in range(4)]
    found, learned = analyzed(report(*queueing), learned=learned, now=later)
    assert found.variants[0].per_replica == 8_000
    assert found.most_added == 1
