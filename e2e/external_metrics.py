"""prometheus-adapter as the cluster's external metrics API, with the rules of a values file of its chart.

In: the ``rules.external`` of the values file. They go into the adapter's configuration as the chart puts them there;
addresses, certificates and identities are those of the control plane. The adapter looks for new series every second,
where the chart's default is ten minutes.

The cluster has one backend for external metrics: ``external_metrics_adapter`` takes it from KEDA and gives it back, so
a test that uses it must be marked ``disruptive``.
"""

from __future__ import annotations

import contextlib
import http
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.observability.generate.queries import JOB, NAMESPACE
from e2e.controlplane.api import RefusedRequestError
from e2e.controlplane.build import PROMETHEUS_ADAPTER
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.keda import EXTERNAL_METRICS, external_metrics_backend, wait_available
from e2e.controlplane.kubernetes import is_healthy
from e2e.controlplane.layout import LOOPBACK, PROMETHEUS_ADAPTER_SERVICE
from e2e.controlplane.polling import eventually
from e2e.controlplane.ports import free_ports
from wva.scale_from_zero.starts import TargetLabels

SHIPPED: Final = TargetLabels(NAMESPACE, JOB)
"""The target that the files of this repository name."""
_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
_FLIP_SECONDS = 45.0
Entries = list[dict[str, Any]]


def read_rules(values: Path, target: TargetLabels = SHIPPED) -> Entries:
    """Return the external rules of a values file, with the target of the controller as a user writes it there."""
    text = values.read_text(encoding="utf-8")
    assert SHIPPED.matchers in text
    rules: Entries = yaml.safe_load(text.replace(SHIPPED.matchers, target.matchers))["rules"]["external"]
    return rules


@contextlib.contextmanager
def external_metrics_adapter(plane: ControlPlane, values: Path, target: TargetLabels = SHIPPED) -> Iterator[None]:
    """Be the cluster's external metrics API inside the block, by the rules of ``values``; KEDA's adapter after it.

    ``target`` is the controller whose series the rules take.
    """
    rules = read_rules(values, target)
    with _serving(plane, rules) as port:
        backend = external_metrics_backend(
            service=PROMETHEUS_ADAPTER_SERVICE, port=port, authority=plane.layout.authority
        )
        of_keda = _resources(plane)
        offered = {rule["name"]["as"] for rule in rules if plane.prometheus_api.query(rule["seriesQuery"])}
        try:
            for item in backend:
                plane.api.apply(item)
            _wait(plane, lambda found: found != of_keda and offered <= {entry["name"] for entry in found})
            yield
        finally:
            for item in plane.keda.registration():
                plane.api.apply(item)
            _wait(plane, lambda found: found == of_keda)


def _wait(plane: ControlPlane, arrived: Callable[[Entries], bool]) -> None:
    """Wait until the API server forwards to the new backend: its conditions may still be about the old one."""
    eventually(
        lambda: (found := _resources(plane)) is not None and arrived(found),
        timeout_seconds=_FLIP_SECONDS,
        what="external metrics API at its new backend",
    )
    wait_available(plane.api, EXTERNAL_METRICS)


def _resources(plane: ControlPlane) -> Entries | None:
    """Return the metrics that the backend offers, None while it does not answer the API server.

    A new backend may answer before it knows the API server's authority. Then it treats the API server as a stranger.
    """
    try:
        resources: Entries = plane.api.raw(_ROOT)["resources"]
    except RefusedRequestError as error:
        if error.status not in {http.HTTPStatus.SERVICE_UNAVAILABLE, http.HTTPStatus.FORBIDDEN}:
            raise
        return None
    return resources


@contextlib.contextmanager
def _serving(plane: ControlPlane, rules: Entries) -> Iterator[int]:
    layout, port = plane.layout, free_ports(("adapter",))["adapter"]
    configuration = layout.directory / "prometheus-adapter.yaml"
    configuration.write_text(yaml.safe_dump({"externalRules": rules}), encoding="utf-8")
    pair, kubeconfig = layout.pair(PROMETHEUS_ADAPTER_SERVICE), layout.kubeconfig("admin")
    process = layout.process(
        "prometheus-adapter",
        [
            PROMETHEUS_ADAPTER.binary("prometheus-adapter"),
            f"--config={configuration}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            f"--prometheus-url={plane.prometheus_api.url}",
            f"--prometheus-ca-file={layout.authority}",
            "--metrics-relist-interval=1s",
            "--metrics-max-age=1m",
        ],
    )
    process.start()
    try:
        process.wait_ready(lambda: is_healthy(f"{LOOPBACK}:{port}", path="/readyz"))
        yield port
    finally:
        process.stop()
