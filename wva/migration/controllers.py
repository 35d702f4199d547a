"""The controllers themselves: which still run the Go image, and which would decide on the same variants."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from wva.api.core import Lease
from wva.api.meta import Key, parse_time
from wva.config import Settings
from wva.migration.finding import Finding, Severity, kubectl
from wva.migration.objects import LEASES, WORKLOADS, Container, Inventory, Workload

_GO_IMAGE: Final = "llm-d-workload-variant-autoscaler"
_OLD_GO_IMAGE: Final = "llm-d/workload-variant-autoscaler"
_NAME_LABEL: Final = "app.kubernetes.io/name"
_APP: Final = "workload-variant-autoscaler"
_CONTROL_PLANE: Final = ("control-plane", "controller-manager")
_LEASE_NAME: Final = str(Settings.model_fields["leader_election_id"].default)
_LEASE_SECONDS: Final = 60.0


class Controller(NamedTuple):
    """A Deployment that runs a controller, of either kind."""

    workload: Workload
    container: Container
    instance: str
    watches: str

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.workload.metadata.key

    def overlaps(self, other: Controller) -> bool:
        """Whether both could decide on one variant."""
        apart = self.watches and other.watches and self.watches != other.watches
        return self.instance == other.instance and not apart


def controller_findings(inventory: Inventory, now: float) -> Iterator[Finding]:
    """Yield controllers that must be swapped or kept apart, and Leases with a holder; ``now`` is in seconds."""
    controllers = list(known_controllers(inventory))
    for controller in controllers:
        if _runs_go(controller.container):
            problem = f"runs the image of the Go controller, {controller.container.image}"
            namespace, name = controller.key
            words = (
                "kubectl",
                "set",
                "image",
                f"deployment/{name}",
                "-n",
                namespace,
                f"{controller.container.name}=IMAGE",
            )
            change = f"{shlex.join(words)}, with the image built from Containerfile"
            yield Finding(Severity.MUST, WORKLOADS.kind, controller.key, problem, change)
    yield from _overlaps(controllers)
    yield from _leases(inventory, controllers, now)


def known_controllers(inventory: Inventory) -> Iterator[Controller]:
    """Yield the Deployments that run a controller, of either kind."""
    for workload in inventory.workloads:
        labels = {**workload.metadata.labels, **workload.spec.template.metadata.labels}
        named = labels.get(_NAME_LABEL) == _APP and labels.get(_CONTROL_PLANE[0]) == _CONTROL_PLANE[1]
        for container in workload.spec.template.spec.containers:
            if (named or _runs_go(container)) and workload.spec.replicas != 0:
                environment = {variable.name: variable.value for variable in container.env}
                instance = environment.get("CONTROLLER_INSTANCE", "")
                yield Controller(workload, container, instance, _watches(workload, container, environment))
                break


def _runs_go(container: Container) -> bool:
    repository = container.image.partition("@")[0]
    return _GO_IMAGE in repository or _OLD_GO_IMAGE in repository


def _watches(workload: Workload, container: Container, environment: dict[str, str]) -> str:
    """Return the one namespace that it watches, empty for all."""
    for word in container.args:
        if word.startswith("--watch-namespace="):
            value = word.partition("=")[2]
            return workload.metadata.namespace if value == "$(POD_NAMESPACE)" else value
    return environment.get("WATCH_NAMESPACE", "")


def _overlaps(controllers: list[Controller]) -> Iterator[Finding]:
    for one, other in combinations(controllers, 2):
        if one.key.namespace != other.key.namespace and one.overlaps(other):
            instance = f"instance {one.instance}" if one.instance else "no instance"
            problem = (
                f"decides on the same variants as {other.key}: both have {instance}, and their Leases lie in different "
                "namespaces"
            )
            change = f"scale one of them to 0: {kubectl('scale', WORKLOADS.kind, other.key, '--replicas=0')}"
            yield Finding(Severity.MUST, WORKLOADS.kind, one.key, problem, change)
        elif one.key.namespace == other.key.namespace and one.instance != other.instance and _runs_both_go(one, other):
            problem = (
                f"shares the Lease {_LEASE_NAME} with {other.key.name} although their instances differ: only one of "
                "them decides"
            )
            yield Finding(Severity.MUST, WORKLOADS.kind, one.key, problem, "swap the images: then each has its Lease")


def _runs_both_go(one: Controller, other: Controller) -> bool:
    return _runs_go(one.container) or _runs_go(other.container)


def _leases(inventory: Inventory, controllers: list[Controller], now: float) -> Iterator[Finding]:
    namespaces = {controller.key.namespace for controller in controllers}
    for lease in inventory.leases:
        if lease.metadata.name != _LEASE_NAME or not _held(lease, now):
            continue
        if inventory.whole and lease.metadata.namespace not in namespaces:
            holder = lease.spec.holder_identity
            problem = f"is held by {holder}, and no Deployment in {lease.metadata.namespace} is known as a controller"
            change = "find out who holds it, and stop it: two controllers would decide on the same variants"
            yield Finding(Severity.MUST, LEASES.kind, lease.metadata.key, problem, change)


def _held(lease: Lease, now: float) -> bool:
    renewed = parse_time(lease.spec.renew_time)
    lasts = lease.spec.lease_duration_seconds or _LEASE_SECONDS
    return bool(lease.spec.holder_identity) and renewed is not None and now - renewed < lasts
