"""The page about analyzers and optimizers has the names, pairs and links of the code, and computed examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import policy, variant
from tests.decide.story import Story
from wva.model.optimizers import FITTING, Analyzer, Optimizer
from wva.model.policy import DEFAULT_ANALYZER

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "optimizers.md").read_text(encoding="utf-8")


def rows(name):
    """Return the rows of the table whose first column has this heading, by their first word."""
    table = re.search(rf"\| `{name}` \|.*?\n\|[-|]+\n(.*?)\n\n", PAGE, re.DOTALL)[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0].strip('`"'): row for row in cells}


def chapter(link):
    """Return the text of the chapter that a link points to, or of the whole page if it names no chapter."""
    name, _, anchor = link.partition("#")
    page = (DOCS / name).read_text(encoding="utf-8") if name else PAGE
    if not anchor:
        return page
    parts = re.split(r"^(## .*)$", page, flags=re.MULTILINE)
    titles = {
        re.sub(r"[^\w -]", "", title[3:].lower()).replace(" ", "-"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return titles[anchor]


def test_every_analyzer_is_listed_with_the_optimizers_that_fit():
    """The page lists exactly the pairs that the code allows."""
    listed = {name: re.findall(r"`([\w-]+)`", row[3]) for name, row in rows("analyzerName").items()}
    assert listed == {
        analyzer.value or "percentage": [each.value for each in FITTING[analyzer]] for analyzer in Analyzer
    }
    assert next(iter(listed)) == DEFAULT_ANALYZER


def test_every_optimizer_is_listed():
    """The page lists each optimizer by the name that selects it."""
    assert set(rows("optimizerName")) == {each.value for each in Optimizer} - {""}


LINKS = [
    re.search(r"\]\(([^)]+)\)", row[1])[1]
    for table in ("analyzerName", "optimizerName")
    for row in rows(table).values()
]


@pytest.mark.parametrize("link", LINKS)
def test_every_chapter_has_an_example_parameters_and_when_to_choose_it(link):
    """The test looks for the example, the parameters and the advice; signals, units and formula are prose."""
    text = chapter(link)
    assert "### Example" in text
    assert re.search(r"[Pp]arameter", text)
    assert "Choose" in text or "decisions.md" in link


def test_the_example_of_one_step_is_what_the_code_computes():
    """The decisions below the table are the decisions on the replicas in it."""
    table, result = re.search(r"\| Pod \|.*?\n\|[-|]+\n(.*?)\n\n```\n(.*?)```", PAGE, re.DOTALL).groups()
    assert told(table, Optimizer.ONE_STEP) == result.splitlines()
    assert told(table, Optimizer.SIZED)[0].startswith("cheap: 2 -> 5 ")


def told(table, optimizer):
    """Return the decisions on the replicas of a table, in words."""
    loads, costs = {}, {}
    for line in table.splitlines():
        _, name, cost, kv, queue = (cell.strip() for cell in line.strip("|").split("|"))
        loads.setdefault(name, []).append((float(kv), float(queue)))
        costs[name] = float(cost)
    variants = [variant(name, replicas=len(loads[name]), cost=costs[name]) for name in loads]
    story = Story(policy(optimizer_name=optimizer))
    lines = []
    for name, decision in story.cycle(*variants, **loads).items():
        line = f"{name}: {decision.current} -> {decision.desired} {decision.reason.value}"
        lines.append(line if decision.desired == decision.current else f"{line}: {decision.message}")
    return lines
