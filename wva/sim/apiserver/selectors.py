"""Label and field selectors: from the text of a query parameter to a predicate on objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from wva.sim.apiserver.errors import bad_request
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import JsonObject, Object, dotted, metadata_of, text_at

Predicate: TypeAlias = Callable[[Object], bool]

_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<word>in|notin)\s*\(\s*(?P<values>[^()]*)\)$")
_EQUALITY: Final = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<operator>==|!=|=)\s*(?P<value>[^=!\s]*)$")
_EXISTENCE: Final = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^=!\s]+)$")
_COMMA: Final = re.compile(r",(?![^(]*\))")  # commas inside parentheses separate values, not requirements


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a kind that a list or a watch wants. An empty namespace means all namespaces."""

    namespace: str = ""
    predicates: tuple[Predicate, ...] = ()

    def matches(self, value: Object) -> bool:
        """Tell whether an object is wanted."""
        if self.namespace and metadata_of(value).get("namespace", "") != self.namespace:
            return False
        return all(predicate(value) for predicate in self.predicates)


def select(spec: KindSpec, *, namespace: str = "", labels: str = "", fields: str = "") -> Selection:
    """Return the selection that these texts describe. Raises ApiError 400 on a text that is no selector."""
    predicates = [_label(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    predicates += [_field(spec, part.strip(), fields) for part in fields.split(",") if part.strip()]
    return Selection(namespace, tuple(predicates))


def _labels_of(value: Object) -> JsonObject:
    labels = metadata_of(value).get("labels")
    return labels if isinstance(labels, dict) else {}


def _label(text: str) -> Predicate:
    if match := _SET.match(text):
        key, values = match["key"], frozenset(part.strip() for part in match["values"].split(","))
        if match["word"] == "in":
            return lambda value: _labels_of(value).get(key) in values
        return lambda value: _labels_of(value).get(key) not in values
    if match := _EQUALITY.match(text):
        key, expected = match["key"], match["value"]
        if match["operator"] == "!=":
            return lambda value: _labels_of(value).get(key) != expected
        return lambda value: _labels_of(value).get(key) == expected
    if match := _EXISTENCE.match(text):
        key, present = match["key"], not match["absent"]
        return lambda value: (key in _labels_of(value)) is present
    raise bad_request(f"unable to parse requirement: {text}")


def _field(spec: KindSpec, text: str, field_selector: str) -> Predicate:
    match = _EQUALITY.match(text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    if match["key"] not in spec.selectable:
        raise bad_request(
            f'Unable to find "{spec.api_version}, Resource={spec.plural}" that match label selector "", '
            f'field selector "{field_selector}": field label not supported: {match["key"]}'
        )
    path, expected, equal = dotted(match["key"]), match["value"], match["operator"] != "!="
    return lambda value: (text_at(value, path) == expected) is equal
