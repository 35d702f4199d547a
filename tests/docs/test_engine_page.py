"""The page about the engine has the steps, files and names of the code, and one meaning for each word."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.decide.test_foresee import early
from tests.docs.rendering import DOCS
from wva.decide import foresee, pace, progress, regret, served, wants, warm
from wva.decide.allocate import Offer, Plan, Stock, Want
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.progress import Progress
from wva.decide.rules import Rule, Verdict
from wva.decide.trust import ModelReadings
from wva.model import usual
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


def shown(value):
    """Return a constant as the page has it."""
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    return f"{int(value):,}" if value == int(value) else repr(value)


def test_every_constant_has_its_value_and_a_reason():
    """The table has the numbers of the modules that look ahead and wait, no more and no fewer."""
    expected = {}
    for module in (foresee, pace, warm, served, regret, usual, wants, progress):
        names = re.findall(r"^(_?[A-Z][A-Z_]+): Final = ", inspect.getsource(module), re.MULTILINE)
        known = {name: getattr(module, name) for name in names}
        numbers = {name: value for name, value in known.items() if isinstance(value, (int, float, tuple))}
        expected |= {f"`{module.__name__.split('.')[-1]}.{name}`": shown(value) for name, value in numbers.items()}
    found = rows("Constant")
    assert {name: value for name, value, _, _ in found} == expected
    assert all(reason and sensible for _, _, reason, sensible in found)


@pytest.mark.parametrize(("words", "seconds"), [("After six seconds", 6.0), ("after four seconds", 4.0)])
def test_what_a_jump_does_is_what_the_page_says(words, seconds):
    """The example is computed."""
    required = float(re.search(rf"{words} (\d+)", PAGE)[1])
    assert early(20.0, seconds=seconds)[0].required == pytest.approx(required)


def test_a_regular_cycle_that_shows_a_jump_first_asks_for_what_the_page_says():
    """The example is computed, in whole requests per second."""
    required = int(re.search(r"after 15 seconds (\d+)", PAGE)[1])
    assert round(early(20.0, seconds=15.0, woken=False)[0].required) == required


def test_every_function_on_the_way_of_a_number_exists():
    """The page names functions and tables of the modules beside them."""
    for *_, where in rows("From"):
        for name, file in re.findall(r"`(\w+)`(?: and `\w+`)? in `([\w/]+\.py)`", where):
            assert re.search(
                rf"^(def )?{name}\b", (ROOT / "wva/decide" / file).read_text(encoding="utf-8"), re.MULTILINE
            )
