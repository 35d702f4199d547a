"""Says at the end how many recorded cases have been run, also when several processes ran them.

``tests/conftest.py`` takes these hooks: with pytest-xdist the process that prints collects nothing, so it reads no
``conftest.py`` further down.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.golden.vectors import TALLIES, tally_of

_KEY = "recorded_cases"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what one process of pytest-xdist has counted; without that plugin nobody calls this."""
    for title, (run, left_out) in getattr(node, "workeroutput", {}).get(_KEY, {}).items():
        total = tally_of(title)
        total.run += run
        total.left_out |= Counter(left_out)  # every process leaves out the same ones


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over what this process has counted, if it is one of several."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = {title: (count.run, dict(count.left_out)) for title, count in TALLIES.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per file of recorded cases."""
    if TALLIES:
        terminalreporter.section("recorded cases")
    for title, count in sorted(TALLIES.items()):
        terminalreporter.write_line(f"{title}: {count}")
