"""The fixtures of these tests."""

from __future__ import annotations

import aiohttp
import pytest

from tests.app.stage import ControllerStage


@pytest.fixture
async def stage(tmp_path, monkeypatch):
    """Return a started stage."""
    async with ControllerStage(tmp_path, monkeypatch).open() as opened:
        yield opened


@pytest.fixture
async def session():
    """Return an HTTP client that does not verify certificates."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as made:
        yield made
