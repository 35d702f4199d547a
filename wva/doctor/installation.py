"""The links of the installation: the definition, the controller that leads, and what it may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wva.api.crd import definition
from wva.api.meta import Key, parse_time
from wva.api.variantautoscaling import GROUP, PLURAL, VERSION
from wva.doctor.cluster import Cluster, Item, condition, key_of, path_of
from wva.doctor.diagnosis import Diagnosis, Link
from wva.doctor.rights import CLUSTER_WIDE, NEEDED, OF_ALL_NAMESPACES, PER_NAMESPACE, Needed
from wva.migration.objects import Subject
from wva.model.trouble import some_of

MANAGER_LABEL: Final = "control-plane=controller-manager"
LABELS: Final = f"app.kubernetes.io/name=workload-variant-autoscaler,{MANAGER_LABEL}"
_LEASE_SECONDS: Final = 60.0
_SHOWN_NAMESPACES: Final = 5
_CRD: Final = f"{PLURAL}.{GROUP}"
_APPLY_CRD: Final = "wva crd | kubectl apply --server-side -f -"
_OPTIONAL: Final = frozenset({"keda.sh", "inference.networking.k8s.io", "inference.networking.x-k8s.io"})
"""The groups that a cluster need not serve."""


@dataclass(slots=True)
class InstalledController:
    """What was found of the controller: its namespace, its Deployment and pods, and its ServiceAccount."""

    namespace: str
    deployments: list[Item] = field(default_factory=list)
    pods: list[Item] = field(default_factory=list)
    account: str = ""


async def definition_links(cluster: Cluster) -> AsyncIterator[Diagnosis]:
    """Yield what is wrong with the CustomResourceDefinition."""
    subject = Subject("CustomResourceDefinition", Key("", _CRD))
    path = path_of("apiextensions.k8s.io/v1", "customresourcedefinitions", name=_CRD)
    crd = await cluster.get(path)
    if crd is None:
        if cluster.knows(path):
            problem = "is not there: the API server knows no VariantAutoscalings"
            yield Diagnosis(Link.DEFINITION, "crd-missing", subject.must(problem, _APPLY_CRD))
        return
    versions = {version.get("name"): version for version in (crd.get("spec") or {}).get("versions") or []}
    served = versions.get(VERSION)
    if served is None or not served.get("served"):
        problem = f"does not serve {VERSION}, the version that the controller reads"
        yield Diagnosis(Link.DEFINITION, "crd-version", subject.must(problem, _APPLY_CRD))
        return
    missing = sorted(_fields(definition()["spec"]["versions"][0]) - _fields(served))
    if missing:
        problem = f"is that of an older version and drops {', '.join(missing)}"
        yield Diagnosis(Link.DEFINITION, "crd-old", subject.should(problem, _APPLY_CRD))
    if condition(crd, "Established").get("status") == "False":
        problem = f"is not established: {condition(crd, 'NamesAccepted').get('message', '')}"
        yield Diagnosis(Link.DEFINITION, "crd-not-established", subject.must(problem, "delete what has its names"))


def _fields(version: Item) -> set[str]:
    """Return the fields of spec and status that a version of the definition keeps."""
    properties = ((version.get("schema") or {}).get("openAPIV3Schema") or {}).get("properties") or {}
    return {
        f"{part}.{name}" for part in ("spec", "status") for name in (properties.get(part) or {}).get("properties") or {}
    }


async def controller_links(
    cluster: Cluster, installation: InstalledController, *, lease: str, now: float
) -> AsyncIterator[Diagnosis]:
    """Yield what is wrong with the controller, and note in ``installation`` what was found of it."""
    namespace = installation.namespace
    deployments = path_of("apps/v1", "deployments", namespace)
    installation.deployments = await cluster.list(deployments, labelSelector=MANAGER_LABEL)
    installation.pods = await cluster.list(path_of("v1", "pods", namespace), labelSelector=LABELS)
    namespace_subject = Subject("Namespace", Key("", namespace))
    if not installation.deployments and not installation.pods and not cluster.unread:
        problem = f"has no controller: no Deployment has the label {MANAGER_LABEL}"
        change = "install it (docs/install.md), or name its namespace with --controller-namespace"
        yield Diagnosis(Link.CONTROLLER, "controller-missing", namespace_subject.must(problem, change))
    for deployment in installation.deployments:
        subject, spec = Subject("Deployment", key_of(deployment)), deployment.get("spec") or {}
        installation.account = str(spec.get("template", {}).get("spec", {}).get("serviceAccountName") or "default")
        if spec.get("replicas") == 0:
            change = subject.kubectl("scale", "--replicas=2")
            yield Diagnosis(Link.CONTROLLER, "controller-at-zero", subject.must("has no replicas", change))
    for pod in installation.pods:
        installation.account = str((pod.get("spec") or {}).get("serviceAccountName") or installation.account)
        problem = pod_trouble(pod)
        if problem:
            subject = Subject("Pod", key_of(pod))
            change = f"{subject.kubectl('describe')}; {subject.kubectl('logs', '--previous')}"
            yield Diagnosis(Link.CONTROLLER, "controller-not-ready", subject.must(problem, change))
    path = path_of("coordination.k8s.io/v1", "leases", namespace, lease)
    lease_object, subject = await cluster.get(path), Subject("Lease", Key(namespace, lease))
    if lease_object is None:
        if cluster.knows(path) and (installation.pods or installation.deployments):
            problem = "is not there: no controller has ever led"
            change = "see the logs of its pods; name another Lease with --lease"
            yield Diagnosis(Link.CONTROLLER, "lease-missing", subject.must(problem, change))
        return
    spec = lease_object.get("spec") or {}
    holder, renewed = str(spec.get("holderIdentity") or ""), parse_time(spec.get("renewTime"))
    lasts = float(spec.get("leaseDurationSeconds") or _LEASE_SECONDS)
    if not holder:
        problem = "has no holder: no controller leads"
        yield Diagnosis(Link.CONTROLLER, "no-leader", subject.must(problem, "start a controller"))
    elif renewed is None or now - renewed > lasts:
        problem = f"was last renewed by {holder} at {spec.get('renewTime')}: no controller leads"
        yield Diagnosis(Link.CONTROLLER, "leader-gone", subject.must(problem, "see the logs of the controller"))


def pod_trouble(pod: Item) -> str:
    """Return why a pod is not Ready, in words; empty if it is."""
    status = pod.get("status") or {}
    ready = condition(pod, "Ready")
    if ready.get("status") == "True":
        return ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"has no node: {scheduled.get('message') or scheduled.get('reason') or 'not scheduled'}"
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            reason = f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
            return f"its container {container.get('name')} does not run: {reason}"
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended:
            return f"its container {container.get('name')} ended with status {ended.get('exitCode')}"
    return f"is not Ready: {ready.get('message') or ready.get('reason') or status.get('phase') or 'unknown'}"


async def rights_links(
    cluster: Cluster,
    installation: InstalledController,
    groups: frozenset[str],
    *,
    watched: str,
    namespaces: Sequence[str],
) -> AsyncIterator[Diagnosis]:
    """Yield the rights that the controller's account does not have.

    ``groups`` are those that the cluster serves, ``watched`` is the only namespace of the controller, empty for all.
    ``namespaces`` are those of the variants: the right to scale is needed only there.
    """
    if not installation.account:
        return
    user = f"system:serviceaccount:{installation.namespace}:{installation.account}"
    rights: list[tuple[Any, str, str]] = [
        (needed, verb, name)
        for needed in NEEDED
        if not (watched and needed.role in OF_ALL_NAMESPACES)
        for verb in needed.verbs
        for name in (needed.names or ("",))
    ]
    answers = await asyncio.gather(
        *(
            cluster.may(
                user,
                installation.namespace if needed.own else watched,
                needed.group,
                needed.resource,
                verb,
                name,
            )
            for needed, verb, name in rights
        )
    )
    refused: dict[Any, set[str]] = {}
    for (needed, verb, _), allowed in zip(rights, answers, strict=True):
        if allowed is False and (needed.group in groups or needed.group not in _OPTIONAL):
            refused.setdefault(needed, set()).add(verb)
    for needed, verbs in refused.items():
        namespace = installation.namespace if needed.own else watched
        scope = f"in {namespace}" if namespace else "in all namespaces"
        if needed.role in PER_NAMESPACE and not namespace:
            lacking = await _lacking(cluster, user, needed, namespaces)
            if namespaces and not lacking:
                continue
            if len(lacking) < len(namespaces):
                scope = f"in {some_of(lacking, _SHOWN_NAMESPACES)}"
        resource = f"{needed.resource}.{needed.group}" if needed.group else needed.resource
        problem = (
            f"may not {', '.join(sorted(verbs))} {resource}{'' if needed.resource in CLUSTER_WIDE else f' {scope}'}"
        )
        change = f"bind the role {needed.role} of deploy/rbac to it"
        subject = Subject("ServiceAccount", Key(installation.namespace, installation.account))
        yield Diagnosis(Link.RIGHTS, "right-missing", subject.must(problem, change))


async def _lacking(cluster: Cluster, user: str, needed: Needed, namespaces: Sequence[str]) -> list[str]:
    """Return in which of the namespaces a user lacks a right. Raises ApiError."""

    async def may(namespace: str) -> bool:
        answers = [
            await cluster.may(user, namespace, needed.group, needed.resource, verb, name)
            for verb in needed.verbs
            for name in needed.names or ("",)
        ]
        return False not in answers

    allowed = await asyncio.gather(*(may(namespace) for namespace in namespaces))
    return [namespace for namespace, has_right in zip(namespaces, allowed, strict=True) if not has_right]
