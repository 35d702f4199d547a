"""JSON objects as the store holds them, and how to read inside them.

The API server is generic over kinds, so it works on plain JSON values. Objects that leave the store are shared, not
copied: readers must not change them (the type ``Object`` says so), and writers pass a new object in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Any]
Object: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]

MISSING: Final = object()


def clone(value: Json) -> Json:
    """Return a deep copy of a JSON value; several times faster than ``copy.deepcopy``."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def lookup(value: Json, path: Path) -> Json:
    """Return the value at ``path``, or ``MISSING``."""
    for field in path:
        if not isinstance(value, dict) or field not in value:
            return MISSING
        value = value[field]
    return value


def text_at(value: Json, path: Path) -> str:
    """Return the text at ``path`` as field selectors see it: absent is empty, booleans are ``true`` and ``false``."""
    item = lookup(value, path)
    if item is MISSING or item is None:
        return ""
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item)


def replaced(value: Object, path: Path, item: Json) -> JsonObject:
    """Return ``value`` with ``item`` at ``path``; everything off the path is shared with the original."""
    result = dict(value)
    if len(path) == 1:
        result[path[0]] = item
        return result
    child = value.get(path[0])
    result[path[0]] = replaced(child if isinstance(child, dict) else {}, path[1:], item)
    return result


def metadata_of(value: Object) -> JsonObject:
    """Return the metadata of an object, empty when it has none."""
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def dotted(text: str) -> Path:
    """Turn a simple JSON path of a CRD (``.spec.replicas``) into field names."""
    return tuple(part for part in text.split(".") if part)
