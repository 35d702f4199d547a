"""The page for day two, and the one with its details, name what the code has."""

from __future__ import annotations

import re

import pytest

from tests.docs.rendering import DOCS
from wva.actuation import DEFAULT_WINDOW_SECONDS, LEAST_UP, UP_TIMES
from wva.config import Settings
from wva.hindsight import recent
from wva.hindsight.explanation import Explanation, ShownSample, Sibling
from wva.hindsight.flips import Change, Flip, Search
from wva.model.decision import Decision, Step

PAGE = (DOCS / "day-two.md").read_text(encoding="utf-8")
MOST_WORDS = 2700
"""So many are read in a quarter of an hour; what is looked up is on the other page."""
DETAILS = (DOCS / "explain-and-doctor.md").read_text(encoding="utf-8")


def rows(header):
    """Return the cells of the rows of the table with this header."""
    table = DETAILS.split(f"| {header} |", 1)[1].split("\n\n", 1)[0]
    return [line.strip("|").split("|") for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("header", "struct", "parts"),
    [
        ("Field of a decision | Meaning", Decision, (Step,)),
        ("Field of an explanation | Meaning", Explanation, (ShownSample, Sibling, Search, Flip, Change)),
    ],
)
def test_the_fields_of_an_answer_are_those_that_are_served(header, struct, parts):
    """Each field has a row, and each row a field; the parts of a field are named in its meaning."""
    found = rows(header)
    assert sorted(re.findall(r"`(\w+)`", " ".join(names for names, _ in found))) == sorted(struct.__struct_fields__)
    told = set(re.findall(r"`(\w+)`", " ".join(meaning for _, meaning in found)))
    assert {name for part in parts for name in part.__struct_fields__} <= told


def test_the_bounds_on_the_page_are_in_force():
    """How much is kept, how often the fast lane looks, and how fast a target may change."""
    assert f"at most {recent.MOST_CYCLES} of them, and at most {recent.MOST_BYTES // 2**20} MiB" in PAGE
    assert f"every {Settings.model_fields['fast_lane_interval'].default:g} seconds" in PAGE
    assert f"`scale-down-window` | `{DEFAULT_WINDOW_SECONDS / 60:g}m`" in PAGE.replace("wva.llmd.ai/", "")
    assert f"{LEAST_UP}, or {UP_TIMES} times what exists" in PAGE


def test_the_page_is_short_enough_to_be_read():
    """The page has few enough words."""
    assert len(PAGE.split()) <= MOST_WORDS
