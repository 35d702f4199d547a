"""A rule of the code that no linter knows: one name for one class."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
TREES = ("wva", "tests", "e2e", "bench", "deploy", "image", "requirements")
CLASS = re.compile(r"^[ \t]*class[ \t]+(?P<name>\w+)[ \t]*[:(\[]", re.MULTILINE)
"""To parse all files takes three seconds."""


def test_no_two_classes_have_one_name():
    """A name means one thing in the whole repository."""
    places = defaultdict(list)
    for path in (path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))):
        for statement in CLASS.finditer(path.read_text(encoding="utf-8")):
            places[statement["name"]].append(str(path.relative_to(ROOT)))
    assert len(places) > 1000
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_imports_itself_through_others():
    """Modules that import each other in a circle can only be read all at once; imports within functions count too."""
    graph = grimp.build_graph("wva")
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    assert not left, sorted(left)
