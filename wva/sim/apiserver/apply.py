"""Server-side apply: merges a manager's configuration, with conflicts, force and removal of fields given up.

``apply`` takes the stored object (or None), the configuration that a manager applies and the manager; it returns the
new object with its ``managedFields``. Objects that were never applied carry no ``managedFields``: tracking starts with
the first apply, and the fields that existed before belong to the manager ``before-first-apply``, as in Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from wva.sim.apiserver import ownership
from wva.sim.apiserver.errors import ServedError
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import MISSING, Json, JsonObject, Object, clone, metadata_of
from wva.sim.apiserver.ownership import Ownership, Steps
from wva.sim.apiserver.shape import Shape

APPLY: Final = "Apply"
UPDATE: Final = "Update"
BEFORE: Final = "before-first-apply"


@dataclass(frozen=True, slots=True)
class Writer:
    """The manager of a write, its subresource and time (RFC 3339), and whether it takes over conflicting fields."""

    manager: str
    time: str
    subresource: str = ""
    force: bool = False


def apply(spec: KindSpec, live: Object | None, config: Object, writer: Writer) -> JsonObject:
    """Return ``live`` with ``config`` applied to it.

    Raises ApiError 409 when another manager owns a field with another value and the writer does not force.
    """
    shape = Shape.of(spec)
    config_leaves = ownership.leaves(config, shape)
    live_leaves = {} if live is None else ownership.leaves(live, shape)
    entries = _entries(spec, live, live_leaves, writer)
    own_entry = Ownership(
        writer.manager, APPLY, spec.api_version, writer.subresource, writer.time, frozenset(config_leaves)
    )
    other_entries = [entry for entry in entries if entry.identity != own_entry.identity]
    clashes = {
        (entry, path)
        for entry in other_entries
        for path in entry.fields & config_leaves.keys()
        if live_leaves.get(path, MISSING) != config_leaves[path]
    }
    if clashes and not writer.force:
        raise _conflict(clashes)
    taken_paths = frozenset(path for _, path in clashes)
    other_entries = [entry.with_fields(entry.fields - taken_paths) for entry in other_entries]
    previous_entry = next((entry for entry in entries if entry.identity == own_entry.identity), None)
    merged: JsonObject = merge({} if live is None else live, config, shape)
    if previous_entry is not None:
        merged = ownership.without(
            merged, _given_up(previous_entry.fields, frozenset(config_leaves), other_entries), shape
        )
        if previous_entry.fields == own_entry.fields:
            own_entry = previous_entry
    merged["metadata"] = {**metadata_of(merged), "managedFields": ownership.write([*other_entries, own_entry])}
    return merged


def record_update(spec: KindSpec, old: Object, new: JsonObject, writer: Writer) -> None:
    """Move the ownership of changed fields to the writer of an ordinary write, in ``new``'s metadata, if tracked."""
    metadata = metadata_of(new)
    if not metadata_of(old).get("managedFields"):
        metadata.pop("managedFields", None)
        return
    shape = Shape.of(spec)
    old_leaves, new_leaves = ownership.leaves(old, shape), ownership.leaves(new, shape)
    changed = frozenset(path for path, value in new_leaves.items() if old_leaves.get(path, MISSING) != value)
    removed = old_leaves.keys() - new_leaves.keys()
    own_entry = Ownership(writer.manager, UPDATE, spec.api_version, writer.subresource, writer.time, changed)
    entries = []
    for entry in ownership.read(metadata_of(old)):
        if entry.identity == own_entry.identity:
            fields = (entry.fields - removed) | changed
            own_entry = entry if fields == entry.fields else own_entry.with_fields(fields)
        else:
            entries.append(entry.with_fields(entry.fields - removed - changed))
    metadata["managedFields"] = ownership.write([*entries, own_entry])


def owned(value: Object, steps: Steps) -> bool:
    """Tell whether a manager owns a field of an object."""
    return any(steps in entry.fields for entry in ownership.read(metadata_of(value)))


def merge(live: Json, config: Json, shape: Shape) -> Json:
    """Merge an applied configuration into a live value: maps by field, keyed lists by item, sets by union."""
    if isinstance(config, dict) and isinstance(live, dict) and not shape.atomic_map:
        result = dict(live)
        for name, value in config.items():
            result[name] = merge(live.get(name), value, shape.child(name))
        return result
    if isinstance(config, list) and isinstance(live, list):
        if shape.is_set:
            return live + [item for item in config if item not in live]
        if keys := shape.keys(config):
            return _merge_items(live, config, keys, shape)
    return clone(config)


def _merge_items(live: list[Json], config: list[Json], keys: tuple[str, ...], shape: Shape) -> list[Json]:
    result = list(live)
    indexes = {ownership.item_step(item, keys): index for index, item in enumerate(live)}
    for item in config:
        index = indexes.get(ownership.item_step(item, keys))
        if index is None:
            result.append(clone(item))
        else:
            result[index] = merge(live[index], item, shape.item())
    return result


def _entries(spec: KindSpec, live: Object | None, present: dict[Steps, Json], writer: Writer) -> list[Ownership]:
    if live is None:
        return []
    entries = ownership.read(metadata_of(live))
    return entries or [Ownership(BEFORE, UPDATE, spec.api_version, "", writer.time, frozenset(present))]


def _given_up(
    previous_fields: frozenset[Steps], config_fields: frozenset[Steps], other_entries: list[Ownership]
) -> frozenset[Steps]:
    """Return the fields to remove: those applied before, not applied now, and without another owner."""
    owned_paths = frozenset[Steps]().union(*(entry.fields for entry in other_entries))
    return frozenset(
        path
        for path in previous_fields - config_fields - owned_paths
        if path[-1] != ownership.ITEM or not any(owned_path[: len(path) - 1] == path[:-1] for owned_path in owned_paths)
    )


def _conflict(clashes: set[tuple[Ownership, Steps]]) -> ServedError:
    ordered = sorted(clashes, key=lambda clash: (clash[0].identity, clash[1]))
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{entry.manager}"{_through(entry)}',
            "field": ownership.described(path),
        }
        for entry, path in ordered
    ]
    noun = "conflict" if len(causes) == 1 else "conflicts"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    text = f"Apply failed with {len(causes)} {noun}: {listed}"
    return ServedError(HTTPStatus.CONFLICT, "Conflict", text, details={"causes": causes})


def _through(entry: Ownership) -> str:
    subresource = f' with subresource "{entry.subresource}"' if entry.subresource else ""
    return f"{subresource} using {entry.api_version}" if entry.operation == UPDATE else subresource
