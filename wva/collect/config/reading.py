"""Reading one ConfigMap entry: a YAML document with a flat mapping of scalars, written by people.

It reads parser events instead of constructed objects. So nothing recursive happens, no alias is expanded, and no tag
makes an object. A scalar keeps its text, so a model id of digits stays text, and a quoted number is not a number (as in
the YAML library of Go). Size and number of events are bounded. For any text the outcome is a mapping or a
``BadEntryError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

MAX_ENTRY_BYTES: Final = 64 * 1024
_MAX_EVENTS: Final = 2_000
_MAX_NESTING: Final = 16
"""Levels of a value that is not read: the parser takes quadratic time for the depth of brackets."""

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML was built with it; both emit the same events."""


class PlainScalar(str):
    """A scalar that was written without quotes: it may be meant as a number or a boolean."""

    __slots__ = ()


class BadEntryError(Exception):
    """An entry that cannot be used, or one field of it (empty: all of it)."""

    def __init__(
        self, expected: str, *, field_name: str = "", value: str = "", written: dict[str, str] | None = None
    ) -> None:
        """Keep what was expected where, and what stood there; ``written`` are the fields that could be read."""
        super().__init__(expected)
        self.expected = expected
        self.field_name = field_name
        self.value = value
        self.written = written or {}


@dataclass(slots=True)
class _Nested:
    """A value that is no scalar, in words."""

    what: str


@dataclass(slots=True)
class _Mapping:
    values: dict[str, str | _Nested] = field(default_factory=dict)

    def put(self, key: str | _Nested, value: str | _Nested) -> None:
        if isinstance(key, _Nested):
            raise BadEntryError("field names that are plain text", value=key.what)
        if key in self.values:
            raise BadEntryError("each field only once", field_name=key)
        self.values[key] = value


def read_mapping(text: str, *, fields: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the scalars of the known fields, and the names of unknown ones, of the first document in the text.

    Nulls are left out: they mean unset. Raises BadEntryError when the text is no such mapping, or when a known field is
    no scalar.
    """
    if len(text.encode("utf-8", errors="replace")) > MAX_ENTRY_BYTES:
        raise BadEntryError(f"at most {MAX_ENTRY_BYTES // 1024} KiB", value=f"{len(text)} characters")
    try:
        found = _first_document(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadEntryError("a YAML mapping", value=_in_one_line(error)) from error
    unknown = tuple(sorted(name for name in found if name not in fields))
    known = {}
    nested = []
    for name, value in found.items():
        if name not in fields:
            continue
        if isinstance(value, _Nested):
            nested.append((name, value.what))
        elif not (isinstance(value, PlainScalar) and value in _NULLS):
            known[name] = value
    if nested:
        name, what = nested[0]
        raise BadEntryError("a single value", field_name=name, value=what, written=known)
    return known, unknown


def _first_document(text: str) -> dict[str, str | _Nested]:
    """Return the top-level mapping; an empty document is an empty one."""
    events = _bounded(text)
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and event.value in _NULLS:
                return {}
            raise BadEntryError("a YAML mapping", value="a single value")
        if isinstance(event, yaml.SequenceStartEvent):
            raise BadEntryError("a YAML mapping", value="a list")
        if isinstance(event, yaml.MappingStartEvent):
            return _pairs(events)
    return {}


def _pairs(events: Iterator[yaml.Event]) -> dict[str, str | _Nested]:
    mapping = _Mapping()
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        key = _value(event, events)
        mapping.put(key, _value(next(events), events))
    return mapping.values


def _value(event: yaml.Event, events: Iterator[yaml.Event]) -> str | _Nested:
    if isinstance(event, yaml.ScalarEvent):
        if event.tag is not None and event.tag != "!":
            return _Nested("a tagged value")
        return PlainScalar(event.value) if event.implicit[0] else str(event.value)
    if isinstance(event, yaml.AliasEvent):
        return _Nested("an alias")
    depth = 1
    while depth:
        inner = next(events)
        depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
        if depth > _MAX_NESTING:
            raise BadEntryError(f"a YAML mapping of at most {_MAX_NESTING} levels", value="a deeper one")
    return _Nested("a list" if isinstance(event, yaml.SequenceStartEvent) else "a mapping")


def _bounded(text: str, most: int = _MAX_EVENTS) -> Iterator[yaml.Event]:
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if count > most:
            raise BadEntryError("a YAML mapping of a few values", value="too many values")
        yield event


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


Tree = str | list["Tree"] | dict[str, "Tree"]
"""A document: scalars as they are written (``PlainScalar`` when without quotes), lists and mappings of them."""

_MAX_DEPTH: Final = 4
_MAX_TREE_EVENTS: Final = 50_000


def read_tree(text: str) -> Tree:
    """Return the first document of a text with lists and mappings in it; an empty one is an empty mapping.

    Nulls are left out of mappings: they mean unset. Raises BadEntryError for aliases, tags, names that are given twice,
    and for more than a few levels.
    """
    if len(text.encode("utf-8", errors="replace")) > MAX_ENTRY_BYTES:
        raise BadEntryError(f"at most {MAX_ENTRY_BYTES // 1024} KiB", value=f"{len(text)} characters")
    try:
        events = _bounded(text, _MAX_TREE_EVENTS)
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                tree = _tree(event, events, _MAX_DEPTH)
                return {} if isinstance(tree, PlainScalar) and tree in _NULLS else tree
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadEntryError("YAML", value=_in_one_line(error)) from error
    return {}


def _tree(event: yaml.Event, events: Iterator[yaml.Event], levels: int) -> Tree:
    if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
        scalar = _value(event, events)
        if isinstance(scalar, _Nested):
            raise BadEntryError("plain values, lists and mappings", value=scalar.what)
        return scalar
    if getattr(event, "tag", None) is not None:
        raise BadEntryError("plain values, lists and mappings", value="a tagged value")
    if not levels:
        raise BadEntryError("a document of a few levels", value="a deeper one")
    if isinstance(event, yaml.SequenceStartEvent):
        return [_tree(inner, events, levels - 1) for inner in _until(yaml.SequenceEndEvent, events)]
    mapping: dict[str, Tree] = {}
    for inner in _until(yaml.MappingEndEvent, events):
        name = _tree(inner, events, 0)
        value = _tree(next(events), events, levels - 1)
        if not isinstance(name, str) or name in mapping:
            raise BadEntryError("each field only once", field_name=str(name))
        if not (isinstance(value, PlainScalar) and value in _NULLS):
            mapping[name] = value
    return mapping


def _until(end: type[yaml.Event], events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for event in events:
        if isinstance(event, end):
            return
        yield event
