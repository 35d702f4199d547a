"""Structural OpenAPI v3 schemas as CustomResourceDefinitions carry them: pruning, defaulting, validation.

All functions take a JSON object and its schema. Pruning and defaulting change the object in place (the caller passes
its own copy); validation returns the problems with the field paths, reasons and sentences of the real server. CEL rules
(``x-kubernetes-validations``) are not evaluated. Top-level ``apiVersion``, ``kind`` and ``metadata`` belong to the
server and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from wva.sim.apiserver.kinds import ValidationProblem
from wva.sim.apiserver.objects import Json, JsonObject, Object, clone
from wva.sim.apiserver.values import value_problems

Schema: TypeAlias = Mapping[str, Any]

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
TYPE_META: Final = ("apiVersion", "kind", "metadata")


def prune(value: JsonObject, schema: Schema) -> list[str]:
    """Drop the fields that the schema does not name from an object, in place; return their paths, sorted."""
    return sorted(_prune(value, schema, "", keep=TYPE_META))


def apply_defaults(value: JsonObject, schema: Schema) -> None:
    """Fill in the schema's defaults, in place: only where the enclosing object is present."""
    _default(value, schema)


def validate(value: Object, schema: Schema) -> list[ValidationProblem]:
    """Return the problems of an object, in the order of the schema's fields."""
    return list(_validate(dict(value), schema, "", skip=TYPE_META))


def _prune(value: Json, schema: Schema, path: str, *, keep: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(value, list):
        items = schema.get("items", {})
        for index, item in enumerate(value):
            yield from _prune(item, items, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    if schema.get(EMBEDDED):
        keep = TYPE_META
    for name in list(value):
        field_path = _join(path, name)
        if name in keep:
            continue
        if name in properties:
            yield from _prune(value[name], properties[name], field_path)
        elif isinstance(additional, Mapping):
            yield from _prune(value[name], additional, field_path)
        elif not additional and not schema.get(PRESERVE):
            del value[name]
            yield field_path


def _default(value: Json, schema: Schema) -> None:
    if isinstance(value, list) and "items" in schema:
        for item in value:
            _default(item, schema["items"])
    if not isinstance(value, dict):
        return
    properties: Schema = schema.get("properties", {})
    for name, field_schema in properties.items():
        _default_field(value, name, field_schema)
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        for name in value.keys() - properties.keys():
            _default(value[name], additional)


def _default_field(value: JsonObject, name: str, schema: Schema) -> None:
    if name in value and value[name] is None and not schema.get("nullable"):
        del value[name]  # a null that the schema does not allow counts as absent
    if name not in value and "default" in schema:
        value[name] = clone(schema["default"])
    if name in value:
        _default(value[name], schema)


def _validate(value: Json, schema: Schema, path: str, *, skip: tuple[str, ...] = ()) -> Iterator[ValidationProblem]:
    if value is None and schema.get("nullable"):
        return
    problems = list(value_problems(value, schema, path))
    yield from problems
    if any(problem.reason == "FieldValueTypeInvalid" for problem in problems):
        return
    yield from _junctions(value, schema, path)
    if isinstance(value, dict):
        yield from _validate_object(value, schema, path, skip)
    elif isinstance(value, list):
        items = schema.get("items", {})
        for index, item in enumerate(value):
            yield from _validate(item, items, f"{path}[{index}]")


def _validate_object(
    value: JsonObject, schema: Schema, path: str, skip: tuple[str, ...]
) -> Iterator[ValidationProblem]:
    for name in schema.get("required", ()):
        if name not in value:
            yield ValidationProblem(_join(path, name), "FieldValueRequired", "Required value")
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    for name, item in value.items():
        if name in skip:
            continue
        if name in properties:
            yield from _validate(item, properties[name], _join(path, name))
        elif isinstance(additional, Mapping):
            yield from _validate(item, additional, _join(path, name))


def _junctions(value: Json, schema: Schema, path: str) -> Iterator[ValidationProblem]:
    """Evaluate allOf, anyOf, oneOf and not: value validations only, as structural schemas demand."""
    for part in schema.get("allOf", ()):
        yield from _validate(value, part, path)
    for word in ("anyOf", "oneOf"):
        parts = schema.get(word)
        if not parts:
            continue
        fitting = sum(1 for part in parts if not any(_validate(value, part, path)))
        if fitting == 0 or (word == "oneOf" and fitting > 1):
            text = f'Invalid value: "{path}": {path} in body must validate {_quantity(word)} schema ({word})'
            yield ValidationProblem(path, "FieldValueInvalid", text)
    if "not" in schema and not any(_validate(value, schema["not"], path)):
        text = f'Invalid value: "{path}": {path} in body must not validate the schema (not)'
        yield ValidationProblem(path, "FieldValueInvalid", text)


def _quantity(word: str) -> str:
    return "at least one" if word == "anyOf" else "one and only one"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
