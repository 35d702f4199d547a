"""The contract of the Kubernetes API, held by the real kube-apiserver: what the embedded one is measured against.

The expectations are those of ``tests/contract/kubernetes``; a difference there is a bug of the embedded server or of
the expectation, never of this runner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from e2e.controlplane.cluster import ClusterAccess
from e2e.controlplane.kubeconfig import read_kubeconfig
from tests.contract.kubernetes.expectations import EXPECTATIONS, ApiExpectation, ContractClient

_TLS_GOODBYE_SECONDS = 0.2  # a TLS connection closes after the session has: nothing tells when


@pytest.fixture
async def client(control_plane: ClusterAccess) -> AsyncIterator[ContractClient]:
    """Give a client with the administrator's identity."""
    endpoint, context, token = read_kubeconfig(control_plane.kubeconfig)
    async with aiohttp.ClientSession() as session:
        yield ContractClient(session, endpoint.server, token=token, context=context)
    await asyncio.sleep(_TLS_GOODBYE_SECONDS)


@pytest.mark.parametrize(
    "expectation",
    [
        pytest.param(
            expectation,
            id=expectation.name,
            marks=pytest.mark.skip(reason=expectation.embedded_only) if expectation.embedded_only else (),
        )
        for expectation in EXPECTATIONS
    ],
)
async def test_expectation(client: ContractClient, namespace: str, expectation: ApiExpectation) -> None:
    """The real server does what the contract says."""
    await expectation.check(client, namespace)
