"""Objects from a cluster, read once. A kind that is not served there, or may not be read, is said and left out."""

from __future__ import annotations

from typing import Any, Final

from wva.api.meta import Key
from wva.api.resource import Resource
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, Forbidden, NotFound
from wva.migration.finding import Finding, Severity
from wva.migration.objects import (
    AUTOSCALERS,
    CONFIG_MAPS,
    LEASES,
    SCALED_OBJECTS,
    VARIANTS,
    WORKLOADS,
    Inventory,
)

_OPTIONAL: Final = frozenset({SCALED_OBJECTS.kind})


async def read(client: KubeClient, namespace: str = "") -> tuple[Inventory, list[Finding]]:
    """Return what is in the cluster, or in one namespace of it, and what could not be read.

    Raises ApiError when the API server does not answer.
    """
    findings: list[Finding] = []
    lists: dict[str, list[Any]] = {
        resource.kind: await _list(client, resource, namespace, findings)
        for resource in (VARIANTS, AUTOSCALERS, SCALED_OBJECTS, WORKLOADS, CONFIG_MAPS, LEASES)
    }
    inventory = Inventory(
        variants=lists[VARIANTS.kind],
        autoscalers=lists[AUTOSCALERS.kind],
        scaled_objects=lists[SCALED_OBJECTS.kind],
        workloads=lists[WORKLOADS.kind],
        config_maps=lists[CONFIG_MAPS.kind],
        leases=lists[LEASES.kind],
        whole=not findings and not namespace,
    )
    return inventory, findings


async def _list(client: KubeClient, resource: Resource[Any], namespace: str, findings: list[Finding]) -> list[Any]:
    try:
        found = await client.list(resource, namespace=namespace)
    except NotFound:
        if resource.kind not in _OPTIONAL:
            findings.append(_unread(resource, "is not served by this cluster: apply deploy/crd first"))
        return []
    except Forbidden as error:
        findings.append(_unread(resource, f"may not be listed, so it was not looked at: {error}"))
        return []
    if found.undecodable:
        findings.append(_unread(resource, f"{found.undecodable} objects of this kind could not be read"))
    return list(found.items)


def _unread(resource: Resource[Any], problem: str) -> Finding:
    return Finding(Severity.SHOULD, resource.kind, Key("", resource.name), problem, "check this kind by hand")


__all__ = ["ApiError", "read"]
