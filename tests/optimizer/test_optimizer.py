"""When the optimizer runs a cycle, and what it does with the decisions."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.builders import policy, replica, variant
from tests.optimizer.optimizer_scene import INTERVAL, KEY, OptimizerScene
from wva.decide.start import activate
from wva.model.decision import HOLD_REASONS
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.variant import ModelKey, VariantKey


@pytest.fixture
def scene():
    """Return a scene."""
    return OptimizerScene()


# --- when a cycle runs --------------------


async def test_the_last_success_says_whether_the_loop_goes_on(scene):
    """The metric is the time of the last successful cycle, at first the start of the loop.

    A failed cycle does not change it.
    """
    start = scene.clock.now()
    scene.error = RuntimeError("broken")
    assert scene.gauge("wva_last_cycle_timestamp_seconds") == 0
    async with scene.running():
        assert scene.gauge("wva_last_cycle_timestamp_seconds") == start
        scene.error = None
        await scene.advance(60)
        assert scene.gauge("wva_last_cycle_timestamp_seconds") == start + 60
        scene.error = RuntimeError("broken")
        await scene.advance(120)
        assert scene.gauge("wva_last_cycle_timestamp_seconds") == start + 60


async def test_the_interval_in_force_is_shown(scene):
    """The metric changes together with the interval."""
    async with scene.running():
        assert scene.gauge("wva_cycle_interval_seconds") == INTERVAL
        scene.configuration.interval_seconds = 600.0
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.gauge("wva_cycle_interval_seconds") == 600


def test_every_reason_of_a_hold_is_counted_from_zero(scene):
    """Each series exists from the start, so that a rate sees the first hold."""
    counted = [
        sample
        for family in scene.instruments.holds.collect()
        for sample in family.samples
        if sample.name == "wva_holds_total"
    ]
    assert {sample.labels["reason"] for sample in counted} == {reason.value for reason in HOLD_REASONS}
    assert {sample.value for sample in counted} == {0}


async def test_the_first_cycle_runs_at_once_and_the_others_an_interval_apart(scene):
    """The interval is the time from start to start."""
    async with scene.running():
        assert scene.starts == [0]
        await scene.advance(59.9)
        assert scene.starts == [0]
        await scene.advance(60, 120, 180)
        assert scene.starts == [0, 60, 120, 180]


async def test_a_long_cycle_does_not_move_the_next_one(scene):
    """The interval begins at the start of a cycle, not at its end."""
    scene.duration = 20
    async with scene.running():
        await scene.advance(20, 60, 80, 120)
        assert scene.starts == [0, 60, 120]


async def test_cycles_never_overlap(scene):
    """After a cycle that is longer than the interval, the next one starts at once, and WVA logs the delay."""
    scene.duration = 150
    async with scene.running():
        with capture_logs() as lines:
            await scene.advance(60, 120)
            assert scene.starts == [0]
            await scene.advance(150)
        assert scene.starts == [0, 150]
        (line,) = [line for line in lines if line["event"] == "cycle_overran"]
        assert line["late_seconds"] == 90


async def test_a_slightly_late_cycle_is_not_told(scene):
    """WVA does not log a delay of less than an interval."""
    scene.duration = 70
    async with scene.running():
        with capture_logs() as lines:
            await scene.advance(70)
        assert scene.starts == [0, 70]
        assert [line for line in lines if line["event"] == "cycle_overran"] == []


async def test_a_shorter_interval_applies_while_the_loop_waits(scene):
    """The new interval begins at the start of the last cycle."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.interval_seconds = 30
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0]
        await scene.advance(30, 60)
        assert scene.starts == [0, 30, 60]


