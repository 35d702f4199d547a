"""Derives from the counters of pods how many requests arrived, how large they are, and what the engines did.

The requests that arrive at a pod are those that finished there or were refused there, plus the change of those that
are in it. If a client sends a refused request again, it counts again, since no counter shows that: while pods refuse
requests, demand may seem as many times too large as clients try. Once the fleet has grown, nothing is refused. Each pod
is compared with its own last scrape, so a failed scrape loses nothing. Until the pod reports again, it is credited with
requests at its last rate, and the credit is then subtracted from what it reports. A new pod has counted from zero. A
pod that is Ready again has not: it is credited the rate of its siblings, and compared with its new counters from then
on.

What a pod reports belongs to the time between its own scrapes. If that time is longer than a cycle, a cycle counts only
its own part of it: the pod had the rest in earlier cycles, in which most other pods were not scraped either.

Requests that go to a new pod do not go to others. So when pods come or go, the sum of all rates stays, and each pod
gets a new part of it (``spread``), until its next scrapes tell what it really gets. A gateway sends many requests to a
new pod at first, so the first scrape of a pod says less of its rate than later ones. Until the other pods report, they
are credited with requests that the new one got. In a cycle of a second this would make demand ten times too large. So
while pods are new, a short cycle counts its own part of what a pod reports, and the next cycles the rest.

If counters went back, they are older than those before, or they lack an engine of the pod. Then the pod counts as
silent. If it has become Ready anew, or if this lasts, it is credited at its last rate, and compared with its new
counters from then on.

Scrapes may be of different ages, for example if two Prometheus answer in turn. Then the time between two of them is
longer or shorter than a cycle. WVA assumes that requests came at the rate of the pod in the difference.

For a pod without counters, they follow from the means that it reports: requests finished per second, and their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from wva.decide.amounts import LARGEST
from wva.model.memory import PodMemory
from wva.model.metrics import EngineCounters, ReplicaMetrics
from wva.model.records import replace

_SETTLED_SECONDS: Final = 90.0  # a pod that has been Ready for so long has its full part of the requests
_AHEAD_SECONDS: Final = 60.0
"""Clocks differ by less than this (seconds): a scrape further in the future is not believed."""
_SILENT_SECONDS: Final = 120.0
_FORGET_SECONDS: Final = 300.0  # a pod that has not reported for so long gets no more credit
_AT_ONCE_SECONDS: Final = 15.0
"""What a pod reports counts at once where its scrapes, or the cycles, are no further apart than this (seconds)."""
_FIRST_SECONDS: Final = 60.0  # the requests that a gateway sends to a new pod at first are those of so many seconds
_MOST_SHARED: Final = 4.0  # in its own time a pod had at most so many times its present part, and at least the inverse
_UNEVEN: Final = 2.0  # a pod gets at most so many times the requests of other pods of its variant
_PAST_REQUESTS: Final = 30.0
"""The sizes of requests that a pod counted before WVA saw it first count like those of so many requests."""
_MOST_ENGINES: Final = 8.0  # a pod may have so many engines (data parallel)
_ROUNDED_SECONDS: Final = 2.0  # Kubernetes rounds times to seconds, and a scrape takes a while
_numbers: Final = attrgetter(*EngineCounters.__struct_fields__)
_EMPTY: Final = EngineCounters(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class PodPart:
    """What a pod is expected to get: its memory, requests per second from now on, and its requests of this cycle."""

    pod: PodMemory
    rate: float
    credit: float


class PodPrefills(Struct, frozen=True, gc=False):
    """The prompts that a pod computed between two scrapes.

    ``taken``: the sum of their times, each from the first step of a prompt to its first token. ``waited``: how many
    waited at both scrapes, at least.
    """

    seconds: float  # between the scrapes
    prompts: float
    tokens: float
    taken: float
    waited: float


@dataclass(slots=True)
class VariantChange:
    """What happened at the pods of a variant since the last cycle."""

    arrived: float = 0.0
    refused: float = 0.0  # those of the arrived requests that were not let in
    prompts: float = 0.0
    prompt_tokens: float = 0.0
    answers: float = 0.0
    answer_tokens: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    held: float = 0.0  # the tokens in the KV caches for the running requests
    # Sums over the gaps between tokens: of the seconds between them, of the answers in progress meanwhile, and of the
    # prompt tokens that were computed meanwhile
    gaps: float = 0.0
    step: float = 0.0
    batch: float = 0.0
    prefilled: float = 0.0
    prefills: list[PodPrefills] = field(default_factory=list)  # those of pods of which their time is known
    # Of prompts whose time from their arrival at the pod to the first token is known: their number, and these times
    firsts: float = 0.0
    first_seconds: float = 0.0
    kv_tokens: float = 0.0  # the size of a replica's KV cache, 0 if not known
    pods: tuple[PodMemory, ...] = ()
    loads: list[float] = field(default_factory=list)  # the requests in each pod that has been Ready for a while
    lengths: list[tuple[float, float]] = field(default_factory=list)  # prompts that each pod computed, and their tokens
    moved: bool = False  # pods came or went
    left: float = 0.0  # the requests that the next cycles count
    complete: bool = True  # every pod has reported lately
    has_report: bool = False  # at least one pod has reported now

    def add(
        self, new: PodMemory, old: PodMemory | None, ready_since: float | None, last: float, now: float
    ) -> tuple[PodMemory, float]:
        """Add what a pod did since its last scrape; return what to remember of it, and the requests that came.

        ``old`` is None for a pod that is new to WVA: it has counted from zero since it became Ready, or since the cycle
        at ``last`` if that is not known.
        """
        after, in_pod, running = new.counters, new.running + new.waiting, new.running
        if old is None:
            base = replace(_EMPTY, at=last if ready_since is None else ready_since)
        else:
            base = old.counters
            in_pod -= old.running + old.waiting
            running -= old.running
        seconds = after.at - base.at
        if seconds <= 0.0:
            return new, 0.0
        prompts, prompt_tokens = after.prompts - base.prompts, after.prompt_tokens - base.prompt_tokens
        finished = after.finished - base.finished
        # A request that is given up before its first token leaves the pod, and most engines do not count that. If the
        # user sends it again, it has not arrived twice. A request that is given up later has been served.
        gave_up = max(0.0, min(after.aborted - base.aborted, finished + running - prompts))
        refused = max(0.0, after.refused - base.refused)
        came = finished - gave_up + in_pod + refused
        # If a pod was Ready for long before it was seen first, most of its requests came before the last cycle.
        unseen = old is None and seconds > _SILENT_SECONDS
        counted = (now - last) / seconds if unseen else 1.0
        self.arrived += came * counted if old is None else 0.0
        self.refused += refused * counted
        answers, answer_tokens = after.answers - base.answers, after.answer_tokens - base.answer_tokens
        # What a pod counted before WVA looked may be of other times: its means weigh little.
        most = _PAST_REQUESTS if old is None and (ready_since is None or ready_since < last) else LARGEST
        self.prompts += min(prompts, most)
        self.lengths.append((min(prompts, most), _of(prompts, prompt_tokens, most)))
        self.prompt_tokens += self.lengths[-1][1]
        self.answers += min(answers, most)
        self.answer_tokens += _of(answers, answer_tokens, most)
        gaps, gap_seconds = after.gaps - base.gaps, after.gap_seconds - base.gap_seconds
        steps = new.steps if old is None else old.steps
        if gaps > 0.0 and gap_seconds > 0.0:
            batch, prefilled = gaps * gap_seconds / seconds, prompt_tokens * gap_seconds / seconds
            self.gaps += gaps
            self.step += gap_seconds
            self.batch += batch
            self.prefilled += prefilled
            if old is not None:
                steps = steps.with_more(seconds, gaps, gap_seconds, batch, max(0.0, prefilled))
        prefill_seconds = after.prefill_seconds - base.prefill_seconds
        # If prompts took 0 seconds before, their query had no answer, and the time before is not known.
        known = base.prefill_seconds > 0.0 or base.prompts <= 0.0
        if old is not None and known and prompts > 0.0 and prefill_seconds > 0.0:
            waited = min(old.waiting, new.waiting)
            self.prefills.append(PodPrefills(seconds, prompts, prompt_tokens, prefill_seconds, waited))
        if old is not None and base.first_seconds > 0.0 and after.first_seconds > base.first_seconds:
            self.firsts += prompts
            self.first_seconds += after.first_seconds - base.first_seconds
        return replace(new, rate=max(0.0, came) / seconds, steps=steps), came

    def shown(
        self, new: PodMemory, came: float, part: PodPart, *, between: float, elapsed: float, uneven: bool
    ) -> PodMemory:
        """Count the requests that came to a pod as far as they belong to this cycle of ``elapsed`` seconds.

        ``between`` are the seconds between two scrapes of a pod. ``uneven``: a pod of the model is new, so others may
        have got less than they are credited with. Returns what to remember.
        """
        old = part.pod
        seconds = new.counters.at - old.counters.at
        # The requests expected at the pod between its last two scrapes, the later of which was ``new.age`` seconds ago
        expected = old.credited + part.credit + part.rate * (old.age - new.age)
        rate = new.rate
        if old.untold and part.rate > 0.0:
            seconds = max(seconds, _FIRST_SECONDS)
            rate = max(0.0, part.rate + (came - expected) / seconds)
        elif part.rate > 0.0:
            # While fewer pods shared the requests, a second counts for more.
            rate = max(0.0, came) / max(seconds / _MOST_SHARED, min(seconds * _MOST_SHARED, expected / part.rate))
        surprise = came - old.credited - part.credit + min(part.rate, rate) * (new.age - old.age)
        whole = max(elapsed, _AT_ONCE_SECONDS)
        share = 1.0 if between <= whole else min(1.0, whole / seconds)
        if uneven and between <= whole and elapsed < min(seconds, _AT_ONCE_SECONDS):
            share = elapsed / seconds
            self.left += surprise * (1.0 - share)
        self.arrived += part.credit + surprise * share
        return replace(new, rate=rate)


def spread(
    variants: Sequence[tuple[Sequence[ReplicaMetrics], Mapping[str, PodMemory]]], last: float, now: float
) -> list[dict[str, PodPart]]:
    """Return what each pod of some variants of a model is expected to get, by name: those remembered, and new ones.

    If pods came or went since the cycle at ``last``, the sum of all rates stays. A new pod gets as much as others of
    its variant, or of the model. If scrapes are frequent, it soon tells itself what it gets.
    """
    elapsed = now - last
    known_rates = [[pod.rate for pod in before.values() if _counts(pod, now)] for _, before in variants]
    total_before, count = sum([sum(rates) for rates in known_rates]), sum(map(len, known_rates))
    all_parts: list[dict[str, PodPart]] = []
    moments: list[float] = []  # the parts of the cycle that were left when pods came or went
    total_after = 0.0
    for (replicas, before), rates in zip(variants, known_rates, strict=True):
        usual = sum(rates) / len(rates) if rates else total_before / max(1, count)
        parts: dict[str, PodPart] = {}
        slow = between(replicas) > max(elapsed, _AT_ONCE_SECONDS)
        for replica in replicas:
            old, since = before.get(replica.pod), replica.ready_since
            if old is not None:
                parts[old.name] = PodPart(old, old.rate, old.rate * elapsed)
            elif slow and elapsed > 0.0 and since is not None and 0.0 <= now - since < _SILENT_SECONDS:
                new_pod = PodMemory(replica.pod, replace(_EMPTY, at=since), 0.0, 0.0, rate=usual, untold=True)
                parts[replica.pod] = PodPart(new_pod, usual, usual * (now - since))
                moments.append(min(1.0, (now - since) / elapsed))
        moments += [0.5] * len(before.keys() - parts.keys())
        total_after += sum([part.rate for part in parts.values() if _counts(part.pod, now)])
        all_parts.append(parts)
    if not moments or not total_after:
        return all_parts
    scale = total_before / total_after
    mean = 1.0 + (scale - 1.0) * sum(moments) / len(moments)
    return [
        {
            name: PodPart(part.pod, part.rate * scale, part.credit * (mean if name in before else scale))
            for name, part in parts.items()
        }
        for parts, (_, before) in zip(all_parts, variants, strict=True)
    ]


def still_uneven(replicas: Iterable[ReplicaMetrics], now: float) -> bool:
    """Return whether one of these pods has not been Ready for long enough to have its part of the requests."""
    since = [replica.ready_since for replica in replicas if replica.ready_since is not None]
    return now - max(since, default=-inf) <= _SETTLED_SECONDS


def at_once(elapsed: float) -> float:
    """Return which part of the requests that earlier cycles left counts in a cycle of ``elapsed`` seconds."""
    return min(1.0, elapsed / _AT_ONCE_SECONDS)


def between(replicas: Sequence[ReplicaMetrics]) -> float:
    """Return the seconds between two scrapes of a pod, the longest of these pods; 0 if not known."""
    return max([replica.scrape_seconds or 0.0 for replica in replicas], default=0.0)


def _counts(pod: PodMemory, now: float) -> bool:
    """Return whether a pod is credited with requests while it is silent."""
    return now - pod.counters.at < (_SILENT_SECONDS if pod.untold else _FORGET_SECONDS)


def change(
    replicas: Sequence[ReplicaMetrics],
    before: Mapping[str, PodMemory],
    parts: Mapping[str, PodPart],
    kv_tokens: float,
    last: float,
    now: float,
    *,
    away: Mapping[str, PodMemory] = MappingProxyType({}),
    sequences: float = inf,
    uneven: bool = False,
) -> VariantChange:
    """Return what changed at the Ready pods of a variant since the cycle at ``last``.

    ``before`` has the pods that were Ready then, and ``away`` others that were Ready earlier. ``parts`` are from
    ``spread``. An engine serves at most so many ``sequences`` together. ``uneven``: a pod of the model is new.
    """
    result = VariantChange(kv_tokens=kv_tokens)
    reported: list[PodMemory] = []
    silent: list[tuple[PodPart, float]] = []
    renewed: list[tuple[PodMemory, PodMemory]] = []
    elapsed, has_new, scrape_seconds = now - last, False, between(replicas)
    for replica in replicas:
        part, since = parts.get(replica.pod), replica.ready_since
        old = None if part is None else part.pod
        new = _read_pod(replica, old, now)
        result.has_report = result.has_report or new is not None
        back = outdated = False
        if new is not None and old is not None:
            # Counters that are no newer than those before say nothing, even if their time stamp is newer.
            old_at, after, base = old.counters.at, new.counters, old.counters
            back = old.derived != new.derived or _went_back(after, base)
            restarted = since is not None and since > old_at
            lately = old.derived == new.derived and not restarted and now - old_at < _SILENT_SECONDS
            outdated = after.at <= old_at or (back and lately)
        if new is None or outdated:
            if part is not None and old is not None:
                silent.append((part, 1.0 if back else _UNEVEN))
                result.waiting += old.waiting
                since = old.counters.at
            result.complete = result.complete and since is not None and now - since < _SILENT_SECONDS
            continue
        result.running += new.running
        result.waiting += new.waiting
        result.held += (replica.engine.kv_usage.value or 0.0) * kv_tokens if replica.engine is not None else 0.0
        if old is not None and back:
            renewed.append((new, old))
        elif (old is None or old.untold) and _has_counted(new, replica, away.get(replica.pod), sequences):
            mean_rate = sum([pod.rate for pod in before.values()]) / max(1, len(before))
            renewed.append((new, old or PodMemory(new.name, replace(_EMPTY, at=since or last), 0.0, 0.0, mean_rate)))
        else:
            has_new = has_new or old is None or old.untold
            new, came = result.add(new, old, since, last, now)
            reported.append(
                new
                if part is None
                else result.shown(new, came, part, between=scrape_seconds, elapsed=elapsed, uneven=uneven)
            )
        if not replica.dormant and (since is None or now - since > _SETTLED_SECONDS):
            result.loads.append(new.running + new.waiting)
    # A rate that is far from those of the pods that report may be false, above all if the counters are of other times.
    usual = sum([pod.rate for pod in reported]) / len(reported) if reported else LARGEST
    for new, old in renewed:
        rate = min(old.rate, usual)
        result.arrived += rate * (new.counters.at - old.counters.at + new.age - old.age) - old.credited
        reported.append(replace(new, rate=rate))
    for part, multiple in silent:
        credit = min(part.credit, multiple * usual * elapsed) if _counts(part.pod, now) else 0.0
        result.arrived += credit
        reported.append(replace(part.pod, rate=part.rate, credited=part.pod.credited + credit))
    names = {replica.pod for replica in replicas}
    for name in sorted(before.keys() - names):
        # A pod that ended had arrivals after its last scrape that are in no counter: those of half a cycle on average.
        result.arrived += 0.5 * elapsed * before[name].rate
    result.pods = tuple(reported)
    result.moved = has_new or before.keys() != {pod.name for pod in reported}
    return result


def _went_back(after: EngineCounters, before: EngineCounters) -> bool:
    return after.finished < before.finished or after.gaps < before.gaps


def _has_counted(new: PodMemory, replica: ReplicaMetrics, away: PodMemory | None, sequences: float) -> bool:
    """Return whether a pod that has become Ready has counted before that.

    It has if it was Ready before (``away``) and is still the same process. Of a pod that WVA has never seen, its
    counters tell: it cannot have had so many requests in progress since it is Ready.
    """
    counters = new.counters
    if away is not None:
        same = replica.created is None or replica.created <= away.counters.at
        return same and not _went_back(counters, away.counters)
    if new.derived or replica.ready_since is None:
        return False
    seconds = max(0.0, counters.at - replica.ready_since) + _ROUNDED_SECONDS
    return counters.gap_seconds > _MOST_ENGINES * sequences * seconds


def _of(count: float, total: float, most: float) -> float:
    """Return the tokens of ``count`` requests, of which at most ``most`` count."""
    return total if count <= most else total * most / count


def _read_pod(replica: ReplicaMetrics, old: PodMemory | None, now: float) -> PodMemory | None:
    """Return the counters and requests of a pod; None if they are missing, not fresh, or cannot be true."""
    engine, counters = replica.engine, replica.counters
    if engine is None or engine.running.fresh_value is None:
        return None
    derived = counters is None and (old is None or old.derived)
    finished_per_second = engine.success_rate.fresh_value
    if derived and finished_per_second is not None:
        # The pod has no counters: they follow from its means over the last minutes.
        at = engine.success_rate.timestamp or now
        before = replace(_EMPTY, at=at) if old is None else old.counters
        done = finished_per_second * max(0.0, at - before.at)
        answer = done * (engine.output_tokens.value or 0.0)
        computed = 1.0 - min(1.0, engine.prefix_hit_rate.value or 0.0)
        counters = EngineCounters(
            at=at,
            finished=before.finished + done,
            aborted=before.aborted,
            prompt_tokens=before.prompt_tokens + done * computed * (engine.input_tokens.value or 0.0),
            prompts=before.prompts + done,
            answer_tokens=before.answer_tokens + answer,
            answers=before.answers + done,
            gap_seconds=before.gap_seconds + answer * (engine.inter_token_latency.value or 0.0),
            gaps=before.gaps + answer,
        )
    if counters is None:
        return None
    numbers = _numbers(counters)
    if not (min(numbers) >= 0.0 and max(numbers) <= LARGEST and sum(numbers) <= 10.0 * LARGEST):
        return None
    if counters.aborted > counters.finished or counters.at > now + _AHEAD_SECONDS:
        return None
    waiting, age = engine.waiting.value or 0.0, now - counters.at
    return PodMemory(replica.pod, counters, engine.running.fresh_value, waiting, derived=derived, age=age)
