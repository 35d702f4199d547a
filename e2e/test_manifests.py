"""Everything that users apply, as the API server judges it: types, bounds, deprecated versions, Pod Security.

``e2e/packaging`` checks the same objects without a server. Nothing is stored: every request is a dry run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from copy import deepcopy

import pytest

from e2e import tools
from e2e.controlplane.api import Body
from e2e.controlplane.cluster import ControlPlane
from e2e.foreign_kinds import serve_certificates, serve_monitors
from e2e.manifests import CRD
from e2e.packaging import everything
from e2e.packaging.chart import only


@pytest.fixture
def cluster(own_control_plane: ControlPlane, namespace: str) -> ControlPlane:
    """Give a control plane that serves every kind that our manifests use, and a namespace of the restricted level."""
    api = own_control_plane.api
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    api.patch("Namespace", namespace, {"metadata": {"labels": labels}})
    serve_monitors(api)
    serve_certificates(api)
    api.apply_yaml(CRD.read_text(encoding="utf-8"))
    api.resource("VariantAutoscaling")
    return own_control_plane


def test_the_server_accepts_everything(cluster: ControlPlane, namespace: str):
    """The server accepts the objects of chart, overlays, components and samples without a warning."""
    items = moved({**everything.of_the_chart(), **everything.of_kustomize()}, namespace=namespace)
    assert len(items) > 200
    done = dry_run(cluster, items)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(items)


def test_the_server_refuses_what_is_wrong(cluster: ControlPlane, namespace: str):
    """The server refuses a misspelt field, a wrong type and a value out of bounds, for all kinds."""
    items = deepcopy(everything.overlay("kubernetes", ("service-monitor",)))
    items += deepcopy(everything.folder(everything.DEPLOY / "samples" / "variantautoscalings"))[:1]
    only(items, "Deployment")["spec"]["replica"] = 2
    only(items, "Service")["spec"]["ports"][0]["port"] = "https"
    only(items, "ServiceMonitor")["spec"]["endpoints"][0]["ports"] = "https"
    only(items, "VariantAutoscaling")["spec"]["modelID"] = ""
    sent = moved({"wrong": items}, namespace=namespace)
    done = dry_run(cluster, sent)
    assert done.returncode == 1
    for words in (
        ".spec.replica: field not declared",
        ".spec.endpoints[0].ports: field not declared",
        ".port: expected numeric",
        "spec.modelID: Invalid value",
    ):
        assert words in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == len(sent) - 4


def moved(manifests: Mapping[str, Iterable[Body]], *, namespace: str) -> list[Body]:
    """Return every object once: in a namespace that exists, or under a name of its own if the object has no namespace.

    Otherwise the dry run would be applied over the installations that other tests have in the same cluster. The
    definition of the kind has only one name: it is left out here, since the fixture applies it.
    """
    found: dict[str, Body] = {}
    for items in manifests.values():
        for item in items:
            own = deepcopy(item)
            if own["kind"] == "CustomResourceDefinition":
                continue
            if own["kind"] == "Namespace":
                own["metadata"]["name"] = namespace
            elif own["kind"].startswith("Cluster"):
                own["metadata"]["name"] = f"{namespace}-{own['metadata']['name']}"
            else:
                own["metadata"]["namespace"] = namespace
            found.setdefault(json.dumps(own), own)
    return list(found.values())


def dry_run(cluster: ControlPlane, items: Iterable[Body]) -> subprocess.CompletedProcess[str]:
    """Let kubectl apply objects without storing them, and return its output."""
    return tools.run(
        "kubectl", "--kubeconfig", cluster.kubeconfig, "apply", "--server-side", "--force-conflicts",
        "--dry-run=server", "--validate=strict", "-f", "-",
        stdin="\n---\n".join(json.dumps(item) for item in items),
    )  # fmt: skip
