"""What the optimizer does when a part of a cycle fails."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.builders import policy, replica, variant
from tests.optimizer.optimizer_scene import INTERVAL, KEY, OptimizerScene
from wva.decide import pipeline
from wva.model.decision import Reason, Source
from wva.model.policy import NamespacePolicy, SaturationPolicy, SaturationRules
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey


@pytest.fixture
def scene():
    """Return a scene."""
    return OptimizerScene()


async def test_a_failing_cycle_does_not_end_the_loop(scene):
    """The failure is logged with its traceback and counted, and the number stays."""
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
    """The number stays, and its source is no longer ``measured``.

    Each failed cycle logs the line of the safety net, and events tell begin and end.
    """
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
    """Without an earlier number, WVA publishes the current replicas."""
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
    """Their decisions do not change."""
    async with scene.running():
        idle = replace(scene.ledger.get(KEY), key=VariantKey("ns", "idle"), desired=0, reason=Reason.INACTIVE)
        scene.ledger.record([idle])
        scene.gone.add(KEY)
        before = scene.ledger.decisions()
        scene.error = RuntimeError("out of luck")
        await scene.advance(60)
        assert scene.ledger.decisions() == before


async def test_a_failing_recording_does_not_stop_what_was_decided(scene):
    """The cycle counts as a success, and the next one runs."""

    async def fail(_):
        raise OSError("disk on fire")

    scene.optimizer.keep = fail
    async with scene.running():
        await scene.advance(60)
        assert scene.starts == [0, 60]
        assert (scene.count("success"), scene.count("error")) == (2, 0)
        assert scene.recordings == []


async def test_a_disk_that_hangs_does_not_keep_the_numbers_of_a_cycle_back(scene):
    """WVA publishes the numbers before it writes the recording."""

    async def hangs(_):
        await asyncio.Event().wait()

    scene.optimizer.keep = hangs
    async with scene.running():
        assert scene.ledger.get(KEY).desired > 1


async def test_three_failed_cycles_in_a_row_are_a_reason_not_to_be_ready(scene):
    """Readiness names the loop and the class of the error, but not its text, until a cycle succeeds."""
    scene.error = ValueError("text of a tenant")
    async with scene.running():
        await scene.advance(60)
        assert scene.optimizer.not_ready() is None
        await scene.advance(120)
        told = scene.optimizer.not_ready()
        assert told.startswith("optimizer: 3 cycles in a row failed: ValueError in wva.optimizer, line ")
        assert "tenant" not in told
        scene.error = None
        await scene.advance(180)
        assert scene.optimizer.not_ready() is None


async def test_a_cycle_that_does_not_end_is_stuck(scene):
    """A cycle is stuck if it runs for more than the interval plus five minutes."""
    scene.duration = 10_000
    async with scene.running():
        start = scene.clock.monotonic()
        assert scene.optimizer.stuck(start + INTERVAL + 300) is None
        assert scene.optimizer.stuck(start + INTERVAL + 301) == "optimizer: a cycle has not ended for 361 s"
    assert scene.optimizer.stuck(start) is None


async def test_a_waiting_loop_is_not_stuck(scene):
    """A loop that waits for its next cycle is never stuck."""
    async with scene.running():
        assert scene.optimizer.stuck(scene.clock.monotonic() + 1e6) is None


async def test_a_model_that_fails_is_logged_once_with_its_traceback(scene, monkeypatch):
    """Its variants are held. The hold is counted in each cycle and announced once, and other models are decided."""
    two = [variant(name, replicas=1, desired=1, model=name) for name in ("a", "b")]
    reports = [replica(f"{name}-0", variant=name, kv=0.95, queue=9) for name in ("a", "b")]
    scene.snapshot = Snapshot.of(two, reports)
    original = pipeline.terms

    def broken(model, need, *rest):
        if model.key.model_id == "a":
            raise ValueError("text of a tenant")
        return original(model, need, *rest)

    monkeypatch.setattr(pipeline, "terms", broken)
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
    """The variant is held while publishing fails, and the other variants are published."""
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
    """The optimizer tells the configuration which namespace fails and why."""
    refused = []
    scene.optimizer.refuse = lambda *what: refused.append(what)
    scene.configuration.policy = replace(
        policy(), namespaces=(NamespacePolicy("ns", SaturationRules(SaturationPolicy(kv_spare_trigger=0.123))),)
    )
    original = pipeline.terms

    def broken(model, need, *rest):
        if model.policy.kv_spare_trigger == 0.123:
            raise ValueError
        return original(model, need, *rest)

    monkeypatch.setattr(pipeline, "terms", broken)
    (decision,) = await scene.optimizer.cycle()
    assert decision.desired > 1
    ((namespace, cause),) = refused
    assert (namespace, cause.partition(" ")[0]) == ("ns", "ValueError")


async def test_configuration_that_was_mended_while_a_cycle_ran_is_not_refused(scene, monkeypatch):
    """The failure was about the old text, so the new text stays in force."""
    refused = []
    scene.optimizer.refuse = lambda *what: refused.append(what)
    other = NamespacePolicy("other", SaturationRules(SaturationPolicy()))
    bad, good = (
        replace(
            policy(),
            namespaces=(NamespacePolicy("ns", SaturationRules(SaturationPolicy(kv_spare_trigger=each))), other),
        )
        for each in (0.123, 0.2)
    )
    scene.configuration.policy = bad
    original = pipeline.terms

    def broken(model, need, *rest):
        if model.policy.kv_spare_trigger == 0.123:
            scene.configuration.policy = good
            raise ValueError
        return original(model, need, *rest)

    monkeypatch.setattr(pipeline, "terms", broken)
    (decision,) = await scene.optimizer.cycle()
    assert (decision.desired > 1, refused) == (True, [])
