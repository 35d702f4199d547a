"""Reading one entry of a ConfigMap: the first YAML document of a text that people wrote.

It reads parser events instead of constructed objects. So no alias is expanded, and no tag makes an object. A scalar
keeps its text, so a model id of digits stays text, and a quoted number is not a number (as in the YAML library of Go).
Size, depth and number of events are bounded. For any text the outcome is a value or a ``BadEntryError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import yaml

from wva.config.declare import PlainScalar

MAX_ENTRY_BYTES: Final = 64 * 1024
_MAX_EVENTS: Final = 2_000
_MAX_NESTING: Final = 16
"""Levels of a value that is not read: the parser takes quadratic time for the depth of brackets."""
_MAX_TREE_EVENTS: Final = 50_000
_MAX_TREE_LEVELS: Final = 4
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML was built with it; both emit the same events."""

T = TypeVar("T")

Tree = str | list["Tree"] | dict[str, "Tree"]
"""A document: scalars as they are written (``PlainScalar`` when without quotes), lists and mappings of them."""


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
class _Unread:
    """A value that is not read, in words."""

    what: str


def read_mapping(text: str, *, fields: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the scalars of the known fields, and the names of unknown ones.

    Nulls are left out: they mean unset. Raises BadEntryError when the text is no mapping, or when a known field is no
    scalar.
    """
    found: dict[str, str | _Unread] = {}
    try:
        events = _bounded(text, _MAX_EVENTS)
        top = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
        if isinstance(top, yaml.MappingStartEvent):
            found = _pairs(events, lambda event: _scalar(event, events))
        elif top is not None and not (isinstance(top, yaml.ScalarEvent) and top.implicit[0] and top.value in _NULLS):
            what = "a list" if isinstance(top, yaml.SequenceStartEvent) else "a single value"
            raise BadEntryError("a YAML mapping", value=what)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadEntryError("a YAML mapping", value=_in_one_line(error)) from error
    known = {
        name: value
        for name, value in found.items()
        if name in fields and not isinstance(value, _Unread) and not _is_null(value)
    }
    for name, value in found.items():
        if name in fields and isinstance(value, _Unread):
            raise BadEntryError("a single value", field_name=name, value=value.what, written=known)
    return known, tuple(sorted(found.keys() - fields))


def read_tree(text: str) -> Tree:
    """Return a document with lists and mappings in it; an empty one is an empty mapping.

    Nulls are left out of mappings: they mean unset. Raises BadEntryError for aliases, tags, names that are given twice,
    and for more than a few levels.
    """
    try:
        events = _bounded(text, _MAX_TREE_EVENTS)
        top = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
        tree = {} if top is None else _tree(top, events, _MAX_TREE_LEVELS)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadEntryError("YAML", value=_in_one_line(error)) from error
    return {} if _is_null(tree) else tree


def _tree(event: yaml.Event, events: Iterator[yaml.Event], levels: int) -> Tree:
    if not isinstance(event, yaml.CollectionStartEvent):
        scalar = _scalar(event, events)
        if isinstance(scalar, _Unread):
            raise BadEntryError("plain values, lists and mappings", value=scalar.what)
        return scalar
    if event.tag is not None:
        raise BadEntryError("plain values, lists and mappings", value="a tagged value")
    if not levels:
        raise BadEntryError("a document of a few levels", value="a deeper one")
    if isinstance(event, yaml.SequenceStartEvent):
        return [_tree(each, events, levels - 1) for each in _until_end(events)]
    pairs = _pairs(events, lambda value: _tree(value, events, levels - 1))
    return {name: value for name, value in pairs.items() if not _is_null(value)}


def _pairs(events: Iterator[yaml.Event], value_of: Callable[[yaml.Event], T]) -> dict[str, T]:
    """Return the pairs of a mapping that has begun."""
    found: dict[str, T] = {}
    for event in _until_end(events):
        name = _scalar(event, events)
        if isinstance(name, _Unread):
            raise BadEntryError("field names that are plain text", value=name.what)
        if name in found:
            raise BadEntryError("each field only once", field_name=name)
        found[name] = value_of(next(events))
    return found


def _scalar(event: yaml.Event, events: Iterator[yaml.Event]) -> str | _Unread:
    """Return a scalar, or in words what stands there instead, which is skipped."""
    if isinstance(event, yaml.ScalarEvent):
        if event.tag is not None and event.tag != "!":
            return _Unread("a tagged value")
        return PlainScalar(event.value) if event.implicit[0] else str(event.value)
    if isinstance(event, yaml.AliasEvent):
        return _Unread("an alias")
    depth = 1
    while depth:
        inner = next(events)
        depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
        if depth > _MAX_NESTING:
            raise BadEntryError(f"a YAML mapping of at most {_MAX_NESTING} levels", value="a deeper one")
    return _Unread("a list" if isinstance(event, yaml.SequenceStartEvent) else "a mapping")


def _until_end(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            return
        yield event


def _bounded(text: str, most: int) -> Iterator[yaml.Event]:
    """Yield the events of a text. Raises BadEntryError for a long text or many events."""
    if len(text.encode("utf-8", errors="replace")) > MAX_ENTRY_BYTES:
        raise BadEntryError(f"at most {MAX_ENTRY_BYTES // 1024} KiB", value=f"{len(text)} characters")
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if count > most:
            raise BadEntryError("a YAML mapping of a few values", value="too many values")
        yield event


def _is_null(value: object) -> bool:
    return isinstance(value, PlainScalar) and value in _NULLS


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
