"""The table of questions in docs/development.md names the one module that answers each question."""

from __future__ import annotations

import re

import pytest

from tests.docs.rendering import DOCS

ROOT = DOCS.parent
SECTION = re.search(
    r"^## Ten questions\n(.*?)^## ", (DOCS / "development.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)[1]
ROWS = re.findall(r"^\| (.*?) \| `(wva/[\w/.]+)` \| `(.*?)` \|$", SECTION, re.MULTILINE)


def test_there_are_ten():
    """The table has ten rows."""
    assert len({question for question, _, _ in ROWS}) == 10


@pytest.mark.parametrize(("question", "place", "mark"), ROWS, ids=[row[1] for row in ROWS])
def test_the_place_exists_and_is_the_only_one(question, place, mark):
    """Exactly one module of the controller contains the code that answers the question."""
    assert question
    assert (ROOT / place).exists()
    modules = [path.relative_to(ROOT) for path in (ROOT / "wva").rglob("*.py")]
    found = [
        path.as_posix()
        for path in modules
        if not path.is_relative_to("wva/sim") and mark in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert len(found) == 1
    assert found[0] == place or found[0].startswith(f"{place}/")
