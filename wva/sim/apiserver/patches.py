"""The patch formats that name no manager: JSON merge patch, JSON patch and strategic merge patch.

Each function returns a new value, which shares its unchanged parts with the old one. ``PatchFailedError`` says that a
patch does not fit the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from wva.sim.apiserver.objects import Json, JsonObject, clone
from wva.sim.apiserver.shape import Shape


class PatchType(StrEnum):
    """The media types of PATCH bodies."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class PatchFailedError(ValueError):
    """A patch that cannot be applied to the object."""


def merge_patch(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return clone(patch)
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


# --- strategic merge ---------------------------------------------------------------------------------------------

_DIRECTIVE: Final = "$patch"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"


def strategic_merge_patch(target: Json, patch: Json, shape: Shape) -> Json:
    """Apply a strategic merge patch: lists with a merge key merge item by item, sets unite, other lists are replaced.

    The directives ``$patch: delete|replace`` and ``$deleteFromPrimitiveList`` are understood; the ones about order
    are ignored, since order carries no meaning in the lists that merge.
    """
    if not isinstance(patch, dict):
        return clone(patch)
    if patch.get(_DIRECTIVE) == "replace":
        return {name: clone(value) for name, value in patch.items() if name != _DIRECTIVE}
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVES):
            field = name.removeprefix(_DELETE_PRIMITIVES)
            result[field] = [item for item in result.get(field, []) if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get(_DIRECTIVE) == "delete"):
            result.pop(name, None)
        elif isinstance(value, list):
            result[name] = _merge_list(result.get(name), value, shape.child(name))
        else:
            result[name] = strategic_merge_patch(result.get(name), value, shape.child(name))
    return result


def _merge_list(old: Json, patch: list[Json], shape: Shape) -> list[Json]:
    current: list[Json] = list(old) if isinstance(old, list) else []
    if shape.is_set:
        return [clone(item) for item in patch if item not in current] + current
    keys = shape.keys([item for item in patch if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace")])
    if not keys or any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [clone(item) for item in patch if not (isinstance(item, dict) and _DIRECTIVE in item)]
    new_index = 0  # new items come first, or right after the item that precedes them in the patch
    for item in patch:
        identity = [item[key] for key in keys]
        index = next(
            (
                position
                for position, current_item in enumerate(current)
                if [current_item.get(key) for key in keys] == identity
            ),
            None,
        )
        if item.get(_DIRECTIVE) == "delete":
            if index is not None:
                del current[index]
            continue
        if index is None:
            index = new_index
            current.insert(index, {})
        current[index] = strategic_merge_patch(current[index], item, shape.item())
        new_index = index + 1
    return current


# --- JSON patch --------------------------------------------------------------------------------------------------


def json_patch(target: Json, operations: Json) -> Json:
    """Apply a JSON patch (RFC 6902). Raises PatchFailedError when an operation does not fit."""
    if not isinstance(operations, list):
        raise PatchFailedError("a JSON patch is a list of operations")
    document = clone(target)
    for operation in operations:
        if not isinstance(operation, Mapping) or not isinstance(operation.get("path"), str):
            raise PatchFailedError(f"not an operation: {operation!r}")
        document = _operate(document, operation)
    return document


def _operate(document: Json, operation: Mapping[str, Any]) -> Json:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "test":
            if _get(document, path) != operation.get("value"):
                raise PatchFailedError(f"testing value {operation['path']} failed")
            return document
        case "remove":
            return _change(document, path, None, remove=True)
        case "add":
            return _change(document, path, clone(operation.get("value")))
        case "replace":
            _get(document, path)
            return _put(document, path, clone(operation.get("value")))
        case "copy":
            return _change(document, path, clone(_get(document, _pointer(str(operation.get("from"))))))
        case "move":
            source = _pointer(str(operation.get("from")))
            value = _get(document, source)
            return _change(_change(document, source, None, remove=True), path, value)
        case unknown:
            raise PatchFailedError(f"unexpected operation: {unknown}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise PatchFailedError(f"not a JSON pointer: {text}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _get(document: Json, path: list[str]) -> Json:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise PatchFailedError(f"no value at /{'/'.join(path)}")
    return document


def _index(part: str, last: int) -> int:
    if not part.isdigit() or int(part) > last:
        raise PatchFailedError(f"no item {part} in the list")
    return int(part)


def _change(document: Json, path: list[str], value: Json, *, remove: bool = False) -> Json:
    """Add or remove at ``path``, in place; the whole document when the path is empty."""
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        if remove:
            del parent[_index(last, len(parent) - 1)]
        else:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    elif not isinstance(parent, dict) or (remove and last not in parent):
        raise PatchFailedError(f"no value at /{'/'.join(path)}")
    elif remove:
        del parent[last]
    else:
        parent[last] = value
    return document


def _put(document: Json, path: list[str], value: Json) -> Json:
    if not path:
        return value
    parent = _get(document, path[:-1])
    parent[_index(path[-1], len(parent) - 1) if isinstance(parent, list) else path[-1]] = value
    return document
