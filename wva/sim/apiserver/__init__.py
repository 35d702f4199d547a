"""An in-process Kubernetes API, generic over kinds.

``EmbeddedApiServer`` serves it over HTTP on loopback to the unmodified controller and to unit tests; ``ObjectStore`` is
the same API without HTTP, for the simulation that plays the rest of the cluster. From the bottom up: ``objects`` and
``kinds`` say what is stored, ``validation``, ``patches``, ``apply`` and ``lifecycle`` what a write does to it,
``collection`` and ``journal`` keep states and changes, ``store`` offers the verbs, ``rest``, ``watches`` and ``server``
speak HTTP.

One contract test list (``tests/contract/kubernetes``) runs against this server and against a real kube-apiserver.
"""

from __future__ import annotations

from wva.sim.apiserver.access import Access, Attributes, User
from wva.sim.apiserver.collection import ChangeType, ObjectWrite
from wva.sim.apiserver.errors import ServedError
from wva.sim.apiserver.faults import ApiServerFaults, matching
from wva.sim.apiserver.kinds import KindSpec, ScalePaths, kind_from_definition
from wva.sim.apiserver.options import DeleteOptions, Patch, StoreOptions, WriteOptions
from wva.sim.apiserver.patches import PatchType
from wva.sim.apiserver.requests import ApiRequestLog, RequestInfo
from wva.sim.apiserver.server import EmbeddedApiServer, ServerOptions
from wva.sim.apiserver.store import ObjectStore

__all__ = [
    "Access",
    "ApiRequestLog",
    "ApiServerFaults",
    "Attributes",
    "ChangeType",
    "DeleteOptions",
    "EmbeddedApiServer",
    "KindSpec",
    "ObjectStore",
    "ObjectWrite",
    "Patch",
    "PatchType",
    "RequestInfo",
    "ScalePaths",
    "ServedError",
    "ServerOptions",
    "StoreOptions",
    "User",
    "WriteOptions",
    "kind_from_definition",
    "matching",
]
