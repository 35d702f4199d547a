"""A store whose clock stands still, and a server in front of such a store."""

import aiohttp
import pytest

from tests.sim.apiserver.widgets import WIDGETS
from wva.sim.apiserver import EmbeddedApiServer, ObjectStore

NOW = 1_700_000_000.0


@pytest.fixture
def store():
    """Give an empty store that knows Widgets."""
    return ObjectStore([WIDGETS], now=lambda: NOW)


@pytest.fixture
async def api():
    """Give a running server that knows Widgets."""
    async with EmbeddedApiServer([WIDGETS], now=lambda: NOW) as server:
        yield server


@pytest.fixture
async def session(api):
    """Give a client session of the server."""
    async with aiohttp.ClientSession(api.url) as opened:
        yield opened
