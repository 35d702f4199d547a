"""The scale subresource: an ``autoscaling/v1`` Scale as a view of any kind that declares its replica number fields."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from wva.api.meta import Key
from wva.sim.apiserver.errors import ServedError, bad_request, internal_error, invalid, method_not_allowed
from wva.sim.apiserver.kinds import KindSpec, ScalePaths, ValidationProblem
from wva.sim.apiserver.objects import MISSING, Json, JsonObject, Object, lookup, metadata_of, replaced

_SCALE: Final = KindSpec(group="autoscaling", version="v1", plural="scales", kind="Scale")
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_LARGEST: Final = 2**31 - 1


def scale_of(spec: KindSpec, value: Object) -> JsonObject:
    """Return the Scale of an object. Raises ApiError 500 when the object has no wanted number of replicas."""
    paths = _paths(spec)
    replicas = lookup(value, paths.spec_replicas)
    if replicas is MISSING:
        raise internal_error(f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist')
    metadata = metadata_of(value)
    current = lookup(value, paths.status_replicas)
    status: JsonObject = {"replicas": 0 if current is MISSING else current}
    selector = selector_text(MISSING if paths.selector is None else lookup(value, paths.selector))
    if selector:
        status["selector"] = selector
    return {
        "kind": _SCALE.kind,
        "apiVersion": _SCALE.api_version,
        "metadata": {field: metadata[field] for field in _METADATA if field in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def selector_text(selector: Json) -> str:
    """Return a LabelSelector as the text of a label selector; a text stays as it is."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for rule in selector.get("matchExpressions") or ():
        values = ",".join(rule.get("values") or ())
        words = {"In": f" in ({values})", "NotIn": f" notin ({values})"}
        absent = "!" if rule["operator"] == "DoesNotExist" else ""
        parts.append(f"{absent}{rule['key']}{words.get(rule['operator'], '')}")
    return ",".join(parts)


def rescaled(spec: KindSpec, value: Object, scale: Object) -> JsonObject:
    """Return the object with the number of replicas that ``scale`` wants.

    Raises ApiError 400 when that is not an integer. A negative number is refused here for built-in kinds, and by the
    validation of the object for custom resources.
    """
    paths = _paths(spec)
    replicas = lookup(scale, ("spec", "replicas"))
    if replicas is MISSING:
        replicas = 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("Scale in version 'v1' cannot be handled: spec.replicas is not an integer")
    if replicas < 0 and spec.built_in:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        name = metadata_of(value).get("name", "")
        raise invalid(_SCALE, name, [ValidationProblem("spec.replicas", "FieldValueInvalid", text)])
    result = replaced(value, paths.spec_replicas, replicas)
    version = metadata_of(scale).get("resourceVersion")
    return replaced(result, ("metadata", "resourceVersion"), version) if version else result


def applied(spec: KindSpec, scale: Object) -> JsonObject:
    """Return the configuration to apply to an object in place of its Scale. Raises ApiError 400 for another kind."""
    if (scale.get("apiVersion"), scale.get("kind")) != (_SCALE.api_version, _SCALE.kind):
        raise bad_request(f"the data ({scale.get('kind')}) is no {_SCALE.kind} of {_SCALE.api_version}")
    return rescaled(spec, {**scale, "apiVersion": spec.api_version, "kind": spec.kind, "spec": {}}, scale)


def not_converted(key: Key) -> ServedError:
    """Return the error of an apply to the scale of a custom resource, which the real server cannot convert."""
    return ServedError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "",
        f"failed to convert new object (/{key.name}; autoscaling/v1, Kind=Scale) to proper version: "
        "request to convert CR to an invalid group/version: autoscaling/v1",
    )


def replica_problems(paths: ScalePaths, value: Object) -> Iterator[ValidationProblem]:
    """Find numbers that the scale subresource cannot express, because they are no 32-bit counts."""
    for path in (paths.spec_replicas, paths.status_replicas):
        number = lookup(value, path)
        field = "." + ".".join(path)
        if number is MISSING:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            text = f"Invalid value: 0: {field} accessor error: the value is not of the type int64"
            yield ValidationProblem(field, "FieldValueInvalid", text)
        elif number < 0:
            yield ValidationProblem(
                field, "FieldValueInvalid", f"Invalid value: {number}: should be a non-negative integer"
            )
        elif number > _LARGEST:
            text = f"Invalid value: {number}: should be less than or equal to {_LARGEST}"
            yield ValidationProblem(field, "FieldValueInvalid", text)


def _paths(spec: KindSpec) -> ScalePaths:
    if spec.scale is None:
        raise method_not_allowed()
    return spec.scale
