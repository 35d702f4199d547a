"""How far a variant is on its way to its number, and since when.

A change takes time: the scaler waits, pods load models. While the clock of a variant is younger than the deadline its
missing replicas count as supply on its way; later they count as lost, until something moves. The clock starts when
the variant becomes unsettled, starts again when a replica becomes ready or the number changes, and stops when number,
replicas and Ready pods agree. It survives a restart: without memory it is read back from the Progressing condition and
the age of the pods.

Ready pods that do not report yet belong to the change that made them. A pod becomes Ready some seconds before its
first sample can be read; taking it for nothing in between would buy one replica too many at the end of each growth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wva.model.decision import Decision, Source
from wva.model.memory import VariantMemory
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.variant import Variant


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a cycle, and how long an unfinished change counts as on its way. Both in seconds."""

    now: float
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a variant stands.

    ``previous`` is the number published last, None when there is none; ``base`` the one to start from, as far as the
    bounds allow it. ``ready`` counts Ready pods, ``silent`` those of them that an unfinished change brought and that
    report nothing yet. ``since`` is the start of the clock, None while settled, ``age_seconds`` how long it has run.
    """

    variant: Variant
    previous: int | None
    base: int
    ready: int
    silent: int
    most_ready: int
    since: float | None
    overdue: bool
    age_seconds: float = 0.0

    @property
    def current(self) -> int:
        """Replicas that exist."""
        return self.variant.current_replicas

    @property
    def published(self) -> int:
        """The number before this cycle: the one published last, else the replicas that exist. Never 0 while active."""
        return max(self.floor, self.current) if self.previous is None else self.previous

    @property
    def floor(self) -> int:
        """The least that an optimizer gives of its own accord: one replica, none to a variant that stands at zero."""
        return 1 if self.variant.active else 0

    @property
    def waiting(self) -> int:
        """Replicas that are asked for or exist, but are not Ready.

        Ready pods beyond the replicas that exist are a matter of caches that disagree: they finish no growth.
        """
        return max(self.base, self.current) - min(self.ready, self.current)

    @property
    def in_flight(self) -> int:
        """Replicas to count on: on their way, not for too long, and not without a node to run on."""
        placed = max(0, self.waiting - self.variant.unschedulable_pods)
        return 0 if self.overdue else placed + self.silent

    @property
    def outstanding(self) -> int:
        """Replicas that should go but still exist."""
        return max(0, self.current - self.base)


def progress_of(
    variant: Variant, *, replicas: Sequence[ReplicaMetrics], entry: VariantMemory | None, moment: Moment
) -> Progress:
    """Return where a variant stands, from its Ready pods and its memory (None: it has none)."""
    previous = previous_of(variant, entry)
    floor = 1 if variant.active else 0
    base = variant.bounds.clamp(max(floor, variant.current_replicas) if previous is None else previous)
    ready = len(replicas)
    started = _started(variant, entry, ready=ready, now=moment.now)
    running = started is not None and moment.now - started < moment.deadline_seconds
    silent = sum(map(_silent, replicas)) if running and base >= variant.current_replicas else 0
    unsettled = base != variant.current_replicas or variant.current_replicas > ready or silent > 0
    since = (moment.now if started is None else started) if unsettled else None
    age = 0.0 if since is None else moment.now - since
    return Progress(
        variant=variant,
        previous=previous,
        base=base,
        ready=ready,
        silent=silent,
        most_ready=ready if entry is None or entry.settling_since is None else max(entry.ready_replicas, ready),
        since=since,
        overdue=since is not None and age >= moment.deadline_seconds,
        age_seconds=age,
    )


def settle(decision: Decision, progress: Progress, *, now: float) -> tuple[Decision, VariantMemory]:
    """Return the decision with its clock, and what the next cycle must remember of it.

    A number that returns to the replicas that exist keeps the clock: what is still missing has been missing before.
    """
    current = progress.current
    since = progress.since
    if decision.desired == current and current <= progress.ready and not progress.silent:
        since = None
    elif decision.desired not in {progress.base, current} or since is None:
        since = now
    same_clock = since is not None and since == progress.since
    most_ready = progress.most_ready if same_clock else progress.ready
    decided = decision.source is not Source.CURRENT_REPLICAS
    memory = VariantMemory(decision.key, decision.desired, since, most_ready, decided)
    return replace(decision, settling_since=since), memory


def previous_of(variant: Variant, entry: VariantMemory | None) -> int | None:
    """Return the number published last; a 0 belongs to a time when the variant was switched off.

    A number kept for want of any history is none: it would undo a later change by another client.
    For a variant at zero that is only a number by which it was called back, and has not come yet.
    """
    remembered = entry.desired if entry is not None else 0
    if not variant.active:
        asked = entry is not None and entry.settling_since is not None and entry.ready_replicas == 0
        return remembered if asked and remembered > 0 else None
    if entry is not None and not entry.decided:
        return None
    if remembered > 0:
        return remembered
    status = variant.status_desired
    return status if status is not None and status > 0 else None


def _started(variant: Variant, entry: VariantMemory | None, *, ready: int, now: float) -> float | None:
    """Return the start of the running clock, if one runs. A start in the future would keep it from ever ending."""
    if entry is not None:
        progressed = entry.settling_since is not None and ready > entry.ready_replicas
        known = [now if progressed else entry.settling_since]
    else:
        known = [variant.settling_since, variant.oldest_unready_since]
    return max((min(time, now) for time in known if time is not None), default=None)


def _silent(replica: ReplicaMetrics) -> bool:
    return replica.kv_usage.state is SampleState.MISSING and replica.queue_length.state is SampleState.MISSING
