"""When a cycle of the optimizer runs, and what it hands on."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.builders import policy, replica, variant
from tests.decide.queueing.samples import KNOWN, pod
from wva import log
from wva.decide import model_cycle
from wva.decide.activation import activate
from wva.instruments import Instruments
from wva.loops.optimizer import Optimizer, Ports
from wva.model.decision import HOLD_REASONS, Reason, Source
from wva.model.memory import Memory
from wva.model.policy import NamespacePolicy, SaturationPolicy, SaturationRules
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.sim.world.clock import VirtualClock

INTERVAL = 60.0


class FakeConfiguration:
    """A policy and an interval that tests change."""

    def __init__(self):
        """Start with a minute."""
        self.changed = asyncio.Event()
        self.policy = policy()
        self.interval_seconds = INTERVAL


class Scene:
    """An optimizer whose world is scripted: snapshots by a function, time by a virtual clock."""

    def __init__(self):
        """See two busy replicas of one variant that everybody knows."""
        self.clock = VirtualClock()
        self.configuration = FakeConfiguration()
        self.ledger = Ledger()
        self.instruments = Instruments(CollectorRegistry())
        self.starts = []
        self.recordings = []
        self.events = []
        self.gone = set()
        self.snapshot = Snapshot.of([variant("a", replicas=1, desired=1)], [replica("a-0", kv=0.95, queue=9)])
        self.error = None
        self.duration = 0.0
        ports = Ports(
            collect=self.collect,
            known=lambda key: key not in self.gone,
            announce=lambda *event: self.events.append(event),
            record=self.record,
        )
        self.optimizer = Optimizer(
            ports,
            configuration=self.configuration,
            ledger=self.ledger,
            clock=self.clock,
            instruments=self.instruments,
        )

    async def record(self, recording):
        """Keep a recording."""
        self.recordings.append(recording)

    async def collect(self, now):
        """Note the start, take as long as told, return the snapshot or raise."""
        assert now == self.clock.now()
        self.starts.append(self.clock.elapsed_seconds)
        if self.duration:
            await self.clock.sleep(self.duration)
        if self.error is not None:
            raise self.error
        return self.snapshot

    @asynccontextmanager
    async def running(self):
        """Run the loop around the body."""
        task = asyncio.create_task(self.optimizer.run())
        await self.settle()
        try:
            yield task
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def settle(self):
        """Let everything run that does not wait for time."""
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.clock.waking == 0

    async def advance(self, *times):
        """Let virtual time pass, stopping at each of these."""
        for time in times:
            self.clock.advance_to(time)
            await self.settle()

    def count(self, result):
        """Return the counter of cycles."""
        return self.instruments.registry.get_sample_value("wva_cycles_total", {"result": result}) or 0

    def gauge(self, name):
        """Return one of the controller's gauges."""
        return self.instruments.registry.get_sample_value(name)


@pytest.fixture
def scene():
    """Return a scene."""
    return Scene()


KEY = VariantKey("ns", "a")


# --- when --------------------


async def test_the_last_success_says_whether_the_loop_goes_on(scene):
    """Before the first one it is the start of the loop; a cycle that failed does not move it."""
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
    """Also after it has changed while the loop waits."""
    async with scene.running():
        assert scene.gauge("wva_cycle_interval_seconds") == INTERVAL
        scene.configuration.interval_seconds = 600.0
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.gauge("wva_cycle_interval_seconds") == 600


def test_every_reason_of_a_hold_is_counted_from_zero(scene):
    """The first hold is a step from 0 to 1 that a rate sees."""
    counted = [
        sample
        for family in scene.instruments.holds.collect()
        for sample in family.samples
        if sample.name == "wva_holds_total"
    ]
    assert {sample.labels["reason"] for sample in counted} == {reason.value for reason in HOLD_REASONS}
    assert {sample.value for sample in counted} == {0}


async def test_the_first_cycle_runs_at_once_and_the_others_an_interval_apart(scene):
    """From start to start."""
    async with scene.running():
        assert scene.starts == [0]
        await scene.advance(59.9)
        assert scene.starts == [0]
        await scene.advance(60, 120, 180)
        assert scene.starts == [0, 60, 120, 180]


async def test_a_long_cycle_does_not_move_the_next_one(scene):
    """The interval counts from the start of a cycle, not from its end."""
    scene.duration = 20
    async with scene.running():
        await scene.advance(20, 60, 80, 120)
        assert scene.starts == [0, 60, 120]


