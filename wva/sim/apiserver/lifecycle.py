"""The rules for every object that is written to the store.

Pure functions: they take the new object and the old one, and return the object to store or raise an ApiError. The
server owns ``uid``, ``creationTimestamp``, ``generation`` and the deletion marks. When the kind has a status
subresource, one request writes either the status or the rest. The generation grows exactly when the wanted state
changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from wva.sim.apiserver import validation
from wva.sim.apiserver.builtin import NAMESPACES, PODS
from wva.sim.apiserver.errors import ServedError, bad_request, conflict, invalid, modified
from wva.sim.apiserver.kinds import KindSpec, ValidationProblem
from wva.sim.apiserver.objects import JsonObject, Object, metadata_of
from wva.sim.apiserver.scale import replica_problems

STATUS: Final = "status"
_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME_LIMIT: Final = 253
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
_LABEL_VALUE: Final = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_LIMIT: Final = 63
_FROM_CLIENT: Final = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
)
_FROM_SERVER: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_EMPTY_STATUS: Final[dict[str, JsonObject]] = {
    PODS.name: {"phase": "Pending"},
    NAMESPACES.name: {"phase": "Active"},
}


def check_type(spec: KindSpec, value: Object) -> None:
    """Refuse an object of another kind. Custom resources must name kind and version, built-in kinds may omit them."""
    if not isinstance(value.get("metadata", {}), dict):
        raise bad_request("metadata is not an object")
    for field, expected in (("kind", spec.kind), ("apiVersion", spec.api_version)):
        actual = value.get(field)
        if actual is None and not spec.built_in:
            raise bad_request(f"Object '{field}' is missing")
        if actual not in (None, "", expected):
            raise bad_request(
                f"the {field} in the data ({actual}) does not match the expected {field} ({expected}) of {spec.name}"
            )


def fresh_metadata(value: Object) -> JsonObject:
    """Return the metadata of a new object, without the fields that only the server may set."""
    metadata = metadata_of(value)
    return {field: metadata[field] for field in _FROM_CLIENT if metadata.get(field)}


def initial(spec: KindSpec, value: JsonObject) -> None:
    """Give a new object the status it starts with, in place."""
    if spec.name == NAMESPACES.name:
        name = metadata_of(value).get("name", "")
        value["spec"] = {"finalizers": ["kubernetes"]}
        metadata_of(value)["labels"] = {**metadata_of(value).get("labels", {}), _NAMESPACE_LABEL: name}
    if spec.status and not spec.status_on_create:
        value.pop(STATUS, None)
        if spec.name in _EMPTY_STATUS:
            value[STATUS] = dict(_EMPTY_STATUS[spec.name])


def check_precondition(spec: KindSpec, new: Object, current: Object) -> None:
    """Refuse a write that carries an outdated ``resourceVersion`` or the ``uid`` of another object."""
    name = str(current["name"])
    uid = new.get("uid")
    if uid and uid != current["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
        raise conflict(spec, name, why)
    version = new.get("resourceVersion")
    if version and version != current["resourceVersion"]:
        raise modified(spec, name)


def check_identity(new: Object, current: Object) -> None:
    """Refuse a write whose body names another object than the URL."""
    for field in ("name", "namespace"):
        value = new.get(field)
        if value and value != current.get(field, ""):
            raise bad_request(
                f"the {field} of the object ({value}) does not match the {field} on the URL ({current.get(field, '')})"
            )


def updated(spec: KindSpec, new: Object, old: Object, *, subresource: str) -> JsonObject:
    """Return the object after an update: the part that this endpoint writes is new, the other parts are old."""
    new_metadata, old_metadata = metadata_of(new), metadata_of(old)
    if subresource == STATUS:
        result = (
            {**old, STATUS: new[STATUS]}
            if STATUS in new
            else {name: value for name, value in old.items() if name != STATUS}
        )
        result["metadata"] = dict(old_metadata)
        return result
    metadata = {field: new_metadata[field] for field in _FROM_CLIENT if new_metadata.get(field)}
    preserved_fields = (*_FROM_SERVER, "name", "namespace", "generateName")
    metadata |= {field: old_metadata[field] for field in preserved_fields if field in old_metadata}
    result = {"apiVersion": spec.api_version, "kind": spec.kind, "metadata": metadata}
    result |= {name: value for name, value in new.items() if name not in result}
    if spec.status:
        result.pop(STATUS, None)
        if STATUS in old:
            result[STATUS] = old[STATUS]
    if spec.generation and _wanted(spec, result) != _wanted(spec, old):
        metadata["generation"] = old_metadata.get("generation", 0) + 1
    return result


def _wanted(spec: KindSpec, value: Object) -> JsonObject:
    excluded = {"apiVersion", "kind", "metadata", STATUS} if spec.status else {"apiVersion", "kind", "metadata"}
    return {name: part for name, part in value.items() if name not in excluded}


def conform(spec: KindSpec, value: JsonObject) -> list[str]:
    """Prune and default ``value`` in place by the kind's schema; return the paths of the fields dropped."""
    if spec.schema is None:
        return []
    unknown = validation.prune(value, spec.schema)
    validation.apply_defaults(value, spec.schema)
    return unknown


def check_valid(spec: KindSpec, new: Object, old: Object | None, *, subresource: str = "") -> None:
    """Refuse an object that breaks its schema, the rules of its kind or the rules of metadata.

    A write through the status subresource is checked in its status only: an object that became invalid by a later
    change of its schema can still report its status.
    """
    problems = _status_problems(spec, new) if subresource == STATUS else _problems(spec, new)
    mistyped = [problem for problem in problems if problem.reason == "FieldValueTypeInvalid"]
    if spec.built_in and mistyped:
        raise bad_request(f"{spec.kind} in version {spec.version!r} cannot be handled: {mistyped[0].message}")
    if not problems:
        problems = spec.check(new, old)
    if problems:
        raise invalid(spec, metadata_of(new).get("name", ""), problems)


def _problems(spec: KindSpec, value: Object) -> list[ValidationProblem]:
    problems = list(_metadata_problems(spec, metadata_of(value)))
    if spec.schema is not None:
        problems += validation.validate(value, spec.schema)
    if spec.scale is not None and not spec.built_in:
        problems += replica_problems(spec.scale, value)
    return problems


def _status_problems(spec: KindSpec, value: Object) -> list[ValidationProblem]:
    status = {STATUS: value.get(STATUS, {})}
    problems: list[ValidationProblem] = []
    if spec.schema is not None:
        properties = spec.schema.get("properties") or {}
        problems += validation.validate(status, {"type": "object", "properties": {STATUS: properties.get(STATUS, {})}})
    if spec.scale is not None and not spec.built_in:
        problems += replica_problems(spec.scale, status)
    return problems


def _metadata_problems(spec: KindSpec, metadata: Object) -> Iterable[ValidationProblem]:
    name = metadata.get("name", "")
    if not name:
        yield ValidationProblem(
            "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
        )
    elif len(name) > _NAME_LIMIT or not _NAME.match(name) or (spec is NAMESPACES and "." in name):
        text = f'Invalid value: "{name}": not a lowercase RFC 1123 {"label" if spec is NAMESPACES else "subdomain"}'
        yield ValidationProblem("metadata.name", "FieldValueInvalid", text)
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str):
            raise ServedError(HTTPStatus.BAD_REQUEST, "BadRequest", f"label {key} is not a text")
        if len(value) > _LABEL_LIMIT or not _LABEL_VALUE.match(value):
            yield ValidationProblem(
                "metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": not a label value'
            )
