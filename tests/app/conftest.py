"""The stage of the component tests."""

from __future__ import annotations

import pytest

from tests.app.stage import ControllerStage


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    """Return the world around a controller, listening."""
    async with ControllerStage(tmp_path, monkeypatch).open() as opened:
        yield opened
