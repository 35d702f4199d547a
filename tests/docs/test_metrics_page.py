"""The page of metrics: how many queries a cycle sends, counted by the code that makes them."""

from __future__ import annotations

import re

from tests.docs.rendering import DOCS
from wva.collect.queries import MAX_NAMESPACES_PER_CHUNK, chunk_queries, chunks, engine_queries

PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## What is read from Prometheus")[1]
TO_ZERO = 1
"""Queries about requests for each retention period; ``request_query`` makes one."""


def test_the_formula_is_that_of_the_code():
    """One row for each cause of queries, all of them for every hundred namespaces."""
    rows = re.findall(r"^\| [^|]+ \| (\d+) (?:more )?for", SECTION, re.MULTILINE)
    assert [int(row) for row in rows] == [len(chunk_queries(["ns"])), len(engine_queries(["ns"])), TO_ZERO]
    assert set(re.findall(r"every (\d+)\s", SECTION)) == {str(MAX_NAMESPACES_PER_CHUNK)}
    assert len(chunks(f"ns-{number}" for number in range(MAX_NAMESPACES_PER_CHUNK + 1))) == 2


def test_the_examples_follow_from_the_formula():
    """With scale to zero, with the token analyzer, with HYBRID and scale to zero."""
    always, engines = len(chunk_queries(["ns"])), len(engine_queries(["ns"]))
    said = re.search(r"that is (\d) queries. It is (\d) with .*?, (\d) with .*?, and (\d) with", SECTION, re.DOTALL)
    wanted = (always, always + TO_ZERO, always + engines, always + engines + TO_ZERO)
    assert tuple(map(int, said.groups())) == wanted
