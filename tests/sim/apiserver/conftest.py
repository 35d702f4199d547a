"""A store whose clock stands still, and a server with such a store."""

import aiohttp
import pytest

from tests.sim.apiserver.widgets import WIDGETS
from wva.sim.apiserver import EmbeddedApiServer, ObjectStore

NOW = 1_700_000_000.0


@pytest.fixture
def store():
    """Return an empty store that knows Widgets."""
    return ObjectStore([WIDGETS], now=lambda: NOW)


@pytest.fixture
async def api():
    """Return a running server that knows Widgets."""
    async with EmbeddedApiServer([WIDGETS], now=lambda: NOW) as server:
        yield server


@pytest.fixture
async def session(api):
    """Return a client session of the server."""
    async with aiohttp.ClientSession(api.url) as opened:
        yield opened
