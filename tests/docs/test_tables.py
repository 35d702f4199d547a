"""The tables of settings and metrics in the documentation are those of the code."""

from __future__ import annotations

import pytest

from tests.docs.rendering import DOCS, TABLES, rendered

PLAYED = frozenset({"../README.md", "physics.md"})
"""A demo of 45 minutes, and engines beside published measurements: each is simulated for twenty seconds and more."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in PLAYED else ()) for name in sorted(TABLES)]
)
def test_the_tables_of_a_page_are_current(name):
    """The page has exactly the tables that the code renders."""
    text = (DOCS / name).read_text()
    assert rendered(text, TABLES[name]) == text, "run python -m tests.docs.rendering"
