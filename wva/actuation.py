"""Direct actuation: the controller writes the number to the ``scale`` subresource itself, right after the decision.

A VariantAutoscaling asks for it with ``wva.llmd.ai/actuation: direct``, and the process must be started with
``WVA_DIRECT_ACTUATION``, which also means that it has the rights. The other annotations of a VariantAutoscaling limit
how fast the target changes:

- ``scale-down-window``: replicas are removed only when no number within that time asked for them (as an HPA
  stabilizes);
- ``scale-up-per-minute`` and ``scale-down-per-minute``: how many replicas may be added and removed within a minute.

Nothing is written while another manager owns ``spec.replicas``, or while an HPA or a ScaledObject has the target.
Before each write the actuator reads the owners, and the write holds only for the version that it read, so nobody
becomes an owner in between. A manager that once wrote ``scale`` stays in the list of owners for ever: an HPA that was
deleted, or ``kubectl scale``. So the actuator takes the field over from those that wrote ``scale`` more than a minute
ago, and leaves it to all others, such as the manager of a manifest that sets the replicas. For custom resources the API
server notes such a manager without a time: its minute begins when this process first sees it.

The ``Actuated`` condition says what keeps the number from being written, also an error of the API server. Only the
leader writes, because its client has the write guard. A process that has just become the leader takes the existing
replicas as the number before its time, so that a change of leader makes no jump.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from wva import log
from wva.api.core import Namespace
from wva.api.meta import Key, parse_time
from wva.api.resource import Resource
from wva.api.variantautoscaling import VariantAutoscaling
from wva.clock import Clock
from wva.collect.resolution import CollectStores, resolve
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import After, Done, Result
from wva.kube.errors import ApiError, Conflict, Forbidden, NotFound, WriteRefused
from wva.kube.workqueue import WorkQueue
from wva.model.decision import Decision, Reason
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason, cause_of
from wva.model.variant import VariantKey
from wva.numbers import NumberError, Real, Whole
from wva.publish.ledger import Ledger
from wva.targets import ScaleTarget

MODE_ANNOTATION: Final = "wva.llmd.ai/mode"
ACTUATION_ANNOTATION: Final = "wva.llmd.ai/actuation"
WINDOW_ANNOTATION: Final = "wva.llmd.ai/scale-down-window"
UP_ANNOTATION: Final = "wva.llmd.ai/scale-up-per-minute"
DOWN_ANNOTATION: Final = "wva.llmd.ai/scale-down-per-minute"
VARIANT_METADATA: Final = "variantName"
"""The metadata key of the trigger that names the variant; without it, the variant is named like the ScaledObject."""
MANAGER: Final = "wva-direct-actuation"
"""The field manager of direct actuation."""
START_MANAGER: Final = "wva-start-from-zero"
"""The field manager of a start from zero. It does not keep the field, because direct actuation has the same number."""
_OURS: Final = frozenset({MANAGER, START_MANAGER})

WINDOW_SECONDS: Final = Real(0.0, 3600.0)
DEFAULT_WINDOW_SECONDS: Final = 300.0
"""That of an HPA."""
PER_MINUTE: Final = Whole(1, 10_000)
LEAST_UP: Final = 16
"""Replicas that may come within a minute by default, or a multiple of those that exist, whichever is more."""
UP_TIMES: Final = 15
"""An HPA may double the replicas each 15 s: within a minute, 15 times as many come."""
_MINUTE_SECONDS: Final = 60.0
_REFUSED_SECONDS: Final = 30.0
"""After so long the controller looks again whether the target is free."""
_LEFT_SECONDS: Final = 60.0
"""A manager that has not written ``scale`` for so long has left the field."""
_WRITE_SECONDS: Final = 30.0
"""How long reading the owners and writing the number may take."""
_LONGEST_BACKOFF_SECONDS: Final = 30.0
"""A target must not wait for long after the API server has come back."""
_LOST_RACES: Final = 3
"""Conflicts in a row that are usual: the status of a target in motion changes all the time."""
_NAMED_OWNERS: Final = 3
_SHOWN_CHARACTERS: Final = 60

_log = log.get("actuation")


class FieldOwner(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of ``metadata.managedFields``."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str | None = None
    fields_v1: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict, name="fieldsV1")

    @property
    def scaled(self) -> bool:
        """Whether the manager wrote through ``scale``. It stays in the list after it has left the field."""
        return self.operation == "Update" and self.subresource == "scale"


class _OwnedMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    managed_fields: tuple[FieldOwner, ...] = ()


class _OwnedSpec(msgspec.Struct, frozen=True):
    replicas: int = 1


class OwnedTarget(msgspec.Struct, frozen=True):
    """A scale target as the API server has it now: its replicas and their owners only.

    ``read_at`` is the time of the answer by the clock of the API server (epoch seconds), None if it did not say.
    """

    metadata: _OwnedMeta = _OwnedMeta()
    spec: _OwnedSpec = _OwnedSpec()
    read_at: float | None = None

    def owners(self, left: Collection[str] = ()) -> list[str]:
        """Return the names of the other managers that own the replicas; those in ``left`` do not count.

        The times of their writes are compared only with the clock of the API server, because it wrote them.
        """
        now = self.read_at
        if now is None:  # the time of the newest write is the best estimate
            now = max(
                [parse_time(entry.time) or -math.inf for entry in self.metadata.managed_fields], default=-math.inf
            )
        owners = []
        for entry in self.others:
            at = parse_time(entry.time)
            gone = entry.manager in left if entry.time is None else at is not None and now - at > _LEFT_SECONDS
            if not (entry.scaled and gone):
                owners.append(entry.manager)
        return owners

    @property
    def unstamped(self) -> list[str]:
        """The managers that wrote the replicas through ``scale``, at a time that the API server did not note."""
        return [entry.manager for entry in self.others if entry.scaled and entry.time is None]

    @property
    def others(self) -> list[FieldOwner]:
        """The entries that have the replicas, except those of WVA."""
        managed = self.metadata.managed_fields
        return [
            entry
            for entry in managed
            if "f:replicas" in entry.fields_v1.get("f:spec", {}) and entry.manager not in _OURS
        ]


class _OwnedList(msgspec.Struct, frozen=True):
    items: tuple[OwnedTarget, ...] = ()


async def owned_target(client: KubeClient, resource: Resource[Any], key: Key) -> OwnedTarget:
    """Return the replicas of a target and their owners. Raises NotFound, and other errors of the client."""
    # A list of one object, because the controller may list targets anyway.
    query = urlencode({"fieldSelector": f"metadata.name={key.name}"})
    answer, read_at = await client.request_dated_json("GET", f"{resource.path(key.namespace)}?{query}")
    targets = msgspec.json.decode(answer, type=_OwnedList).items
    if not targets:
        raise NotFound(404, "NotFound", "the target is gone", attempted=f"read {key}")
    return msgspec.structs.replace(targets[0], read_at=read_at)


class Mode(StrEnum):
    """Whether the number of a variant is meant for its target; the values are those of the annotation."""

    ACT = "act"
    SHADOW = "shadow"


class Actuation(StrEnum):
    """What applies the number; the values are those of the annotation."""

    SCALER = "scaler"
    DIRECT = "direct"
    KEDA_PUSH = "keda-push"


@dataclass(frozen=True, slots=True)
class ScalePace:
    """How fast a target may change; None means no limit of its own."""

    window_seconds: float = DEFAULT_WINDOW_SECONDS
    up_per_minute: int | None = None
    down_per_minute: int | None = None


def mode_of(va: VariantAutoscaling, namespace: Namespace | None) -> Mode:
    """Return the mode of a VA: its own annotation wins over that of its namespace; a wrong value is ignored."""
    for metadata in (va.metadata, None if namespace is None else namespace.metadata):
        text = "" if metadata is None else metadata.annotations.get(MODE_ANNOTATION, "")
        if text in list(Mode):
            return Mode(text)
    return Mode.ACT


def actuation_of(va: VariantAutoscaling) -> Actuation:
    """Return what applies the number of a VA; its scaler if the annotation is absent or wrong."""
    text = va.metadata.annotations.get(ACTUATION_ANNOTATION, "")
    return Actuation(text) if text in list(Actuation) else Actuation.SCALER


def pace_of(va: VariantAutoscaling) -> ScalePace:
    """Return how fast the target of a VA may change; an annotation that is wrong counts as absent."""
    annotations = va.metadata.annotations
    window = _window(annotations.get(WINDOW_ANNOTATION))
    return ScalePace(
        DEFAULT_WINDOW_SECONDS if window is None else window,
        PER_MINUTE.find(annotations.get(UP_ANNOTATION)),
        PER_MINUTE.find(annotations.get(DOWN_ANNOTATION)),
    )


def actuation_problems(va: VariantAutoscaling, *, enabled: bool, push: bool = False) -> list[str]:
    """Return a line for people about each annotation of actuation that is not in force."""
    annotations, lines = va.metadata.annotations, []
    text = annotations.get(MODE_ANNOTATION)
    if text is not None and text not in list(Mode):
        expected, in_force = " or ".join(Mode), "the mode of the namespace, else act"
        lines.append(str(NumberError(f"annotation {MODE_ANNOTATION}", text, expected=expected, in_force=in_force)))
    text = annotations.get(ACTUATION_ANNOTATION)
    if text is not None and text not in list(Actuation):
        expected = " or ".join(Actuation)
        lines.append(str(NumberError(f"annotation {ACTUATION_ANNOTATION}", text, expected=expected, in_force="scaler")))
    elif text == Actuation.DIRECT and not enabled:
        lines.append(
            f"annotation {ACTUATION_ANNOTATION}: direct actuation is not switched on (WVA_DIRECT_ACTUATION); in force: "
            "scaler"
        )
    elif text == Actuation.KEDA_PUSH and not push:
        lines.append(
            f"annotation {ACTUATION_ANNOTATION}: the server for KEDA is not switched on (--keda-push-bind-address); "
            "in force: scaler"
        )
    window = annotations.get(WINDOW_ANNOTATION)
    if window is not None and _window(window) is None:
        expected, in_force = "a duration from 0s to 1h", f"{DEFAULT_WINDOW_SECONDS:g} s"
        lines.append(str(NumberError(f"annotation {WINDOW_ANNOTATION}", window, expected=expected, in_force=in_force)))
    for name in (UP_ANNOTATION, DOWN_ANNOTATION):
        text = annotations.get(name)
        if text is not None and PER_MINUTE.find(text) is None:
            expected, in_force = PER_MINUTE.expected, "the default"
            lines.append(str(NumberError(f"annotation {name}", text, expected=expected, in_force=in_force)))
    return lines


def _write_inputs(va: VariantAutoscaling) -> tuple[object, ...]:
    """Return the parts of a VA that decide what to write."""
    return va.metadata.uid, va.metadata.deleting, va.metadata.annotations, va.spec


def _window(text: str | None) -> float | None:
    try:
        return None if text is None else WINDOW_SECONDS.find(parse_duration(text))
    except ValueError:
        return None


@dataclass(slots=True)
class ScaleHistory:
    """The recent numbers and changes of one target, and the number that they allow. Times are monotonic.

    ``numbers`` are desired numbers, ``changes`` what was written; both with their times, the oldest first.
    """

    numbers: deque[tuple[float, int]] = field(default_factory=deque)
    changes: deque[tuple[float, int]] = field(default_factory=deque)
    first_seen: dict[str, float] = field(default_factory=dict)
    """Managers whose writes have no time, with the time when each was first seen."""

    def left(self, unstamped: Iterable[str], now: float) -> list[str]:
        """Return those of ``unstamped`` that were first seen more than a minute ago, and forget all other managers."""
        self.first_seen = {name: self.first_seen.get(name, now) for name in unstamped}
        return [name for name, at in self.first_seen.items() if now - at > _LEFT_SECONDS]

    def allowed(self, desired: int, current: int, pace: ScalePace, now: float) -> tuple[int, float | None]:
        """Return the number to write, and after how many seconds another one may be allowed; None: after a change."""
        if not self.numbers:
            self.numbers.append((now, current))  # what exists is what was wanted before this process looked
        self.numbers.append((now, desired))
        # The newest number from before the window was in force when it began.
        while len(self.numbers) > 1 and self.numbers[1][0] <= now - pace.window_seconds:
            self.numbers.popleft()
        while self.changes and self.changes[0][0] <= now - _MINUTE_SECONDS:
            self.changes.popleft()
        number, wait_seconds = desired, None
        if desired < current:
            in_window = [(at, past) for at, past in self.numbers if at > now - pace.window_seconds]
            if self.numbers[0][0] <= now - pace.window_seconds:
                in_window.append((now - pace.window_seconds, self.numbers[0][1]))
            highest = max([past for _, past in in_window], default=desired) if pace.window_seconds > 0 else desired
            number = min(current, max(desired, highest))
            if number > desired:
                wait_seconds = min(at for at, past in in_window if past > desired) + pace.window_seconds - now
        added = sum(change for _, change in self.changes if change > 0)
        removed = -sum(change for _, change in self.changes if change < 0)
        up = pace.up_per_minute or max(LEAST_UP, UP_TIMES * current)
        limited = min(number, current + max(0, up - added))
        if pace.down_per_minute is not None:
            limited = max(limited, min(current, current - max(0, pace.down_per_minute - removed)))
        if limited != number and self.changes:
            wait_seconds = min(filter(None, (wait_seconds, self.changes[0][0] + _MINUTE_SECONDS - now)))
        return limited, None if wait_seconds is None else max(1.0, wait_seconds)

    def wrote(self, change: int, now: float) -> None:
        """Note a change that was written."""
        self.changes.append((now, change))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The number that a decision asks for at a time (monotonic seconds), and how fast its target may follow."""

    history: ScaleHistory
    desired: int
    pace: ScalePace
    now: float

    def allowed(self, current: int) -> tuple[int, float | None]:
        """Return the number to write in place of ``current``, and after how many seconds another one may be allowed."""
        return self.history.allowed(self.desired, current, self.pace, self.now)


