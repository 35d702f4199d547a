"""The world of the attacks, listening."""

from __future__ import annotations

import pytest
import structlog

from tests.attack.world import World
from wva import log


@pytest.fixture
async def world(tmp_path):
    """Return a world without victim and tenant, which ``survive`` builds."""
    async with World(tmp_path).open() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _logs_of_production():
    """Write lines as the process does: tracebacks for people, with the values of all variables, take a second each."""
    log.configure(level="info", encoding="json")
    yield
    structlog.reset_defaults()
