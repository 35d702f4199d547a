"""Field ownership: which manager set which field, as ``metadata.managedFields`` records it.

A field set is a set of paths; a path is a tuple of the steps of the ``FieldsV1`` format: ``f:spec``, ``k:{"type":..}``
for an item of a keyed list, ``v:..`` for a member of a set, and ``.`` for the item itself. Paths lead to leaves:
scalars, atomic lists and maps, empty maps. Flattening an object to ``{leaf: value}`` makes conflicts and changes plain
comparisons of dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from wva.model.records import replace
from wva.sim.apiserver.objects import Json, JsonObject, Object
from wva.sim.apiserver.shape import Shape

Steps = tuple[str, ...]
ITEM: Final = "."
_OWNABLE_METADATA: Final = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})


@dataclass(frozen=True, slots=True)
class Ownership:
    """One entry of ``managedFields``."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: frozenset[Steps]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The key that tells this entry from the others."""
        return (self.manager, self.operation, self.subresource, self.api_version)

    def with_fields(self, fields: Iterable[Steps]) -> Ownership:
        """Return the entry with other fields."""
        return replace(self, fields=frozenset(fields))


def leaves(value: Object, shape: Shape) -> dict[Steps, Json]:
    """Flatten the ownable part of an object to its leaves."""
    leaf_values: dict[Steps, Json] = {}
    for name, item in value.items():
        if name in {"apiVersion", "kind"}:
            continue
        if name == "metadata":
            ownable = {field: part for field, part in item.items() if field in _OWNABLE_METADATA}
            for field, part in ownable.items():
                leaf_values.update(_leaves(part, shape.child(name).child(field), ("f:metadata", f"f:{field}")))
        else:
            leaf_values.update(_leaves(item, shape.child(name), (f"f:{name}",)))
    return leaf_values


def _leaves(value: Json, shape: Shape, path: Steps) -> Iterator[tuple[Steps, Json]]:
    if isinstance(value, dict) and value and not shape.atomic_map:
        for name, item in value.items():
            yield from _leaves(item, shape.child(name), (*path, f"f:{name}"))
    elif isinstance(value, list) and shape.is_set:
        for item in value:
            yield (*path, f"v:{_text(item)}"), None
    elif isinstance(value, list) and value and (keys := shape.keys(value)):
        for item in value:
            item_path = (*path, item_step(item, keys))
            yield (*item_path, ITEM), None
            for name, part in item.items():
                yield from _leaves(part, shape.item().child(name), (*item_path, f"f:{name}"))
    else:
        yield path, value


def item_step(item: Object, keys: tuple[str, ...]) -> str:
    """Return the step to an item of a keyed list."""
    return "k:" + _text({key: item.get(key) for key in sorted(keys)})


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def without(value: Object, removed: frozenset[Steps], shape: Shape) -> JsonObject:
    """Return the object without the leaves and items in ``removed``, and without maps that lose their last field."""
    result: JsonObject = {}
    for name, item in value.items():
        rest = _without(item, removed, shape.child(name), (f"f:{name}",))
        if rest is not None:
            result[name] = rest
    return result


def _without(value: Json, removed: frozenset[Steps], shape: Shape, path: Steps) -> Json | None:
    """Return the rest of the value at ``path``, or None if it is empty."""
    if path in removed:
        return None
    if isinstance(value, dict) and value and not shape.atomic_map:
        fields = {
            name: rest
            for name, item in value.items()
            if (rest := _without(item, removed, shape.child(name), (*path, f"f:{name}"))) is not None
        }
        return fields or None
    if isinstance(value, list) and value and shape.is_set:
        return [item for item in value if (*path, f"v:{_text(item)}") not in removed] or None
    if isinstance(value, list) and value and (keys := shape.keys(value)):
        items = [_without_item(item, removed, shape.item(), (*path, item_step(item, keys))) for item in value]
        return [item for item in items if item is not None] or None
    return value


def _without_item(item: JsonObject, removed: frozenset[Steps], shape: Shape, path: Steps) -> JsonObject | None:
    if (*path, ITEM) in removed:
        return None
    fields = {
        name: rest
        for name, part in item.items()
        if (rest := _without(part, removed, shape.child(name), (*path, f"f:{name}"))) is not None
    }
    return fields or None


def read(metadata: Object) -> list[Ownership]:
    """Return the entries of ``managedFields``."""
    return [
        Ownership(
            manager=entry.get("manager", ""),
            operation=entry.get("operation", ""),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
            time=entry.get("time", ""),
            fields=frozenset(_flatten(entry.get("fieldsV1") or {}, ())),
        )
        for entry in metadata.get("managedFields") or ()
    ]


def _flatten(tree: Object, path: Steps) -> Iterator[Steps]:
    for step, subtree in tree.items():
        if subtree:
            yield from _flatten(subtree, (*path, step))
        else:
            yield (*path, step)


def write(entries: Iterable[Ownership]) -> list[JsonObject]:
    """Return ``managedFields``; entries that own nothing are left out."""
    result: list[JsonObject] = []
    for entry in sorted(entries, key=lambda entry: (entry.operation, entry.time, entry.identity)):
        if not entry.fields:
            continue
        encoded: JsonObject = {
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.api_version,
            **({"time": entry.time} if entry.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(entry.fields),
        }
        if entry.subresource:
            encoded["subresource"] = entry.subresource
        result.append(encoded)
    return result


def _tree(fields: frozenset[Steps]) -> JsonObject:
    root: JsonObject = {}
    for path in sorted(fields):
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return root


def described(path: Steps) -> str:
    """Return the path as messages show it: ``.spec.replicas``."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f"{key}={_text(value)}" for key, value in keys.items()) + "]"
        elif step.startswith("v:"):
            text += f"[={step[2:]}]"
    return text
