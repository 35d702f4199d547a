"""One query about many namespaces, and what happens when one of them spoils the answer.

A tenant can make the answer to a shared query too large, or its evaluation fail. WVA then asks again about each half of
the namespaces, until the namespace that spoils the answer is alone. That namespace has no answer; all others have
theirs in the same cycle. From then on WVA asks about that namespace alone, and while it fails, less and less often, at
least every five minutes. Once it has an answer again, WVA still asks about it alone for ten minutes.

WVA asks about halves only after a failure that a namespace can cause, and only so often in a round of queries. If
Prometheus answers no query at all, it is the reason itself, and the limit is lower. If a limit ends the search, the
next round continues with the halves that failed.

The essential queries go first: every decision needs them. The others begin when the essential queries of the round have
been asked, or when half of its time is over, so that one slow namespace does not keep them from being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from wva import log
from wva.collect.queries import Query
from wva.model.trouble import cause_of
from wva.prometheus.answers import ErrorKind, InstantVector, PrometheusError, Querier

_log = log.get("collect")

_OUTAGE: Final = frozenset({ErrorKind.TIMEOUT, ErrorKind.SERVER, ErrorKind.UNREACHABLE})
"""Failures of a Prometheus that is overloaded or away, or that crashes while it evaluates too many samples."""
_BY_NAMESPACE: Final = frozenset({ErrorKind.MALFORMED, ErrorKind.EXECUTION}) | _OUTAGE
"""The failures that a namespace can cause."""

_MORE_QUERIES: Final = 64
"""The limit of a round in which Prometheus answered a query: enough to find four namespaces by 14 queries each. The
essential queries and the others have this limit separately."""
_MORE_QUERIES_UNANSWERED: Final = 12
_MORE_QUERIES_IN_OUTAGE: Final = 2
_SLOTS: Final = {"all": 8, "essential": 8, "other": 4, "suspect": 2}
"""How many queries run at the same time. The others leave some slots free, so that an essential query that is asked
again finds one. Suspects are namespaces that have failed before: each may take as long as a query can."""
_SUSPECTS_AT_A_TIME: Final = 8
_PAUSES_SECONDS: Final = (0.0, 60.0, 120.0, 300.0)
_PROBATION_SECONDS: Final = 600.0
_FORGOTTEN_SECONDS: Final = 3600.0

Make = Callable[[Sequence[str]], Query]
"""Makes the query about some namespaces."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why namespaces have no answer: which query failed, about which namespaces (``among``), and how."""

    query: str
    error: PrometheusError
    among: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return the failure in words for people."""
        shared = f" (the answer about {len(self.among)} namespaces)" if len(self.among) > 1 else ""
        return f"query {self.query}: {self.error.message}{shared}"


@dataclass(slots=True)
class Settled:
    """The answers by name of the query, and the namespaces without an answer, with the reason."""

    answers: dict[str, InstantVector] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)

    def take(self, other: Settled) -> None:
        """Add the answers and failures about other namespaces."""
        for name, vector in other.answers.items():
            known = self.answers.get(name, InstantVector())
            self.answers[name] = InstantVector(known.series + vector.series, known.warnings + vector.warnings)
        self.failed |= other.failed


class Round:
    """One round of queries, which takes at most so many seconds; ``now`` is in seconds since the epoch.

    ``answered`` tells whether any query was answered, ``others_begin`` whether those that are not essential may begin.
    """

    def __init__(self, now: float, seconds: float) -> None:
        """Begin now."""
        time = asyncio.get_running_loop().time()
        self.now = now
        self.seconds = seconds
        self.deadline = time + seconds
        self.answered = False
        self.others_begin = asyncio.Event()
        self.others_begin_latest = time + seconds / 2
        self.essential_running = 0
        self._more = {True: 0, False: 0}
        """Queries that were sent because others had failed, by whether they are essential."""

    def begin(self) -> None:
        """Start the time of the round now, after it has waited for another round."""
        self.deadline = asyncio.get_running_loop().time() + self.seconds

    def takes(self, count: int, kind: ErrorKind, *, essential: bool) -> bool:
        """Tell whether a failure allows so many more queries, and count them."""
        limit = _MORE_QUERIES
        if not self.answered:
            limit = _MORE_QUERIES_IN_OUTAGE if kind in _OUTAGE else _MORE_QUERIES_UNANSWERED
        if self._more[essential] + count > limit or asyncio.get_running_loop().time() >= self.deadline:
            return False
        self._more[essential] += count
        return True


@dataclass(slots=True)
class _Suspect:
    """Namespaces, at least one of which spoils an answer. Times are seconds since the epoch.

    ``strikes`` counts the failures in a row; 0 means probation after an answer.
    """

    failure: Failure
    asked_at: float
    failed_at: float
    strikes: int = 1

    def due(self, now: float) -> bool:
        """Tell whether WVA may ask again now; a clock that was set back does not lengthen the wait."""
        return not 0 <= now - self.asked_at < _PAUSES_SECONDS[min(self.strikes, len(_PAUSES_SECONDS)) - 1]


class SharedQueries:
    """Asks queries about many namespaces; remembers which of them spoil answers."""

    def __init__(self, prometheus: Querier) -> None:
        """Suspect no namespace."""
        self._prometheus = prometheus
        self._slots = {kind: asyncio.Semaphore(number) for kind, number in _SLOTS.items()}
        self._suspects: dict[tuple[Hashable, str], _Suspect] = {}

    async def settle(
        self, topic: Hashable, makes: Mapping[str, Make], namespaces: Sequence[str], round_: Round
    ) -> Settled:
        """Ask queries, given by name, about namespaces. A namespace has an answer if each query about it has one.

        The namespaces that spoil answers are remembered for each ``topic``, since they may not spoil other queries.
        """
        now = round_.now
        # Forget namespaces that were not asked about for long: they may be gone.
        self._suspects = {
            key: suspect for key, suspect in self._suspects.items() if 0 <= now - suspect.asked_at < _FORGOTTEN_SECONDS
        }
        # Ask about suspects in the groups in which they failed, the longest waiting groups first.
        known = {
            namespace: self._suspects[topic, namespace]
            for namespace in namespaces
            if (topic, namespace) in self._suspects
        }
        together: dict[tuple[str, ...], list[str]] = {}
        for namespace, suspect in known.items():
            if suspect.strikes:
                together.setdefault(suspect.failure.among, []).append(namespace)
        parts = {tuple(members): known[members[0]] for members in together.values()}
        due = sorted((part for part in parts if parts[part].due(now)), key=lambda part: (parts[part].asked_at, part))
        due, waiting = due[:_SUSPECTS_AT_A_TIME], due[_SUSPECTS_AT_A_TIME:]
        later = {namespace: parts[part].failure for part in waiting for namespace in part}
        settled = Settled()
        for part in parts.keys() - {*due, *waiting}:
            settled.failed |= dict.fromkeys(part, parts[part].failure)
        healthy = tuple(namespace for namespace in namespaces if namespace not in known)
        on_probation = tuple(namespace for namespace, suspect in known.items() if not suspect.strikes)
        apart = [*([on_probation] if on_probation else []), *(half for part in due for half in _halves(part))]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._together(topic, makes, healthy, round_, gates=True))] if healthy else []
            tasks += [group.create_task(self._together(topic, makes, part, round_, gates=False)) for part in apart]
        results = Settled()
        for task in tasks:
            results.take(task.result())
        if later and results.failed.keys().isdisjoint(namespace for part in apart for namespace in part):
            # All suspects that were asked about have answers, so it was an outage: ask about the others at once.
            results.take(await self._together(topic, makes, tuple(later), round_, gates=False))
            later = {}
        settled.take(results)
        settled.failed |= later
        return settled

    def suspected(self, topic: Hashable) -> frozenset[str]:
        """Return the namespaces that are asked about apart from the others."""
        return frozenset(namespace for suspect_topic, namespace in self._suspects if suspect_topic == topic)

    async def _together(
        self, topic: Hashable, makes: Mapping[str, Make], namespaces: tuple[str, ...], round_: Round, *, gates: bool
    ) -> Settled:
        """Ask all queries about these namespaces; if one fails, ask about parts, and remember the suspects.

        Queries that are not essential wait until the essential ones with ``gates`` have been asked. About suspects
        (without ``gates``) WVA asks one query after the other: the first that fails is enough.
        """
        queries = {name: make(namespaces) for name, make in makes.items()}
        essential = any(query.essential for query in queries.values())
        if not essential:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(round_.others_begin_latest):
                    await round_.others_begin.wait()
        first: dict[str, InstantVector | PrometheusError] = {}
        if gates:
            round_.essential_running += essential
            async with asyncio.TaskGroup() as group:
                tasks = {name: group.create_task(self._ask(query, round_)) for name, query in queries.items()}
            first = {name: task.result() for name, task in tasks.items()}
            round_.essential_running -= essential
            if not round_.essential_running:
                round_.others_begin.set()
        settled = Settled()
        for name, make in makes.items():
            rest = tuple(namespace for namespace in namespaces if namespace not in settled.failed)
            if not rest:
                break
            outcome = first.get(name)
            if outcome is None or (isinstance(outcome, PrometheusError) and rest != namespaces):
                outcome = await self._ask(make(rest), round_, suspect=not gates)
            settled.take(await self._taken(name, make, rest, outcome, round_))
        failed, now = settled.failed, round_.now
        if failed:
            # An answer about a namespace does not count if another query about this namespace failed.
            for name, vector in settled.answers.items():
                kept = tuple(series for series in vector.series if (series.metric.namespace or "") not in failed)
                settled.answers[name] = InstantVector(kept, vector.warnings)
        for namespace in namespaces:
            failure, known = failed.get(namespace), self._suspects.get((topic, namespace))
            if failure is None:
                if known is not None and (len(known.failure.among) > 1 or now - known.failed_at >= _PROBATION_SECONDS):
                    del self._suspects[topic, namespace]
                elif known is not None:
                    known.asked_at, known.strikes = now, 0
            elif failure.error.kind not in _BY_NAMESPACE or (known is None and not round_.answered):
                continue
            elif known is not None and known.failure.among == failure.among:
                known.failure, known.asked_at, known.failed_at, known.strikes = failure, now, now, known.strikes + 1
            elif known is not None or failure.among != namespaces:
                self._suspects[topic, namespace] = _Suspect(failure, now, now)
                if failure.among == (namespace,):
                    _log.warning("namespace_spoils_answers", namespace=namespace, reason=failure.message)
        return settled

    async def _taken(
        self,
        name: str,
        make: Make,
        namespaces: tuple[str, ...],
        outcome: InstantVector | PrometheusError,
        round_: Round,
    ) -> Settled:
        """Return what an answer settles; after an error, ask about each half of the namespaces."""
        if not isinstance(outcome, PrometheusError):
            return Settled({name: outcome})
        queries = {half: make(half) for half in _halves(namespaces)}
        essential = any(query.essential for query in queries.values())
        possible = len(queries) > 1 and outcome.kind in _BY_NAMESPACE
        if not possible or not round_.takes(len(queries), outcome.kind, essential=essential):
            return Settled(failed=dict.fromkeys(namespaces, Failure(name, outcome, namespaces)))
        async with asyncio.TaskGroup() as group:
            tasks = {half: group.create_task(self._ask(query, round_)) for half, query in queries.items()}
        settled = Settled()
        for half, task in tasks.items():
            settled.take(await self._taken(name, make, half, task.result(), round_))
        return settled

    async def _ask(self, query: Query, round_: Round, *, suspect: bool = False) -> InstantVector | PrometheusError:
        """Return the error instead of raising it: in a task group it would cancel the other queries."""
        kind = "suspect" if suspect else "essential" if query.essential else "other"
        try:
            async with asyncio.timeout_at(round_.deadline), self._slots[kind], self._slots["all"]:
                answer = await self._prometheus.query(query.text, name=query.name, at=round_.now)
        except TimeoutError:
            return PrometheusError(ErrorKind.TIMEOUT, f"Prometheus did not answer within {round_.seconds:g} s")
        except PrometheusError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the other namespaces still get answers
            # The content of the answer causes an unexpected error, so WVA can find the namespace with this content.
            _log.exception("query_failed", query=query.name)
            return PrometheusError(ErrorKind.MALFORMED, f"its answer cannot be read: {cause_of(error)}")
        round_.answered = True
        if answer.warnings:
            _log.warning("query_warned", query=query.name, warning=answer.warnings[0])
        return answer


def _halves(namespaces: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the two halves of the namespaces, or the only namespace as one part."""
    middle = len(namespaces) // 2
    return (namespaces[:middle], namespaces[middle:]) if middle else (namespaces,)
