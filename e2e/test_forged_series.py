"""A tenant forges the series of the controller, but KEDA, the adapter, an HPA and dashboards read the controller's own.

Everything is real but the two pages: that of the controller, and that of a pod of a tenant. Prometheus scrapes both,
and gives them the labels of their targets as service discovery does. The tenant's job has the name of the controller's,
since a tenant may give a Service any name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from e2e import manifests
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.polling import eventually
from e2e.controlplane.prometheus import ScrapeJob
from e2e.dashboards import dashboard, defaults, filled, queries
from e2e.external_metrics import SHIPPED, external_metrics_adapter
from e2e.manifests import ManifestedVariant
from e2e.scrape_target import ServedPage, scrape_target
from e2e.test_control_plane import deployment
from e2e.test_prometheus_adapter import VALUES, desired_replicas, hpa, publish, wait_replicas

FORGED = 1000
SERIES = ("wva_desired_replicas", "wva_current_replicas", "inferno_desired_replicas", "inferno_current_replicas")
STAYS_SECONDS = 12.0
"""Longer than KEDA and the HPA take from one look at the number to the next."""


@contextlib.contextmanager
def a_tenants_page(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Scrape a target in a tenant's namespace whose page has every label that a page can set."""
    with scrape_target() as page:
        page.text = "".join(
            f'{name}{{variant_name="variant",{more}}} {FORGED}\n' for name in SERIES for more in _claims(namespace)
        )
        labels = {"namespace": f"{namespace}-tenant", "job": SHIPPED.job, "pod": "page"}
        job = ScrapeJob(name=f"{namespace}.forged", targets=[page.address], labels=labels)
        with plane.scraping(job):
            forged = f'wva_desired_replicas{{exported_namespace="{namespace}"}} == {FORGED}'
            found = eventually(
                lambda: plane.prometheus_api.query(forged), timeout_seconds=15, what="the forged series in Prometheus"
            )
            assert {sample.labels["namespace"] for sample in found} == {f"{namespace}-tenant"}
            yield


def _claims(namespace: str) -> list[str]:
    return [
        f'exported_namespace="{namespace}"',
        f'namespace="{namespace}",accelerator_type="H100"',
        f'exported_namespace="{namespace}",namespace="{SHIPPED.namespace}",job="{SHIPPED.job}",service="{SHIPPED.job}"',
    ]


def test_keda_takes_the_number_of_the_controller(own_control_plane: ControlPlane, namespace: str):
    """KEDA follows the controller's number up and down, and ignores the tenant's page, which says a thousand."""
    plane, variant = own_control_plane, ManifestedVariant(name="variant")
    plane.api.apply(deployment("variant", namespace=namespace, replicas=1, loading="100ms"))
    with desired_replicas(plane, namespace, pods=("leader",)) as targets, a_tenants_page(plane, namespace):
        item = manifests.scaled_object(variant, namespace=namespace, url=plane.prometheus_api.url, target=SHIPPED)
        plane.api.apply(item)
        _follows(plane, targets, namespace)


@pytest.mark.disruptive
def test_an_hpa_takes_the_number_of_the_controller(own_control_plane: ControlPlane, namespace: str):
    """The HPA selects by the variant's name alone, as in version 0.5. The adapter's rules keep the forgery out."""
    plane = own_control_plane
    plane.api.apply(deployment("variant", namespace=namespace, replicas=1, loading="100ms"))
    with (
        desired_replicas(plane, namespace, pods=("leader",)) as targets,
        a_tenants_page(plane, namespace),
        external_metrics_adapter(plane, VALUES),
    ):
        plane.api.apply(hpa("variant", namespace=namespace))
        _follows(plane, targets, namespace)
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas"
        for selector in ("variant_name%3Dvariant", f"variant_name%3Dvariant,exported_namespace%3D{namespace}"):
            (item,) = plane.api.raw(f"{path}?labelSelector={selector}")["items"]
            assert item["value"] == "2"
        others = plane.api.raw("/apis/external.metrics.k8s.io/v1beta1")["resources"]
        assert {entry["name"] for entry in others} == {"wva_desired_replicas"}, "a forged alias is no metric"


def test_dashboards_show_the_number_of_the_controller(own_control_plane: ControlPlane, namespace: str):
    """The dashboards have their default variables, and the namespace of the variant is chosen."""
    plane = own_control_plane
    document = dashboard("fleet")
    choices = {**defaults(document), "namespace": namespace}
    (desired,) = [query for query in queries(document) if query.panel == "Desired"]
    with desired_replicas(plane, namespace, pods=("leader",)) as targets, a_tenants_page(plane, namespace):
        publish(targets, namespace=namespace, value=3)
        eventually(
            lambda: [sample.value for sample in plane.prometheus_api.query(filled(desired.expression, choices))] == [3],
            timeout_seconds=15,
            what="3 desired replicas on the dashboard",
        )


def _follows(plane: ControlPlane, targets: list[ServedPage], namespace: str) -> None:
    """Assert that the scaler follows the controller's number up and down, and stays there."""
    for wanted in (3, 2):
        publish(targets, namespace=namespace, value=wanted)
        wait_replicas(plane, namespace=namespace, wanted=wanted)
    limit = time.monotonic() + STAYS_SECONDS
    while time.monotonic() < limit:
        assert plane.api.get("Deployment", "variant", namespace=namespace)["spec"]["replicas"] == wanted
        time.sleep(0.5)