async def test_an_interval_that_has_passed_already_starts_a_cycle_at_once(scene):
    """The new interval of a second has already passed after ten seconds."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.interval_seconds = 1
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0, 10]


async def test_a_longer_interval_applies_while_the_loop_waits(scene):
    """No cycle runs at the end of the old interval."""
    async with scene.running():
        scene.configuration.interval_seconds = 100
        scene.configuration.changed.set()
        await scene.advance(60, 99)
        assert scene.starts == [0]
        await scene.advance(100)
        assert scene.starts == [0, 100]


async def test_a_change_of_anything_else_starts_no_cycle(scene):
    """Other changes apply with the next cycle."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0]
        await scene.advance(60)
        assert scene.starts == [0, 60]


async def test_a_change_during_a_cycle_is_not_lost(scene):
    """The wait after the cycle uses the new interval."""
    scene.duration = 5
    async with scene.running():
        scene.configuration.interval_seconds = 10
        scene.configuration.changed.set()
        await scene.advance(5, 10)
        assert scene.starts == [0, 10]


async def test_busy_means_not_waiting(scene):
    """The loop is busy before and during a cycle. The embedded world advances its clock only while the loop waits."""
    assert scene.optimizer.busy
    scene.duration = 5
    async with scene.running():
        assert scene.optimizer.busy
        await scene.advance(5)
        assert not scene.optimizer.busy
        await scene.advance(60)
        assert scene.optimizer.busy


# --- what a cycle does --------------------


async def test_a_cycle_decides_and_records(scene):
    """The cycle puts its decision into the ledger, announces an event and writes a recording."""
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired == 2
    assert scene.ledger.get(KEY) == decision
    assert [(key, type_, reason) for key, type_, reason, _ in scene.events] == [(KEY, "Normal", "ScaleUpRecommended")]
    (recording,) = scene.recordings
    assert (recording.snapshot, recording.memory, recording.now) == (scene.snapshot, Memory(), scene.clock.now())


async def test_a_cycle_is_told_whether_it_was_woken_and_for_which_models(scene):
    """What begins a cycle before its time is the fast lane; the next one begins in time again."""
    first, second = ModelKey("ns", "a"), ModelKey("ns", "b")
    async with scene.running():
        await scene.advance(10.0)
        scene.optimizer.wake([second, first])
        scene.optimizer.wake([ModelKey("ns", "late")])  # it is about to begin
        await scene.settle()
        await scene.advance(70.0)
    assert scene.starts == [0.0, 10.0, 70.0]
    assert [each.snapshot.woken for each in scene.recordings] == [False, True, False]
    assert [each.snapshot.urgent for each in scene.recordings] == [(), (first, second), ()]


async def test_memory_goes_from_cycle_to_cycle(scene):
    """The recording of a cycle has the memory that the last cycle left."""
    await scene.optimizer.cycle()
    await scene.optimizer.cycle()
    assert [entry.desired for entry in scene.recordings[1].memory.variants] == [2]


async def test_a_variant_that_goes_takes_nothing_with_it_that_was_learned_of_models(scene):
    """The memory of a dropped variant is removed, the memory of its model stays."""
    async with scene.running():
        before = scene.recordings[-1].memory
        scene.ledger.drop(VariantKey("ns", "a"))
        await scene.advance(INTERVAL)
    after = scene.recordings[-1].memory
    assert (before.models, after.variants) == ((), ())
    assert [entry.key.model_id for entry in after.models] == ["m"]


async def test_a_policy_that_changed_counts_from_the_next_cycle(scene):
    """Each cycle reads the policy again."""
    scene.configuration.policy = policy(kv_cache_threshold=0.99, queue_length_threshold=100.0, kv_spare_trigger=0.0)
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired == 1


async def test_a_variant_that_went_away_meanwhile_is_not_published(scene):
    """It gets no number, no event and no log line."""
    scene.gone.add(KEY)
    with capture_logs() as lines:
        assert await scene.optimizer.cycle() == []
    assert scene.ledger.get(KEY) is None
    assert scene.events == []
    assert [line for line in lines if line["event"] == "variant_decided"] == []


