"""For each recorded case that WVA does better, the named test of the better behaviour exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.golden.vectors import BETTER_TESTS

TESTS = Path(__file__).parent.parent


def test_every_named_test_exists():
    """Every test that a verdict names exists."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.golden.{path.stem}")
    assert BETTER_TESTS
    for name in sorted(BETTER_TESTS):
        file, function = name.split("::")
        assert re.search(rf"^(async )?def {function}\(", (TESTS / file).read_text(), re.MULTILINE), name
