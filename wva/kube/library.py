"""The part of the Kubernetes library that finds credentials, without the rest of it.

The library has 900 modules of generated APIs and models, and importing any part of it imports all of them: 38 MiB of
memory that a controller keeps for ever, and 0.4 s. None of them is needed to read a kubeconfig or a service account. So
while the modules for that are imported, empty packages stand in for those that import everything. They are taken away
afterwards: who imports the library as usual gets all of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

_NAME: Final = "kubernetes_asyncio"


@dataclass(frozen=True, slots=True)
class Library:
    """What is used of the library: its configuration, and what fills one from a kubeconfig or a service account."""

    configuration: type[Configuration]
    loader: type[KubeConfigLoader]
    merger: type[KubeConfigMerger]
    load_incluster_config: Any


@cache
def library() -> Library:
    """Return the part of the library that finds credentials; the first call takes a moment."""
    with _stand_ins():
        configuration = importlib.import_module(f"{_NAME}.client.configuration").Configuration
        client = sys.modules[f"{_NAME}.client"]
        if not hasattr(client, "Configuration"):
            client.Configuration = client.ApiClient = configuration  # type: ignore[attr-defined]  # only named there
        kube_config = importlib.import_module(f"{_NAME}.config.kube_config")
        incluster = importlib.import_module(f"{_NAME}.config.incluster_config")
    return Library(
        configuration, kube_config.KubeConfigLoader, kube_config.KubeConfigMerger, incluster.load_incluster_config
    )


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Have empty packages for the library and its client around the body, unless the library is imported already."""
    if _NAME in sys.modules:
        yield
        return
    spec = importlib.util.find_spec(_NAME)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for name, below in ((_NAME, ""), (f"{_NAME}.client", "/client"), (f"{_NAME}.config", "/config")):
        package = ModuleType(name)
        package.__path__ = [f"{folder}{below}" for folder in folders]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
            del sys.modules[name]
