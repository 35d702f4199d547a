"""Reading one entry of a ConfigMap: the first YAML document of a text that people wrote.

It reads parser events instead of constructed objects. So no alias is expanded, and no tag makes an object. A scalar
keeps its text, so a model id of digits stays text, and a quoted number is not a number (as in the YAML library of Go).
Size, depth and number of events are bounded. For any text the outcome is a value or a ``BadEntryError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from wva.config.declare import PlainScalar

MAX_ENTRY_BYTES: Final = 64 * 1024
_MAX_EVENTS: Final = 2_000
_MAX_NESTING: Final = 16
"""Levels of a value that is not read: the parser takes quadratic time for the depth of brackets."""
_MAX_TREE_EVENTS: Final = 50_000
_MAX_TREE_LEVELS: Final = 4
_WORDS: Final = {yaml.AliasEvent: "an alias", yaml.SequenceStartEvent: "a list", yaml.MappingStartEvent: "a mapping"}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML was built with it; both emit the same events."""


class BadEntryError(Exception):
    """An entry that cannot be used, or one field of it (empty: all of it)."""

    def __init__(self, expected: str, *, field_name: str = "", value: str = "") -> None:
        """Keep the expected value, the field, and the value that was found."""
        super().__init__(expected)
        self.expected = expected
        self.field_name = field_name
        self.value = value


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that is not read, in words."""

    what: str


Tree = str | Unread | list["Tree"] | dict[str, "Tree"]
"""A document: scalars as they are written (``PlainScalar`` when without quotes), lists and mappings of them."""


def is_null(value: object) -> bool:
    """Tell whether a value is the null of YAML, which means unset."""
    return isinstance(value, PlainScalar) and value in _NULLS


def kind_of(value: Tree) -> str:
    """Return in words what a value is."""
    if isinstance(value, Unread):
        return value.what
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"


def read_tree(text: str, *, nested: bool) -> Tree:
    """Return a document; an empty one is an empty mapping.

    Without ``nested`` it is one mapping, and values in it that are no scalars are not read. With ``nested`` it has a
    few levels, and its mappings are without nulls, which mean unset. Raises BadEntryError for names that are given
    twice, for a long or deep text, and with ``nested`` for aliases and tags.
    """
    try:
        reader = _Reader(text, nested=nested)
        top = next((event for event in reader.events if isinstance(event, yaml.NodeEvent)), None)
        if isinstance(top, yaml.SequenceStartEvent) and not nested:
            return []  # its content does not matter
        tree = {} if top is None else reader.tree(top, _MAX_TREE_LEVELS if nested else 1)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = " ".join(str(error).split())[:200]
        raise BadEntryError("YAML" if nested else "a YAML mapping", value=message) from error
    return {} if is_null(tree) else tree


class _Reader:
    """The events of a document, and the values that they make."""

    def __init__(self, text: str, *, nested: bool) -> None:
        """Begin to parse. Raises BadEntryError for a long text."""
        if len(text.encode("utf-8", errors="replace")) > MAX_ENTRY_BYTES:
            raise BadEntryError(f"at most {MAX_ENTRY_BYTES // 1024} KiB", value=f"{len(text)} characters")
        self.nested = nested
        self.events = self._bounded(text)

    def _bounded(self, text: str) -> Iterator[yaml.Event]:
        """Yield the events. Raises BadEntryError for many."""
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            if count > (_MAX_TREE_EVENTS if self.nested else _MAX_EVENTS):
                raise BadEntryError("a YAML mapping of a few values", value="too many values")
            yield event

    def tree(self, event: yaml.Event, levels: int) -> Tree:
        """Return the value that begins with an event. Raises BadEntryError for more levels than may be."""
        if isinstance(event, yaml.AliasEvent):
            return self._unread(_WORDS[type(event)])
        if isinstance(event, yaml.ScalarEvent):
            if event.tag is not None and event.tag != "!":
                return self._unread("a tagged value")
            return PlainScalar(event.value) if event.implicit[0] else str(event.value)
        if self.nested and getattr(event, "tag", None) is not None:
            return self._unread("a tagged value")
        if not levels and self.nested:
            raise BadEntryError("a document of a few levels", value="a deeper one")
        if not levels:
            # Skip the list or mapping.
            depth = 1
            while depth:
                inner = next(self.events)
                depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
                if depth > _MAX_NESTING:
                    raise BadEntryError(f"a YAML mapping of at most {_MAX_NESTING} levels", value="a deeper one")
            return Unread(_WORDS[type(event)])
        if isinstance(event, yaml.SequenceStartEvent):
            return [self.tree(item, levels - 1) for item in self._until_end()]
        mapping: dict[str, Tree] = {}
        for key in self._until_end():
            name = self.tree(key, 0) if isinstance(key, yaml.ScalarEvent) else Unread(_WORDS[type(key)])
            if not isinstance(name, str):
                raise BadEntryError("field names that are plain text", value=kind_of(name))
            if name in mapping:
                raise BadEntryError("each field only once", field_name=name)
            mapping[name] = self.tree(next(self.events), levels - 1)
        return {name: value for name, value in mapping.items() if not (self.nested and is_null(value))}

    def _unread(self, what: str) -> Unread:
        """Return what stands for a value that is not read. Raises BadEntryError in a nested document."""
        if self.nested:
            raise BadEntryError("plain values, lists and mappings", value=what)
        return Unread(what)

    def _until_end(self) -> Iterator[yaml.Event]:
        for event in self.events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event
