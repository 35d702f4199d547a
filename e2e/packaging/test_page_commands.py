"""The commands of README and docs that need no cluster do what their page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.commands import HANGING_SECONDS, PAGES, of_kind, run, runs_of, workspace


@pytest.mark.timeout(HANGING_SECONDS)
@pytest.mark.parametrize("page", [page for page in PAGES if of_kind(page, "here")])
def test_the_commands_of_a_page_run(page, tmp_path):
    """The commands of a page run from top to bottom in one folder, without cluster or configuration."""
    home = tmp_path / "home"
    home.mkdir()
    work = workspace(tmp_path / "work")
    programs = Path(sys.executable).parent
    environment = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "COLUMNS": "120"}
    for text, expected in runs_of(page, "here"):
        run(text, environment, directory=work, expected=expected)
