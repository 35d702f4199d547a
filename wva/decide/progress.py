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
from typing import Final

from msgspec import Struct

from wva.model.decision import Decision, Source
from wva.model.memory import VariantMemory, previous_of
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.records import replace
from wva.model.variant import Variant

_NEW_SECONDS: Final = 120.0
"""A pod that has been Ready for so long is not new: Prometheus has found it."""


class Moment(Struct, frozen=True, gc=False):
    """The time of a cycle, and how long an unfinished change counts as on its way. Both in seconds."""

    now: float
    deadline_seconds: float


class Progress(Struct, frozen=True, gc=False):
    """Where a variant stands. All numbers are of replicas.

    Attributes:
        variant: the variant.
        previous: the number published last, None when there is none.
        floor: the least that is given to it of its own accord: one, none to a variant that stands at zero.
        base: the number to start from: the one published last, or what exists, as far as the bounds allow it.
        published: the number before this cycle: the one published last, else what exists. Never 0 while active.
        current: those that exist.
        ready: Ready pods.
        silent: those Ready pods that an unfinished change brought and that report nothing yet.
        serving: the other Ready pods.
        waiting: those that are asked for or exist, but are not Ready. Ready pods beyond the replicas that exist are a
            matter of caches that disagree: they finish no growth.
        in_flight: those to count on although they do not serve yet: on their way, not for too long, and not without a
            node to run on. Of single pods the age of the oldest one is known: it counts for as long as the clock does.
        outstanding: those that should go but still exist.
        level: those that exist or are asked for, whichever is more.
        countable: whether Ready pods and replicas agree, or the difference has lasted for too long to wait for it.
        overdue: whether the unfinished change has lasted for longer than its deadline.
        late: whether a pod has been starting for longer than that.
        most_ready: the most Ready pods since the clock started.
        since: the start of the clock, in seconds since the epoch; None while settled.
        age_seconds: how long the clock has run.

    """

    variant: Variant
    previous: int | None
    floor: int
    base: int
    published: int
    current: int
    ready: int
    silent: int
    serving: int
    waiting: int
    in_flight: int
    outstanding: int
    level: int
    countable: bool
    overdue: bool
    late: bool
    most_ready: int
    since: float | None
    age_seconds: float = 0.0


def progress_of(
    variant: Variant, *, replicas: Sequence[ReplicaMetrics], entry: VariantMemory | None, moment: Moment
) -> Progress:
    """Return where a variant stands, from its Ready pods and its memory (None: it has none)."""
    previous = previous_of(variant, entry)
    current = variant.current_replicas
    floor = 1 if variant.active else 0
    base = variant.bounds.clamp(max(floor, current) if previous is None else previous)
    ready = len(replicas)
    started = _started(variant, entry, ready=ready, now=moment.now)
    running = started is not None and moment.now - started < moment.deadline_seconds
    silent = sum([_silent(replica, moment.now) for replica in replicas]) if running and base >= current else 0
    unsettled = base != current or current > ready or silent > 0
    since = (moment.now if started is None else started) if unsettled else None
    age = 0.0 if since is None else moment.now - since
    overdue = since is not None and age >= moment.deadline_seconds
    level = max(base, current)
    waiting = level - min(ready, current)
    # The clock begins anew with every number, but no pod does.
    oldest = moment.now if variant.oldest_unready_since is None else variant.oldest_unready_since
    late = current > ready and moment.now - oldest >= moment.deadline_seconds
    return Progress(
        variant,
        previous,
        floor,
        base,
        max(floor, current) if previous is None else previous,
        current,
        ready,
        silent,
        ready - silent,
        waiting,
        0 if overdue else max(0, waiting - max(int(late), variant.unschedulable_pods)) + silent,
        max(0, current - base),
        level,
        ready == current or (overdue and ready < current),
        overdue,
        late,
        ready if entry is None or entry.settling_since is None else max(entry.ready_replicas, ready),
        since,
        age,
    )


def clocked(decision: Decision, progress: Progress, *, now: float) -> tuple[Decision, VariantMemory]:
    """Return the decision with its clock, and what the next cycle must remember of it.

    If the number goes back to the replicas that exist, the clock goes on: the missing replicas have been missing since
    before.
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
    return decision if since == decision.settling_since else replace(decision, settling_since=since), memory


def _started(variant: Variant, entry: VariantMemory | None, *, ready: int, now: float) -> float | None:
    """Return the start of the running clock, if one runs. A start in the future counts as now: else it never ends."""
    if entry is not None:
        if entry.settling_since is None:
            return None
        return now if ready > entry.ready_replicas else min(entry.settling_since, now)
    known = [variant.settling_since, variant.oldest_unready_since]
    return max([min(time, now) for time in known if time is not None], default=None)


def _silent(replica: ReplicaMetrics, now: float) -> bool:
    """Tell whether a replica is new and does not report yet. One that is not new has failed to report."""
    if replica.ready_since is not None and now - replica.ready_since >= _NEW_SECONDS:
        return False
    return replica.kv_usage.state is SampleState.MISSING and replica.queue_length.state is SampleState.MISSING
