"""The embedded server keeps the contract of the Kubernetes API."""

import aiohttp
import pytest

from tests.contract.kubernetes.expectations import EXPECTATIONS, ApiExpectation, ContractClient
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, User

TOKEN = "contract"
NAMESPACE = "contract-1"
HISTORY = 100


@pytest.fixture
async def client():
    """Serve an empty cluster that requires a token, and return a client with the token."""
    options = ServerOptions(store=StoreOptions(history_limit=HISTORY))
    async with EmbeddedApiServer(options=options) as api, aiohttp.ClientSession() as session:
        api.access.tokens[TOKEN] = User("admin", ("system:masters", "system:authenticated"))
        api.access.authorize = lambda user, _: "system:masters" in user.groups
        api.store.create("namespaces", {"metadata": {"name": NAMESPACE}})
        yield ContractClient(session, api.url, token=TOKEN)


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.name)
async def test_expectation(client: ContractClient, expectation: ApiExpectation):
    """The embedded server meets the expectation."""
    await expectation.check(client, NAMESPACE)
