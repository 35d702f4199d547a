"""The code of the page about traffic runs, and WVA reads the page's file."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tests.docs.rendering import DOCS
from wva.sim.stage.faults import Fault
from wva.sim.traffic import csv_file
from wva.sim.traffic.arrivals import MAXIMUM_REQUESTS
from wva.sim.traffic.statistics import statistics

PAGE = (DOCS / "traffic.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILE = re.search(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def run(code):
    """Run a block of the page and return its names."""
    names: dict = {}
    exec(code, names)  # noqa: S102 - the page's own code
    return names


def test_the_file_of_the_page_is_read(tmp_path, monkeypatch, capsys):
    """The page's file has the groups and prefixes of the text, and the page's code prints statistics of a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requests.csv").write_text(FILE, encoding="utf-8")
    traffic = csv_file.read_csv(tmp_path / "requests.csv")
    assert traffic.prompt_tokens.tolist() == [812, 3100, 2950]
    assert traffic.group.tolist() == [-1, 0, 0]
    assert traffic.prefix_tokens.tolist() == [0, 2048, 2048]
    run(BLOCKS[0])
    assert csv_file.read_csv(tmp_path / "requests.csv").count > 100_000
    run(BLOCKS[1])
    assert capsys.readouterr().out.startswith("Statistics(rate=")


def test_the_columns_of_the_page_are_those_that_are_read():
    """The page has each column with its alternative name."""
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| ", PAGE, re.MULTILINE)
    named = {name: other for name, other in rows if "_tokens" in name or name in {"seconds", "group"}}
    expected = {names[0]: (names[1] if len(names) > 1 else "") for names in csv_file.COLUMNS.values()}
    assert {name: other.lower() for name, other in named.items()} == expected


def test_the_limits_of_the_page_are_those_in_force():
    """The page has the limits on requests, bytes and days of a file."""
    assert f"{csv_file.MAXIMUM_ROWS:,} requests, {csv_file.MAXIMUM_BYTES // 1024**3} GiB" in PAGE
    assert f"{csv_file.MAXIMUM_SECONDS / 86_400:.0f} days" in PAGE
    assert csv_file.MAXIMUM_ROWS <= MAXIMUM_REQUESTS


def test_the_kind_of_the_page_is_as_it_says():
    """The page's kind has the mean rate, the peak and the share of common prompt tokens of the text."""
    traffic = run(BLOCKS[2])["office_hours"](1)
    found = statistics(traffic)
    assert found.rate == pytest.approx(6.0, rel=0.02)
    assert found.hit_ratio == pytest.approx(0.5, abs=0.01)
    assert 2.0 < found.peak_to_mean_60s < 6.0


def test_the_faults_of_the_page_are_those_of_the_stage():
    """The page has a row for each fault that a scenario can have, and for no other."""
    rows = PAGE.partition("| Fault |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [fault.__name__ for fault in get_args(Fault)]
