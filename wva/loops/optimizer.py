"""The optimizer loop: collect, decide, publish, once per interval.

The first cycle runs as soon as every cache has synced; deciding earlier would mean deciding on half a world. Cycles
start one interval apart (not one interval after the last ended), never overlap, and an interval that changes while the
loop waits counts from the start of the last cycle. A failing cycle is logged and counted, and the loop goes on: the
numbers published last stay, and say so. What fails for one model or one variant holds that one alone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Final, Protocol

from wva import log
from wva.clock import Clock
from wva.decide.outcome import Outcome
from wva.decide.pipeline import conclude
from wva.instruments import Instruments
from wva.model.decision import HOLD_REASONS, Decision, Reason, Source
from wva.model.failures import cause_of
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import NamespacePolicy, Policy
from wva.model.recording import Recording
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey
from wva.publish.announce import announcements, log_decision
from wva.publish.fallback import fallbacks
from wva.publish.ledger import Ledger
from wva.slices import Slices, beside, forget

FAILED_CYCLES: Final = 3
"""So many failed cycles in a row make the process unready: its numbers do not follow the load."""

STUCK_SECONDS: Final = 300.0
"""A cycle that has run for this long beyond the interval will not end: queries, the longest part, have 20 s."""

_REPLICAS_PER_VARIANT: Final = 10
"""That cost about as much to decide on as a variant does."""

_SHORTEST_INTERVAL_SECONDS: Final = 0.01


class Configuration(Protocol):
    """The part of the live configuration that the loop follows."""

    changed: asyncio.Event

    @property
    def policy(self) -> Policy:
        """What the decisions obey."""
        ...

    @property
    def interval_seconds(self) -> float:
        """Time between the starts of two cycles."""
        ...


class OptimizerLoop:
    """Runs the cycles."""

    def __init__(
        self,
        *,
        collect: Callable[[float], Awaitable[Snapshot]],
        known: Callable[[VariantKey], bool],
        announce: Callable[[VariantKey, str, str, str], None],
        record: Callable[[Recording], Awaitable[None]] | None = None,
        refuse: Callable[[str, str], None] = lambda _namespace, _cause: None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        configuration: Configuration,
        ledger: Ledger,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Start with an empty memory: what matters of it is rebuilt from the VA status.

        ``collect`` builds the Snapshot. ``known`` tells whether a variant is still there when its decision is published
        (it may have been deleted while Prometheus was being asked). ``announce`` records a Kubernetes event, ``record``
        keeps a recording of the cycle. ``refuse`` puts the configuration of a namespace out of force, and takes the
        cause. Each cycle runs within ``around``.
        """
        self._collect = collect
        self._known = known
        self._announce = announce
        self._write_recording = record
        self._refuse = refuse
        self._around = around
        self._configuration = configuration
        self._ledger = ledger
        self._clock = clock
        self._instruments = instruments
        self._logger = log.get("optimizer")
        self._memory = Memory()
        self._changed: dict[VariantKey, VariantMemory | None] = {}
        """What ``_memory`` does not have yet: entries that changed since the last cycle, None for those that went."""
        self._overtaken: set[VariantKey] = set()
        self._throttle = log.Throttle()
        self._failed = 0
        self._cause = ""
        self._started: float | None = None
        ledger.subscribe(self._follow)
        for reason in HOLD_REASONS:
            instruments.holds.labels(reason.value)
        self.busy = True
        """False only while the loop waits for its next turn."""

    async def run(self) -> None:
        """Run cycles until cancelled."""
        self._instruments.last_cycle.set(self._clock.now())
        while True:
            self.busy = True
            self._started = started = self._clock.monotonic()
            with self._around():
                await self._guarded_cycle()
            self._started = None
            await self._wait(started)

    def not_ready(self) -> str | None:
        """Return that cycles fail, and why, for ``/readyz``; None when they do not, or have not for long."""
        if self._failed < FAILED_CYCLES:
            return None
        return f"optimizer: {self._failed} cycles in a row failed: {self._cause}"

    def stuck(self, now: float) -> str | None:
        """Return that a cycle does not end, for ``/healthz``; None when none does. ``now`` is in monotonic seconds."""
        if self._started is None:
            return None
        seconds = now - self._started
        limit = self._configuration.interval_seconds + STUCK_SECONDS
        return f"optimizer: a cycle has not ended for {seconds:.0f} s" if seconds > limit else None

    async def _wait(self, started: float) -> None:
        """Wait for the rest of the interval, also if the interval changes meanwhile.

        A cycle need not wait for anything itself. An interval of next to nothing, or cycles that always overrun, must
        not keep other tasks from running: watches, probes, the renewal of the lease.
        """
        while (left := started + self._rest_seconds() - self._clock.monotonic()) > 0:
            self._configuration.changed.clear()
            self.busy = False
            await self._clock.wait(self._configuration.changed, left)
            self.busy = True
        await asyncio.sleep(0)
        overrun = -left
        if overrun > self._configuration.interval_seconds:
            self._logger.warning("cycle_overran", late_seconds=round(overrun, 3))

    def _rest_seconds(self) -> float:
        interval = max(self._configuration.interval_seconds, _SHORTEST_INTERVAL_SECONDS)
        self._instruments.cycle_interval.set(interval)
        return interval

    def _follow(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:  # noqa: ARG002 - listener
        """Forget a variant that was dropped, and begin one without history with what exists.

        A workload that was replaced within a cycle counts as a new one, even if the status or the cycle that was
        running then still knows the former one. The same holds for a workload that was started from zero meanwhile: a
        cycle that still saw it at zero must not take the start back.
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

    def _recall(self) -> Memory:
        """Return the memory as it is now."""
        if self._changed:
            kept = {entry.key: entry for entry in self._memory.variants} | self._changed
            self._memory = _with_variants(self._memory, [entry for entry in kept.values() if entry is not None])
            self._changed.clear()
        return self._memory

    async def _guarded_cycle(self) -> None:
        try:
            await self.cycle()
        except Exception as error:
            self._failed, self._cause = self._failed + 1, cause_of(error)
            self._logger.exception("cycle_failed", in_force="the numbers published last", in_a_row=self._failed)
            self._instruments.cycles.labels("error").inc()
            times = f"the last {FAILED_CYCLES} cycles" if self._failed >= FAILED_CYCLES else "the cycle"
            await self._publish(fallbacks(self._ledger.decisions(), cause=f"{times} failed: {self._cause}"))
        else:
            self._failed = 0
            self._instruments.cycles.labels("success").inc()
            self._instruments.last_cycle.set(self._clock.now())

    async def cycle(self) -> list[Decision]:
        """Run one cycle and return its decisions. Raises every error of collecting and deciding."""
        duration = self._instruments.cycle_duration
        now = self._clock.now()
        self._overtaken.clear()
        with duration.labels("collect").time():
            snapshot = await self._collect(now)
        policy, memory = self._configuration.policy, self._recall()
        with duration.labels("decide").time():
            size = len(snapshot.variants) + len(snapshot.replicas) // _REPLICAS_PER_VARIANT
            outcome = await beside(size, partial(conclude, snapshot, memory, policy, now))
        self._memory = self._without_outdated(outcome.memory)
        self._tell_failures(outcome, policy)
        with duration.labels("publish").time():
            published = await self._publish(outcome.decisions)
        await self._record(Recording(now, policy, memory, snapshot, outcome.decisions))
        over = [*snapshot.replicas, *memory.demand, *memory.foreseen, *memory.models]
        del snapshot, memory
        await forget(over)
        return published

    async def _record(self, recording: Recording) -> None:
        if self._write_recording is None:
            return
        try:
            await self._write_recording(recording)
        except Exception:  # what was decided does not depend on it
            self._logger.exception("recording_failed")

    def _tell_failures(self, outcome: Outcome, policy: Policy) -> None:
        """Log the models that could not be decided on, and put the configuration of namespaces out of force.

        One that is no longer that of ``policy``, with which it failed, is left to the next cycle.
        """
        now = _local(self._configuration.policy) if outcome.refused else {}
        for failure in outcome.failures:
            self._tell_failure(failure.model, failure.cause, failure.error)
        for namespace, cause in outcome.refused:
            self._logger.error("namespace_configuration_failed", namespace=namespace, cause=cause)
            if now.get(namespace) != _local(policy)[namespace]:
                continue
            try:
                self._refuse(namespace, cause)
            except Exception:  # this cycle was decided without it, and the next one will be
                self._logger.exception("configuration_not_refused", namespace=namespace)

    def _tell_failure(self, model: ModelKey, cause: str, error: Exception) -> None:
        if self._throttle.permits(model, cause, self._clock.monotonic()):
            self._logger.error("model_failed", model=str(model), cause=cause, exc_info=error)

    def _without_outdated(self, after: Memory) -> Memory:
        """Return the memory of a cycle, but as it was for variants that the world has overtaken."""
        overtaken = self._overtaken
        if not overtaken:
            return after
        before = {entry.key: entry for entry in self._memory.variants} | self._changed
        kept = [entry for entry in after.variants if entry.key not in overtaken]
        kept += [entry for key in overtaken if (entry := before.get(key)) is not None]
        return _with_variants(after, kept)

    async def _publish(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Hand the decisions on. No await between the check of one and its record: the caches cannot change there.

        What went or was started while the cycle read the world keeps the number that it got then, until the next cycle
        has looked at it.
        """
        published, slices = [], Slices()
        for decision in decisions:
            await slices.rest()
            before = self._ledger.get(decision.key)
            try:
                if decision.key in self._overtaken or not self._known(decision.key):
                    continue
                self._publish_one(decision)
            except Exception as error:  # noqa: BLE001 - one variant's failure is not that of the others
                self._keep(decision, before, error)
            else:
                published.append(decision)
        return published

    def _publish_one(self, decision: Decision) -> None:
        for announcement in announcements(self._ledger.get(decision.key), decision):
            self._announce(decision.key, *announcement)
        if decision.held:
            self._instruments.holds.labels(decision.reason.value).inc()
        log_decision(self._logger, decision)
        self._ledger.record([decision])

    def _keep(self, decision: Decision, before: Decision | None, error: Exception) -> None:
        """Hold a variant whose decision could not be published, with the number before."""
        cause = f"publishing failed: {cause_of(error)}"
        self._tell_failure(decision.model, cause, error)
        self._instruments.holds.labels(Reason.MODEL_FAILED.value).inc()
        if before is None:
            return
        entries = self._memory.variants
        place = bisect_left(entries, decision.key, key=lambda entry: entry.key)
        if place < len(entries) and entries[place].key == decision.key:
            self._changed[decision.key] = replace(entries[place], desired=before.desired)
        with suppress(Exception):  # what fails again has been logged
            self._ledger.record(fallbacks([before], cause=cause, reason=Reason.MODEL_FAILED))


def _local(policy: Policy) -> dict[str, NamespacePolicy]:
    return {each.namespace: each for each in policy.namespaces}


def _with_variants(memory: Memory, entries: list[VariantMemory]) -> Memory:
    """Return a memory with these entries of variants; what has been learned of models stays."""
    return replace(memory, variants=tuple(sorted(entries, key=lambda entry: entry.key)))
