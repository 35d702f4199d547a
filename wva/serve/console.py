"""The console: a page that shows the fleet, and the data for it.

The page, its style, its scripts and the meanings of reasons are the same for everybody and are served to everybody.
What they show comes from ``/v1/overview``, ``/v1/timeline/NAMESPACE``, ``/v1/cost`` and ``/v1/stream``, each behind the
right to ``list`` VariantAutoscalings, and from ``/v1/explain``. A client that lists one namespace sees nothing of the
others, so it sees its quotas of GPUs and not what the nodes have. The stream sends an event after each cycle, so that
the page asks again at once. The event has only the time. Nothing is loaded from elsewhere: the policy of the page
forbids it, and forbids markup made of text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

import msgspec
from aiohttp import web

from wva.api.meta import Condition
from wva.hindsight.recent import RecentCycles
from wva.hindsight.shadow import ShadowFigures
from wva.hindsight.timeline import Timeline
from wva.model.in_time import InTime
from wva.model.variant import ModelKey, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.meanings import MEANINGS_OF_REASONS
from wva.serve.gate import plain
from wva.serve.http import EventStream
from wva.serve.pages import OPEN, Page, json_answer
from wva.serve.reviews import PageRight

OVERVIEW_PATH: Final = "/v1/overview"
STREAM_PATH: Final = "/v1/stream"
COST_PATH: Final = "/v1/cost"
TIMELINE_PREFIX: Final = "/v1/timeline/"
SCRIPTS: Final = ("base", "fleet", "chart", "timeline", "explanation", "console")
"""They share their names, so the page has them in this order."""
_ASSETS: Final = {
    "/": ("console.html", "text/html"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in SCRIPTS},
    "/console.css": ("console.css", "text/css"),
    "/console.svg": ("console.svg", "image/svg+xml"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_LOAD: Final = ("kv", "waiting", "demand", "serving", "desired")
"""The fields of a model's point that are its load."""
MOST_STREAMS: Final = 32
"""A page that gets no stream asks again every few seconds, so the connections are left for its questions."""
_QUIET_SECONDS: Final = 15.0
"""A comment each so often tells both sides that the other one is there."""