async def test_a_held_number_is_counted_by_reason(scene):
    """A hold is counted by its reason, and is a Warning event."""
    scene.snapshot = Snapshot.of(
        [variant("a", desired=1)], [replica("a-0", kv=None, queue=None)], [CollectionFailure(("ns",), "refused")]
    )
    (decision,) = await scene.optimizer.cycle()
    assert decision.held
    labels = {"reason": "PrometheusError"}
    assert scene.instruments.registry.get_sample_value("wva_holds_total", labels) == 1
    assert [(type_, reason) for _, type_, reason, _ in scene.events] == [("Warning", "DesiredReplicasHeld")]


async def test_each_stage_is_timed(scene):
    """Each cycle has one observation per stage."""
    await scene.optimizer.cycle()
    for stage in ("collect", "decide", "publish"):
        name = "wva_cycle_duration_seconds_count"
        assert scene.instruments.registry.get_sample_value(name, {"stage": stage}) == 1


async def test_cancelling_ends_the_loop(scene):
    """The loop ends even in the middle of a cycle."""
    scene.duration = 1000
    async with scene.running() as task:
        assert not task.done()
    assert task.cancelled()
    assert scene.count("error") == 0


async def test_a_dropped_variant_that_comes_back_before_the_next_cycle_is_a_new_one(scene):
    """The new workload begins with its own replicas, not with the old number."""
    scene.snapshot = Snapshot.of([variant("a", replicas=5, desired=5)], [replica("a-0", kv=0.5, queue=0)])
    async with scene.running():
        await scene.advance(60)
        assert scene.ledger.get(KEY).desired == 5
        scene.ledger.drop(KEY)
        scene.snapshot = Snapshot.of([variant("a", replicas=1)], [replica("a-9", kv=0.5, queue=0)])
        await scene.advance(120)
        assert scene.ledger.get(KEY).desired == 1


async def test_a_workload_replaced_while_a_cycle_reads_the_world_keeps_its_own_number(scene):
    """The decision about the old workload is neither published nor remembered."""
    former = variant("a", replicas=4, desired=4)
    scene.snapshot = Snapshot.of([former], [replica(f"a-{n}", kv=0.5, queue=0) for n in range(4)])
    scene.ledger.hold(former)
    scene.duration = 5.0
    async with scene.running():
        scene.ledger.drop(KEY)
        scene.ledger.hold(variant("a", replicas=1))
        await scene.advance(5)
        assert scene.count("success") == 1
        assert scene.ledger.get(KEY).desired == 1
        scene.snapshot = Snapshot.of([variant("a", replicas=1, desired=4)], [replica("a-9", kv=0.5, queue=0)])
        await scene.advance(60, 65)
        assert scene.ledger.get(KEY).desired == 1


async def test_a_variant_without_history_begins_with_what_was_held(scene):
    """The ledger's number has precedence over the status, which may show the number of an earlier workload."""
    new = variant("a", replicas=1, desired=4)
    scene.ledger.hold(replace(new, status_desired=None))
    scene.snapshot = Snapshot.of([new], [replica("a-9", kv=0.5, queue=0)])
    async with scene.running():
        assert scene.ledger.get(KEY).desired == 1


async def test_a_start_from_zero_is_not_taken_back_by_a_cycle_that_saw_zero(scene):
    """A cycle that began before the start does not change its number, nor does the next one."""
    idle = replace(variant("a", replicas=0), spec_replicas=0, current_replicas=0)
    scene.snapshot = Snapshot.of([idle], [])
    scene.duration = 5.0
    async with scene.running():
        scene.ledger.record([activate([idle], 600.0)])
        await scene.advance(5)
        assert scene.count("success") == 1
        assert scene.ledger.get(KEY).desired == 3
        scene.snapshot = Snapshot.of([variant("a", replicas=3)], [])
        await scene.advance(60, 65)
        assert scene.ledger.get(KEY).desired == 3
