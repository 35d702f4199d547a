"""The contract of the Kubernetes API: the behaviour on which WVA relies.

Each expectation gets a client and the name of a fresh namespace. The tests check the embedded server and a real
kube-apiserver with the same list, so a test that passes with the embedded server is also valid for a real one.
"""

from __future__ import annotations

from tests.contract.kubernetes import cluster, custom, objects, ownership, reviews, streams
from tests.contract.kubernetes.client import ContractClient
from tests.contract.kubernetes.registry import EXPECTATIONS, ApiExpectation

__all__ = [
    "EXPECTATIONS",
    "ApiExpectation",
    "ContractClient",
    "cluster",
    "custom",
    "objects",
    "ownership",
    "reviews",
    "streams",
]
