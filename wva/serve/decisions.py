"""The decisions of the last cycles, as JSON: ``/v1/decisions`` and ``/v1/explain/NAMESPACE/NAME``.

A client needs the right to ``list`` VariantAutoscalings for the first (of the namespace that ``?namespace=`` names, or
of all), and to ``get`` the one VariantAutoscaling for the second: so it sees here what it may see in the API server.

A process that does not lead has no cycles and says who leads. An explanation decides again many times, in a thread and
one at a time; it is remembered, since the console and several people ask for the same ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from aiohttp import web

from wva.model.variant import VariantKey
from wva.numbers import Real
from wva.publish.explanation import Explanation, explanation
from wva.publish.recent import RecentCycles
from wva.publish.recordings import Recording
from wva.serve.gate import Latest, plain
from wva.serve.pages import Page, json_answer
from wva.serve.reviews import PageRight

DECISIONS_PATH: Final = "/v1/decisions"
EXPLAIN_PREFIX: Final = "/v1/explain/"
_REMEMBERED: Final = 64
_TIME: Final = Real(0.0, 1e11)
_MAX_NAME_CHARACTERS: Final = 253


def explain_path(namespace: str, name: str) -> str:
    """Return the path that explains a variant."""
    return f"{EXPLAIN_PREFIX}{quote(namespace, safe='')}/{quote(name, safe='')}"


class DecisionPages:
    """Finds and answers these pages."""

    def __init__(self, recent: RecentCycles, *, elsewhere: Callable[[], str], interval: Callable[[], float]) -> None:
        """Answer from ``recent``. ``elsewhere`` says why this process has no decisions, empty if it has.

        ``interval`` tells the seconds from one cycle to the next.
        """
        self._recent = recent
        self._elsewhere = elsewhere
        self._interval = interval
        self._one_at_a_time = asyncio.Lock()
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
        found, namespace = self._cycle(request), _namespace(request)
        if isinstance(found, web.Response):
            return found
        chosen = [each for each in found.decisions if namespace in ("", each.key.namespace)]
        return json_answer({"at": found.now, "decisions": chosen, "cycles": self._recent.times})

    async def _explain(self, key: VariantKey, request: web.BaseRequest) -> web.Response:
        found = self._cycle(request)
        if isinstance(found, web.Response):
            return found
        with_changes = request.query.get("changes") != "false"
        await self._one_at_a_time.acquire()
        # Who asked may leave before the thread ends. The thread goes on, and only its end lets the next one begin.
        document = await asyncio.shield(self._explanation(found, key, with_changes=with_changes))
        if document is None:
            return plain(HTTPStatus.NOT_FOUND, f"the cycle has no decision on {key}")
        return json_answer(document)

    async def _explanation(self, recording: Recording, key: VariantKey, *, with_changes: bool) -> Explanation | None:
        """Return an explanation, made in a thread unless it is remembered; then let the next one begin."""
        asked = (recording.now, key, with_changes)
        try:
            if asked not in self._explained:
                self._explained[asked] = await asyncio.to_thread(
                    explanation, recording, key, with_changes=with_changes, interval_seconds=self._interval()
                )
            return self._explained[asked]
        finally:
            self._one_at_a_time.release()

    def _cycle(self, request: web.BaseRequest) -> Recording | web.Response:
        """Return the cycle that is asked for, or why there is none."""
        if elsewhere := self._elsewhere():
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"no decisions here: {elsewhere}")
        text = request.query.get("at")
        if text is None:
            found = self._recent.newest
        else:
            when = _TIME.find(text)
            if when is None:
                return plain(HTTPStatus.BAD_REQUEST, "at: expected seconds since the epoch")
            found = self._recent.at(when)
        return found or plain(HTTPStatus.NOT_FOUND, "no cycle of that time is kept")


def _namespace(request: web.BaseRequest) -> str:
    return request.query.get("namespace", "")
