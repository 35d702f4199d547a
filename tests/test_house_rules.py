"""Rules of the code that no linter knows: one name for one class, and few functions that only split what is read."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("wva", "tests", "e2e", "bench", "deploy", "image", "requirements")
PROGRAM = [path for path in sorted((ROOT / "wva").rglob("*.py")) if "sim" not in path.relative_to(ROOT / "wva").parts]


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def nodes(path: Path) -> Iterator[ast.AST]:
    """Yield every node of a module."""
    return ast.walk(parsed(path))


def test_no_two_classes_have_one_name():
    """A name means one thing in the whole repository."""
    places = defaultdict(list)
    for path in (path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 1000
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_few_private_functions_have_one_caller():
    """What is read together stands together: at most a third of the private functions have one caller."""
    found, once = 0, []
    for path in PROGRAM:
        private, named = {}, Counter()
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_") and not node.name.startswith("__"):
                    private[f"{path.relative_to(ROOT)}:{node.lineno}"] = node.name
            elif isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
        found += len(private)
        once += [f"{place} {name}" for place, name in private.items() if named[name] == 1]
    assert found > 300
    assert 3 * len(once) <= found, f"{len(once)} of {found} private functions have one caller: {once}"
