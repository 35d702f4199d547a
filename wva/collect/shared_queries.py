"""One query about many namespaces, and what happens when one of them spoils the answer.

A tenant can make the answer to a shared query too large, or its evaluation fail. The query is then asked again about
each half of its namespaces, until the namespace that spoils it stands alone. That one has no answer; all others have
theirs in the same cycle. A namespace that was found is remembered and asked alone from then on, while it fails less and
less often, up to five minutes apart. Once it has an answer again it stays apart from the others for ten minutes.

Only a failure that a namespace can cause is followed by halves, and a round of queries has a limit for them. If no
query at all is answered, Prometheus is the reason: then the limit is a few queries. If the limits end the search, the
next round continues it with the halves that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wva import log
from wva.collect.answers import ErrorKind, InstantVector, PrometheusError, Querier
from wva.collect.queries import Query
from wva.collect.query_slots import Order, QuerySlots, Rank
from wva.model.failures import cause_of

_log = log.get("collect")

_OUTAGE: Final = frozenset({ErrorKind.TIMEOUT, ErrorKind.SERVER, ErrorKind.UNREACHABLE})
"""Failures of a Prometheus that is overloaded or away, and of one that ends while it evaluates too many samples."""
_BY_NAMESPACE: Final = frozenset({ErrorKind.MALFORMED, ErrorKind.EXECUTION}) | _OUTAGE
"""The failures that a namespace can cause."""

_MORE_QUERIES: Final = 64
"""In a round in which something was answered: enough for four namespaces, each of which is found by 14 queries.

The limits hold for the essential queries and for the others each.
"""
_MORE_QUERIES_UNANSWERED: Final = 12
_MORE_QUERIES_IN_OUTAGE: Final = 2
_SUSPECTS_AT_A_TIME: Final = 8
_PAUSES_SECONDS: Final = (0.0, 60.0, 120.0, 300.0)
_PROBATION_SECONDS: Final = 600.0
_FORGOTTEN_SECONDS: Final = 3600.0

Make = Callable[[Sequence[str]], Query]
"""Makes the query about some namespaces."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why namespaces have no answer: which query about them (``among``) failed, and how."""

    query: str
    error: PrometheusError
    among: tuple[str, ...]

    @property
    def message(self) -> str:
        """Say it to people."""
        shared = f" (the answer about {len(self.among)} namespaces)" if len(self.among) > 1 else ""
        return f"query {self.query}: {self.error.message}{shared}"


@dataclass(slots=True)
class Settled:
    """The answers by name of the query, and the namespaces that are not in them, with the reason."""

    answers: dict[str, InstantVector] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)

    def take(self, other: Settled) -> None:
        """Add what is known of other namespaces."""
        for name, vector in other.answers.items():
            known = self.answers.get(name, InstantVector())
            self.answers[name] = InstantVector(known.series + vector.series, known.warnings + vector.warnings)
        self.failed |= other.failed

    def clean(self) -> None:
        """Remove what some queries have answered about namespaces for which others have failed."""
        if self.failed:
            self.answers = {
                name: InstantVector(
                    tuple(each for each in vector.series if each.metric.get("namespace", "") not in self.failed),
                    vector.warnings,
                )
                for name, vector in self.answers.items()
            }


@dataclass(slots=True)
class Round:
    """One round of queries: at ``now`` (seconds since the epoch), until ``deadline`` (time of the event loop).

    ``seconds`` is what it may take, ``answered`` whether anything was answered, ``more`` the queries that were sent
    because others had failed, by whether they are essential.
    """

    now: float
    seconds: float
    deadline: float
    order: Order
    answered: bool = False
    more: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    @classmethod
    def of(cls, now: float, seconds: float) -> Round:
        """Return a round that takes at most so many seconds from now on."""
        time = asyncio.get_running_loop().time()
        return cls(now, seconds, time + seconds, Order(begins_latest=time + seconds / 2))

    def begin(self) -> None:
        """Count its time from now on: what came before was the wait for another round."""
        self.deadline = max(self.deadline, asyncio.get_running_loop().time() + self.seconds)

    def takes(self, count: int, kind: ErrorKind, *, essential: bool) -> bool:
        """Tell whether so many more queries may be sent after a failure, and count them."""
        limit = _MORE_QUERIES
        if not self.answered:
            limit = _MORE_QUERIES_IN_OUTAGE if kind in _OUTAGE else _MORE_QUERIES_UNANSWERED
        if self.more[essential] + count > limit or asyncio.get_running_loop().time() >= self.deadline:
            return False
        self.more[essential] += count
        return True


