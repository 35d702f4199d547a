"""Classes that readers look for by name have a name of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import wva

SOURCES = sorted(Path(wva.__file__).parent.rglob("*.py"))
CLASSES = [
    (node.name, path)
    for path in SOURCES
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef)
]
ONCE = ("Stock", "Target", "Outcome", "Configuration", "Surroundings", "Optimizer", "Claim")


@pytest.mark.parametrize("name", ONCE)
def test_no_two_classes_have_this_name(name):
    """At most one class of ``wva`` has it."""
    assert len([path for found, path in CLASSES if found == name]) <= 1
