"""The pages of the documentation whose commands need a cluster: each block is copied from its page and run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest

from e2e import tools
from e2e.controlplane.api import KubernetesApi, RefusedRequestError
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.polling import eventually
from e2e.foreign_kinds import serve_monitors
from e2e.kustomize import DEPLOY, NAMESPACE
from tests.docs.commands import INSTALLING, OWN_TEST, PAGES, CommandFailedError, of_kind, run_page, workspace

MODELS = "models"
"""The namespace of the models in the examples; NAMESPACE is that of the controller."""
OTHERS = ("monitoring", "llm-d-autoscaler")
"""Namespaces that a page expects the reader to have."""
NAMESPACES = (NAMESPACE, MODELS, *OTHERS)
OF_THE_WHOLE_CLUSTER = ("ClusterRole", "ClusterRoleBinding")
_GONE_SECONDS = 90


@dataclass(frozen=True)
class PageReader:
    """An administrator with kubectl, helm, wva, the repository, and the authority of Prometheus in a file."""

    api: KubernetesApi
    environment: dict[str, str]
    directory: Path


@pytest.fixture
def reader(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[PageReader]:
    """Give a reader of a cluster without the controller. Afterwards remove everything that the pages created."""
    api = own_control_plane.api
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("kubectl", "helm"):
        (folder / name).symlink_to(tools.binary(name))
    directory = workspace(tmp_path / "repository")
    (directory / "prometheus-ca.crt").write_bytes(own_control_plane.layout.authority.read_bytes())
    environment = {
        "KUBECONFIG": str(own_control_plane.kubeconfig),
        "PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    serve_monitors(api)
    api.apply_yaml((DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml").read_text(encoding="utf-8"))
    api.resource("VariantAutoscaling")
    eventually(lambda: _bare(api), timeout_seconds=_GONE_SECONDS, what="nothing of other tests")
    before = _of_the_cluster(api)
    yield PageReader(api, environment, directory)
    for kind, names in _of_the_cluster(api).items():
        for name in names - before[kind]:
            api.delete(kind, name)
    for name in NAMESPACES:
        api.delete("Namespace", name)


@pytest.mark.disruptive
@pytest.mark.parametrize("page", INSTALLING)
def test_the_commands_of_a_page_that_installs_run(reader: PageReader, page: str):
    """The commands run from top to bottom, with the page's addresses. Other tests show that variants then scale."""
    for name in OTHERS:
        _namespace(reader.api, name)
    run_page(page, environment=reader.environment, directory=reader.directory)


@pytest.mark.disruptive
def test_the_commands_of_the_other_pages_run(reader: PageReader):
    """The commands run in the order of each page, beside two variants with HPAs. All pages share one cluster."""
    for name in (NAMESPACE, MODELS):
        _namespace(reader.api, name)
    for sample in ("emulated-vllm", "variantautoscalings", "hpa"):
        folder = DEPLOY / "samples" / sample
        tools.output("kubectl", "apply", "-k", folder, "-n", MODELS, environment=reader.environment)
    failed = {}
    for page in PAGES:
        if page not in {*OWN_TEST, *INSTALLING} and of_kind(page, "cluster"):
            try:
                run_page(page, environment=reader.environment, directory=reader.directory)
            except CommandFailedError as error:
                failed[page] = str(error)
    assert failed == {}


def _bare(api: KubernetesApi) -> bool:
    """Tell whether all variants and namespaces of earlier tests are gone; False while the kind is not served yet.

    A namespace that is deleted while the API server starts again may leave its variants behind: Kubernetes deletes the
    kinds that are served at that moment. These variants are deleted here.
    """
    try:
        variants = api.list("VariantAutoscaling")
    except RefusedRequestError as error:
        if error.status != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return False
    for metadata in [each["metadata"] for each in variants]:
        if api.find("Namespace", metadata["namespace"]) is None:
            api.delete("VariantAutoscaling", metadata["name"], namespace=metadata["namespace"])
    return not variants and all(api.find("Namespace", name) is None for name in NAMESPACES)


def _namespace(api: KubernetesApi, name: str) -> None:
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def _of_the_cluster(api: KubernetesApi) -> dict[str, set[str]]:
    return {kind: {item["metadata"]["name"] for item in api.list(kind)} for kind in OF_THE_WHOLE_CLUSTER}
