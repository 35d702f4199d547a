"""The REST verbs: they turn a parsed request into the answer of the API server.

The store defines what a verb does; this module handles the query parameters, the status codes and the encodings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from wva.api.meta import Key
from wva.sim.apiserver.bodies import decode, object_body, patch_body
from wva.sim.apiserver.builtin import NAMESPACES, PODS
from wva.sim.apiserver.cached import Cached
from wva.sim.apiserver.collection import Collection
from wva.sim.apiserver.errors import (
    bad_request,
    forbidden_option,
    invalid,
    method_not_allowed,
    not_found,
    nothing_served,
    unsupported_option,
)
from wva.sim.apiserver.kinds import KindSpec, ValidationProblem
from wva.sim.apiserver.lifecycle import check_identity, check_type
from wva.sim.apiserver.objects import JsonObject, Object, metadata_of
from wva.sim.apiserver.options import DeleteOptions, Patch, WriteOptions
from wva.sim.apiserver.pages import ListPage, Pages
from wva.sim.apiserver.patches import PatchType
from wva.sim.apiserver.requests import RequestInfo
from wva.sim.apiserver.selectors import Selection, select
from wva.sim.apiserver.store import SCALE, ObjectStore

_JSON: Final = "application/json"
_RETURNS_OBJECT: Final = frozenset({PODS.name, NAMESPACES.name})
_PATCH_OPTIONS: Final = KindSpec(group="meta.k8s.io", version="v1", plural="patchoptions", kind="PatchOptions")

Handler: TypeAlias = Callable[[KindSpec, RequestInfo, web.Request], Awaitable[web.Response]]


def json_response(value: object, *, status: int = HTTPStatus.OK) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def version_of(request: web.Request) -> int:
    """Return the query's resourceVersion, 0 when it is absent. Raises ApiError 400 when it is not a number."""
    return number_of(request, "resourceVersion")


def number_of(request: web.Request, name: str) -> int:
    """Return a whole number of the query, 0 when it is absent. Raises ApiError 400."""
    text = request.query.get(name, "")
    if text and not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": not a whole number')
    return int(text or 0)


def selection_of(spec: KindSpec, info: RequestInfo, request: web.Request) -> Selection:
    """Return the selection of objects that a list or a watch wants."""
    fields = request.query.get("fieldSelector", "")
    if info.name:
        fields = f"metadata.name={info.name}"
    labels = request.query.get("labelSelector", "")
    return select(spec, namespace=info.namespace, labels=labels, fields=fields)


