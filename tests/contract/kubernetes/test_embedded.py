"""The contract of the Kubernetes API, held by the embedded server."""

import aiohttp
import pytest

from tests.contract.kubernetes.expectations import EXPECTATIONS, Client, Expectation
from wva.sim.apiserver import ApiServer, ServerOptions, StoreOptions, User

TOKEN = "contract"
NAMESPACE = "contract-1"
HISTORY = 100


@pytest.fixture
async def client():
    """Serve an empty cluster that wants a token, and give a client that has it."""
    options = ServerOptions(store=StoreOptions(history_limit=HISTORY))
    async with ApiServer(options=options) as api, aiohttp.ClientSession() as session:
        api.access.tokens[TOKEN] = User("admin", ("system:masters", "system:authenticated"))
        api.access.authorize = lambda user, _: "system:masters" in user.groups
        api.store.create("namespaces", {"metadata": {"name": NAMESPACE}})
        yield Client(session, api.url, token=TOKEN)


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.name)
async def test_expectation(client: Client, expectation: Expectation):
    """The embedded server does what the contract says."""
    await expectation.check(client, NAMESPACE)
