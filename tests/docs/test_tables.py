"""The tables of settings and metrics in the documentation are those of the code."""

from __future__ import annotations

import pytest

from tests.docs.rendering import DOCS, TABLES, rendered


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_tables_of_a_page_are_current(name):
    """Every flag, key and metric has its row with today's default and meaning, and there is no row without one."""
    text = (DOCS / name).read_text()
    assert rendered(text, TABLES[name]) == text, "run python -m tests.docs.rendering"
