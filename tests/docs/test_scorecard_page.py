"""docs/scorecard.md and its tables are what `wva bench quality` writes of the data beside them, for a whole suite."""

from __future__ import annotations

import re

import pytest

from tests.docs.commands import ROOT
from wva.sim.commands.bench import _policies
from wva.sim.rivals.registry import OF_ROLES
from wva.sim.scorecard.card import TUNED
from wva.sim.scorecard.quality import publish
from wva.sim.scorecard.recorded import recordings
from wva.sim.scorecard.roles import ROLES
from wva.sim.scorecard.suites import DEFAULT_SEEDS, SCENARIOS, SUITES, without_results
from wva.sim.scorecard.tables import HEADINGS, decode

PAGE = ROOT / "docs" / "scorecard.md"
DATA = ROOT / "docs" / "scorecard-tables.json"
AGAIN = "write the page again: wva bench quality --suite full --markdown docs/scorecard.md"
RIVALS = (ROOT / "docs" / "rivals.md").read_text(encoding="utf-8")
NOT_YET = re.compile(r"^\*\*Not in the scorecard yet\*\*: (.*?)\n\n", re.MULTILINE | re.DOTALL)
WITHOUT_RESULTS = re.findall(r"`([\w.-]+)`", "".join(NOT_YET.findall(RIVALS)))
"""The policies that are newer than the last full run."""
MOST_WORDS = 1200
"""Two pages to read, without the table."""


@pytest.fixture(scope="module")
def found():
    """Return the data."""
    return decode(DATA.read_text(encoding="utf-8"))


def test_every_scenario_and_every_policy_of_the_suite_is_there(found):
    """The data have scenarios of the suite alone, with their present titles, and the policies of a suite.

    The page names those that have come to the suite since.
    """
    suite = found.title.removeprefix("Scorecard: suite ")
    recorded = [part.name for part in found.scenarios]
    missing = without_results(found.title, recorded)
    assert sorted(recorded + missing) == sorted(SUITES[suite]), AGAIN
    assert [part.title for part in found.scenarios] == [SCENARIOS[name].title for name in recorded], AGAIN
    named = re.search(r"^No results yet: (.*)\.$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert (named[1].split(", ") if named else []) == missing, AGAIN
    assert found.seeds == DEFAULT_SEEDS[suite], AGAIN
    assert found.headings == HEADINGS, AGAIN
    with_results = [name for name in _policies() if name not in WITHOUT_RESULTS]
    of_roles = {scenario.name for scenario in ROLES}
    recorded = {name for recording in recordings() for name in recording.policies}
    for part in found.scenarios:
        playing = [name for name in with_results if part.name in of_roles or name.removesuffix(TUNED) not in OF_ROLES]
        assert [row.policy for row in part.rows if row.policy not in recorded] == playing, AGAIN


def test_the_policies_without_results_are_named():
    """The page about rivals names the policies that have come after the last full run, and no others."""
    assert set(WITHOUT_RESULTS) <= set(_policies())
    assert len(WITHOUT_RESULTS) == len(set(WITHOUT_RESULTS))


def test_the_pages_are_made_of_the_data(found, tmp_path):
    """The page, the tables and the data are, byte for byte, what the command writes of the data."""
    for path in publish(found, tmp_path / PAGE.name):
        assert path.read_text(encoding="utf-8") == (PAGE.parent / path.name).read_text(encoding="utf-8"), AGAIN


def test_the_page_is_two_pages_to_read():
    """Without its table the page has few enough words that people read it."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(" ".join(line for line in lines if not line.startswith("|")).split()) <= MOST_WORDS


def test_the_counts_are_those_of_the_scenarios(found):
    """A policy is as often in the lists of wins and losses as the counts say."""
    for count in found.counts:
        for verdict in ("wins", "loses"):
            pairs = [pair for part in found.scenarios for pair in getattr(part, verdict).against]
            names = [pair.name.partition(" (")[0] for pair in pairs]
            assert names.count(count.against) == getattr(count, verdict), (count.against, verdict)
        together = [
            part for part in found.scenarios if count.against in {row.policy.partition(" (")[0] for row in part.rows}
        ]
        assert count.wins + count.level + count.uncertain + count.loses == len(together)
