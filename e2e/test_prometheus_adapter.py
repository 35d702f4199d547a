"""The shipped values of prometheus-adapter and a plain HPA, without KEDA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.controlplane.api import Body
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.keda import EXTERNAL_METRICS, KEDA_SERVICE
from e2e.controlplane.polling import eventually
from e2e.controlplane.prometheus import ScrapeJob
from e2e.external_metrics import SHIPPED, external_metrics_adapter
from e2e.scrape_target import ServedPage, scrape_target
from e2e.test_control_plane import deployment

VALUES = Path(__file__).parent.parent / "deploy" / "samples" / "prometheus-adapter-values.yaml"


@pytest.mark.disruptive
def test_hpa_follows_the_desired_replicas(own_control_plane: ControlPlane, namespace: str):
    """An autoscaling/v2 HPA on the external metric applies each number, zero included."""
    api = own_control_plane.api
    api.apply(deployment("variant", namespace=namespace, replicas=1, loading="100ms"))
    with (
        desired_replicas(own_control_plane, namespace, pods=("leader",)) as targets,
        external_metrics_adapter(own_control_plane, VALUES),
    ):
        api.apply(hpa("variant", namespace=namespace))
        for wanted in (3, 0, 2):
            publish(targets, namespace=namespace, value=wanted)
            wait_replicas(own_control_plane, namespace=namespace, wanted=wanted)
    service = api.get("APIService", EXTERNAL_METRICS)["spec"]["service"]["name"]
    assert service == KEDA_SERVICE


@pytest.mark.disruptive
def test_two_leaders_do_not_double_the_sum(own_control_plane: ControlPlane, namespace: str):
    """While two controller pods and two accelerator labels publish the same variant, the HPA sees the number once."""
    with (
        desired_replicas(own_control_plane, namespace, pods=("old-leader", "new-leader")) as targets,
        external_metrics_adapter(own_control_plane, VALUES),
    ):
        publish(targets[:1], namespace=namespace, value=3, accelerator="A100")
        publish(targets[1:], namespace=namespace, value=3, accelerator="H100")
        series = f'wva_desired_replicas{{exported_namespace="{namespace}"}} == 3'
        eventually(
            lambda: len(own_control_plane.prometheus_api.query(series)) == 2, timeout_seconds=15, what="two series"
        )
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas"
        (item,) = own_control_plane.api.raw(f"{path}?labelSelector=variant_name%3Dvariant")["items"]
    assert item["value"] == "3"


@contextlib.contextmanager
def desired_replicas(plane: ControlPlane, namespace: str, *, pods: tuple[str, ...]) -> Iterator[list[ServedPage]]:
    """Scrape one target for each controller pod, with the labels a ServiceMonitor puts on them."""
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(scrape_target()) for _ in pods]
        publish(targets, namespace=namespace, value=1)
        for pod, target in zip(pods, targets, strict=True):
            labels = {"namespace": SHIPPED.namespace, "job": SHIPPED.job, "pod": pod}
            job = ScrapeJob(name=f"{namespace}.{pod}", targets=[target.address], labels=labels)
            stack.enter_context(plane.scraping(job))
        scraped = f'wva_desired_replicas{{exported_namespace="{namespace}"}}'
        eventually(lambda: len(plane.prometheus_api.query(scraped)) == len(pods), timeout_seconds=15, what=scraped)
        yield targets


def publish(targets: list[ServedPage], *, namespace: str, value: int, accelerator: str = "H100") -> None:
    """Publish the number as the controller does."""
    labels = f'variant_name="variant",namespace="{namespace}",accelerator_type="{accelerator}"'
    for target in targets:
        target.text = f"wva_desired_replicas{{{labels}}} {value}\n"


def wait_replicas(plane: ControlPlane, *, namespace: str, wanted: int) -> None:
    """Wait until the HPA has set the replicas."""
    plane.api.wait(
        "Deployment",
        "variant",
        lambda item: item["spec"]["replicas"] == wanted,
        namespace=namespace,
        timeout_seconds=45,
    )


def hpa(name: str, *, namespace: str) -> Body:
    """Describe an HPA that follows the metric of one variant at once."""
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 5}]}
    metric = {"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": name}}}
    target = {"type": "AverageValue", "averageValue": "1"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 0,
            "maxReplicas": 10,
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
        },
    }