class DirectActuator:
    """Reconciles the targets of the variants that ask for direct actuation."""

    def __init__(
        self,
        *,
        client: KubeClient,
        stores: CollectStores,
        ledger: Ledger,
        revisit: Callable[[Key], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Prepare the queue; nothing is subscribed before ``watch``.

        ``client`` writes only while this process leads. ``revisit`` lets the status of a VA be computed again.
        """
        self._client = client
        self._stores = stores
        self._ledger = ledger
        self._revisit = revisit
        self._clock = clock
        self._histories: dict[Key, ScaleHistory] = {}
        self._troubles: dict[Key, Trouble] = {}
        self.queue: WorkQueue[Key] = WorkQueue(
            "actuation", clock=clock, instruments=instruments, cap_seconds=_LONGEST_BACKOFF_SECONDS
        )

    def watch(self) -> None:
        """Follow the ledger and the VariantAutoscalings."""

        def on_decision(key: VariantKey, _old: Decision | None, new: Decision | None) -> None:
            va_key = Key(key.namespace, key.name)
            # The queue tries a failed write again in time, with the number in force then.
            if new is not None and self._wanted(va_key) and not self.queue.backing_off(va_key):
                self.queue.add(va_key)

        def on_va(old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
            va = new or old
            if old is not None and new is not None and _write_inputs(old) == _write_inputs(new):
                return  # each failure is written to the status, and this must not cause the next try
            if va is not None and (va.metadata.key in self._histories or actuation_of(va) is Actuation.DIRECT):
                self.queue.add(va.metadata.key)

        self._ledger.subscribe(on_decision)
        self._stores.variant_autoscalings.subscribe(on_va)

    def trouble(self, key: Key) -> Trouble:
        """Return why the number of a VA is not written; falsy if it is, or if a scaler applies it."""
        return self._troubles.get(key, UNTROUBLED)

    def _wanted(self, key: Key) -> bool:
        va = self._stores.variant_autoscalings.get(key)
        if self._ledger.shadow(VariantKey(key.namespace, key.name)):
            return False
        return va is not None and not va.metadata.deleting and actuation_of(va) is Actuation.DIRECT

    async def reconcile(self, key: Key) -> Result:
        """Write the number of one VA, if it may be written.

        An error is noted for the status and then raised, so that the queue tries again.
        """
        va = self._stores.variant_autoscalings.get(key)
        if va is None or not self._wanted(key):
            self._histories.pop(key, None)
            self._settle(key, UNTROUBLED)
            return Done()
        decision = self._ledger.get(VariantKey(key.namespace, key.name))
        target = resolve(va, vas=self._stores.variant_autoscalings, targets=self._stores.targets).target
        if target is None:
            self._settle(key, UNTROUBLED)  # the status says that it is not there
            return Done()
        if decision is None or decision.held or decision.reason is Reason.INACTIVE:
            return Done()  # a held number is the one that is in force
        scaled_objects, hpas = self._stores.scalers.of(va)
        owners = [f"ScaledObject {scaled_object.metadata.name}" for scaled_object in scaled_objects]
        owners += [f"HorizontalPodAutoscaler {scaled_object.metadata.name}" for scaled_object in hpas]
        if owners:
            message = f"{' and '.join(owners)} scales the target: delete it, or set {ACTUATION_ANNOTATION}=scaler"
            self._settle(key, Trouble(TroubleReason.ACTUATION_SCALER.value, message))
            return After(_REFUSED_SECONDS)
        history = self._histories.setdefault(key, ScaleHistory())
        wanted = _Wanted(history, decision.desired, pace_of(va), self._clock.monotonic())
        number, wait_seconds = wanted.allowed(target.spec_replicas)
        if number != target.spec_replicas:
            try:
                trouble, wait_seconds = await self._write(key, target, wanted)
            except NotFound:
                return Done()  # it was deleted meanwhile
            if trouble:
                self._settle(key, trouble)
                return After(_REFUSED_SECONDS)
        self._settle(key, UNTROUBLED)
        return Done() if wait_seconds is None else After(wait_seconds)

    async def _write(self, key: Key, target: ScaleTarget, wanted: _Wanted) -> tuple[Trouble, float | None]:
        """Write the replicas of the target of a VA, and return after how many seconds more may be written.

        If it returns a trouble, nothing was written, and nothing will be for now. Raises NotFound, WriteRefused, and
        every other error after it was noted for the status, so that the queue tries again.
        """
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                owners, wait_seconds = await self._write_unless_owned(key, target, wanted)
        except (NotFound, WriteRefused):  # it was deleted meanwhile; this process does not lead
            raise
        except Forbidden as error:
            return Trouble(TroubleReason.ACTUATION_FORBIDDEN.value, log.printable(str(error))), None
        except Exception as error:
            if not isinstance(error, Conflict) or self.queue.retries(key) >= _LOST_RACES:
                message = log.printable(str(error)) if isinstance(error, ApiError) else cause_of(error)
                self._settle(key, Trouble(TroubleReason.ACTUATION_FAILED.value, message))
            raise
        if not owners:
            return UNTROUBLED, wait_seconds
        names = ", ".join(log.printable(owner[:_SHOWN_CHARACTERS]) for owner in owners[:_NAMED_OWNERS])
        more = f" and {len(owners) - _NAMED_OWNERS} more" if len(owners) > _NAMED_OWNERS else ""
        message = f"{names}{more} owns spec.replicas: leave the replicas out of what it applies"
        return Trouble(TroubleReason.ACTUATION_OWNED.value, message), None

    async def _write_unless_owned(
        self, key: Key, target: ScaleTarget, wanted: _Wanted
    ) -> tuple[list[str], float | None]:
        """Write the replicas of a target unless others own them; return these owners, and when more may be written.

        The cache may not have our own last write yet, so the replicas are those that the API server has now. Raises
        NotFound, Forbidden, Conflict when the target has changed meanwhile, and other errors of the client.
        """
        resource = self._stores.targets.kind_of(target).resource
        live = await owned_target(self._client, resource, target.metadata.key)
        owners = live.owners(wanted.history.left(live.unstamped, wanted.now))
        if owners:
            return owners, None
        before, version = max(0, live.spec.replicas), live.metadata.resource_version
        number, wait_seconds = wanted.allowed(before)
        if number != before:
            await self._client.scale(resource, target.metadata.key, number, version=version, manager=MANAGER)
            wanted.history.wrote(number - before, wanted.now)
            _log.info("scaled", variant=str(key), before=before, replicas=number, desired=wanted.desired)
        return [], wait_seconds

    def _settle(self, key: Key, trouble: Trouble) -> None:
        """Note a trouble or its end, and let the status say it."""
        if self._troubles.get(key, UNTROUBLED) == trouble:
            return
        if trouble:
            self._troubles[key] = trouble
        else:
            self._troubles.pop(key, None)
        self._revisit(key)