@dataclass(slots=True)
class _Suspect:
    """Namespaces of which one spoils an answer; a single one does so itself. Times are seconds since the epoch.

    ``strikes`` counts the failures in a row; there are none while it is on probation.
    """

    failure: Failure
    asked_at: float
    failed_at: float
    strikes: int = 1

    def due(self, now: float) -> bool:
        """Tell whether it is time to ask again; a clock that was set back is no reason to wait."""
        return not 0 <= now - self.asked_at < _PAUSES_SECONDS[min(self.strikes, len(_PAUSES_SECONDS)) - 1]


class SharedQueries:
    """Asks queries about many namespaces; remembers which of them spoil answers."""

    def __init__(self, prometheus: Querier) -> None:
        """Suspect no namespace."""
        self._prometheus = prometheus
        self._slots = QuerySlots()
        self._suspects: dict[tuple[Hashable, str], _Suspect] = {}

    async def settle(
        self, topic: Hashable, makes: Mapping[str, Make], namespaces: Sequence[str], round_: Round
    ) -> Settled:
        """Ask queries, given by name, about namespaces. One is answered if all of the queries about it are.

        ``topic`` separates what is remembered: a namespace that spoils answers of one kind may be good for others.
        """
        self._forget(round_.now)
        first, others, later, settled = self._groups(topic, namespaces, round_.now)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._together(topic, makes, first, round_, gates=True))] if first else []
            tasks += [group.create_task(self._together(topic, makes, each, round_, gates=False)) for each in others]
        found = Settled()
        for task in tasks:
            found.take(task.result())
        if later and found.failed.keys().isdisjoint(each for part in others for each in part):
            # All suspects that were asked have answers: it was an outage, and the others need not wait for their turn.
            found.take(await self._together(topic, makes, tuple(later), round_, gates=False))
            later = {}
        settled.take(found)
        settled.failed |= later
        return settled

    def suspected(self, topic: Hashable) -> frozenset[str]:
        """Return the namespaces that are asked about apart from the others."""
        return frozenset(namespace for known, namespace in self._suspects if known == topic)

    def _groups(
        self, topic: Hashable, namespaces: Sequence[str], now: float
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]], dict[str, Failure], Settled]:
        """Return those who are asked together, other groups, those who wait, and what is known of the rest."""
        known = {each: self._suspects[topic, each] for each in namespaces if (topic, each) in self._suspects}
        together: dict[tuple[str, ...], list[str]] = {}
        for each, suspect in known.items():
            if suspect.strikes:
                together.setdefault(suspect.failure.among, []).append(each)
        parts = {tuple(members): known[members[0]] for members in together.values()}
        due = [part for part, suspect in parts.items() if suspect.due(now)]
        due.sort(key=lambda part: (parts[part].asked_at, part))
        due, waiting = due[:_SUSPECTS_AT_A_TIME], due[_SUSPECTS_AT_A_TIME:]
        later = {each: parts[part].failure for part in waiting for each in part}
        settled = Settled()
        for part in parts.keys() - {*due, *waiting}:
            settled.failed |= dict.fromkeys(part, parts[part].failure)
        healthy = tuple(each for each in namespaces if each not in known)
        returned = tuple(each for each, suspect in known.items() if not suspect.strikes)
        asked = [*([returned] if returned else []), *(half for part in due for half in _halves(part))]
        return healthy, asked, later, settled

    async def _together(
        self, topic: Hashable, makes: Mapping[str, Make], namespaces: tuple[str, ...], round_: Round, *, gates: bool
    ) -> Settled:
        """Ask all queries about these namespaces, and where one fails about parts of them.

        Suspects are asked one query after the other: the first that fails is enough.
        """
        first: dict[str, InstantVector | PrometheusError] = {}
        if gates:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(self._in_order(make(namespaces), round_, gates=True))
                    for name, make in makes.items()
                }
            first = {name: task.result() for name, task in tasks.items()}
        settled = Settled()
        for name, make in makes.items():
            rest = tuple(each for each in namespaces if each not in settled.failed)
            if not rest:
                break
            got = first[name] if gates else await self._in_order(make(rest), round_, gates=False)
            if gates and isinstance(got, PrometheusError) and rest != namespaces:
                got = await self._ask(make(rest), round_)
            if isinstance(got, PrometheusError):
                settled.take(await self._split(name, make, rest, got, round_))
            else:
                settled.take(Settled({name: got}))
        settled.clean()
        self._learn(topic, namespaces, settled.failed, round_)
        return settled

    async def _in_order(self, query: Query, round_: Round, *, gates: bool) -> InstantVector | PrometheusError:
        """Ask in the order of the round; the others wait for an essential query that ``gates``."""
        if query.essential and gates:
            async with round_.order.essential():
                return await self._ask(query, round_)
        if not query.essential:
            await round_.order.turn()
        return await self._ask(query, round_, suspect=not gates)

    async def _split(
        self, name: str, make: Make, namespaces: tuple[str, ...], error: PrometheusError, round_: Round
    ) -> Settled:
        """Ask about each half of namespaces for which a query has failed."""
        halves = _halves(namespaces)
        queries = {half: make(half) for half in halves}
        essential = any(query.essential for query in queries.values())
        possible = len(halves) > 1 and error.kind in _BY_NAMESPACE
        if not possible or not round_.takes(len(halves), error.kind, essential=essential):
            return Settled(failed=dict.fromkeys(namespaces, Failure(name, error, namespaces)))
        async with asyncio.TaskGroup() as group:
            tasks = {half: group.create_task(self._ask(query, round_)) for half, query in queries.items()}
        settled = Settled()
        for half, task in tasks.items():
            got = task.result()
            if isinstance(got, PrometheusError):
                settled.take(await self._split(name, make, half, got, round_))
            else:
                settled.take(Settled({name: got}))
        return settled

    async def _ask(self, query: Query, round_: Round, *, suspect: bool = False) -> InstantVector | PrometheusError:
        """Return the error instead of raising it: in a task group it would cancel the other queries."""
        rank = Rank.SUSPECT if suspect else Rank.ESSENTIAL if query.essential else Rank.OTHER
        try:
            async with asyncio.timeout_at(round_.deadline), self._slots.taken(rank):
                answer = await self._prometheus.query(query.text, name=query.name, at=round_.now)
        except TimeoutError:
            return PrometheusError(ErrorKind.TIMEOUT, f"Prometheus did not answer within {round_.seconds:g} s")
        except PrometheusError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the other namespaces have their answers
            # An unexpected error comes from the content of the answer, so the namespace with this content can be found.
            _log.exception("query_failed", query=query.name)
            return PrometheusError(ErrorKind.MALFORMED, f"its answer cannot be read: {cause_of(error)}")
        round_.answered = True
        if answer.warnings:
            _log.warning("query_warned", query=query.name, warning=answer.warnings[0])
        return answer

    def _learn(
        self, topic: Hashable, namespaces: tuple[str, ...], failed: Mapping[str, Failure], round_: Round
    ) -> None:
        """Remember which namespaces spoil answers, and that others do not."""
        now = round_.now
        for each in namespaces:
            failure, known = failed.get(each), self._suspects.get((topic, each))
            if failure is None:
                if known is not None and (len(known.failure.among) > 1 or now - known.failed_at >= _PROBATION_SECONDS):
                    del self._suspects[topic, each]
                elif known is not None:
                    known.asked_at, known.strikes = now, 0
            elif failure.error.kind not in _BY_NAMESPACE or (known is None and not round_.answered):
                continue
            elif known is not None and known.failure.among == failure.among:
                known.failure, known.asked_at, known.failed_at, known.strikes = failure, now, now, known.strikes + 1
            elif known is not None or failure.among != namespaces:
                self._suspects[topic, each] = _Suspect(failure, now, now)
                if failure.among == (each,):
                    _log.warning("namespace_spoils_answers", namespace=each, reason=failure.message)

    def _forget(self, now: float) -> None:
        """Forget namespaces that were not asked about for long: they may be gone."""
        for key, suspect in list(self._suspects.items()):
            if not 0 <= now - suspect.asked_at < _FORGOTTEN_SECONDS:
                del self._suspects[key]


def _halves(namespaces: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the two halves; of one namespace itself."""
    middle = len(namespaces) // 2
    return (namespaces[:middle], namespaces[middle:]) if middle else (namespaces,)
