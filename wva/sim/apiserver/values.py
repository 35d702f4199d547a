"""Checks of a single value against the value rules of a schema: type, enum, bounds, lengths, pattern, format.

Messages follow the real API server, which prints the value, the path "in body" and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from wva.sim.apiserver.kinds import ValidationProblem
from wva.sim.apiserver.objects import Json

_RFC3339: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


def value_problems(value: Json, schema: Mapping[str, Any], path: str) -> Iterator[ValidationProblem]:
    """Yield the problems of ``value`` itself. The caller checks nested values."""
    wrong_type = _type_problem(value, schema, path)
    if wrong_type is not None:
        yield wrong_type
        return
    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(_shown(item) for item in schema["enum"])
        text = f"Unsupported value: {_shown(value)}: supported values: {supported}"
        yield ValidationProblem(path, "FieldValueNotSupported", text)
    if isinstance(value, str):
        yield from _text_problems(value, schema, path)
    elif isinstance(value, list):
        yield from _size_problems(len(value), schema, path, words=("minItems", "maxItems", "items"))
    elif isinstance(value, dict):
        yield from _size_problems(len(value), schema, path, words=("minProperties", "maxProperties", "properties"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(value, schema, path)


def _shown(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def type_name(value: Json) -> str:
    """Return the JSON type of a value in the words of OpenAPI."""
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _type_problem(value: Json, schema: Mapping[str, Any], path: str) -> ValidationProblem | None:
    actual = type_name(value)
    if schema.get("x-kubernetes-int-or-string"):
        fits, expected = actual in {"integer", "string"}, "integer,string"
    else:
        expected = schema.get("type", actual)
        fits = (
            actual == expected
            or (expected == "number" and actual == "integer")
            or (expected == "integer" and isinstance(value, float) and value.is_integer())
        )
    if not fits:
        text = f'Invalid value: "{actual}": {path} in body must be of type {expected}: "{actual}"'
        return ValidationProblem(path, "FieldValueTypeInvalid", text)
    if isinstance(value, str) and schema.get("format") == "date-time" and not _is_date_time(value):
        text = f"Invalid value: {_shown(value)}: {path} in body must be of type date-time: {_shown(value)}"
        return ValidationProblem(path, "FieldValueTypeInvalid", text)
    return None


def _is_date_time(text: str) -> bool:
    if _RFC3339.match(text) is None:
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _text_problems(value: str, schema: Mapping[str, Any], path: str) -> Iterator[ValidationProblem]:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None and len(value) < least:
        yield _rule_broken(value, path, f"should be at least {least} chars long")
    if most is not None and len(value) > most:
        yield ValidationProblem(path, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")
    pattern = schema.get("pattern")
    if pattern is not None and _compiled(pattern).search(value) is None:
        yield _rule_broken(value, path, f"should match '{pattern}'")


def _size_problems(
    size: int, schema: Mapping[str, Any], path: str, *, words: tuple[str, str, str]
) -> Iterator[ValidationProblem]:
    least, most, noun = schema.get(words[0]), schema.get(words[1]), words[2]
    if least is not None and size < least:
        yield _rule_broken(size, path, f"should have at least {least} {noun}")
    if most is not None and size > most:
        yield ValidationProblem(path, "FieldValueTooMany", f"Too many: {size}: must have at most {most} {noun}")


def _number_problems(value: float, schema: Mapping[str, Any], path: str) -> Iterator[ValidationProblem]:
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if minimum is not None:
        exclusive = bool(schema.get("exclusiveMinimum"))
        if value < minimum or (exclusive and value == minimum):
            rule = "greater than" if exclusive else "greater than or equal to"
            yield _rule_broken(value, path, f"should be {rule} {minimum}")
    if maximum is not None:
        exclusive = bool(schema.get("exclusiveMaximum"))
        if value > maximum or (exclusive and value == maximum):
            rule = "less than" if exclusive else "less than or equal to"
            yield _rule_broken(value, path, f"should be {rule} {maximum}")
    step = schema.get("multipleOf")
    if step and abs(value / step - round(value / step)) > _TOLERANCE:
        yield _rule_broken(value, path, f"should be a multiple of {step}")


_TOLERANCE: Final = 1e-9


def _rule_broken(value: Json, path: str, rule: str) -> ValidationProblem:
    return ValidationProblem(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {path} in body {rule}")


_compiled: Callable[[str], re.Pattern[str]] = lru_cache(maxsize=256)(re.compile)