class Rest:
    """Answers the requests for resources, except watches."""

    def __init__(self, store: ObjectStore, pages: Pages, cached: Cached) -> None:
        """Serve the objects of ``store``."""
        self._store = store
        self._cached = cached
        self._pages = pages
        self._verbs: dict[str, Handler] = {
            "list": self._list,
            "get": self._get,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def handle(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        """Answer one request. Raises ApiError."""
        handler = self._verbs.get(info.verb)
        if handler is None or (info.verb == "create" and info.name):
            raise method_not_allowed()
        if info.subresource and info.verb not in {"get", "update", "patch"}:
            raise method_not_allowed()
        if info.name and spec.namespaced and not info.namespace:
            raise nothing_served()
        return await handler(spec, info, request)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def _get(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        del request
        key = _key(spec, info)
        if info.subresource == SCALE:
            return json_response(self._store.get_scale(spec, key))
        record = self._store.collection(spec).get(key)
        if record is None:
            raise not_found(spec, info.name)
        return web.Response(body=self._store.collection(spec).typed_body(record), content_type=_JSON)

    async def _list(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        limit, resource_version = number_of(request, "limit"), request.query.get("resourceVersion", "")
        version_of(request)
        _check_match(request, resource_version)
        selection = selection_of(spec, info, request)
        collection = self._store.collection(spec)
        if token := request.query.get("continue"):
            page = self._pages.next(token, limit=limit)
        else:
            candidates, version = self._cached.records(collection, info.namespace, asked=resource_version)
            records = [record for record in candidates if selection.matches(record.object)]
            page = self._pages.first(records, version=version, limit=0 if resource_version == "0" else limit)
        return web.Response(body=_list_body(collection, page, counted=not selection.predicates), content_type=_JSON)

    # --- writing ---------------------------------------------------------------------------------------------------

    async def _create(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        value = await object_body(request)
        check_type(spec, value)
        if spec.namespaced:
            if not info.namespace:
                raise method_not_allowed()
            value = _placed(value, info.namespace)
        warnings: list[str] = []
        created = self._store.create(spec, value, write_options(request, warnings))
        return self._answer(spec, created, warnings, status=HTTPStatus.CREATED)

    async def _update(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        value = await object_body(request)
        if info.subresource != SCALE:
            check_type(spec, value)
        if not metadata_of(value).get("name"):
            raise bad_request("the name of the object is missing")
        check_identity(metadata_of(value), {"name": info.name, "namespace": info.namespace})
        value = _placed(value, info.namespace) if spec.namespaced else value
        warnings: list[str] = []
        existed = self._store.find(spec, _key(spec, info)) is not None
        options = write_options(request, warnings)
        stored = self._store.update(spec, value, subresource=info.subresource, options=options)
        return self._answer(spec, stored, warnings, status=HTTPStatus.OK if existed else HTTPStatus.CREATED)

    async def _patch(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        patch_type, body = await patch_body(request, spec)
        if patch_type is PatchType.APPLY and not request.query.get("fieldManager"):
            problem = ValidationProblem(
                "fieldManager", "FieldValueRequired", "Required value: is required for apply patch"
            )
            raise invalid(_PATCH_OPTIONS, "", [problem])
        warnings: list[str] = []
        key = _key(spec, info)
        existed = self._store.find(spec, key) is not None
        options = write_options(request, warnings)
        patch = Patch(body=body, type=patch_type, subresource=info.subresource, options=options)
        stored = self._store.patch(spec, key, patch)
        return self._answer(spec, stored, warnings, status=HTTPStatus.OK if existed else HTTPStatus.CREATED)

    async def _delete(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        options = await delete_options(request)
        key = _key(spec, info)
        last = self._store.delete(spec, key, options)
        still_stored = self._store.find(spec, key) is not None and not options.dry_run
        if still_stored or spec.name in _RETURNS_OBJECT:
            return json_response(last)
        details = {"name": info.name, "group": spec.group, "kind": spec.plural, "uid": metadata_of(last)["uid"]}
        details = {name: text for name, text in details.items() if text}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return json_response(status)

    async def _delete_collection(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.Response:
        options = await delete_options(request)
        selection = selection_of(spec, info, request)
        collection = self._store.collection(spec)
        page = ListPage(
            [record for record in collection.records(info.namespace) if selection.matches(record.object)],
            self._store.version,
        )
        for record in page.records:
            metadata = metadata_of(record.object)
            key = Key(metadata.get("namespace", ""), metadata["name"])
            if collection.get(key) is not None:  # an earlier deletion may have deleted it too
                self._store.delete(spec, key, options)
        return web.Response(body=_list_body(collection, page, counted=False), content_type=_JSON)

    def _answer(self, spec: KindSpec, value: Object, warnings: list[str], *, status: int) -> web.Response:
        """Answer with a written object, in the encoding that lists and watches share if there is one."""
        collection = self._store.collection(spec)
        metadata = metadata_of(value)
        record = collection.get(Key(metadata.get("namespace", ""), metadata["name"]))
        if record is not None and record.object is value:
            response = web.Response(body=collection.typed_body(record), status=status, content_type=_JSON)
        else:
            response = json_response(value, status=status)
        for text in warnings:
            response.headers.add("Warning", f'299 - "{text}"')
        return response


def _check_match(request: web.Request, resource_version: str) -> None:
    """Raise ApiError 422 for a ``resourceVersionMatch`` that is unknown, or that comes without a resourceVersion."""
    match = request.query.get("resourceVersionMatch", "")
    if match and (not resource_version or request.query.get("continue")):
        raise forbidden_option("ListOptions", "resourceVersionMatch", "needs a resourceVersion, and no continue")
    if match not in {"", "NotOlderThan"}:
        raise unsupported_option("ListOptions", "resourceVersionMatch", match, "NotOlderThan")


def _key(spec: KindSpec, info: RequestInfo) -> Key:
    return Key(info.namespace if spec.namespaced else "", info.name)


def _placed(value: JsonObject, namespace: str) -> JsonObject:
    """Return an object with the namespace of its URL. Raises ApiError 400 when it names another one."""
    metadata = metadata_of(value)
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return {**value, "metadata": {**metadata, "namespace": namespace}}


def _list_body(collection: Collection, page: ListPage, *, counted: bool) -> bytes:
    spec = collection.spec
    metadata: JsonObject = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
        if counted:
            metadata["remainingItemCount"] = page.remaining
    head = msgspec.json.encode({"kind": f"{spec.kind}List", "apiVersion": spec.api_version, "metadata": metadata})
    items = b",".join([collection.item_body(record) for record in page.records])
    return head[:-1] + b',"items":[' + items + b"]}"


def write_options(request: web.Request, warnings: list[str]) -> WriteOptions:
    """Return the options of a write; unknown fields become ``warnings``, or an ApiError 400 in strict validation."""
    query = request.query
    kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(request.method, "PatchOptions")
    dry_run = dry_run_of(query.get("dryRun"), kind)
    strictness = query.get("fieldValidation", "Warn")

    def on_unknown_fields(paths: list[str]) -> None:
        messages = [f'unknown field \\"{path}\\"' for path in paths]
        if messages and strictness == "Strict":
            raise bad_request("strict decoding error: " + ", ".join(f'unknown field "{path}"' for path in paths))
        if strictness == "Warn":
            warnings.extend(messages)

    agent = request.headers.get("User-Agent", "").split("/")[0]
    return WriteOptions(
        manager=query.get("fieldManager") or agent or "unknown",
        dry_run=dry_run,
        force=query.get("force") in {"1", "true"},
        on_unknown_fields=on_unknown_fields,
    )


def dry_run_of(value: str | None, kind: str) -> bool:
    """Return whether a write is a dry run. Raises ApiError 422 on a value other than ``All``."""
    if value not in (None, "All"):
        raise unsupported_option(kind, "dryRun", value, "All")
    return value is not None


async def delete_options(request: web.Request) -> DeleteOptions:
    """Return the options of a deletion, from its body or its query."""
    data = await request.read()
    body = decode(data, readable=True) if data else {}
    if not isinstance(body, dict):
        raise bad_request("the body of a deletion is a DeleteOptions object")
    preconditions = body.get("preconditions") or {}
    query = request.query
    return DeleteOptions(
        propagation=body.get("propagationPolicy") or query.get("propagationPolicy") or "Background",
        uid=preconditions.get("uid", ""),
        resource_version=preconditions.get("resourceVersion", ""),
        grace_period_seconds=body.get("gracePeriodSeconds") or int(query.get("gracePeriodSeconds", "0")),
        dry_run=dry_run_of(next(iter(body.get("dryRun") or ()), query.get("dryRun")), "DeleteOptions"),
    )
