"""The fixture ``stage`` of these tests."""

from __future__ import annotations

import pytest

from tests.app.stage import ControllerStage


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    """Return a started stage."""
    async with ControllerStage(tmp_path, monkeypatch).open() as opened:
        yield opened
