"""The keys of ``values.yaml`` with their descriptions and defaults, as they are written there.

A description is the comment ``# -- ...`` right above a key, which may go on in the next lines. A list, an empty map and
a map whose comment ends with ``# @whole`` are one value; of other maps each key is a value of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from e2e.packaging.chart import CHART

_BEGIN, _WHOLE = "# --", "# @whole"


@dataclass(frozen=True, slots=True)
class Value:
    """One value that an operator may set."""

    path: str
    default: Any
    description: str


def values() -> list[Value]:
    """Return all values in the order of the file."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return list(_values(root, text.splitlines(), ""))


def _values(node: yaml.Node, lines: list[str], path: str) -> Iterator[Value]:
    for key, value in node.value:
        name = f"{path}.{key.value}" if path else key.value
        description, whole = _comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not whole:
            assert not description, f"{name} has a description, and its keys have theirs"
            yield from _values(value, lines, name)
        else:
            yield Value(name, yaml.SafeLoader("").construct_document(value), description)


def _comment(lines: list[str], line: int) -> tuple[str, bool]:
    """Return the text of the comment above a line, and whether it says that the map is one value."""
    above: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        above.insert(0, lines[line].strip())
    whole = bool(above) and above[-1] == _WHOLE
    if whole:
        above.pop()
    if not above or not above[0].startswith(_BEGIN):
        return "", whole
    words = [above[0].removeprefix(_BEGIN), *(part.removeprefix("#") for part in above[1:])]
    return " ".join(word.strip() for word in words), whole
