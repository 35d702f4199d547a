"""How far a variant is on its way to its number, and since when.

A change takes time: the scaler waits, pods load models. Each unfinished change has a clock. While the clock is younger
than the deadline, the missing replicas of the variant count as supply. Later they count as lost, until something
changes. The clock starts when number, replicas and Ready pods differ, starts again when a replica becomes Ready or the
number changes, and stops when all three agree. After a restart of WVA the clock is read from the Progressing condition
and the age of the pods.

``lateness`` says in words which replicas count no more. The status shows it as the condition ReplicasOnTime.

Where another variant can serve instead, replicas count as lost sooner: when the oldest pod has been starting for half
as long again as the slowest of the last ones did, and the scaler has created all of them.

A pod becomes Ready some seconds before Prometheus has its first sample. Until then it counts as under way. Otherwise
each growth would end with one replica too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from wva.decide.amounts import replicas
from wva.model.decision import Decision, Source
from wva.model.memory import VariantMemory, previous_of
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import Variant

_NEW_SECONDS: Final = 120.0
"""A pod that has been Ready for so long is not new: by then Prometheus scrapes it."""
SLOW_START: Final = 1.5
"""A start that takes so many times as long as the slowest of the last ones is slow."""
_SHORTEST_SECONDS: Final = 120.0
"""No start is late before: the next pod may have to fetch its image."""
_MOST_PER_SERVING: Final = 4
"""A variant with replicas that do not serve gets at most so many replicas per Ready one."""


class Moment(Struct, frozen=True, gc=False):
    """The time of a cycle, and for how long the replicas of an unfinished change count as supply; both in seconds."""

    now: float
    deadline_seconds: float


class Progress(Struct, frozen=True, gc=False):
    """Where a variant stands. All numbers are of replicas."""

    variant: Variant
    previous: int | None  # the number published last, None when there is none
    floor: int  # the smallest number without any history: 1, or 0 if the variant is at zero
    base: int  # the number to start from: the one published last, or what exists, as far as the bounds allow it
    published: int  # the number before this cycle: the one published last, else what exists; never 0 while active
    current: int  # replicas that exist
    ready: int  # Ready pods
    silent: int  # Ready pods of an unfinished change that report nothing yet
    serving: int  # the other Ready pods
    dormant: int  # Ready pods whose engines sleep; they are in no other number of Ready pods
    waiting: int  # replicas that are asked for or exist, but are not Ready; surplus Ready pods do not count
    # Replicas that count as supply although they do not serve yet: none past the deadline, and none whose pod finds no
    # node. Only the age of the oldest pod is known, so at most one counts as late.
    in_flight: int
    outstanding: int  # replicas that should go but still exist
    level: int  # replicas that exist or are asked for, whichever is more
    countable: bool  # whether Ready pods and replicas agree, or pods have been missing for longer than the deadline
    overdue: bool  # whether the unfinished change has lasted for longer than its deadline
    late: bool  # whether a pod has been starting for longer than the deadline
    most_ready: int  # the most Ready pods since the clock started
    since: float | None  # the start of the clock, in seconds since the epoch; None while settled
    age_seconds: float = 0.0  # how long the clock has run
    slowest: float = 0.0  # the slowest of the last starts in seconds, where pods are late sooner by it; else 0

    @property
    def allowed(self) -> str:
        """In words, how long its pods may take to become Ready."""
        if self.slowest:
            return f"{_slow(self.slowest):.0f} s, and the last ones took {self.slowest:.0f} s at most"
        return "the transition deadline"

    @property
    def step(self) -> int:
        """The smallest change of the existing replicas that the scaler acts on."""
        return self.variant.bounds.smallest_step(self.current)

    @property
    def lowest(self) -> int:
        """The smallest number of the variant: the minimum of its scaler, and 1 without a minimum."""
        minimum = self.variant.bounds.minimum
        return 1 if minimum is None else minimum

    @property
    def may_shrink(self) -> bool:
        """Whether a step less is possible, and no change is unfinished."""
        return self.base == self.current and self.base - self.step >= self.lowest

    @property
    def returns(self) -> bool:
        """Whether an unfinished shrink can be taken back; a shrink that the bounds force cannot."""
        return self.variant.bounds.clamp(max(self.floor, self.current)) > self.base

    @property
    def few(self) -> bool:
        """Whether the variant may have more replicas although not all of its replicas start."""
        return self.level < _MOST_PER_SERVING * self.ready

    def may_grow(self, *, skips: bool) -> bool:
        """Tell whether nothing keeps the variant from growing; ``skips`` as in ``blocked``."""
        return self.blocked(skips=skips) is None and self.bounded() is None

    def blocked(self, *, skips: bool) -> str | None:
        """Return in a word what keeps the variant from growing, apart from its bounds; None if nothing does.

        ``skips``: a variant with replicas that do not serve yet gets no more of them.
        """
        if self.variant.unschedulable_pods:
            return "unplaced"
        if self.waiting and (skips or self.overdue or (self.late and not self.few)):
            return "waiting"
        return "silent" if self.silent and skips else None

    def bounded(self) -> str | None:
        """Return in a word why the bounds allow no growth that the scaler would carry out; None if they allow one."""
        maximum = self.variant.bounds.maximum
        if maximum is None:
            return None
        if self.level >= maximum:
            return "maximum"
        return None if self.current + self.step <= maximum else "tolerance"


def progress_of(
    variant: Variant,
    *,
    replicas: Sequence[ReplicaMetrics],
    entry: VariantMemory | None,
    moment: Moment,
    dormant: int = 0,
    slowest: float = 0.0,
) -> Progress:
    """Return where a variant stands, from its Ready pods and its memory (None: it has none).

    ``replicas`` are the Ready pods that are awake, ``dormant`` is the number of those that sleep. Sleeping pods are
    neither supply nor under way: nobody knows when they wake. So a variant gets the replicas that it needs beside them.
    ``slowest`` is how long the slowest of its last pods took to start, in seconds; 0 if that is not known, or no other
    variant could serve.
    """
    now, deadline = moment.now, moment.deadline_seconds
    previous = previous_of(variant, entry)
    current, ready = variant.current_replicas, len(replicas)
    ready_pods = ready + dormant
    floor = 1 if variant.active else 0
    base = variant.bounds.clamp(max(floor, current) if previous is None else previous)
    # The start of the running clock, None if none runs. One in the future counts as now, or the clock would never end.
    if entry is None:
        starts = [variant.settling_since, variant.oldest_unready_since]
        started = max([min(time, now) for time in starts if time is not None], default=None)
    elif entry.settling_since is None:
        started = None
    else:
        started = now if ready > entry.ready_replicas else min(entry.settling_since, now)
    if started is not None and variant.taken_at is not None:
        started = max(started, min(variant.taken_at, now))  # the replicas that come back are young
    silent = 0
    if started is not None and now - started < deadline and base >= current:
        for replica in replicas:
            # A pod that is not new should have reported by now.
            if replica.ready_since is None or now - replica.ready_since < _NEW_SECONDS:
                missing = SampleState.MISSING
                silent += replica.kv_usage.state is missing and replica.queue_length.state is missing
    unsettled = base != current or current > ready_pods or silent > 0
    since = (now if started is None else started) if unsettled else None
    age = 0.0 if since is None else now - since
    level = max(base, current)
    waiting = level - min(ready_pods, current)
    # The clock starts again with every new number. The age of a pod does not.
    oldest = now if variant.oldest_unready_since is None else variant.oldest_unready_since
    slow = min(deadline, _slow(slowest)) if slowest and current >= base else deadline
    late = current > ready_pods and now - oldest >= slow
    overdue = since is not None and age >= (slow if late else deadline)
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
        dormant,
        waiting,
        0 if overdue else max(0, waiting - max(int(late), variant.unschedulable_pods)) + silent,
        max(0, current - base),
        level,
        ready_pods == current or (overdue and ready_pods < current),
        overdue,
        late,
        ready if entry is None or entry.settling_since is None else max(entry.ready_replicas, ready),
        since,
        age,
        slowest if slow < deadline else 0.0,
    )


def _slow(slowest: float) -> float:
    return max(_SHORTEST_SECONDS, SLOW_START * slowest)


def clocked(decision: Decision, progress: Progress, *, now: float) -> tuple[Decision, VariantMemory]:
    """Return the decision with its clock, and what the next cycle must remember of it.

    If the number goes back to the replicas that exist, the clock goes on: their pods have been missing all the time.
    """
    current, since = progress.current, progress.since
    if decision.desired == current and current <= progress.ready + progress.dormant and not progress.silent:
        since = None
    elif decision.desired not in {progress.base, current} or since is None:
        since = now
    same_clock = since is not None and since == progress.since
    most_ready = progress.most_ready if same_clock else progress.ready
    decided = decision.source is not Source.CURRENT_REPLICAS
    memory = VariantMemory(decision.key, decision.desired, since, most_ready, decided)
    return decision if since == decision.settling_since else replace(decision, settling_since=since), memory


def lateness(decision: Decision, progress: Progress) -> Trouble:
    """Return why replicas that the number asks for are not there in time, UNTROUBLED if none is late.

    It follows the rules of the decision: pods without a node count as no supply at once, other missing replicas from
    the deadline on. Replicas that the number does not ask for any more are never late.
    """
    variant, ready_pods = progress.variant, progress.ready + progress.dormant
    wanted = min(progress.base, decision.desired)
    if variant.unschedulable_pods and decision.desired:
        count = variant.unschedulable_pods
        pods = "1 pod has" if count == 1 else f"{count} pods have"
        return Trouble(TroubleReason.PODS_UNSCHEDULABLE, f"{pods} no node to run on")
    if variant.failing_pods and decision.desired:
        count = variant.failing_pods
        return Trouble(
            TroubleReason.CONTAINERS_FAILING, f"{count} {'pod fails' if count == 1 else 'pods fail'}: {variant.failure}"
        )
    if wanted <= ready_pods or not (progress.overdue or progress.late):
        return UNTROUBLED
    if variant.spec_replicas < wanted and progress.current <= ready_pods:
        words = f"the number is {wanted}, and after the transition deadline spec.replicas of the target is still "
        return Trouble(TroubleReason.SCALER_NOT_FOLLOWING, f"{words}{variant.spec_replicas}")
    words = f"not Ready within {progress.allowed}"
    if not progress.overdue:
        words = f"not Ready, and the oldest of their pods is past {progress.allowed}"
    return Trouble(TroubleReason.REPLICAS_LATE, f"{wanted - ready_pods} of {replicas(wanted)} {words}")