class ConsolePages:
    """Finds and answers these pages."""

    def __init__(
        self,
        recent: RecentCycles,
        timeline: Timeline,
        *,
        elsewhere: Callable[[], str],
        ledger: Ledger,
        accounts: Callable[[VariantKey], ShadowFigures | None],
        conditions: Callable[[VariantKey], Sequence[Condition]],
        in_time: Callable[[ModelKey], InTime | None] = lambda _model: None,
    ) -> None:
        """Answer from ``recent`` and ``timeline``. ``elsewhere`` says why this process has no decisions.

        ``accounts`` returns what a variant in shadow mode would have cost, ``conditions`` the conditions of its status,
        ``in_time`` what the users of a model got.
        """
        self._recent = recent
        self._timeline = timeline
        self._elsewhere = elsewhere
        self._ledger = ledger
        self._accounts = accounts
        self._conditions = conditions
        self._in_time = in_time
        self._streams = 0
        self._texts = {
            path: (files("wva.serve").joinpath("assets", name).read_bytes(), kind)
            for path, (name, kind) in _ASSETS.items()
        }
        self._texts["/meanings.json"] = (msgspec.json.encode(MEANINGS_OF_REASONS), "application/json")

    def __call__(self, request: web.BaseRequest) -> Page | None:
        """Return the page that a request asks for."""
        path = request.path
        if path in self._texts:
            return Page(OPEN, partial(self._asset, *self._texts[path]))
        if path == OVERVIEW_PATH:
            return Page(PageRight("list", namespace=_namespace(request)), self._overview)
        if path == STREAM_PATH:
            return Page(PageRight("list", namespace=_namespace(request)), self._stream)
        if path == COST_PATH:
            return Page(PageRight("list", namespace=_namespace(request)), self._cost)
        namespace = path.removeprefix(TIMELINE_PREFIX)
        if path.startswith(TIMELINE_PREFIX) and namespace and "/" not in namespace:
            return Page(PageRight("list", namespace=namespace), partial(self._lines, namespace))
        return None

    async def _asset(self, body: bytes, kind: str, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_HEADERS)

    async def _overview(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return models with their variants, and the GPUs as far as WVA counts them."""
        elsewhere, newest = self._elsewhere(), self._recent.newest
        if elsewhere or newest is None:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"no decisions here: {elsewhere or 'no cycle has run yet'}")
        namespace = _namespace(request)  # empty for all

        ready = Counter(replica.variant for replica in newest.snapshot.replicas)
        roles = {variant.key: variant.role for variant in newest.snapshot.variants}
        variants: dict[ModelKey, list[dict[str, Any]]] = {}
        for decision in newest.decisions:
            if namespace not in ("", decision.model.namespace):
                continue
            shadow = self._ledger.shadow(decision.key)
            regret: dict[str, dict[str, float]] | None = None
            if shadow and (account := self._accounts(decision.key)) is not None:
                regret = {}  # by the name of a series, then by fleet (empty where a series has none)
                for name, value, labels in account.series():
                    regret.setdefault(name, {})[labels.get("fleet", "")] = value
            variants.setdefault(decision.model, []).append(
                {
                    "namespace": decision.key.namespace,
                    "name": decision.key.name,
                    "role": roles.get(decision.key, ""),
                    "accelerator": decision.accelerator,
                    "cost": decision.cost,
                    "current": decision.current,
                    "ready": ready[decision.key],
                    "desired": decision.desired,
                    "reason": decision.reason.value,
                    "message": decision.message,
                    "held": decision.held,
                    "limited_by": decision.limits[-1].limited_by if decision.limits else "",
                    "shadow": shadow,
                    "regret": regret,
                    "conditions": [
                        {
                            "type": condition.type,
                            "status": condition.status,
                            "reason": condition.reason,
                            "message": condition.message,
                            "since": condition.last_transition_time,
                        }
                        for condition in self._conditions(decision.key)
                    ],
                }
            )

        models = []
        for model, model_variants in sorted(variants.items()):
            last = self._timeline.newest(model)
            load = None if last is None else {field: getattr(last, field) for field in _LOAD}
            models.append(
                {
                    "namespace": model.namespace,
                    "model": model.model_id,
                    "load": load,
                    "in_time": _served(self._in_time(model)),
                    "variants": model_variants,
                }
            )

        # The pools count all namespaces, so they are for a client that may see all.
        inventory = newest.snapshot.inventory
        pools = () if inventory is None or namespace else inventory.pools
        quotas = () if inventory is None else inventory.quotas
        gpus = {
            "counted": inventory is not None,
            "problem": newest.snapshot.inventory_detail,  # why there is no inventory although one is needed
            "pools": [
                {"accelerator": pool.accelerator, "capacity": pool.capacity, "used": pool.used, "free": pool.free}
                for pool in pools
            ],
            "quotas": [
                {
                    "namespace": quota.namespace,
                    "name": quota.name,
                    "resource": quota.resource,
                    "capacity": quota.hard,
                    "used": quota.used,
                    "free": quota.free,
                }
                for quota in quotas
                if namespace in ("", quota.namespace)
            ],
        }
        return json_answer({"at": newest.now, "models": models, "gpus": gpus})

    async def _lines(self, namespace: str, request: web.BaseRequest) -> web.StreamResponse:
        newest = self._recent.newest
        model = ModelKey(namespace, request.query.get("model", ""))
        decisions = () if newest is None else newest.decisions
        keys = [decision.key for decision in decisions if decision.model == model]
        if not keys:
            return plain(HTTPStatus.NOT_FOUND, "no such model in this namespace")
        return json_answer(
            {
                "model": self._timeline.model(model),
                "variants": {key.name: self._timeline.variant(key) for key in keys},
            }
        )

    async def _cost(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_answer({"points": self._timeline.costs(_namespace(request))})

    async def _stream(self, _: web.BaseRequest) -> web.StreamResponse:
        if self._streams >= MOST_STREAMS:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} streams are open: no more", Retry_After="15")
        return EventStream(self._events())

    async def _events(self) -> AsyncGenerator[bytes]:
        """Yield an event for each cycle, and a comment where none comes for a while."""
        self._streams += 1
        try:
            yield b": wva\n\n"
            while True:
                try:
                    async with asyncio.timeout(_QUIET_SECONDS):
                        at = await self._recent.next()
                except TimeoutError:
                    yield b": quiet\n\n"
                else:
                    yield f"event: cycle\ndata: {at}\n\n".encode()
        finally:
            self._streams -= 1


def _served(served: InTime | None) -> dict[str, Any] | None:
    """Return what the users of a model got and shall get; None where that is not known."""
    if served is None or (served.five_minutes is None and served.hour is None):
        return None
    windows = {"five_minutes": served.five_minutes, "hour": served.hour}
    shares = {name: share and {"share": share.share, "requests": share.requests} for name, share in windows.items()}
    objectives = served.objectives.in_words()
    return {**shares, "wanted": served.objectives.in_time, "objectives": objectives, "missed": served.missed}


def _namespace(request: web.BaseRequest) -> str:
    return request.query.get("namespace", "")
