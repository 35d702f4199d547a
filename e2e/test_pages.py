"""The pages of the documentation whose commands need a cluster: each block is copied from its page and run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import tools
from e2e.controlplane.api import Api, Body
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.polling import eventually
from e2e.kustomize import DEPLOY, NAMESPACE
from tests.docs.commands import OWN_TEST, PAGES, CommandFailedError, of_kind, run_page

MODELS = "models"
"""The namespace of the models in the examples; NAMESPACE is that of the controller."""
OF_THE_WHOLE_CLUSTER = ("ClusterRole", "ClusterRoleBinding")


@pytest.fixture
def example(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the environment of a reader who has what the pages speak of: two variants of a model, scaled by HPAs."""
    api = own_control_plane.api
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("kubectl", "helm"):
        (folder / name).symlink_to(tools.binary(name))
    api.apply_yaml((DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml").read_text(encoding="utf-8"))
    api.resource("VariantAutoscaling")
    eventually(lambda: not api.list("VariantAutoscaling"), timeout_seconds=90, what="no variants of other tests")
    for name in (NAMESPACE, MODELS):
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    environment = {
        "KUBECONFIG": str(own_control_plane.kubeconfig),
        "PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    for sample in ("emulated-vllm", "variantautoscalings", "hpa"):
        tools.output("kubectl", "apply", "-k", DEPLOY / "samples" / sample, "-n", MODELS, environment=environment)
    before = _of_the_cluster(api)
    yield environment
    for kind, names in _of_the_cluster(api).items():
        for name in names - before[kind]:
            api.delete(kind, name)
    for name in (MODELS, NAMESPACE):
        api.delete("Namespace", name)


@pytest.mark.disruptive
def test_the_commands_of_the_pages_run(example: dict[str, str]):
    """In the order of each page, as the administrator of a cluster. One world serves all pages: they change little."""
    failed = {}
    for page in PAGES:
        if page not in OWN_TEST and of_kind(page, "cluster"):
            try:
                run_page(page, environment=example)
            except CommandFailedError as error:
                failed[page] = str(error)
    assert failed == {}


def _of_the_cluster(api: Api) -> dict[str, set[str]]:
    return {kind: {_name(item) for item in api.list(kind)} for kind in OF_THE_WHOLE_CLUSTER}


def _name(item: Body) -> str:
    name: str = item["metadata"]["name"]
    return name
