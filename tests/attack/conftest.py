"""Fixtures of the attacks: an open world, and the log settings of the real process."""

from __future__ import annotations

import pytest
import structlog

from tests.attack.world import AttackWorld
from wva import log


@pytest.fixture
async def world(tmp_path):
    """Return a world without victim and tenant, which ``survive`` builds."""
    async with AttackWorld(tmp_path).open() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _logs_of_production():
    """Write log lines as the real process does."""
    log.configure(level="info", encoding="json")
    yield
    structlog.reset_defaults()