async def test_cycles_never_overlap(scene):
    """One that takes longer than the interval is followed at once by the next; lateness is told."""
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
    """Late by less than an interval is no news."""
    scene.duration = 70
    async with scene.running():
        with capture_logs() as lines:
            await scene.advance(70)
        assert scene.starts == [0, 70]
        assert [line for line in lines if line["event"] == "cycle_overran"] == []


async def test_a_shorter_interval_applies_while_the_loop_waits(scene):
    """Counted from the start of the last cycle."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.interval_seconds = 30
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0]
        await scene.advance(30, 60)
        assert scene.starts == [0, 30, 60]


async def test_an_interval_that_has_passed_already_starts_a_cycle_at_once(scene):
    """A second is over after ten."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.interval_seconds = 1
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0, 10]


async def test_a_longer_interval_applies_while_the_loop_waits(scene):
    """The old end of the wait passes without a cycle."""
    async with scene.running():
        scene.configuration.interval_seconds = 100
        scene.configuration.changed.set()
        await scene.advance(60, 99)
        assert scene.starts == [0]
        await scene.advance(100)
        assert scene.starts == [0, 100]


async def test_a_change_of_anything_else_starts_no_cycle(scene):
    """Thresholds apply with the next one."""
    async with scene.running():
        await scene.advance(10)
        scene.configuration.changed.set()
        await scene.settle()
        assert scene.starts == [0]
        await scene.advance(60)
        assert scene.starts == [0, 60]


async def test_a_change_during_a_cycle_is_not_lost(scene):
    """The wait after it has the new interval."""
    scene.duration = 5
    async with scene.running():
        scene.configuration.interval_seconds = 10
        scene.configuration.changed.set()
        await scene.advance(5, 10)
        assert scene.starts == [0, 10]


async def test_busy_means_not_waiting(scene):
    """The embedded world moves its clock only when the loop waits for it."""
    assert scene.optimizer.busy
    scene.duration = 5
    async with scene.running():
        assert scene.optimizer.busy
        await scene.advance(5)
        assert not scene.optimizer.busy
        await scene.advance(60)
        assert scene.optimizer.busy


# --- what --------------------


async def test_a_cycle_decides_and_records(scene):
    """The decision is in the ledger, the event announced, the recording kept."""
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired == 2
    assert scene.ledger.get(KEY) == decision
    assert [(key, type_, reason) for key, type_, reason, _ in scene.events] == [(KEY, "Normal", "ScaleUpRecommended")]
    (recording,) = scene.recordings
    assert (recording.snapshot, recording.memory, recording.now) == (scene.snapshot, Memory(), scene.clock.now())


async def test_memory_goes_from_cycle_to_cycle(scene):
    """What one cycle leaves is what the next one is recorded with."""
    await scene.optimizer.cycle()
    await scene.optimizer.cycle()
    assert [entry.desired for entry in scene.recordings[1].memory.variants] == [2]


async def test_a_variant_that_goes_takes_nothing_with_it_that_was_learned_of_models(scene):
    """Its entry goes; peaks, capacities and service times of models stay."""
    async with scene.running():
        before = scene.recordings[-1].memory
        scene.ledger.drop(VariantKey("ns", "a"))
        await scene.advance(INTERVAL)
    after = scene.recordings[-1].memory
    assert (before.models, after.variants) == ((), ())
    assert [entry.key.model_id for entry in after.models] == ["m"]


async def test_a_policy_that_changed_counts_from_the_next_cycle(scene):
    """It is read anew each time."""
    scene.configuration.policy = policy(kv_cache_threshold=0.99, queue_length_threshold=100.0, kv_spare_trigger=0.0)
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired == 1


async def test_a_failing_cycle_does_not_end_the_loop(scene):
    """It is logged with its traceback and counted; the numbers published last stay."""
    async with scene.running():
        published = scene.ledger.get(KEY)
        scene.error = RuntimeError("out of luck")
        with capture_logs() as lines:
            await scene.advance(60)
        (line,) = [line for line in lines if line["event"] == "cycle_failed"]
        assert line["exc_info"]
        assert scene.ledger.get(KEY).desired == published.desired
        scene.error = None
        await scene.advance(120)
        assert scene.starts == [0, 60, 120]
        assert (scene.count("success"), scene.count("error")) == (2, 1)


