"""Every claim of the threat model names existing tests that check it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.rendering import DOCS

PAGE = (DOCS / "security.md").read_text()
REFERENCE = re.compile(r"`([a-z0-9_/]+\.py)::([a-z0-9_]+)(?:\[([a-z0-9_]+)\])?`")
"""A file, a test, and optionally the name of one row of the test."""


def claims(text):
    """Return the rows of every table with a column "Held by", without the headings."""
    found, held = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            held = False
        elif cells[-1] == "Held by":
            held = True
        elif held and not set(cells[0]) <= {"-"}:
            found.append(cells)
    return found


CLAIMS = claims(PAGE)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[0][:40])
def test_a_claim_is_held_by_tests_that_exist(claim):
    """Each claim names tests, and all of them exist."""
    references = REFERENCE.findall(claim[-1])
    assert references
    assert REFERENCE.sub("", claim[-1]).strip(", ") == ""
    for path, name, row in references:
        tree = ast.parse((DOCS.parent / path).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, f"{path} has no {name}"
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not row or row in texts, f"{path} has no row {row}"


def test_every_actor_has_claims():
    """Each actor has a table of claims, because no test can check claims in prose."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[2:]
    assert len(sections) >= 7
    assert all(claims(section) for section in sections), [section.splitlines()[0] for section in sections]


def test_a_row_without_a_test_would_be_found():
    """``claims`` returns a row that names no test."""
    (claim,) = claims("| He cannot | Held by |\n|---|---|\n| fly | hope |\n")
    assert claim == ["fly", "hope"]
