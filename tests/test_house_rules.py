"""A rule of the code that no linter knows: one name for one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
TREES = ("wva", "tests", "e2e", "bench", "deploy", "image", "requirements")


def test_no_two_classes_have_one_name():
    """A name means one thing in the whole repository."""
    places = defaultdict(list)
    for path in (path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
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