async def test_a_failing_cycle_keeps_the_number_and_says_that_nobody_measured_it(scene):
    """The safety net: the number published last with its source, the guide's log line, and an event there and back."""
    async with scene.running():
        before = scene.ledger.get(KEY)
        assert (before.desired > 1, before.source) == (True, Source.MEASURED)
        scene.events.clear()
        scene.error = RuntimeError("secret token")
        with capture_logs() as lines:
            await scene.advance(60, 120, 180)
        kept = scene.ledger.get(KEY)
        assert (kept.desired, kept.source, kept.reason) == (
            before.desired,
            Source.PREVIOUS_DESIRED,
            Reason.ANALYSIS_FAILED,
        )
        assert kept.held
        assert "secret" not in kept.message
        said = [line for line in lines if line["event"] == "Safety net activated: emitted fallback metrics"]
        assert [(line["desiredReplicas"], line["fallbackSource"]) for line in said] == [
            (before.desired, "previous-desired")
        ] * 3
        assert [event[1:3] for event in scene.events] == [("Warning", "DesiredReplicasHeld")]
        scene.events.clear()
        scene.error = None
        await scene.advance(240)
        assert scene.ledger.get(KEY).source is Source.MEASURED
        assert [event[2] for event in scene.events if event[1] == "Normal"][-1] == "DesiredReplicasMeasured"


async def test_a_variant_without_history_keeps_its_replicas_while_cycles_fail(scene):
    """There is no previous number; the replicas that exist are the safe one."""
    scene.error = RuntimeError("out of luck")
    async with scene.running():
        scene.ledger.hold(variant("a", replicas=4))
        await scene.advance(60)
        kept = scene.ledger.get(KEY)
        assert (kept.desired, kept.source, kept.reason) == (4, Source.CURRENT_REPLICAS, Reason.ANALYSIS_FAILED)
        await scene.advance(120)
        still = scene.ledger.get(KEY)
        assert (still.desired, still.source, still.reason) == (4, Source.CURRENT_REPLICAS, Reason.ANALYSIS_FAILED)
        await scene.advance(180)
        assert scene.ledger.get(KEY) == still


async def test_a_failing_cycle_says_nothing_of_variants_that_are_gone_or_at_zero(scene):
    """Nothing is missing there."""
    async with scene.running():
        idle = replace(scene.ledger.get(KEY), key=VariantKey("ns", "idle"), desired=0, reason=Reason.INACTIVE)
        scene.ledger.record([idle])
        scene.gone.add(KEY)
        before = scene.ledger.decisions()
        scene.error = RuntimeError("out of luck")
        await scene.advance(60)
        assert scene.ledger.decisions() == before


async def test_a_failing_recording_does_not_stop_what_was_decided(scene):
    """The next cycle runs in any case."""

    async def fail(_):
        raise OSError("disk on fire")

    scene.recordings = None
    ports = Ports(collect=scene.collect, known=lambda _: True, announce=lambda *_: None, record=fail)
    scene.optimizer = Optimizer(
        ports,
        configuration=scene.configuration,
        ledger=scene.ledger,
        clock=scene.clock,
        instruments=scene.instruments,
    )
    async with scene.running():
        await scene.advance(60)
        assert scene.starts == [0, 60]
        assert (scene.count("success"), scene.count("error")) == (2, 0)


async def test_three_failed_cycles_in_a_row_are_a_reason_not_to_be_ready(scene):
    """By name and cause, without the text of the error; the next good cycle ends it."""
    scene.error = ValueError("text of a tenant")
    async with scene.running():
        await scene.advance(60)
        assert scene.optimizer.not_ready() is None
        await scene.advance(120)
        told = scene.optimizer.not_ready()
        assert told.startswith("optimizer: 3 cycles in a row failed: ValueError in wva.loops.optimizer, line ")
        assert "tenant" not in told
        scene.error = None
        await scene.advance(180)
        assert scene.optimizer.not_ready() is None


async def test_a_cycle_that_does_not_end_is_stuck(scene):
    """After the interval and five minutes; waiting for the next cycle is something else."""
    scene.duration = 10_000
    async with scene.running():
        start = scene.clock.monotonic()
        assert scene.optimizer.stuck(start + INTERVAL + 300) is None
        assert scene.optimizer.stuck(start + INTERVAL + 301) == "optimizer: a cycle has not ended for 361 s"
    assert scene.optimizer.stuck(start) is None


async def test_a_waiting_loop_is_not_stuck(scene):
    """However long the interval is."""
    async with scene.running():
        assert scene.optimizer.stuck(scene.clock.monotonic() + 1e6) is None


