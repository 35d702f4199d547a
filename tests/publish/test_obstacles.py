"""Every reason why a variant is not scaled is a condition, an event and a series."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.publish.collectors import collector
from tests.publish.decisions import KEY, NOW, decision
from tests.publish.situations import AROUND, situation
from tests.publish.statuses import FOUND, GONE, condition, patched, va
from tests.scale_from_zero.test_loop import WakingScene
from wva.api.variantautoscaling import TargetReason, VariantAutoscalingStatus
from wva.decide.start import Budget
from wva.kube.errors import Forbidden
from wva.model.decision import HOLD_REASONS, Reason
from wva.model.inventory import Inventory
from wva.model.trouble import TroubleReason
from wva.publish.announce import announcements
from wva.publish.obstacles import OBSTACLES, begun


def read(status):
    """Return the conditions of a status, decoded."""
    return msgspec.convert(status, VariantAutoscalingStatus).conditions


def page(statuses, *, leading=True, instance=""):
    """Return the series about obstacles."""
    registry = CollectorRegistry()
    registry.register(
        collector(
            statuses=lambda: [*dict(statuses)],
            conditions=dict(statuses).get,
            leading=lambda: leading,
            instance=instance,
        )
    )
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def series(reason):
    """Return the line of a reason."""
    return f'wva_variant_obstacle{{namespace="ns",reason="{reason}",variant_name="va"}} 1.0'


async def told_by_the_start(reason):
    """Return the events of a start from zero that is refused or fails."""
    scene = WakingScene()
    scene.waiting["p"] = {"m": 1.0}
    if reason == TroubleReason.START_REFUSED:
        scene.limit = Budget(Inventory.of([]))
    else:
        scene.scale_error = Forbidden(403, "Forbidden", "deployments/scale is forbidden")
    async with scene.running():
        await scene.advance(0.5)
    assert scene.hindered["a"].reason == reason
    return [(type_, name) for _, type_, name, _ in scene.events]


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=[obstacle.reason for obstacle in OBSTACLES])
async def test_an_obstacle_is_a_condition_an_event_and_a_series(obstacle):
    """Condition and series last as long as the obstacle; the event comes once, at its beginning."""
    before = patched(None, now=NOW, decision=decision())
    during = situation(obstacle.reason)
    after = patched(before, now=NOW + 60, **during)
    said = condition(after, obstacle.condition)
    assert (said["status"], said["reason"]) == (obstacle.status, obstacle.reason)
    assert said["message"]

    if AROUND.get(obstacle.reason) == "start":
        events = sorted(set(await told_by_the_start(obstacle.reason)))  # a start that fails is tried again
    else:
        made = announcements(decision(), during["decision"]) if "decision" in during else []
        events = [event[:2] for event in [*made, *begun(read(before), read(after))]]
    assert events == [("Warning", obstacle.event)]
    assert begun(read(after), read(after)) == []

    assert page([(KEY, read(after))]) == [series(obstacle.reason)]
    assert page([(KEY, read(before))]) == []


def test_every_reason_why_nothing_is_scaled_is_in_the_table():
    """A new reason must have a condition, an event and a series."""
    table = {obstacle.reason for obstacle in OBSTACLES}
    assert {reason.value for reason in HOLD_REASONS - {Reason.NOT_DECIDED}} <= table
    assert {reason.value for reason in TroubleReason} <= table
    for reason in (TargetReason.TARGET_NOT_FOUND, TargetReason.TARGET_CONFLICT, TargetReason.TARGET_UNSUPPORTED):
        target = FOUND.__class__(resolved=False, reason=reason, message="no", name="d")
        assert condition(patched(None, now=NOW, target=target), "Ready")["reason"] in table


def test_a_scaled_variant_has_no_obstacle():
    """A variant that is scaled has no series and no event; conditions of unknown types do not count."""
    fine = read(patched(None, now=NOW, decision=decision()))
    assert begun((), fine) == []
    assert page([(KEY, fine)]) == []
    foreign = {"type": "Foreign", "status": "False", "reason": "TargetConflict"}
    healed = {"type": "Limited", "status": "False", "reason": "GpuLimited"}
    assert page([(KEY, read({"conditions": [foreign, healed]}))]) == []


def test_a_standby_shows_nothing_and_an_instance_labels_its_series():
    """Series of obstacles follow the same rules as the other series about variants."""
    conditions = read(patched(None, now=NOW, target=GONE))
    assert page([(KEY, conditions)], leading=False) == []
    (line,) = page([(KEY, conditions)], instance="blue")
    assert 'controller_instance="blue"' in line


def test_one_obstacle_is_told_once_in_each_column():
    """Ready and OptimizationReady have the same reason, which gives one series."""
    gone = va(patched(None, now=NOW, target=GONE))
    told = {entry.type: entry.reason for entry in gone.status.conditions}
    assert told["Ready"] == told["OptimizationReady"] == "DeploymentNotFound"
    assert page([(KEY, gone.status.conditions)]) == [series("DeploymentNotFound")]
