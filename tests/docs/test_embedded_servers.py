"""The page about the embedded servers lists the missing and the known features of the code."""

from __future__ import annotations

import re

import pytest

from tests.contract.kubernetes.expectations import EXPECTATIONS
from tests.docs.rendering import DOCS
from wva.sim.prometheus.promql import parse
from wva.sim.prometheus.promql.aggregation import AGGREGATIONS
from wva.sim.prometheus.promql.engine import FUNCTIONS
from wva.sim.prometheus.promql.errors import BadQueryError

PAGE = (DOCS / "embedded-servers.md").read_text(encoding="utf-8")
API = (DOCS.parent / "wva" / "sim" / "prometheus" / "api.py").read_text(encoding="utf-8")
REFUSED = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()


def test_the_differences_are_those_of_the_contract():
    """The page has each expectation that real servers are not tested with, and its reason."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows == {each.name: each.embedded_only for each in EXPECTATIONS if each.embedded_only}


@pytest.mark.parametrize(("row", "known"), [("functions", FUNCTIONS), ("aggregations", AGGREGATIONS)])
def test_the_known_part_of_promql_is_the_one_of_the_code(row, known):
    """The page lists exactly the functions and aggregations that the code knows."""
    (cell,) = re.findall(rf"^\| {row} \| (.*) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", cell)) == set(known)


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_the_page_calls_refused_is_refused(query):
    """The server refuses the query with the error "not supported"."""
    with pytest.raises(BadQueryError, match="not supported"):
        parse(query)


def test_the_paths_are_those_of_the_server():
    """The page lists exactly the paths of the server."""
    assert set(re.findall(r"`(/(?:api|-)/[^`]+)`", PAGE)) == set(re.findall(r'"(/(?:api|-)/[^"]+)"', API))
