"""Server-side apply: merges a manager's configuration, with conflicts, force and removal of fields given up.

In go the stored object (or None), the configuration that a manager applies and who it is; out comes the new object
with its ``managedFields``. Objects that were never applied carry no ``managedFields``: tracking starts with the first
apply, and what stood there before belongs to the manager ``before-first-apply``, as in Kubernetes.
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
    wanted = ownership.leaves(config, shape)
    present = {} if live is None else ownership.leaves(live, shape)
    entries = _entries(spec, live, present, writer)
    mine = Ownership(writer.manager, APPLY, spec.api_version, writer.subresource, writer.time, frozenset(wanted))
    others = [entry for entry in entries if entry.identity != mine.identity]
    clashes = {
        (entry, path)
        for entry in others
        for path in entry.fields & wanted.keys()
        if present.get(path, MISSING) != wanted[path]
    }
    if clashes and not writer.force:
        raise _conflict(clashes)
    taken = frozenset(path for _, path in clashes)
    others = [entry.with_fields(entry.fields - taken) for entry in others]
    before = next((entry for entry in entries if entry.identity == mine.identity), None)
    merged: JsonObject = merge({} if live is None else live, config, shape)
    if before is not None:
        merged = ownership.without(merged, _given_up(before.fields, frozenset(wanted), others), shape)
        if before.fields == mine.fields:
            mine = before
    merged["metadata"] = {**metadata_of(merged), "managedFields": ownership.write([*others, mine])}
    return merged


def record_update(spec: KindSpec, old: Object, new: JsonObject, writer: Writer) -> None:
    """Move the ownership of changed fields to the writer of an ordinary write, in ``new``'s metadata, if tracked."""
    metadata = metadata_of(new)
    if not metadata_of(old).get("managedFields"):
        metadata.pop("managedFields", None)
        return
    shape = Shape.of(spec)
    was, now = ownership.leaves(old, shape), ownership.leaves(new, shape)
    changed = frozenset(path for path, value in now.items() if was.get(path, MISSING) != value)
    gone = was.keys() - now.keys()
    mine = Ownership(writer.manager, UPDATE, spec.api_version, writer.subresource, writer.time, changed)
    entries = []
    for entry in ownership.read(metadata_of(old)):
        if entry.identity == mine.identity:
            kept = (entry.fields - gone) | changed
            mine = entry if kept == entry.fields else mine.with_fields(kept)
        else:
            entries.append(entry.with_fields(entry.fields - gone - changed))
    metadata["managedFields"] = ownership.write([*entries, mine])


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
    places = {ownership.item_step(item, keys): at for at, item in enumerate(live)}
    for item in config:
        at = places.get(ownership.item_step(item, keys))
        if at is None:
            result.append(clone(item))
        else:
            result[at] = merge(live[at], item, shape.item())
    return result


def _entries(spec: KindSpec, live: Object | None, present: dict[Steps, Json], writer: Writer) -> list[Ownership]:
    if live is None:
        return []
    entries = ownership.read(metadata_of(live))
    return entries or [Ownership(BEFORE, UPDATE, spec.api_version, "", writer.time, frozenset(present))]


def _given_up(before: frozenset[Steps], wanted: frozenset[Steps], others: list[Ownership]) -> frozenset[Steps]:
    """Return the fields to remove: applied before, not applied now, without another owner."""
    held = frozenset[Steps]().union(*(entry.fields for entry in others))
    return frozenset(
        path
        for path in before - wanted - held
        if path[-1] != ownership.ITEM or not any(other[: len(path) - 1] == path[:-1] for other in held)
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
