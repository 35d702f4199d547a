"""The page about the engine has the steps, files and names of the code, and one meaning for each word."""

from __future__ import annotations

import re

import pytest

from tests.docs.rendering import DOCS
from wva.decide.allocate import Offer, Plan, Stock, Want
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.progress import Progress
from wva.decide.rules import Rule, Verdict
from wva.decide.trust import ModelReadings
from wva.model.decision import Decision, Limit
from wva.model.memory import Level
from wva.model.variant import Variant

ROOT = DOCS.parent
PAGE = (DOCS / "design" / "engine.md").read_text(encoding="utf-8")
NAMED = (
    Capacity,
    Decision,
    DemandRate,
    Level,
    Limit,
    ModelReadings,
    Need,
    Offer,
    Plan,
    Progress,
    Rule,
    Stock,
    Variant,
    Verdict,
    Want,
)


def rows(first):
    """Return the cells of the table whose first column has this heading, without the heading."""
    table = re.search(rf"^\| {re.escape(first)} \|.*?\n\|[-|]+\n(.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_steps_are_those_of_the_pipeline():
    """The page has the steps in order, each with the module that the pipeline imports it from."""
    source = (ROOT / "wva/decide/pipeline.py").read_text(encoding="utf-8")
    assert [row[0] for row in rows("Step")] == re.findall(r"# (\d \w+):", source)
    for _, module, *_ in rows("Step"):
        assert module.strip("`").removesuffix(".py").replace("/", ".") in source


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(wva/[\w/.]+)`", PAGE))))
def test_every_file_of_the_page_exists(path):
    """Every file and folder that the page names exists."""
    assert (ROOT / path).exists()


def test_each_word_stands_for_one_thing():
    """No word and no name of the code occurs twice in the two tables of words."""
    words = [row[0] for name in ("State", "Word") for row in rows(name)]
    codes = [row[2] for name in ("State", "Word") for row in rows(name) if row[2]]
    assert len(set(words)) == len(words)
    assert len(set(codes)) == len(codes)
    assert [row[0] for row in rows("State")] == ["Ready", "Starting", "Overdue", "Unschedulable", "Leaving"]


def test_the_names_of_the_tables_are_those_of_the_code():
    """The tables name existing classes and fields."""
    known = {each.__name__: each for each in NAMED}
    for name in ("State", "Word"):
        for *_, code in rows(name):
            for owner, field in re.findall(r"`([A-Z]\w+)(?:\.(\w+))?`", code):
                assert owner in known
                assert not field or field in known[owner].__annotations__
