"""The contract of the Kubernetes API as the product relies on it.

Each expectation takes a client and the name of a fresh namespace. The embedded server and a real kube-apiserver are
held to the same list, so that a test that passes on the one means something on the other.
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
