"""The HTTP API of Prometheus, as far as our clients use it, over the embedded database.

It takes requests as Prometheus 3 does (GET, or POST with a form), and answers with its JSON, errors and status codes.
It logs each request, then applies the faults that a test turned on, then checks the token, and then answers.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate

from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import MultiDict, MultiMapping

from wva.model.records import replace
from wva.sim.prometheus import parameters, render
from wva.sim.prometheus.faults import PrometheusFaults
from wva.sim.prometheus.promql import BadQueryError, EvaluationTime, PromqlError, evaluate, parse
from wva.sim.prometheus.promql.nodes import Expr, Range, Text, VectorSelector
from wva.sim.prometheus.promql.selection import LOOKBACK_MS, matching_series
from wva.sim.prometheus.requests import QueryLog, QueryRequest
from wva.sim.prometheus.tsdb import Tsdb

_MOST_POINTS = 11_000
_VERSION = "3.8.0"
_NO_FAULTS = PrometheusFaults()
Form = MultiMapping[str]


@dataclass(slots=True)
class QueryApi:
    """The server's state and its handlers; ``now`` gives the world's time in seconds."""

    tsdb: Tsdb
    now: Callable[[], float]
    token: str | None = None
    requests: QueryLog = field(default_factory=QueryLog)
    faults: PrometheusFaults = field(default_factory=PrometheusFaults)

    def application(self) -> web.Application:
        """Return the aiohttp application with all routes."""
        app = web.Application(middlewares=[self._log_and_fail, self._authorize, _errors])
        routes: dict[str, Handler] = {
            "/api/v1/query": self._query,
            "/api/v1/query_range": self._query_range,
            "/api/v1/series": self._series,
            "/api/v1/labels": self._labels,
        }
        for path, handler in routes.items():
            app.router.add_route("GET", path, handler)
            app.router.add_route("POST", path, handler)
        app.router.add_get("/api/v1/label/{name}/values", self._label_values)
        app.router.add_get("/api/v1/status/buildinfo", _buildinfo)
        app.router.add_get("/-/ready", _ready)
        app.router.add_get("/-/healthy", _healthy)
        app.on_response_prepare.append(self._date)
        return app

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        """Date an answer by the world's time."""
        response.headers["Date"] = formatdate(self.now(), usegmt=True)

    @web.middleware
    async def _log_and_fail(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        query = (await _form(request)).get("query")
        self.requests.add(QueryRequest(request.path, query, self.now()))
        faults = replace(self._active(query))
        if faults.delay_seconds > 0:
            await asyncio.sleep(faults.delay_seconds)
        if faults.hang_up:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if faults.status is not None:
            return web.Response(status=faults.status, text="the server is made to fail\n")
        response = await handler(request)
        return _malformed(response) if faults.malformed else response

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.token is not None:
            authorization = request.headers.get("Authorization", "")
            if not hmac.compare_digest(authorization.encode(), f"Bearer {self.token}".encode()):
                return web.Response(status=401, text="Unauthorized\n")
        return await handler(request)

    async def _query(self, request: web.Request) -> web.Response:
        form = await _form(request)
        expr = _parse(form)
        parameters.duration_ms(form, "timeout", default_ms=0)
        at_ms = parameters.time_ms(form, "time", default_seconds=self.now())
        value = evaluate(expr, EvaluationTime(self._visible(form), at_ms, at_ms, at_ms, lookback_ms=_lookback_ms(form)))
        if isinstance(value, list):
            value = value[: parameters.limit(form)]
        return self._success(
            form, render.matrix_data(value) if isinstance(expr, Range) else render.instant_data(value, at_ms)
        )

    async def _query_range(self, request: web.Request) -> web.Response:
        form = await _form(request)
        start_ms, end_ms = parameters.time_ms(form, "start"), parameters.time_ms(form, "end")
        if end_ms < start_ms:
            raise parameters.invalid("end", "end timestamp must not be before start time")
        step_ms = parameters.duration_ms(form, "step")
        if step_ms <= 0:
            raise parameters.invalid(
                "step", "zero or negative query resolution step widths are not accepted. Try a positive integer"
            )
        if (end_ms - start_ms) // step_ms > _MOST_POINTS:
            raise BadQueryError(
                "exceeded maximum resolution of 11,000 points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        expr = _parse(form)
        if isinstance(expr, Range | Text):
            kind = "range vector" if isinstance(expr, Range) else "string"
            message = f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
            raise parameters.invalid("query", message)
        start = EvaluationTime(self._visible(form), start_ms, start_ms, end_ms, lookback_ms=_lookback_ms(form))
        times = range(start_ms, end_ms + 1, step_ms)
        steps = [(time_ms, evaluate(expr, replace(start, time_ms=time_ms))) for time_ms in times]
        return self._success(form, render.range_data(steps))

    def _active(self, query: str | None) -> PrometheusFaults:
        """Return the faults that concern a request."""
        return self.faults if self.faults.applies_to(query) else _NO_FAULTS

    def _visible(self, form: Form) -> Tsdb:
        """Return the database, without the series that a fault hides."""
        hide = self._active(form.get("query")).hide
        return self.tsdb if hide is None else self.tsdb.less(hide)

    def _success(self, form: Form, data: object) -> web.Response:
        return _json(render.success(data, warnings=self._active(form.get("query")).warnings))

    async def _series(self, request: web.Request) -> web.Response:
        form = await _form(request)
        if not form.getall("match[]", []):
            raise BadQueryError("no match[] parameter provided")
        unique = {tuple(sorted(labels.items())) for labels in self._selected(form)}
        return self._success(form, [dict(labels) for labels in sorted(unique)][: parameters.limit(form)])

    async def _labels(self, request: web.Request) -> web.Response:
        form = await _form(request)
        names = {name for labels in self._selected(form) for name in labels}
        return self._success(form, sorted(names)[: parameters.limit(form)])

    async def _label_values(self, request: web.Request) -> web.Response:
        form = await _form(request)
        name = request.match_info["name"]
        values = {labels[name] for labels in self._selected(form) if name in labels}
        return self._success(form, sorted(values)[: parameters.limit(form)])

    def _selected(self, form: Form) -> Iterator[Mapping[str, str]]:
        """Yield the labels of the series with a sample between start and end that match any of ``match[]``."""
        start_ms = parameters.time_ms(form, "start", default_seconds=-1e15)
        end_ms = parameters.time_ms(form, "end", default_seconds=1e15)
        tsdb = self._visible(form)
        selectors = [_selector(text) for text in form.getall("match[]", [])] or [VectorSelector(None, (), 0, None)]
        for selector in selectors:
            for series in matching_series(tsdb, selector.name, selector.matchers):
                if any(start_ms <= time_ms <= end_ms for time_ms in series.times):
                    yield series.labels


def _lookback_ms(form: Form) -> int:
    return parameters.duration_ms(form, "lookback_delta", default_ms=LOOKBACK_MS)


async def _form(request: web.Request) -> Form:
    """Return the parameters, those of the form before those of the address; of one name the first one counts."""
    form = MultiDict(request.query)
    if request.method == "POST":
        fields = await request.post()
        form = MultiDict((name, value) for name, value in fields.items() if isinstance(value, str))
        form.extend(request.query)
    return form


def _parse(form: Form) -> Expr:
    try:
        return parse(form.get("query", ""))
    except BadQueryError as e:
        raise parameters.invalid("query", e) from e


def _selector(text: str) -> VectorSelector:
    try:
        expr = parse(text)
    except BadQueryError as e:
        raise parameters.invalid("match[]", e) from e
    if not isinstance(expr, VectorSelector) or expr.at is not None or expr.offset_ms:
        raise parameters.invalid("match[]", f"not a plain selector: {text}")
    return expr


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors of the query into Prometheus' status codes and bodies."""
    try:
        return await handler(request)
    except BadQueryError as e:
        return _json(render.failure("bad_data", str(e)), status=400)
    except PromqlError as e:
        return _json(render.failure("execution", str(e)), status=422)
    except web.HTTPNotFound:
        return web.Response(status=404, text="404 page not found\n")


def _json(body: render.Json, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=json.dumps(body).encode(), content_type="application/json")


def _malformed(response: web.StreamResponse) -> web.StreamResponse:
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return response
    half = response.body[: len(response.body) // 2]
    return web.Response(status=response.status, body=half, content_type="application/json")


async def _buildinfo(_: web.Request) -> web.Response:
    keys = ("revision", "branch", "buildUser", "buildDate", "goVersion")
    return _json(render.success({"version": _VERSION, **dict.fromkeys(keys, "")}))


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="Prometheus Server is Ready.\n")


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="Prometheus Server is Healthy.\n")
