"""docs/scorecard.md is the unedited output of `wva bench quality` for a whole suite."""

from __future__ import annotations

import pytest

from tests.docs.commands import ROOT
from wva.sim.scorecard import markdown, shown
from wva.sim.scorecard.suites import SCENARIOS, SUITES

PAGE = ROOT / "docs" / "scorecard.md"
AGAIN = "write the page again: wva bench quality --suite full --markdown docs/scorecard.md"


@pytest.fixture(scope="module")
def text():
    """Return the page."""
    return PAGE.read_text(encoding="utf-8")


def test_every_scenario_of_the_suite_is_there(text):
    """Every scenario of the suite has its present title and a table."""
    suite = text.partition("\n")[0].removeprefix("# Scorecard: suite ")
    for name in SUITES[suite]:
        section = text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert f"\n{SCENARIOS[name].title}. Variants: " in section, AGAIN
        assert f"\n| policy | {shown.COLUMNS[0].heading} | " in section, AGAIN
        assert "\n| **wva** | " in section, AGAIN


def test_what_is_the_same_on_every_page_is_there(text):
    """The page has the background that `wva bench quality` writes for every suite."""
    assert "\n".join(markdown.background()) in text, AGAIN
