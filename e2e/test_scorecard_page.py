"""The pages of the scorecard in a real browser: they draw without errors and fit into the window."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from e2e.browser import browser
from tests.sim.scorecard import fakes
from wva.sim.scorecard.card import PolicyFamily, card
from wva.sim.scorecard.page import html

_TABLES = Path(__file__).parent.parent / "docs" / "scorecard-tables.html"
_SCENARIOS = ("waves", "steps", "crowds")
_PLOTS = "document.querySelectorAll('.js-plotly-plot').length"
_COVERED = """
[...document.querySelectorAll(".js-plotly-plot")].filter((plot) => {
  const legend = plot.querySelector(".legend").getBoundingClientRect();
  return [...plot.querySelectorAll(".nsewdrag")].some((area) => {
    const box = area.getBoundingClientRect();
    return legend.left < box.right && legend.right > box.left && legend.top < box.bottom && legend.bottom > box.top;
  });
}).length
"""
"""Number of plots whose legend covers data."""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a page of made-up runs, with as many policies as a suite has."""
    policies = [*fakes.SKILL, *fakes.MEMBERS, *(f"hpa-queue@{number}" for number in range(8))]
    scenarios = [fakes.scenario(name) for name in _SCENARIOS]
    runs = [fakes.run(of, policy, seed) for of in scenarios for policy in policies for seed in (1, 2, 3)]
    found = card(
        scenarios, runs, title="Scorecard", families=[PolicyFamily("hpa-inflight-tuned", tuple(fakes.MEMBERS))]
    )
    path = tmp_path_factory.mktemp("page") / "scorecard.html"
    path.write_text(html(found), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_draws_without_complaint(page_file: Path, tmp_path: Path, scheme: str) -> None:
    """Each scenario has two plots with legends beside them.

    The page fetches nothing and does not scroll to the side.
    """
    async with browser(tmp_path / "profile") as page:
        await page.open(page_file, width=1280, height=6000, scheme=scheme)
        await page.until(f"{_PLOTS} >= {2 * len(_SCENARIOS)}")
        assert await page.evaluate(_COVERED) == 0
        assert await page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        if folder := os.environ.get("WVA_E2E_LOGS"):
            await page.screenshot(Path(folder) / f"scorecard-{scheme}.png")
        assert page.complaints == []


async def test_plots_are_drawn_when_they_come_near(page_file: Path, tmp_path: Path) -> None:
    """The page draws a plot when the user scrolls near it, since drawing thirty scenarios at once takes long."""
    async with browser(tmp_path / "profile") as page:
        await page.open(page_file, width=1280, height=500)
        assert await page.evaluate(_PLOTS) < 2 * len(_SCENARIOS)
        await page.evaluate("document.querySelector('section:last-of-type').scrollIntoView()")
        await page.until("document.querySelectorAll('section:last-of-type .js-plotly-plot').length === 2")
        assert page.complaints == []


async def test_another_policy_can_be_chosen(page_file: Path, tmp_path: Path) -> None:
    """The page then draws the fleet of the chosen policy."""
    filled = "JSON.stringify(document.querySelector('.over-time').data.map((trace) => trace.y))"
    async with browser(tmp_path / "profile") as page:
        await page.open(page_file, width=1280, height=3000)
        await page.until(f"{_PLOTS} >= 2")
        before = await page.evaluate(filled)
        await page.evaluate(
            "(() => { const select = document.querySelector('section select'); select.value = 'static-peak';"
            " select.dispatchEvent(new Event('change')); })()"
        )
        await page.until(f"{filled} !== {before!r}")
        assert page.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
async def test_the_tables_of_the_documentation_fit(tmp_path: Path, width: int) -> None:
    """The page of tables in docs opens without complaint, loads nothing, and only its tables scroll to the side."""
    recorded = len(json.loads(_TABLES.with_suffix(".json").read_bytes())["scenarios"])
    async with browser(tmp_path / "profile") as page:
        await page.open(_TABLES, width=width, height=900)
        assert await page.evaluate("document.querySelectorAll('table.figures').length") == recorded
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert [url for url in page.requests if not url.startswith("file:")] == []
        assert page.complaints == []


async def test_a_complaint_is_noticed(tmp_path: Path) -> None:
    """The browser reports an error in the console and an uncaught exception."""
    path = tmp_path / "page.html"
    path.write_text("<script>console.error('one')</script><script>throw new Error('two')</script>", encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open(path, width=800, height=600)
        assert "one" in page.complaints
        assert any("two" in complaint for complaint in page.complaints)
