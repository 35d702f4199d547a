"""Words with one meaning: classes that people look for by name exist once."""

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
    """Another one gets a name that tells the two apart."""
    assert len([path for found, path in CLASSES if found == name]) <= 1
