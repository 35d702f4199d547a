"""The decisions of the last cycles, as JSON: ``/v1/decisions`` and ``/v1/explain/NAMESPACE/NAME``.

A client needs the right to ``list`` VariantAutoscalings for the first (of the namespace that ``?namespace=`` names, or
of all), and to ``get`` the one VariantAutoscaling for the second: so it sees here what it may see in the API server.

A process that does not lead has no cycles and says who leads. An explanation decides again many times, in a thread and
one at a time; it is remembered, since the console and several people ask for the same ones. Clients take turns, by
user, and few questions of one user may wait. A question about an earlier cycle unpacks only the models that it is
about, and only in its turn. If models share GPUs, its answer does not say what would change the number: that needs all
models.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from wva.hindsight.explanation import Explanation, explanation
from wva.hindsight.recent import KeptCycle, RecentCycles
from wva.model.in_time import InTime
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey
from wva.numbers import Real
from wva.serve.gate import Latest, Throttled, client_of, plain
from wva.serve.pages import Page, json_answer
from wva.serve.reviews import PageRight
from wva.serve.turns import Turns

DECISIONS_PATH: Final = "/v1/decisions"
EXPLAIN_PREFIX: Final = "/v1/explain/"
_REMEMBERED: Final = 64
_WAITING_OF_ONE: Final = 4
"""How many questions of one user may wait for their turn, and how many of all."""
_WAITING: Final = 48
_LAST_CYCLE_ONLY: Final = "models share GPUs, so what would change this number is told of the last cycle only"
_TIME: Final = Real(0.0, 1e11)
_MAX_NAME_CHARACTERS: Final = 253


def explain_path(namespace: str, name: str) -> str:
    """Return the path that explains a variant."""
    return f"{EXPLAIN_PREFIX}{quote(namespace, safe='')}/{quote(name, safe='')}"


class DecisionPages:
    """Finds and answers these pages."""

    def __init__(
        self,
        recent: RecentCycles,
        *,
        elsewhere: Callable[[], str],
        interval: Callable[[], float],
        in_time: Callable[[ModelKey], InTime | None] = lambda _model: None,
    ) -> None:
        """Answer from ``recent``. ``elsewhere`` says why this process has no decisions, empty if it has.

        ``interval`` returns the seconds from one cycle to the next, ``in_time`` what the users of a model get now.
        """
        self._recent = recent
        self._elsewhere = elsewhere
        self._interval = interval
        self._in_time = in_time
        self._turns = Turns(each=_WAITING_OF_ONE, most=_WAITING)
        self._explained: Latest[tuple[float, VariantKey, bool], Explanation | None] = Latest(_REMEMBERED)

    def __call__(self, request: web.BaseRequest) -> Page | None:
        """Return the page that a request asks for."""
        if request.path == DECISIONS_PATH:
            return Page(PageRight("list", namespace=_namespace(request)), self._decisions)
        if not request.path.startswith(EXPLAIN_PREFIX):
            return None
        namespace, _, name = request.path.removeprefix(EXPLAIN_PREFIX).partition("/")
        if not namespace or not name or "/" in name or len(namespace) + len(name) > 2 * _MAX_NAME_CHARACTERS:
            return None
        return Page(
            PageRight("get", namespace=namespace, name=name), partial(self._explain, VariantKey(namespace, name))
        )

    async def _decisions(self, request: web.BaseRequest) -> web.Response:
        cycle, namespace = self._cycle(request), _namespace(request)
        if isinstance(cycle, web.Response):
            return cycle
        if cycle.whole is None and (refused := await self._turn(request)) is not None:
            return refused
        try:
            decisions = [
                msgspec.Raw(msgspec.json.encode(decision))
                async for recording in cycle.of_namespace(namespace)
                for decision in recording.decisions
                if namespace in ("", decision.key.namespace)
            ]
        finally:
            if cycle.whole is None:
                self._turns.done()
        return json_answer({"at": cycle.now, "decisions": decisions, "cycles": self._recent.times})

    async def _explain(self, key: VariantKey, request: web.BaseRequest) -> web.Response:
        cycle = self._cycle(request)
        if isinstance(cycle, web.Response):
            return cycle
        with_changes = request.query.get("changes") != "false"
        if (refused := await self._turn(request)) is not None:
            return refused
        # The client may leave before the thread ends. The thread goes on, and only its end lets the next one begin.
        document = await asyncio.shield(self._explanation(cycle, key, with_changes=with_changes))
        if document is None:
            return plain(HTTPStatus.NOT_FOUND, f"the cycle has no decision on {key}")
        model = None if cycle.whole is None else cycle.whole.model_of(key)
        served = None if model is None else self._in_time(model)
        return json_answer(document if served is None else replace(document, served=served.words))

    async def _turn(self, request: web.BaseRequest) -> web.Response | None:
        """Wait for the turn of a client, and return None; otherwise the answer to one who has asked for too much."""
        try:
            await self._turns.take(client_of(request))
        except Throttled as throttled:
            return throttled.answer("too many questions about decisions wait already")
        return None

    async def _explanation(self, cycle: KeptCycle, key: VariantKey, *, with_changes: bool) -> Explanation | None:
        """Return an explanation, made in a thread unless it is remembered; then let the next one begin."""
        question = (cycle.now, key, with_changes)
        try:
            if question not in self._explained:
                self._explained[question] = await self._new_explanation(cycle, key, with_changes=with_changes)
            return self._explained[question]
        finally:
            self._turns.done()

    async def _new_explanation(self, cycle: KeptCycle, key: VariantKey, *, with_changes: bool) -> Explanation | None:
        recording = await cycle.about(key)
        if recording is None:
            return None
        left_out = with_changes and cycle.whole is None and recording.policy.counts_gpus
        document = await asyncio.to_thread(
            explanation,
            recording,
            key,
            with_changes=with_changes and not left_out,
            interval_seconds=self._interval(),
        )
        return (
            replace(document, notes=(*document.notes, _LAST_CYCLE_ONLY))
            if document is not None and left_out
            else document
        )

    def _cycle(self, request: web.BaseRequest) -> KeptCycle | web.Response:
        """Return the cycle that is asked for, or why there is none."""
        if elsewhere := self._elsewhere():
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"no decisions here: {elsewhere}")
        text = request.query.get("at")
        when = math.inf if text is None else _TIME.find(text)
        if when is None:
            return plain(HTTPStatus.BAD_REQUEST, "at: expected seconds since the epoch")
        return self._recent.at(when) or plain(HTTPStatus.NOT_FOUND, "no cycle of that time is kept")


def _namespace(request: web.BaseRequest) -> str:
    return request.query.get("namespace", "")
