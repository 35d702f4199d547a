"""The optimizer loop: collect, decide, publish, once per interval.

The first cycle runs once every cache has synced, so no decision comes from half of the objects. An interval lies
between the starts of two cycles, also when it changes while the loop waits. Cycles never overlap. The loop logs and
counts a failed cycle and goes on: the numbers published last stay, and their decisions say so. After a failure of one
model or variant, WVA holds only this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from wva import log
from wva.clock import Clock
from wva.config.live import LiveConfiguration
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Cycle, Recording
from wva.instruments import Instruments
from wva.model.decision import HOLD_REASONS, Decision, Reason, Source
from wva.model.memory import Memory, VariantMemory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey, VariantKey
from wva.publish.announce import announcements, log_decision
from wva.publish.cycle_log import log_models
from wva.publish.ledger import Ledger, fallbacks
from wva.slices import Slices, beside, forget

FAILED_CYCLES: Final = 3
"""After so many failed cycles in a row the process is not ready, since its numbers do not follow the load."""

STUCK_SECONDS: Final = 300.0
"""A cycle that takes so much longer than the interval counts as stuck. Its longest part, the queries, has 20 s."""

_REPLICAS_PER_VARIANT: Final = 10
"""Deciding on this many replicas costs about as much as deciding on a variant."""

_SHORTEST_INTERVAL_SECONDS: Final = 0.01

_log = log.get("optimizer")


@dataclass(slots=True, kw_only=True, eq=False)
class OptimizerLoop:
    """Runs the cycles. The loop takes numbers and times from the status of each VA.

    ``known`` tells whether a variant is still there when its decision is published: it may have been deleted while
    Prometheus was being asked. ``announce`` records an event. ``refuse`` puts the configuration of a namespace out of
    force, for a cause. ``keep`` keeps a cycle once its decisions are published. Each cycle runs within ``around``.
    ``learned`` returns once what cycles before a time would have learned; None later, and as long as it is not known.
    """

    collect: Callable[[float], Awaitable[Snapshot]]
    known: Callable[[VariantKey], bool]
    announce: Callable[[VariantKey, str, str, str], None]
    refuse: Callable[[str, str], None] = lambda _namespace, _cause: None
    keep: Callable[[Cycle], Awaitable[None]] | None = None
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    learned: Callable[[float], Awaitable[Memory | None]] | None = None
    configuration: LiveConfiguration
    ledger: Ledger
    clock: Clock
    instruments: Instruments

    busy: bool = field(default=True, init=False)
    """False only while the loop waits for its next turn."""
    _memory: Memory = field(default_factory=Memory, init=False)
    _changed: dict[VariantKey, VariantMemory | None] = field(default_factory=dict, init=False)
    """Changes that ``_memory`` does not have yet: entries since the last cycle, None for dropped variants."""
    _overtaken: set[VariantKey] = field(default_factory=set, init=False)
    """Variants that were dropped or started from zero while the cycle ran."""
    _throttle: log.Throttle = field(default_factory=log.Throttle, init=False)
    _failed: int = field(default=0, init=False)
    _cause: str = field(default="", init=False)
    began: float = field(default=float("-inf"), init=False)
    """When the last cycle began, and ``due`` when the next one will, in monotonic seconds."""
    due: float = field(default=float("-inf"), init=False)
    grew: bool = field(default=False, init=False)
    """Whether the last cycle asked for more replicas of a variant than the one before."""
    _running: bool = field(default=False, init=False)
    _urgent: tuple[ModelKey, ...] = field(default=(), init=False)
    """The models for which the cycle that runs, or is about to, begins before its time; empty if it begins in time."""
    ceilings: Mapping[ModelKey, float] = field(default_factory=dict, init=False)
    """The requests in progress that the replicas of each model carry, as of the last cycle; only where it is known."""
    retentions: Mapping[ModelKey, float] = field(default_factory=dict, init=False)
    """The seconds without a request after which each model may go to zero, as of the last cycle."""

    def __post_init__(self) -> None:
        """Subscribe to the ledger, and create the series of holds for each reason."""
        self.ledger.subscribe(self._follow)
        for reason in HOLD_REASONS:
            self.instruments.holds.labels(reason.value)

    async def run(self) -> None:
        """Run cycles until cancelled."""
        self.instruments.last_cycle.set(self.clock.now())
        while True:
            self.busy = True
            self.began, self._running = self.clock.monotonic(), True
            with self.around():
                try:
                    await self.cycle()
                except Exception as error:  # noqa: BLE001 - the numbers published last stay
                    self._failed, self._cause = self._failed + 1, cause_of(error)
                    _log.exception("cycle_failed", in_force="the numbers published last", in_a_row=self._failed)
                    self.instruments.cycles.labels("error").inc()
                    times = f"the last {FAILED_CYCLES} cycles" if self._failed >= FAILED_CYCLES else "the cycle"
                    await self._publish(fallbacks(self.ledger.decisions(), cause=f"{times} failed: {self._cause}"))
                else:
                    self._failed = 0
                    self.instruments.cycles.labels("success").inc()
                    self.instruments.last_cycle.set(self.clock.now())
            self._running = False
            self._urgent = ()

            # Wait for the rest of the interval, which may change meanwhile.
            while True:
                interval = max(self.configuration.interval_seconds, _SHORTEST_INTERVAL_SECONDS)
                self.instruments.cycle_interval.set(interval)
                self.due = self.began + interval
                left = self.due - self.clock.monotonic()
                if left <= 0 or self._urgent:
                    break
                self.configuration.changed.clear()
                self.busy = False
                await self.clock.wait(self.configuration.changed, left)
                self.busy = True
            # Watches, probes and the renewal of the Lease must run even if cycles always overrun.
            await asyncio.sleep(0)
            if -left > self.configuration.interval_seconds:
                _log.warning("cycle_overran", late_seconds=round(-left, 3))

    def wake(self, models: Collection[ModelKey]) -> None:
        """Begin the next cycle now, for these models; nothing happens while a cycle runs."""
        if not self.busy:
            self.busy, self._urgent = True, tuple(sorted(models))
            self.configuration.changed.set()

    def not_ready(self) -> str | None:
        """Return for ``/readyz`` why cycles fail; None unless the last ``FAILED_CYCLES`` failed."""
        if self._failed < FAILED_CYCLES:
            return None
        return f"optimizer: {self._failed} cycles in a row failed: {self._cause}"

    def stuck(self, now: float) -> str | None:
        """Return for ``/healthz`` that a cycle is stuck; None if none is. ``now`` is in monotonic seconds."""
        if not self._running:
            return None
        seconds = now - self.began
        limit = self.configuration.interval_seconds + STUCK_SECONDS
        return f"optimizer: a cycle has not ended for {seconds:.0f} s" if seconds > limit else None

    def _follow(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:  # noqa: ARG002 - listener
        """Forget a dropped variant, and begin a variant without history with the replicas that exist.

        If a workload is replaced during a cycle, it counts as a new one, although the cycle still has the former one.
        If a workload is started from zero during a cycle that saw it at zero, this cycle must not undo the start.
        """
        started = new is not None and new.reason is Reason.SCALE_FROM_ZERO
        begins = new is not None and new.reason is Reason.NOT_DECIDED and new.previous is None
        if new is not None and not begins and not started:
            return
        if new is None or started:
            self._overtaken.add(key)
        if new is None:
            self._changed[key] = None
        else:
            decided = new.source is not Source.CURRENT_REPLICAS
            self._changed[key] = VariantMemory(key, new.desired, None, new.coverage.expected, decided)

    async def cycle(self) -> list[Decision]:
        """Run one cycle and return its decisions. Raises every error of collecting and deciding."""
        duration = self.instruments.cycle_duration
        now = self.clock.now()
        self._overtaken.clear()
        if self.learned is not None and (learned := await self.learned(now)) is not None:
            self._memory = replace(learned, variants=self._memory.variants)
            now = self.clock.now()
        with duration.labels("collect").time():
            snapshot = replace(await self.collect(now), woken=bool(self._urgent), urgent=self._urgent)
        if self._changed:
            self._memory = _with_variants(self._memory, self._changed)
            self._changed.clear()
        policy = self.configuration.policy
        # Variants in shadow mode start from what exists: nothing follows their numbers.
        entries = (
            replace(entry, decided=False) if self.ledger.shadow(entry.key) else entry for entry in self._memory.variants
        )
        memory = replace(self._memory, variants=tuple(entries))
        with duration.labels("decide").time():
            size = len(snapshot.variants) + len(snapshot.replicas) // _REPLICAS_PER_VARIANT
            outcome = await beside(size, partial(conclude, snapshot, memory, policy, now))
        self._memory, self.ceilings, self.retentions = outcome.memory, outcome.ceilings, outcome.retentions
        self.grew = outcome.grew
        if self._overtaken:
            # Take the memory of the cycle, but keep the earlier memory of variants that changed meanwhile.
            earlier = memory.by_key() | self._changed
            self._memory = _with_variants(outcome.memory, {key: earlier.get(key) for key in self._overtaken})
        for failure in outcome.failures:
            self._tell_failure(failure.model, failure.cause, failure.error)
        # A namespace's configuration that made deciding fail goes out of force. If it has changed since, the next cycle
        # judges it.
        if outcome.refused:
            judged = {local.namespace: local for local in policy.namespaces}
            in_force = {local.namespace: local for local in self.configuration.policy.namespaces}
            for namespace, cause in outcome.refused:
                _log.error("namespace_configuration_failed", namespace=namespace, cause=cause)
                if in_force.get(namespace) == judged[namespace]:
                    try:
                        self.refuse(namespace, cause)
                    except Exception:  # noqa: BLE001 - each cycle decides without it anyway
                        _log.exception("configuration_not_refused", namespace=namespace)
        cycle = Cycle(Recording(now, policy, memory, snapshot, outcome.decisions), outcome)
        log_models(_log, cycle)
        with duration.labels("publish").time():
            published = await self._publish(outcome.decisions)
        if self.keep is not None:
            try:
                await self.keep(cycle)
            except Exception:  # noqa: BLE001 - the decisions do not depend on it
                _log.exception("cycle_not_kept")
        to_free = [*snapshot.replicas, *memory.demand, *memory.foreseen, *memory.models]
        del snapshot, memory, cycle
        await forget(to_free)
        return published

    def _tell_failure(self, model: ModelKey, cause: str, error: Exception) -> None:
        if self._throttle.permits(model, cause, self.clock.monotonic()):
            _log.error("model_failed", model=str(model), cause=cause, exc_info=error)

    async def _publish(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Publish the decisions, but not on variants that were dropped or started while the cycle ran.

        No await is between the check of a decision and its record, so no cache changes between.
        """
        published, slices = [], Slices()
        for decision in decisions:
            await slices.rest()
            previous = self.ledger.get(decision.key)
            try:
                if decision.key in self._overtaken or not self.known(decision.key):
                    continue
                for announcement in () if self.ledger.shadow(decision.key) else announcements(previous, decision):
                    self.announce(decision.key, *announcement)
                if decision.held:
                    self.instruments.holds.labels(decision.reason.value).inc()
                log_decision(_log, decision)
                self.ledger.record([decision])
            except Exception as error:  # noqa: BLE001 - the other decisions are still published
                # The variant keeps its former number.
                cause = f"publishing failed: {cause_of(error)}"
                self._tell_failure(decision.model, cause, error)
                self.instruments.holds.labels(Reason.MODEL_FAILED.value).inc()
                if previous is not None:
                    entry = next((entry for entry in self._memory.variants if entry.key == decision.key), None)
                    if entry is not None:
                        self._changed[decision.key] = replace(entry, desired=previous.desired)
                    with suppress(Exception):  # the failure has been logged
                        self.ledger.record(fallbacks([previous], cause=cause, reason=Reason.MODEL_FAILED))
            else:
                published.append(decision)
        return published


def _with_variants(memory: Memory, changes: dict[VariantKey, VariantMemory | None]) -> Memory:
    """Return the memory with these entries of variants; None removes one."""
    entries = (entry for entry in (memory.by_key() | changes).values() if entry is not None)
    return replace(memory, variants=tuple(sorted(entries, key=lambda entry: entry.key)))
