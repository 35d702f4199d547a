"""Prints how many recorded cases ran and how many cycles were drawn, also if several processes ran the tests.

``tests/conftest.py`` imports these hooks: with pytest-xdist the process that prints collects no tests, so it does not
read a ``conftest.py`` in a subfolder.
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
    """Add the counts of one process of pytest-xdist; pytest calls this hook only with that plugin."""
    GENERATED.update(getattr(node, "workeroutput", {}).get(_DRAWN, {}))
    for title, (run, better, partly) in getattr(node, "workeroutput", {}).get(_KEY, {}).items():
        total = tally_of(title)
        total.run += run
        total.better |= Counter(better)  # every process finds the same cases
        total.partly += Counter(partly)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of this process to the main one, if pytest-xdist runs several."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_DRAWN] = dict(GENERATED)
        output[_KEY] = {title: (count.run, dict(count.better), dict(count.partly)) for title, count in TALLIES.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases of each file ran, which WVA does better, and how many cycles were drawn."""
    if TALLIES:
        terminalreporter.section("recorded cases")
    for title, count in sorted(TALLIES.items()):
        terminalreporter.write_line(f"{title}: {count}")
    if GENERATED:
        terminalreporter.write_line(f"cycles drawn for the properties of decisions: {GENERATED['cycles']}")
