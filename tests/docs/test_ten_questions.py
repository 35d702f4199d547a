"""The table of questions in docs/development.md names the one or two files that answer each question."""

from __future__ import annotations

import re

import pytest

from tests.docs.rendering import DOCS

ROOT = DOCS.parent
SECTION = re.search(
    r"^## Ten questions\n(.*?)^## ", (DOCS / "development.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)[1]
ROWS = [
    (question, re.findall(r"`(.*?)`", places), re.findall(r"`(.*?)`", marks))
    for question, places, marks in re.findall(r"^\| (.*?\?) \| (`.*?`) \| (`.*`) \|$", SECTION, re.MULTILINE)
]
_MOST_FILES = 2


def test_there_are_ten():
    """The table has ten rows."""
    assert len({question for question, _, _ in ROWS}) == 10


@pytest.mark.parametrize(("question", "places", "marks"), ROWS, ids=[row[0] for row in ROWS])
def test_one_file_or_two_answer_it(question, places, marks):
    """Each file has what the table says of it, and no other module of the controller has it."""
    assert question
    assert len(places) == len(marks) <= _MOST_FILES
    modules = list((ROOT / "wva").rglob("*.py"))
    for place, mark in zip(places, marks, strict=True):
        assert mark in (ROOT / place).read_text(encoding="utf-8")
        if place.startswith("wva/") and not place.startswith("wva/sim/"):
            others = [path for path in modules if not path.is_relative_to(ROOT / "wva/sim") and path != ROOT / place]
            assert not [path for path in others if mark in path.read_text(encoding="utf-8")]


def test_the_other_places_are_there():
    """The short table below names files, too."""
    places = re.findall(r"^\| .*? \| `(wva/[\w/.]+)` \|$", SECTION, re.MULTILINE)
    assert len(places) > 1
    assert all((ROOT / place).is_file() for place in places)