async def test_a_model_that_fails_is_logged_once_with_its_traceback(scene, monkeypatch):
    """The hold is counted in each cycle, and announced when it begins."""
    two = [variant(name, replicas=1, desired=1, model=name) for name in ("a", "b")]
    reports = [replica(f"{name}-0", variant=name, kv=0.95, queue=9) for name in ("a", "b")]
    scene.snapshot = Snapshot.of(two, reports)
    original = model_cycle.analyze

    def broken(key, variants, cycle):
        if key.model_id == "a":
            raise ValueError("text of a tenant")
        return original(key, variants, cycle)

    monkeypatch.setattr(model_cycle, "analyze", broken)
    with capture_logs() as lines:
        async with scene.running():
            await scene.advance(60, 120)
    (line,) = [line for line in lines if line["event"] == "model_failed"]
    assert (line["model"], type(line["exc_info"])) == ("a in ns", ValueError)
    held, decided = scene.ledger.get(KEY), scene.ledger.get(VariantKey("ns", "b"))
    assert (held.desired, held.reason) == (1, Reason.MODEL_FAILED)
    assert (decided.desired > 1, decided.source) == (True, Source.MEASURED)
    assert [event[2] for event in scene.events if event[0] == KEY] == ["DesiredReplicasHeld"]
    registry = scene.instruments.registry
    assert registry.get_sample_value("wva_holds_total", {"reason": "ModelFailed"}) == 3
    assert (scene.count("success"), scene.count("error")) == (3, 0)


async def test_a_variant_that_cannot_be_published_keeps_its_number(scene):
    """The others are published; when it can be published again, it is."""
    two = [variant(name, replicas=1, desired=1, model=name) for name in ("a", "b")]
    scene.snapshot = Snapshot.of(two, [replica(f"{name}-0", variant=name, kv=0.95, queue=9) for name in ("a", "b")])
    for each in two:
        scene.ledger.hold(each)
    failing = True

    def listen(key, _old, new):
        if failing and key == KEY and new is not None and new.desired > 1:
            raise ValueError

    scene.ledger.subscribe(listen)
    heard = []
    scene.ledger.subscribe(lambda key, _old, new: heard.append((key.name, new.reason)))
    async with scene.running():
        held = scene.ledger.get(KEY)
        assert (held.reason, held.held) == (Reason.MODEL_FAILED, True)
        assert held.message.startswith("publishing failed: ValueError")
        assert scene.ledger.get(VariantKey("ns", "b")).desired > 1
        failing = False
        await scene.advance(60)
        assert scene.ledger.get(KEY).desired > 1
    assert heard[0][0] == "a"


async def test_configuration_that_makes_decisions_fail_is_refused_by_name(scene, monkeypatch):
    """The namespace and the cause go to those who hold the configuration."""
    refused = []
    ports = replace(scene.optimizer._ports, refuse=lambda *what: refused.append(what))
    scene.optimizer._ports = ports
    scene.configuration.policy = replace(
        policy(), namespaces=(NamespacePolicy("ns", SaturationRules(SaturationPolicy(kv_spare_trigger=0.123))),)
    )
    original = model_cycle.analyze

    def broken(key, variants, cycle):
        if cycle.policy.saturation_for(key).kv_spare_trigger == 0.123:
            raise ValueError
        return original(key, variants, cycle)

    monkeypatch.setattr(model_cycle, "analyze", broken)
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired > 1
    ((namespace, cause),) = refused
    assert (namespace, cause.partition(" ")[0]) == ("ns", "ValueError")


async def test_configuration_that_was_mended_while_a_cycle_ran_is_not_refused(scene, monkeypatch):
    """What failed is no longer what the namespace says, and only a new text would bring it back into force."""
    refused = []
    scene.optimizer._ports = replace(scene.optimizer._ports, refuse=lambda *what: refused.append(what))
    other = NamespacePolicy("other", SaturationRules(SaturationPolicy()))
    bad, good = (
        replace(
            policy(),
            namespaces=(NamespacePolicy("ns", SaturationRules(SaturationPolicy(kv_spare_trigger=each))), other),
        )
        for each in (0.123, 0.2)
    )
    scene.configuration.policy = bad
    original = model_cycle.analyze

    def broken(key, variants, cycle):
        if cycle.policy.saturation_for(key).kv_spare_trigger == 0.123:
            scene.configuration.policy = good
            raise ValueError
        return original(key, variants, cycle)

    monkeypatch.setattr(model_cycle, "analyze", broken)
    (decision,) = await scene.optimizer.cycle()
    assert (decision.desired > 1, refused) == (True, [])


