"""The world of the attacks, listening."""

from __future__ import annotations

import pytest

from tests.attack.world import World


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """Return a world without victim and tenant, which ``survive`` builds."""
    async with World(tmp_path, monkeypatch).open() as opened:
        yield opened
