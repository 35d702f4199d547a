"""Every promise of the pages on security and resilience names existing tests that check it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.rendering import DOCS

PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("security.md", "resilience.md")}
MOST_WORDS = 3900
"""Of the page on security, without its notes, which name the tests."""
REFERENCE = re.compile(r"`([a-z0-9_/]+\.py)::([a-z0-9_]+)(?:\[([a-z0-9_]+)\])?`")
"""A file, a test, and optionally the name of one row of the test."""
NOTE = re.compile(r"^\[\^(\d+)\]: (.*)$", re.MULTILINE)


def claims(text):
    """Return the rows of every table with a column "Tests", without the headings; the note is the last cell."""
    notes = dict(NOTE.findall(text))
    found, tested = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            tested = False
        elif cells[-1] == "Tests":
            tested = True
        elif tested and not set(cells[0]) <= {"-"}:
            found.append([*cells[:-1], notes.get(cells[-1].strip("[^]"), cells[-1])])
    return found


CLAIMS = [claim for text in PAGES.values() for claim in claims(text)]


@cache
def read(path):
    """Return the names of the functions of a file, and its constants."""
    nodes = list(ast.walk(ast.parse((DOCS.parent / path).read_text())))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions, {node.value for node in nodes if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[0][:40])
def test_a_claim_is_held_by_tests_that_exist(claim):
    """Each claim names tests, and all of them exist."""
    references = REFERENCE.findall(claim[-1])
    assert references
    assert REFERENCE.sub("", claim[-1]).strip(", ") == ""
    for path, name, row in references:
        functions, texts = read(path)
        assert name in functions, f"{path} has no {name}"
        assert not row or row in texts, f"{path} has no row {row}"


@pytest.mark.parametrize("text", PAGES.values(), ids=PAGES)
def test_every_note_belongs_to_one_claim(text):
    """The claims of a page lead to its notes, in order, and each note has one claim."""
    numbers = [number for number, _ in NOTE.findall(text)]
    assert numbers == [str(place + 1) for place in range(len(claims(text)))]
    assert re.findall(r"\[\^(\d+)\](?!:)", text) == numbers


def test_every_actor_has_claims():
    """Each actor has a table of claims, because no test can check claims in prose."""
    sections = {name: re.split(r"^## ", text, flags=re.MULTILINE)[1:] for name, text in PAGES.items()}
    introduction = sections["security.md"].pop(0)
    assert introduction.startswith("What is worth protecting")
    tables = [claims(section) for found in sections.values() for section in found]
    assert len(tables) >= 12
    assert all(tables)


def test_the_page_on_security_is_short_enough_to_be_read():
    """The page has few enough words."""
    assert len(NOTE.sub("", PAGES["security.md"]).split()) <= MOST_WORDS


def test_a_row_without_a_test_would_be_found():
    """``claims`` returns a row that names no test."""
    (claim,) = claims("| He cannot | Tests |\n|---|---|\n| fly | hope |\n")
    assert claim == ["fly", "hope"]
