"""Direct actuation: when the controller writes a number itself, and when it must not."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.kube.clocks import ManualClock
from tests.live_target import FakeLiveTarget, owner
from tests.publish.decisions import decision, held
from wva.actuation import (
    MANAGER,
    START_MANAGER,
    Actuation,
    DirectActuator,
    Mode,
    ScalePace,
    actuation_of,
    actuation_problems,
    mode_of,
    pace_of,
)
from wva.api.core import Namespace
from wva.api.meta import Key, ObjectMeta
from wva.api.scalers import HorizontalPodAutoscaler
from wva.api.variantautoscaling import VariantAutoscaling, VariantAutoscalingStatus
from wva.instruments import Instruments
from wva.kube.controller import After, Done
from wva.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    Unreachable,
    WriteRefused,
)
from wva.model.decision import Reason
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.targets import DEPLOYMENTS

KEY, TARGET = Key("ns", "a"), Key("ns", "x")
DIRECT = {"wva.llmd.ai/actuation": "direct", "wva.llmd.ai/scale-down-window": "60s"}


def va(**annotations):
    """Return a VA with annotations; an underscore is a dash."""
    named = {f"wva.llmd.ai/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return VariantAutoscaling(ObjectMeta(name="a", namespace="ns", annotations=named))


class FakeScaleClient(FakeLiveTarget):
    """Records what is written, or raises ``error``."""

    def __init__(self):
        """Accept everything."""
        super().__init__()
        self.written = []
        self.error = None
        self.version = "7"

    async def scale(self, resource, key, replicas, *, version, manager):
        """Record."""
        assert manager == MANAGER
        if self.error is not None:
            raise self.error
        if version != self.version:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.written.append((resource.plural, key, replicas))
        self.replicas = replicas


class ActuationScene:
    """Caches with one variant of two replicas that asks for direct actuation."""

    def __init__(self):
        """Follow the caches."""
        self.cluster, self.client = CachedCluster(), FakeScaleClient()
        self.clock, self.revisited, self.shadows = ManualClock(), [], set()
        self.ledger = Ledger(asked_for_shadow=self.shadows.__contains__)
        self.actuator = DirectActuator(
            client=self.client,
            stores=self.cluster.stores,
            ledger=self.ledger,
            revisit=self.revisited.append,
            clock=self.clock,
            instruments=Instruments(CollectorRegistry()),
        )
        self.actuator.watch()
        self.cluster.deployment("x", replicas=2)
        self.declare(DIRECT)

    def declare(self, annotations):
        """Give the variant these annotations."""
        self.cluster.va("a", target="x", metadata={"annotations": annotations})

    def hpa(self):
        """Put an HPA of the target."""
        wire = {
            "metadata": {"name": "own", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 9},
        }
        made = msgspec.convert(wire, HorizontalPodAutoscaler)
        self.cluster.stores.scalers.hpas.upsert(made)
        return made

    def decide(self, desired, **fields):
        """Record a decision."""
        made = decision(desired, current=2, **fields)
        self.ledger.record([replace(made, key=VariantKey(*KEY))])

    async def reconcile(self):
        """Reconcile the variant."""
        return await self.actuator.reconcile(KEY)

    @property
    def numbers(self):
        """The numbers that were written."""
        return [number for _, _, number in self.client.written]


@pytest.fixture
def scene():
    """Return a scene."""
    return ActuationScene()


# --- what the annotations mean ---------------------------------------------------------------------------------------


def test_a_variant_is_scaled_by_its_scaler_unless_it_says_otherwise():
    """A word that is not known is no wish."""
    assert actuation_of(va()) is Actuation.SCALER
    assert actuation_of(va(actuation="direct")) is Actuation.DIRECT
    assert actuation_of(va(actuation="Direct")) is Actuation.SCALER


def test_the_mode_of_a_variant_wins_over_that_of_its_namespace():
    """Without either the variant acts."""
    shadow = Namespace(ObjectMeta(name="ns", annotations={"wva.llmd.ai/mode": "shadow"}))
    assert mode_of(va(), None) is Mode.ACT
    assert mode_of(va(), shadow) is Mode.SHADOW
    assert mode_of(va(mode="act"), shadow) is Mode.ACT
    assert mode_of(va(mode="shadow"), None) is Mode.SHADOW
    assert mode_of(va(mode="dark"), shadow) is Mode.SHADOW


def test_the_pace_has_safe_defaults():
    """A window as that of an HPA; what is wrong counts as absent."""
    assert pace_of(va()) == ScalePace(300.0, None, None)
    assert pace_of(va(scale_down_window="2m", scale_up_per_minute="4", scale_down_per_minute="2")) == ScalePace(
        120.0, 4, 2
    )
    assert pace_of(va(scale_down_window="2h", scale_up_per_minute="0", scale_down_per_minute="x")) == ScalePace()


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"mode": "dark"}, "mode: got 'dark', expected act or shadow"),
        ({"actuation": "hpa"}, "actuation: got 'hpa', expected scaler or direct"),
        ({"scale_down_window": "2h"}, "scale-down-window: got '2h', expected a duration from 0s to 1h"),
        ({"scale_up_per_minute": "0"}, "scale-up-per-minute: got '0', expected a whole number from 1 to 10,000"),
        ({"scale_down_per_minute": "all"}, "scale-down-per-minute: got 'all', expected"),
    ],
)
def test_a_wrong_annotation_is_named_with_what_is_in_force(annotations, named):
    """The ConfigurationValid condition has the line."""
    (line,) = actuation_problems(va(**annotations), enabled=True)
    assert f"annotation wva.llmd.ai/{named}" in line
    assert "in force" in line


def test_direct_actuation_must_be_switched_on():
    """Without the setting the controller has no right to write, and says so."""
    assert actuation_problems(va(actuation="direct"), enabled=True) == []
    (line,) = actuation_problems(va(actuation="direct"), enabled=False)
    assert "WVA_DIRECT_ACTUATION" in line


# --- what is written -------------------------------------------------------------------------------------------------


async def test_growth_is_written_at_once(scene):
    """The number of the decision becomes that of the target."""
    scene.decide(5)
    assert await scene.reconcile() == Done()
    assert scene.client.written == [("deployments", Key("ns", "x"), 5)]


async def test_the_last_write_counts_although_the_cache_does_not_have_it_yet(scene):
    """Ten were written, the cache still has two: a number of four is a shrink, and waits for its window."""
    scene.declare({**DIRECT, "wva.llmd.ai/scale-down-window": "300s"})
    scene.decide(10)
    await scene.reconcile()
    assert scene.numbers == [10]
    scene.decide(4)
    assert await scene.reconcile() == After(300.0)
    assert scene.numbers == [10]


async def test_a_decision_wakes_the_actuator_for_its_variants_alone(scene):
    """A variant with a scaler is not touched."""
    scene.decide(5)
    assert len(scene.actuator.queue) == 1
    scene.declare({})
    await scene.reconcile()
    assert scene.numbers == []


async def test_a_shrink_comes_back_after_its_window(scene):
    """Nothing is written before, and the key comes back in time."""
    scene.decide(1)
    assert await scene.reconcile() == After(60.0)
    assert scene.numbers == []
    await scene.clock.advance(60.0)
    assert await scene.reconcile() == Done()
    assert scene.numbers == [1]


@pytest.mark.parametrize("reason", [Reason.METRICS_MISSING, Reason.INACTIVE])
async def test_a_number_without_evidence_is_not_written(scene, reason):
    """A held number is in force already, and a variant at zero is started by scale from zero alone."""
    made = held(reason=reason) if reason is not Reason.INACTIVE else decision(0, reason=reason)
    scene.ledger.record([replace(made, key=VariantKey(*KEY))])
    assert await scene.reconcile() == Done()
    assert scene.numbers == []


async def test_a_shadow_writes_nothing(scene):
    """Its number is not for the target."""
    scene.shadows.add(VariantKey(*KEY))
    scene.decide(5)
    assert await scene.reconcile() == Done()
    assert scene.numbers == []


async def test_a_target_with_a_scaler_is_left_to_it(scene):
    """The condition names the scaler; when it has gone the number is written."""
    hpa = scene.hpa()
    scene.decide(5)
    assert isinstance(await scene.reconcile(), After)
    assert scene.numbers == []
    trouble = scene.actuator.trouble(KEY)
    assert trouble.reason == "ScalerPresent"
    assert "HorizontalPodAutoscaler own" in trouble.message
    assert scene.revisited == [KEY]
    scene.cluster.stores.scalers.hpas.delete(hpa)
    await scene.reconcile()
    assert scene.numbers == [5]
    assert scene.actuator.trouble(KEY) == UNTROUBLED


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [owner("helm", subresource="", field="f:template")],
        [owner("kube-controller-manager"), owner("kubectl", seconds_ago=61.0)],
        [owner(MANAGER, operation="Apply")],  # a former version wrote by server-side apply
        [owner(MANAGER, seconds_ago=1.0)],
        [owner(START_MANAGER, seconds_ago=1.0)],
    ],
)
async def test_replicas_that_nobody_owns_any_more_are_taken_over(scene, owners):
    """An HPA that was deleted, and a ``kubectl scale`` of some time ago, do not own the field for ever."""
    scene.client.owners = owners
    scene.decide(5)
    assert await scene.reconcile() == Done()
    assert scene.numbers == [5]
    assert scene.actuator.trouble(KEY) == UNTROUBLED


@pytest.mark.parametrize("ahead", [0.0, 61.0, 7200.0])
async def test_only_the_times_of_the_api_server_are_compared(scene, ahead):
    """A ``kubectl scale`` of five seconds ago stands, however far ahead our own clock is."""
    await scene.clock.advance(ahead)
    scene.client.owners = [owner("kubectl", seconds_ago=5.0)]
    scene.decide(5)
    assert isinstance(await scene.reconcile(), After)
    assert scene.numbers == []
    assert "kubectl owns" in scene.actuator.trouble(KEY).message


@pytest.mark.parametrize(("seconds_ago", "numbers"), [(59.0, []), (61.0, [5])])
async def test_without_a_clock_of_the_api_server_its_newest_write_is_its_time(scene, seconds_ago, numbers):
    """A proxy may take the header away. The status of a target is written now and then."""
    scene.client.answered_at = None
    status = owner("kube-controller-manager", subresource="status", seconds_ago=0.0, field="f:other")
    scene.client.owners = [owner("kubectl", seconds_ago=seconds_ago), status]
    scene.decide(5)
    await scene.reconcile()
    assert scene.numbers == numbers


async def test_a_write_without_a_time_counts_for_a_minute_from_when_it_is_seen(scene):
    """As a ``kubectl scale`` of a LeaderWorkerSet; the next one after ours has a minute of its own."""
    scene.client.owners = [owner("kubectl", stamped=False)]
    scene.decide(5)
    assert isinstance(await scene.reconcile(), After)
    await scene.clock.advance(59.0)
    await scene.reconcile()
    assert scene.numbers == []
    assert "kubectl owns" in scene.actuator.trouble(KEY).message
    await scene.clock.advance(2.0)
    await scene.reconcile()
    assert scene.numbers == [5]
    scene.client.owners, scene.client.replicas = [owner(MANAGER, stamped=False)], 5
    scene.decide(6)
    await scene.reconcile()
    assert scene.numbers == [5, 6]
    scene.client.owners, scene.client.replicas = [owner("kubectl", stamped=False)], 6
    scene.decide(7)
    assert isinstance(await scene.reconcile(), After)
    assert scene.numbers == [5, 6]


@pytest.mark.parametrize(
    ("owners", "named"),
    [
        ([owner("kubectl-client-side-apply", subresource="")], "kubectl-client-side-apply owns spec.replicas"),
        ([owner("argocd", operation="Apply", subresource="")], "argocd owns"),
        ([owner("argocd", operation="Apply")], "argocd owns"),
        ([owner("kubectl", seconds_ago=59.0)], "kubectl owns"),
        ([owner("other", seconds_ago=-9e9)], "other owns"),
        ([owner(f"m{number}", subresource="") for number in range(5)], "m0, m1, m2 and 2 more owns"),
        ([owner("evil\x1b[31m" * 99, subresource="")], "owns spec.replicas"),
    ],
)
async def test_replicas_of_another_manager_are_left_to_it(scene, owners, named):
    """A manifest that sets the replicas, and a scaler that has just written them, go first."""
    scene.client.owners = owners
    scene.decide(5)
    assert isinstance(await scene.reconcile(), After)
    assert scene.numbers == []
    trouble = scene.actuator.trouble(KEY)
    assert trouble.reason == "ReplicasOwned"
    assert named in trouble.message
    assert trouble.message.isprintable()
    assert len(trouble.message) < 400


async def test_a_target_that_goes_before_the_write_is_no_error(scene):
    """The caches will know it soon, and the condition of the target says it."""
    scene.client.exists = False
    scene.decide(5)
    assert await scene.reconcile() == Done()
    assert scene.numbers == []


async def test_a_field_is_not_taken_over_from_an_owner_who_has_just_come(scene):
    """The owners were read before somebody else wrote the target, so the write is tried again."""
    scene.client.version = "8"
    scene.decide(5)
    with pytest.raises(Conflict):
        await scene.reconcile()
    assert scene.numbers == []
    assert scene.actuator.trouble(KEY) == UNTROUBLED


async def test_a_write_that_always_comes_too_late_is_a_condition(scene):
    """One lost race is usual. After some in a row something writes the target all the time."""
    scene.client.version = "8"
    scene.decide(5)
    for _ in range(4):
        with pytest.raises(Conflict):
            await scene.reconcile()
        scene.actuator.queue.add_rate_limited(KEY)
    assert scene.actuator.trouble(KEY).reason == "ActuationFailed"
    assert "has been modified" in scene.actuator.trouble(KEY).message


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (Unavailable(500, "InternalError", "no corresponding type"), "500 InternalError: no corresponding type"),
        (Invalid(422, "Invalid", "spec.replicas: too many"), "too many"),
        (Unreachable(0, "Unreachable", "connection refused"), "connection refused"),
        (TooManyRequests(429, "TooManyRequests", "later\x1b[31m"), "later\\x1b"),
        (ValueError("a secret of a user"), "ValueError"),
    ],
)
async def test_every_error_of_a_write_is_a_condition(scene, error, named):
    """It is raised, too, so that the queue tries again. The end of it is told."""
    scene.client.error = error
    scene.decide(5)
    with pytest.raises(type(error)):
        await scene.reconcile()
    trouble = scene.actuator.trouble(KEY)
    assert trouble.reason == "ActuationFailed"
    assert named in trouble.message
    assert trouble.message.isprintable()
    assert "secret" not in trouble.message
    assert scene.revisited == [KEY]
    scene.client.error = None
    assert await scene.reconcile() == Done()
    assert scene.actuator.trouble(KEY) == UNTROUBLED
    assert scene.revisited == [KEY] * 2


async def test_a_write_that_failed_waits_for_its_pause(scene):
    """Neither a new decision nor the status that tells the failure brings the next try, but the annotations do."""
    scene.decide(5)
    assert await scene.actuator.queue.get() == KEY
    scene.actuator.queue.add_rate_limited(KEY)
    scene.actuator.queue.done(KEY)
    scene.decide(6)
    va = scene.cluster.stores.variant_autoscalings.get(KEY)
    told = VariantAutoscalingStatus(current_replicas=2)
    newer = msgspec.structs.replace(va.metadata, resource_version="99")
    scene.cluster.stores.variant_autoscalings.upsert(msgspec.structs.replace(va, metadata=newer, status=told))
    assert len(scene.actuator.queue) == 0
    scene.declare({**DIRECT, "wva.llmd.ai/scale-up-per-minute": "3"})
    assert len(scene.actuator.queue) == 1


async def test_an_api_server_that_does_not_answer_is_a_condition(scene, monkeypatch):
    """The time-out is shorter than that of a reconcile."""
    monkeypatch.setattr("wva.actuation._WRITE_SECONDS", 0.01)
    scene.client.hangs = True
    scene.decide(5)
    with pytest.raises(TimeoutError):
        await scene.reconcile()
    assert scene.actuator.trouble(KEY).reason == "ActuationFailed"
    assert "TimeoutError" in scene.actuator.trouble(KEY).message


async def test_a_process_that_does_not_lead_tells_nothing(scene):
    """The leader writes."""
    scene.client.error = WriteRefused(0, "WriteRefused", "another process may lead")
    scene.decide(5)
    with pytest.raises(WriteRefused):
        await scene.reconcile()
    assert scene.actuator.trouble(KEY) == UNTROUBLED


async def test_the_trouble_of_a_target_ends_with_it(scene):
    """The condition of the target says that it has gone."""
    scene.client.error = Unavailable(500, "InternalError", "no")
    scene.decide(5)
    with pytest.raises(Unavailable):
        await scene.reconcile()
    scene.cluster.stores.targets.store(DEPLOYMENTS).delete(scene.cluster.stores.targets.store(DEPLOYMENTS).get(TARGET))
    assert await scene.reconcile() == Done()
    assert scene.actuator.trouble(KEY) == UNTROUBLED


async def test_a_refused_write_is_a_condition(scene):
    """The message has the API server's words, and the write is tried again later."""
    scene.client.error = Forbidden(403, "Forbidden", "deployments/scale is forbidden")
    scene.decide(5)
    assert isinstance(await scene.reconcile(), After)
    assert scene.actuator.trouble(KEY).reason == "ActuationForbidden"
    scene.client.error = None
    await scene.reconcile()
    assert scene.actuator.trouble(KEY) == UNTROUBLED


async def test_a_deleted_target_is_no_error(scene):
    """It went between the decision and the write."""
    scene.client.error = NotFound(404, "NotFound", "gone")
    scene.decide(5)
    assert await scene.reconcile() == Done()
