"""OpenShift: chat traffic rises and falls under what the overlay renders, with the number applied by a plain HPA.

Real are the API server with its Pod Security admission, tokens, reviews and roles, the rendered objects, the
controller with their arguments, environment, mounts and rights, and Prometheus. The tests replace what only OpenShift
has:

- the service CA operator and the Thanos querier with its proxy (``e2e.openshift``);
- user workload monitoring: the test's Prometheus scrapes the pods, and the controller as its ServiceMonitor says:
  with the metrics reader's token, and only if the certificate is the service CA's for the name of the Service;
- prometheus-adapter: the stand-in of ``e2e.external_metrics`` by the shipped values for OpenShift, whose rule is real.
  It asks Prometheus directly;
- SecurityContextConstraints: the namespace enforces the standard ``restricted``, which is no wider than restricted-v2.

The traffic is that of ShareGPT in kind: prompts and answers of a long-tailed length, drawn by a seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import kustomize
from e2e.conftest import Launch
from e2e.controlplane.audit import refused
from e2e.external_metrics import external_metrics_adapter
from e2e.foreign_kinds import serve_monitors
from e2e.installation import Installation
from e2e.kustomize import DEPLOY
from e2e.load import Lengths
from e2e.manifests import SERVICE_ACCOUNT, ManifestedVariant
from e2e.openshift import MONITORING_VIEW, ServiceCa, Thanos, monitoring_view, thanos_querier
from e2e.scene import Scene
from e2e.test_install_kustomize import lease_name, own_kustomization, scene
from e2e.test_prometheus_adapter import hpa
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.traffic.lengths import TokenLengths

__all__ = ["scene"]

VALUES = DEPLOY / "samples" / "prometheus-adapter-values-openshift.yaml"
VARIANT = ManifestedVariant(name="chat", cost=40, accelerator="H100")
ENGINE = EngineParameters(
    alpha_seconds=0.02,
    beta_seconds_per_sequence=0.0001,
    prefill_seconds_per_token=0.00002,
    num_gpu_blocks=1024,
    max_model_len=4096,
)
CHAT = Lengths(
    TokenLengths(220, sigma=1.2, minimum_tokens=4, maximum_tokens=2048),
    TokenLengths(200, sigma=0.9, minimum_tokens=4, maximum_tokens=1024),
)
QUIET_RATE, BUSY_RATE = 1.0, 12.0
RISE = [(0.0, QUIET_RATE), (10.0, BUSY_RATE)]
FALL = [(0.0, BUSY_RATE), (5.0, QUIET_RATE)]


@pytest.mark.disruptive
def test_chat_traffic_up_and_down(scene: Scene, tmp_path: Path, launch: Launch):
    """No request is dropped. Only the controller's own account queried Thanos, and each query was allowed."""
    scene.instance = scene.namespace
    with _installed(scene, tmp_path) as (installation, thanos):
        controller = installation.start(launch)
        scene.keep_controller(controller)
        scene.history.watch(controller)
        scene.keep_scraping(installation.scrape_job(controller))
        fleet = scene.fleet()
        fleet.add(VARIANT, ENGINE)
        fleet.offer(QUIET_RATE, lengths=CHAT)
        scene.deploy(VARIANT)
        scene.wait_ready(VARIANT)
        scene.declare(VARIANT)
        scene.wait_measured(VARIANT, timeout_seconds=60)
        number = f'wva_desired_replicas{{exported_namespace="{scene.namespace}"}}'
        scene.wait(
            lambda: scene.plane.prometheus_api.query(number), timeout_seconds=30, what="the number in Prometheus"
        )
        with external_metrics_adapter(scene.plane, VALUES, installation.target):
            scene.api.apply(hpa(VARIANT.name, namespace=scene.namespace))
            fleet.offer_points(RISE)
            scene.wait(lambda: scene.ready_replicas(VARIANT.name) >= 2, timeout_seconds=120, what="growth by the HPA")
            fleet.offer_points(FALL)
            scene.wait(lambda: scene.replicas(VARIANT.name) == 1, timeout_seconds=180, what="shrink by the HPA")
        summary = fleet.summary()
        assert summary["served_total"] > 0
        assert summary["dropped"] == 0, summary
        lease = scene.api.get("Lease", lease_name(scene.instance), namespace=installation.namespace)
        assert lease["spec"]["holderIdentity"]
        account = f"system:serviceaccount:{installation.namespace}:{installation.account}"
        assert installation.account.endswith(SERVICE_ACCOUNT)
        assert set(thanos.answers) == {(account, 200)}
        controller.process.stop(grace_seconds=15)
        assert not refused([scene.plane.layout.audit_log.parent], namespace=installation.namespace)


@contextlib.contextmanager
def _installed(scene: Scene, directory: Path) -> Iterator[tuple[Installation, Thanos]]:
    """Install what the overlay renders, with the monitor, in a namespace of its own, on what OpenShift brings."""
    api, system = scene.api, f"{scene.namespace}-sys"
    host = f"openshift-workload-variant-autoscaler-metrics.{system}.svc"
    verified = f"- op: replace\n  path: /spec/endpoints/0/tlsConfig/serverName\n  value: {host}\n"
    rendered = own_kustomization(
        directory / "own",
        "openshift",
        system=system,
        instance=scene.instance,
        patches=[{"target": {"kind": "ServiceMonitor"}, "patch": verified}],
    )
    service_ca = ServiceCa(directory / "pki")
    serve_monitors(api)
    with thanos_querier(scene.plane, service_ca) as thanos, contextlib.ExitStack() as stack:
        installation = Installation(
            scene.plane,
            kustomize.render(rendered),
            directory=directory / "root",
            settings={"PROMETHEUS_BASE_URL": thanos.url, "GLOBAL_OPT_INTERVAL": "5s"},
        )
        api.apply(monitoring_view())
        stack.callback(api.delete, "ClusterRole", MONITORING_VIEW)
        stack.enter_context(installation.applied())
        service_ca.serve(api, system)
        name = installation.deployment["metadata"]["name"]
        scene.wait(
            lambda: api.get("Deployment", name, namespace=system).get("status", {}).get("readyReplicas") == 2,
            timeout_seconds=60,
            what="two pods of the controller that Pod Security admits",
        )
        yield installation, thanos
        api.delete("Namespace", system)
