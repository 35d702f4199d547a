"""Notices another writer of a target's replicas, such as GitOps that puts back what a manifest says.

A write that takes replicas away although no number of the last minutes asked for so few comes neither from WVA nor from
a scaler that follows it. The decision gets the time of the last such write with the variant, and then does not regard
the requests that wait as a greater load (``decide.foresee``). From the second write within an hour on, the condition
``Actuated`` names the writer: the manager that owns the replicas right after the write. By then, a scaler may have set
the number again and own them instead, and the API server notes no managers for some writes: then the condition says
"another writer".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from wva import log
from wva.actuation import owned_target
from wva.api.meta import Key, parse_time
from wva.clock import Clock
from wva.collect.resolution import TARGET_INDEX, CollectStores
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import After, Done, Result
from wva.kube.errors import NotFound
from wva.kube.workqueue import WorkQueue
from wva.model.decision import Decision
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import Variant, VariantKey
from wva.publish.ledger import Ledger
from wva.targets import ScaleTarget

FOLLOWS_SECONDS: Final = 600.0
"""A scaler may still follow a number that is so old: an HPA shrinks after five minutes by default."""
KEPT_SECONDS: Final = 3600.0
LEAST_WRITES: Final = 2
"""A single write may be that of a person."""
_MOST_WRITES: Final = 100
_SHOWN_CHARACTERS: Final = 60
_UNKNOWN: Final = "another writer"
_SCALERS: Final = ("kube-controller-manager", "horizontal-pod-autoscaler", "keda")


@dataclass(slots=True)
class _Watched:
    """A variant: its numbers and the writes of others, each with its time, the oldest first. Times are monotonic."""

    numbers: deque[tuple[float, int]] = field(default_factory=deque)
    writes: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MOST_WRITES))
    manager: str = _UNKNOWN


class OtherWriters:
    """Follows the numbers of the ledger and the replicas of the targets."""

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
        """Prepare the queue; nothing is subscribed before ``watch``. ``revisit`` lets a status be computed again."""
        self._client = client
        self._stores = stores
        self._ledger = ledger
        self._revisit = revisit
        self._clock = clock
        self._watched: dict[VariantKey, _Watched] = {}
        self.queue: WorkQueue[Key] = WorkQueue("other-writers", clock=clock, instruments=instruments)

    def watch(self) -> None:
        """Follow the ledger and the targets."""
        self._ledger.subscribe(self._on_decision)
        self._stores.targets.subscribe(self._on_target)

    def apply(self, variant: Variant, now: float) -> Variant:
        """Return the variant with the time of the last write that took replicas away, as it is seen at ``now``.

        Both times are in seconds since the epoch. The clock that tells them may have been set meanwhile.
        """
        watched = self._watched.get(variant.key)
        if watched is None or not watched.writes:
            return variant
        return replace(variant, taken_at=now - (self._clock.monotonic() - watched.writes[-1][0]))

    def trouble(self, key: Key) -> Trouble:
        """Return who puts the replicas of a VA back; falsy if nobody does."""
        watched, now = self._watched.get(VariantKey(*key)), self._clock.monotonic()
        recent = [] if watched is None else [write for write in watched.writes if now - write[0] < KEPT_SECONDS]
        if watched is None or len(recent) < LEAST_WRITES:
            return UNTROUBLED
        message = (
            f"{watched.manager} has put spec.replicas below the number {len(recent)} times within an hour, last to "
            f"{recent[-1][1]}: leave the replicas out of what it applies"
        )
        return Trouble(TroubleReason.ACTUATION_REWRITTEN.value, message)

    async def reconcile(self, key: Key) -> Result:
        """Find out who owns the replicas after a write, for the condition. Raises ApiError, to be retried."""
        watched, va = self._watched.get(VariantKey(*key)), self._stores.variant_autoscalings.get(key)
        target = None if va is None else self._stores.targets.named(va)
        if watched is None or not watched.writes or target is None:
            return Done()
        self._revisit(key)
        age = self._clock.monotonic() - watched.writes[-1][0]
        if age >= KEPT_SECONDS:
            watched.writes.clear()
            return Done()
        try:
            live = await owned_target(self._client, self._stores.targets.kind_of(target).resource, target.metadata.key)
        except NotFound:
            return Done()
        others = [entry for entry in live.others if not entry.manager.startswith(_SCALERS)]
        if others:
            newest = max(others, key=lambda entry: parse_time(entry.time) or 0.0)
            watched.manager = log.printable(newest.manager[:_SHOWN_CHARACTERS]) or _UNKNOWN
            self._revisit(key)
        return After(KEPT_SECONDS - age)

    def _on_decision(self, key: VariantKey, _old: Decision | None, new: Decision | None) -> None:
        if new is None:
            self._watched.pop(key, None)
            return
        numbers, now = self._watched.setdefault(key, _Watched()).numbers, self._clock.monotonic()
        if not numbers or numbers[-1][1] != new.desired:
            numbers.append((now, new.desired))
        # The newest number from before was in force when the time began.
        while len(numbers) > 1 and numbers[1][0] <= now - FOLLOWS_SECONDS:
            numbers.popleft()

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        if old is None or new is None or new.spec_replicas >= old.spec_replicas:
            return
        if old.metadata.uid != new.metadata.uid:
            return
        for va in self._stores.variant_autoscalings.by_index(TARGET_INDEX, self._stores.targets.key_of(new))[:1]:
            key = VariantKey(*va.metadata.key)
            watched = self._watched.get(key)
            asked_numbers = () if watched is None else [number for _, number in watched.numbers]
            if (
                watched is not None
                and asked_numbers
                and new.spec_replicas < min(asked_numbers)
                and not self._ledger.shadow(key)
            ):
                watched.writes.append((self._clock.monotonic(), new.spec_replicas))
                self.queue.add(va.metadata.key)
