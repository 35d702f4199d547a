"""Prints how many recorded cases have run and how many cycles were drawn, also if several processes ran the tests.

``tests/conftest.py`` takes these hooks: with pytest-xdist the process that prints collects nothing, so it reads no
``conftest.py`` further down.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.decide.strategies import GENERATED
from tests.golden.vectors import TALLIES, tally_of

_KEY = "recorded_cases"
_DRAWN = "drawn_cycles"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the counts of one process of pytest-xdist; without that plugin this hook is not called."""
    GENERATED.update(getattr(node, "workeroutput", {}).get(_DRAWN, {}))
    for title, (run, better, partly) in getattr(node, "workeroutput", {}).get(_KEY, {}).items():
        total = tally_of(title)
        total.run += run
        total.better |= Counter(better)  # every process finds the same ones
        total.partly += Counter(partly)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over the counts of this process, if it is one of several."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_DRAWN] = dict(GENERATED)
        output[_KEY] = {title: (count.run, dict(count.better), dict(count.partly)) for title, count in TALLIES.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases of each file were run, what is better here, and how many cycles were drawn."""
    if TALLIES:
        terminalreporter.section("recorded cases")
    for title, count in sorted(TALLIES.items()):
        terminalreporter.write_line(f"{title}: {count}")
    if GENERATED:
        terminalreporter.write_line(f"cycles drawn for the properties of decisions: {GENERATED['cycles']}")
