"""Which rows of a test are played for each change, and which each night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def by_day(rows: Sequence[object], names: Sequence[str]) -> list[Any]:
    """Return rows as parameters of a test: those of these names for each change, the others for each night."""
    assert set(names) <= {str(row) for row in rows}
    return [pytest.param(row, marks=() if str(row) in names else pytest.mark.nightly) for row in rows]
