"""Says at the end how many recorded cases have been run."""

from __future__ import annotations

import pytest

from tests.golden.vectors import TALLIES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per file of recorded cases."""
    if TALLIES:
        terminalreporter.section("recorded cases")
    for title, count in sorted(TALLIES.items()):
        terminalreporter.write_line(f"{title}: {count}")
