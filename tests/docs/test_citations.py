"""Every page that code, a manifest or another page cites exists, and so does the cited heading."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.docs.rendering import DOCS

ROOT = DOCS.parent
CODE = [
    path
    for folder in ("wva", "tests", "e2e", "bench", "image", "requirements", "deploy", "charts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".sh", ".yaml", ".toml", ".txt", ".tpl"} and path != Path(__file__)
]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(ROOT.glob("charts/*/README.md")),
]
PATH = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")
NAME = re.compile(r"(?<![\w./}-])([\w-]+\.md)\b")
LINK = re.compile(r"\]\((?!\w+:)([\w./-]*)(?:#([\w-]+))?\)")
OTHERS = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}


@functools.cache
def headings(page):
    """Return the anchors of a page's headings, as a renderer of Markdown makes them; a page of HTML has its own."""
    if page.suffix == ".html":
        return set(re.findall(r'<h\d id="([^"]+)"', page.read_text(encoding="utf-8")))
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)", text, re.MULTILINE)]
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def missing(page, anchor):
    """Return which page or heading of a citation does not exist; empty when both exist."""
    if not page.exists():
        return [f"{page.relative_to(ROOT)} does not exist"]
    if anchor and anchor not in headings(page):
        return [f"{page.relative_to(ROOT)} has no heading #{anchor}"]
    return []


def wrong_in_code(text):
    """Return the wrong citations in a text of code: paths below docs, and bare names of pages."""
    wrong = [word for path, anchor in PATH.findall(text) for word in missing(ROOT / path, anchor)]
    known = {page.name for page in PAGES} | OTHERS
    return wrong + [f"{name} is no page" for name in NAME.findall(PATH.sub("", text)) if name not in known]


def wrong_links(page):
    """Return the broken links of a page."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    targets = [(page if not path else (page.parent / path).resolve(), anchor) for path, anchor in links]
    return [word for target, anchor in targets for word in missing(target, anchor)]


def test_every_page_that_code_cites_exists():
    """Each cited page exists, and its heading if the citation names one."""
    found = {str(path.relative_to(ROOT)): wrong_in_code(path.read_text(encoding="utf-8")) for path in CODE}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    """Each link leads to a file of the repository and an existing heading."""
    assert wrong_links(page) == []


def test_a_citation_that_leads_nowhere_is_found():
    """The check finds wrong names of pages and headings, also without a folder."""
    assert wrong_in_code("see docs/nowhere.md") == ["docs/nowhere.md does not exist"]
    assert wrong_in_code("see docs/decisions.md#nothing.") == ["docs/decisions.md has no heading #nothing"]
    assert wrong_in_code("(nowhere.md 2.1)") == ["nowhere.md is no page"]
    assert wrong_in_code("docs/decisions.md#one-cycle, decisions.md") == []