async def test_a_variant_that_went_away_meanwhile_is_not_published(scene):
    """Neither number nor event nor log line."""
    scene.gone.add(KEY)
    with capture_logs() as lines:
        assert await scene.optimizer.cycle() == []
    assert scene.ledger.get(KEY) is None
    assert scene.events == []
    assert [line for line in lines if line["event"] == "variant_decided"] == []


async def test_a_held_number_is_counted_by_reason(scene):
    """And warned about."""
    scene.snapshot = Snapshot.of(
        [variant("a", desired=1)], [replica("a-0", kv=None, queue=None)], [CollectionFailure(("ns",), "refused")]
    )
    (decision,) = await scene.optimizer.cycle()
    assert decision.held
    labels = {"reason": "PrometheusError"}
    assert scene.instruments.registry.get_sample_value("wva_holds_total", labels) == 1
    assert [(type_, reason) for _, type_, reason, _ in scene.events] == [("Warning", "DesiredReplicasHeld")]


async def test_each_stage_is_timed(scene):
    """One observation per stage and cycle."""
    await scene.optimizer.cycle()
    for stage in ("collect", "decide", "publish"):
        name = "wva_cycle_duration_seconds_count"
        assert scene.instruments.registry.get_sample_value(name, {"stage": stage}) == 1


async def test_cancelling_ends_the_loop(scene):
    """Also in the middle of a cycle."""
    scene.duration = 1000
    async with scene.running() as task:
        assert not task.done()
    assert task.cancelled()
    assert scene.count("error") == 0


async def test_a_dropped_variant_that_comes_back_before_the_next_cycle_is_a_new_one(scene):
    """Its number of before is not remembered: the new workload begins with its own replicas."""
    scene.snapshot = Snapshot.of([variant("a", replicas=5, desired=5)], [replica("a-0", kv=0.5, queue=0)])
    async with scene.running():
        await scene.advance(60)
        assert scene.ledger.get(KEY).desired == 5
        scene.ledger.drop(KEY)
        scene.snapshot = Snapshot.of([variant("a", replicas=1)], [replica("a-9", kv=0.5, queue=0)])
        await scene.advance(120)
        assert scene.ledger.get(KEY).desired == 1


async def test_a_workload_replaced_while_a_cycle_reads_the_world_keeps_its_own_number(scene):
    """What the cycle has seen of the former one is neither published nor remembered for the new one."""
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
    """The status may still show the number of a former workload; what was held for the new one counts."""
    new = variant("a", replicas=1, desired=4)
    scene.ledger.hold(replace(new, status_desired=None))
    scene.snapshot = Snapshot.of([new], [replica("a-9", kv=0.5, queue=0)])
    async with scene.running():
        assert scene.ledger.get(KEY).desired == 1


async def test_a_start_from_zero_is_not_taken_back_by_a_cycle_that_saw_zero(scene):
    """It was on its way when the start was published; the next one begins with the number of the start."""
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


@pytest.fixture(name="at_level")
def _at_level():
    """Return how to set the level of the log, which is put back afterwards."""
    before, root = structlog.get_config(), logging.getLogger().level
    yield log.set_level
    structlog.configure(**before)
    logging.getLogger().setLevel(root)


@pytest.mark.parametrize(("level", "told"), [("debug", 1), ("info", 0)])
async def test_the_solution_of_the_model_based_optimizer_is_a_debug_line(scene, at_level, level, told):
    """Per variant what its replicas would do, and the accounts of the cards; at another level nothing is computed."""
    at_level(level)
    scene.configuration.policy = replace(KNOWN, proactive_model=True)
    scene.snapshot = Snapshot.of([variant("a", cost=40.0)], [pod(success_rate=40 / 60)])
    with capture_logs() as lines:
        await scene.optimizer.cycle()
    found = [line["solution"] for line in lines if line.get("event_name") == "solution_found"]
    assert len(found) == told
    for solution in found:
        assert solution[0].startswith("s=a:ns; c=Premium; m=m; rate=40; tk=178; sol=1, sat=false, alloc={acc=A100; ")
        assert solution[-1] == "totalCost=80"


async def test_nobody_hears_of_a_solution_where_the_model_was_not_asked(scene, at_level):
    """The percentage analyzer decides alone."""
    at_level("debug")
    with capture_logs() as lines:
        await scene.optimizer.cycle()
    assert [line for line in lines if line.get("event_name") == "solution_found"] == []
