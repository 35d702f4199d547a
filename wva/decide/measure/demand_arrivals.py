"""What pods have counted -> what arrived, how large requests are, and what the engines did.

What arrives at a pod is what finished there plus the change of what is in it. Each pod is compared with its own last
scrape, so a scrape that fails loses nothing: meanwhile the pod is credited what it would have had at its last rate, and
the credit is settled when it reports again. A new pod has counted from zero.

Where counters went back, they are of before, or an engine of the pod is missing in them: the pod is silent. If it has
become Ready anew, or if that lasts, it is taken to have had what it had before, and is compared with what it tells now.

Scrapes of different ages, as those of a pair of Prometheus that answer in turn, are of more or less time than a cycle
has: what is more or less is taken to have come at the rate of the pod.

A pod without counters is counted from the means that it tells: requests finished per second and the sizes of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from wva.decide.amounts import LARGEST
from wva.model.demand import PodMemory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics
from wva.model.records import replace

_SETTLED_SECONDS: Final = 90.0
"""A pod that has been Ready for so long has as many requests as the gateway gives it."""
_AHEAD_SECONDS: Final = 60.0
"""Clocks differ by less than this (seconds): a scrape that is later than now by more is not believed."""
_SILENT_SECONDS: Final = 120.0
_FORGET_SECONDS: Final = 300.0
"""A pod that has not reported for so long is credited nothing more."""
_numbers: Final = attrgetter(*EngineCounters.__struct_fields__)
_EMPTY: Final = EngineCounters(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Change:
    """What happened at the pods of a variant since the last cycle.

    ``held`` are the tokens in the KV caches for ``running`` requests. ``step``, ``batch`` and ``prefilled`` are sums
    over the ``gaps`` between tokens: of the seconds between them, of the answers in progress meanwhile, and of the
    prompt tokens that were computed meanwhile. ``loads`` are the requests in each pod that has been Ready for a while,
    ``lengths`` the prompts that each pod has computed, with their tokens. ``moved``: pods came or went. ``complete``:
    every pod has told of itself lately. ``told``: one pod has done so now. ``kv_tokens``: the size of a replica's KV
    cache, 0 if not known.
    """

    arrived: float = 0.0
    prompts: float = 0.0
    prompt_tokens: float = 0.0
    answers: float = 0.0
    answer_tokens: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    held: float = 0.0
    gaps: float = 0.0
    step: float = 0.0
    batch: float = 0.0
    prefilled: float = 0.0
    kv_tokens: float = 0.0
    pods: tuple[PodMemory, ...] = ()
    loads: list[float] = field(default_factory=list)
    lengths: list[tuple[float, float]] = field(default_factory=list)
    moved: bool = False
    complete: bool = True
    told: bool = False


def change(
    replicas: Sequence[ReplicaMetrics], before: Mapping[str, PodMemory], kv_tokens: float, last: float, now: float
) -> Change:
    """Return what changed at the Ready pods of a variant since the cycle at ``last``."""
    found = Change(kv_tokens=kv_tokens)
    told: list[PodMemory] = []
    silent: list[PodMemory] = []
    anew: list[tuple[PodMemory, PodMemory]] = []
    elapsed = now - last
    for replica in replicas:
        old = before.get(replica.pod)
        new = _told(replica, old, now)
        found.told = found.told or new is not None
        if new is None or (old is not None and _of_before(new, old, replica.ready_since, now)):
            if old is not None:
                silent.append(old)
                found.waiting += old.waiting
            since = replica.ready_since if old is None else old.counters.at
            found.complete = found.complete and since is not None and now - since < _SILENT_SECONDS
            continue
        found.running += new.running
        found.waiting += new.waiting
        found.held += (replica.engine.kv_usage.value or 0.0) * kv_tokens if replica.engine is not None else 0.0
        if old is not None and _begun_anew(new, old):
            anew.append((new, old))
        else:
            told.append(_compare(found, replica, new, old, last))
            if old is not None:
                found.arrived += min(old.rate, told[-1].rate) * (new.age - old.age)
        if replica.ready_since is None or now - replica.ready_since > _SETTLED_SECONDS:
            found.loads.append(new.running + new.waiting)
    # What goes to new pods does not go to old ones: a silent pod has no more than those that tell, nor has one of which
    # the counters went back, perhaps from a value that was not true.
    usual = sum([pod.rate for pod in told]) / len(told) if told else LARGEST
    for new, old in anew:
        rate = min(old.rate, usual)
        found.arrived += rate * (new.counters.at - old.counters.at + new.age - old.age) - old.credited
        told.append(_rated(new, rate))
    for pod in silent:
        credit = min(pod.rate, usual) * elapsed if now - pod.counters.at < _FORGET_SECONDS else 0.0
        found.arrived += credit
        told.append(replace(pod, credited=pod.credited + credit))
    names = {replica.pod for replica in replicas}
    for name in sorted(before.keys() - names):
        # A pod that ended had arrivals after its last scrape that are in no counter: those of half a cycle on average.
        found.arrived += 0.5 * elapsed * before[name].rate
    found.pods = tuple(told)
    found.moved = before.keys() != {pod.name for pod in told}
    return found


def _compare(found: Change, replica: ReplicaMetrics, new: PodMemory, old: PodMemory | None, last: float) -> PodMemory:
    """Add what a pod did since its last scrape to what was found, and return what to remember of it."""
    after, in_pod = new.counters, new.running + new.waiting
    if old is None:
        base = replace(_EMPTY, at=last if replica.ready_since is None else replica.ready_since)
    else:
        base = old.counters
        in_pod -= old.running + old.waiting
    seconds = after.at - base.at
    if seconds <= 0.0:
        return new
    finished, running = after.finished - base.finished, new.running - (0.0 if old is None else old.running)
    prompts, prompt_tokens = after.prompts - base.prompts, after.prompt_tokens - base.prompt_tokens
    # Who gave up before the first token has left the pod, and most engines count that nowhere. Who comes again has not
    # arrived twice. Who hangs up later has been served.
    gave_up = max(0.0, min(after.aborted - base.aborted, finished + running - prompts))
    came = finished - gave_up + in_pod
    # Of a pod that was Ready for long before it was seen first, most came before the last cycle.
    unseen = old is None and seconds > _FORGET_SECONDS
    found.arrived += came / seconds * max(0.0, after.at - last) if unseen else came - (old.credited if old else 0.0)
    found.prompts += prompts
    found.lengths.append((prompts, prompt_tokens))
    found.prompt_tokens += prompt_tokens
    found.answers += after.answers - base.answers
    found.answer_tokens += after.answer_tokens - base.answer_tokens
    gaps, gap_seconds = after.gaps - base.gaps, after.gap_seconds - base.gap_seconds
    if gaps > 0.0 and gap_seconds > 0.0:
        found.gaps += gaps
        found.step += gap_seconds
        found.batch += gaps * gap_seconds / seconds
        found.prefilled += prompt_tokens * gap_seconds / seconds
    return _rated(new, max(0.0, came) / seconds)


def _begun_anew(new: PodMemory, old: PodMemory) -> bool:
    """Tell whether what a pod tells cannot be compared with what it told before."""
    return old.derived != new.derived or _back(new, old)


def _back(new: PodMemory, old: PodMemory) -> bool:
    return new.counters.finished < old.counters.finished or new.counters.gaps < old.counters.gaps


def _of_before(new: PodMemory, old: PodMemory, ready_since: float | None, now: float) -> bool:
    """Tell whether what a pod tells is no newer than what it told before, whatever time it bears."""
    begun = old.counters.at
    if new.counters.at <= begun:
        return True
    restarted = ready_since is not None and ready_since > begun
    return old.derived == new.derived and _back(new, old) and not restarted and now - begun < _SILENT_SECONDS


def _rated(pod: PodMemory, rate: float) -> PodMemory:
    return PodMemory(pod.name, pod.counters, pod.running, pod.waiting, rate, derived=pod.derived, age=pod.age)


def _told(replica: ReplicaMetrics, old: PodMemory | None, now: float) -> PodMemory | None:
    """Return what a pod tells of itself; None when it tells nothing that can be counted with."""
    engine, counters = replica.engine, replica.counters
    if engine is None or engine.running.value is None:
        return None
    derived = counters is None and (old is None or old.derived)
    if counters is None:
        counters = _counted(engine, old, now) if derived else None
    if counters is None:
        return None
    known = _numbers(counters)
    if not (min(known) >= 0.0 and max(known) <= LARGEST and sum(known) <= 9.0 * LARGEST):
        return None
    if counters.aborted > counters.finished or counters.at > now + _AHEAD_SECONDS:
        return None
    waiting, age = engine.waiting.value or 0.0, now - counters.at
    return PodMemory(replica.pod, counters, engine.running.value, waiting, derived=derived, age=age)


def _counted(engine: EngineSignals, old: PodMemory | None, now: float) -> EngineCounters | None:
    """Return the counters that follow from means over the last minutes; None without the rate of requests."""
    at = engine.success_rate.timestamp or now
    if engine.success_rate.value is None:
        return None
    before = replace(_EMPTY, at=at) if old is None else old.counters
    done = engine.success_rate.value * max(0.0, at - before.at)
    answer = done * _value(engine, "output_tokens")
    computed = 1.0 - min(1.0, _value(engine, "prefix_hit_rate"))
    return EngineCounters(
        at=at,
        finished=before.finished + done,
        aborted=before.aborted,
        prompt_tokens=before.prompt_tokens + done * computed * _value(engine, "input_tokens"),
        prompts=before.prompts + done,
        answer_tokens=before.answer_tokens + answer,
        answers=before.answers + done,
        gap_seconds=before.gap_seconds + answer * _value(engine, "inter_token_latency"),
        gaps=before.gaps + answer,
    )


def _value(engine: EngineSignals, name: str) -> float:
    """Return a value that a pod tells, 0 if it does not."""
    return getattr(engine, name).value or 0.0
