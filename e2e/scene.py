"""One test's world: a namespace with variants, what their pods report, and controllers that scale them.

The namespace is at the same time the controller's own: its ConfigMaps, its Lease and its ServiceAccount lie there, so
tests side by side do not see each other. Numbers go the whole way: controller, Prometheus, KEDA, HPA, Deployment.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deploy.observability.generate.queries import JOB
from e2e import manifests
from e2e.controller import Addresses, ControllerProcess
from e2e.controlplane.api import Body, KubernetesApi
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.lws import ensure_leader_worker_sets
from e2e.controlplane.nodes import POOL, NodePool
from e2e.controlplane.polling import eventually
from e2e.controlplane.ports import free_ports
from e2e.controlplane.processes import ServerProcess
from e2e.controlplane.prometheus import SCRAPE_INTERVAL_SECONDS, ScrapeJob
from e2e.history import ObservedHistory
from e2e.load import FixedMetrics, FleetProcess, following, is_ready
from e2e.manifests import ManifestedVariant
from e2e.scrape_target import scrape_target
from wva.scale_from_zero.starts import TargetLabels

T = TypeVar("T")
Launch = Callable[..., ServerProcess]

CYCLE_SECONDS = 5
STOP_GRACE_SECONDS = 15
_LOG_LINES = 25
_GROUP_LABEL = "leaderworkerset.sigs.k8s.io"


@dataclass(frozen=True, slots=True)
class SeenCondition:
    """A condition of a VariantAutoscaling; all empty when it is not there."""

    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""


class Scene:
    """A test's variants, load and controllers."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        *,
        launch: Launch,
        history: ObservedHistory,
        stack: contextlib.ExitStack,
    ) -> None:
        """Take the resources. ``stack`` ends everything that the scene starts when the test ends."""
        self.plane = plane
        self.namespace = namespace
        self.history = history
        self.controllers: list[ControllerProcess] = []
        self.variants: dict[str, ManifestedVariant] = {}
        self.instance = ""
        self.scrape_seconds = SCRAPE_INTERVAL_SECONDS
        self.dropped_series = ""
        """The names of series of pods that Prometheus does not keep, a regular expression."""
        self.target = TargetLabels(namespace, JOB)
        self._pools: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self.launch = launch
        self._stack = stack

    @property
    def api(self) -> KubernetesApi:
        """Return the API client of the administrator."""
        return self.plane.api

    # -- what exists ---------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Create the VariantAutoscaling kind, the shipped identity and roles, and the main ConfigMap."""
        self.api.apply_yaml(manifests.CRD.read_text(encoding="utf-8"))
        self.api.resource("VariantAutoscaling")
        for item in manifests.rbac(self.namespace):
            self.api.apply(item)
            if item["kind"] == "ClusterRoleBinding":
                self._stack.callback(self.api.delete, item["kind"], item["metadata"]["name"])
        self.configure(manifests.MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": f"{CYCLE_SECONDS}s"})

    def cleanup(self, kind: str, name: str) -> None:
        """Delete an object without a namespace when the test ends."""
        self._stack.callback(self.api.delete, kind, name)

    def configure(self, name: str, data: dict[str, str]) -> None:
        """Write one of the controller's ConfigMaps."""
        self.api.apply(manifests.config_map(name, namespace=self.namespace, data=data))

    def reserve_nodes(self, accelerator: str, *, gpus: int) -> None:
        """Create a node for this scene's variants of an accelerator. Only their pods run on it.

        From now on only the controller of ``start_limited`` takes the variants, and it counts this node's GPUs.
        """
        pool = f"{self.namespace}-{accelerator.lower()}"
        product = f"NVIDIA-{accelerator}-80GB"
        for name in self.plane.create_nodes(NodePool(product=product, nodes=1, gpus=gpus, reserved=pool)):
            self._stack.callback(self.api.delete, "Node", name)
        self._pools[accelerator] = pool
        self.instance = self.namespace

    def deploy(self, *variants: ManifestedVariant, owned: bool = True) -> None:
        """Create the targets; if not ``owned``, without a number of replicas, for whoever scales them."""
        for variant in variants:
            pool = self._pools.get(variant.accelerator, "")
            self._kinds[variant.name] = variant.kind
            item = manifests.target(variant, namespace=self.namespace, pool=pool)
            if not owned:
                del item["spec"]["replicas"]
            self.api.apply(item)

    def scale_kind(self, kind: str) -> None:
        """Give the controller the rights for a further kind of target, and have a controller that makes its pods."""
        for item in manifests.target_rights(kind, namespace=self.namespace):
            self.api.apply(item)
        if kind == "LeaderWorkerSet":
            ensure_leader_worker_sets(self.plane.layout, self.api)

    def declare(self, *variants: ManifestedVariant) -> None:
        """Create the VariantAutoscalings."""
        for variant in variants:
            self.variants[variant.name] = variant
            item = manifests.variant_autoscaling(variant, namespace=self.namespace, instance=self.instance)
            self.api.apply(item)

    def scale_by_keda(
        self, *variants: ManifestedVariant, trigger: Callable[[str], Body] | None = None, down_seconds: int = 0
    ) -> None:
        """Create the ScaledObjects that apply the published numbers.

        KEDA reads them from Prometheus, or by the ``trigger`` of a variant; then its polling interval is the default.
        Replicas go after ``down_seconds`` with a smaller number.
        """
        for variant in variants:
            url = self.plane.prometheus_api.url
            item = manifests.scaled_object(
                variant, namespace=self.namespace, url=url, target=self.target, down_seconds=down_seconds
            )
            if trigger is not None:
                del item["spec"]["pollingInterval"]
                item["spec"]["triggers"] = [trigger(variant.name)]
            self.api.apply(item)

    def fixed_metrics(self) -> FixedMetrics:
        """Let the pods report the numbers that the test sets."""
        target = self._stack.enter_context(scrape_target())
        metrics = FixedMetrics(target, namespace=self.namespace)
        self._stack.enter_context(following(self.api, self.namespace, take=metrics.take))
        self._scrape("pods", target.address)
        return metrics

    def fleet(self, *, arrivals: str = "") -> FleetProcess:
        """Let the pods report the metrics of a simulated fleet. The test chooses its engines and offers the load.

        Fleets with the same ``arrivals`` get the same requests; otherwise each namespace gets its own.
        """
        port = FleetProcess.free_port()
        # A fleet draws its requests by the namespace it knows. Prometheus puts the scene's own in place of it.
        fleet = FleetProcess(
            self.launch("fleet", FleetProcess.command(port)), port, namespace=arrivals or self.namespace
        )
        fleet.wait_ready()
        self._stack.enter_context(following(self.api, self.namespace, take=fleet.take))
        self._scrape("pods", fleet.address, namespace=self.namespace if arrivals else "")
        return fleet

    # -- controllers ---------------------------------------------------------------------------------------------

    def start_controller(
        self,
        *flags: str,
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
        name: str = "controller",
        secure: bool = True,
        cluster_wide: bool = False,
    ) -> ControllerProcess:
        """Start a controller that watches this namespace; record and scrape what it publishes.

        ``secure`` says whether the controller serves its metrics over HTTPS and asks for a token. A ``cluster_wide``
        controller watches all namespaces. Give it an instance, or it takes the variants of other tests.
        """
        ports = free_ports(("metrics", "probes"))
        addresses = Addresses(f"127.0.0.1:{ports['metrics']}", f"127.0.0.1:{ports['probes']}")
        token = self.plane.service_account_token(self.namespace, manifests.SCRAPER)
        settings = {
            "KUBECONFIG": str(kubeconfig or self.identity()),
            "POD_NAMESPACE": self.namespace,
            "WVA_METRICS_JOB": self.target.job,
            "EPP_METRIC_READER_BEARER_TOKEN": token,
            "PROMETHEUS_BASE_URL": self.plane.prometheus_api.url,
            "PROMETHEUS_CA_CERT_PATH": str(self.plane.layout.authority),
            **addresses.environment(),
            **(environment or {}),
        }
        watched = "" if cluster_wide else self.namespace
        argv = [sys.executable, "-m", "wva", "run", f"--watch-namespace={watched}", *flags]
        controller = ControllerProcess(
            self.launch(name, argv, environment=settings), addresses, token=token, secure=secure
        )
        self.keep_controller(controller)
        controller.wait_serving()
        # As a ServiceMonitor puts them.
        labels = {"namespace": self.namespace, "job": self.target.job, "pod": controller.name}
        self._scrape(controller.name, addresses.metrics, token=token if secure else "", labels=labels)
        self.history.watch(controller)
        return controller

    def keep_controller(self, controller: ControllerProcess) -> None:
        """Count a controller among those of the scene, and stop it before the scene takes its rights away.

        What a controller asks for without its rights would be in the audit log as refused.
        """
        self.controllers.append(controller)
        self._stack.callback(controller.process.stop, grace_seconds=STOP_GRACE_SECONDS)

    def start_limited(self, *flags: str) -> ControllerProcess:
        """Start a controller that keeps to the GPUs of the reserved nodes.

        Pods of all namespaces count, so it watches all of them; it takes the variants of this scene alone.
        """
        environment = {
            "CONTROLLER_INSTANCE": self.instance,
            "WVA_LIMITED_MODE": "true",
            "WVA_NODE_SELECTOR": f"{POOL} in ({','.join(self._pools.values())})",
        }
        return self.start_controller(*flags, environment=environment, cluster_wide=True)

    def identity(self, *, through: str = "") -> Path:
        """Return a kubeconfig of the controller's ServiceAccount; ``through`` is the address of a relay."""
        path = self.plane.kubeconfig_for_service_account(self.namespace, manifests.SERVICE_ACCOUNT)
        if through:
            direct = self.plane.endpoint.server
            path.write_text(path.read_text(encoding="utf-8").replace(direct, f"https://{through}"), encoding="utf-8")
        return path

    def keep_scraping(self, job: ScrapeJob) -> None:
        """Let Prometheus scrape a job until the test ends."""
        self._stack.enter_context(self.plane.scraping(job))

    # -- observations -------------------------------------------------------------------------------------------

    def variant_autoscaling(self, name: str) -> Body:
        """Return a VariantAutoscaling as it is now."""
        return self.api.get("VariantAutoscaling", name, namespace=self.namespace)

    def condition(self, name: str, type_: str) -> SeenCondition:
        """Return one condition of a VariantAutoscaling."""
        for entry in self.variant_autoscaling(name).get("status", {}).get("conditions", []):
            if entry["type"] == type_:
                return SeenCondition(entry["status"], entry["reason"], entry["message"], entry["lastTransitionTime"])
        return SeenCondition()

    def events(self, reason: str) -> list[str]:
        """Return the messages of the events with this reason, about any object."""
        found = self.api.list("Event", namespace=self.namespace)
        return [event["message"] for event in found if event["reason"] == reason]

    def replicas(self, name: str) -> int:
        """Return the replicas that the scaler has set on the target."""
        return int(self._target(name)["spec"]["replicas"])

    def ready_replicas(self, name: str) -> int:
        """Return how many replicas of a variant are ready.

        The status of a LeaderWorkerSet counts groups that are not, so its pods are asked.
        """
        target = self._target(name)
        if target["kind"] != "LeaderWorkerSet":
            return int(target.get("status", {}).get("readyReplicas", 0))
        groups: dict[str, list[bool]] = {}
        for pod in self.api.list("Pod", namespace=self.namespace):
            labels = pod["metadata"].get("labels", {})
            if labels.get(f"{_GROUP_LABEL}/name") == name:
                ready = is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
                groups.setdefault(labels[f"{_GROUP_LABEL}/group-index"], []).append(ready)
        size = target["spec"]["leaderWorkerTemplate"]["size"]
        return sum(len(group) == size and all(group) for group in groups.values())

    def _target(self, name: str) -> Body:
        return self.api.get(self._kinds.get(name, "Deployment"), name, namespace=self.namespace)

    def desired(self, name: str) -> int | None:
        """Return the number that any controller publishes now, None when there is none."""
        for controller in self.controllers:
            with contextlib.suppress(OSError):
                value = controller.metrics().value("wva_desired_replicas", variant_name=name)
                if value is not None:
                    return int(value)
        return None

    def source(self, name: str) -> str:
        """Return the source of the published number; empty when there is none."""
        for controller in self.controllers:
            with contextlib.suppress(OSError):
                for series in controller.metrics().series("wva_desired_source", variant_name=name):
                    return series.labels["source"]
        return ""

    def wait(self, check: Callable[[], T], *, timeout_seconds: float, what: str) -> T:
        """Wait until ``check`` returns a true value, and return it. A failure reports the state of the scene."""
        try:
            return eventually(check, timeout_seconds=timeout_seconds, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from error

    def wait_ready(self, *variants: ManifestedVariant, timeout_seconds: float = 30) -> None:
        """Wait until all replicas of the variants are ready."""
        for variant in variants:
            self.wait(
                lambda variant=variant: self.ready_replicas(variant.name) == variant.replicas,
                timeout_seconds=timeout_seconds,
                what=f"{variant.replicas} ready replicas of {variant.name}",
            )

    def wait_measured(self, *variants: ManifestedVariant, timeout_seconds: float = 40) -> None:
        """Wait until the numbers of the variants come from measurements."""
        for variant in variants:
            self.wait(
                lambda variant=variant: self.source(variant.name) == "measured",
                timeout_seconds=timeout_seconds,
                what=f"{variant.name} measured",
            )

    def assert_allowed(self) -> None:
        """Assert that the API server refused no request: the shipped roles allow all that the controller did."""
        for controller in self.controllers:
            with contextlib.suppress(OSError):  # ended by the test
                refused = list(controller.metrics().series("wva_kubernetes_requests_total", code="403"))
                assert not refused, refused

    def report(self) -> str:
        """Return the state of everything, for a failure's message."""
        parts = [f"numbers:\n{self.history}"]
        with contextlib.suppress(OSError):
            parts += [
                f"{kind} {item['metadata']['name']}: {item['spec'].get('replicas', '')} {item.get('status')}"
                for kind in {"VariantAutoscaling", "Deployment", *self._kinds.values()}
                for item in self.api.list(kind, namespace=self.namespace)
            ]
        parts += [
            f"end of the log of {controller.name}:\n{controller.log(_LOG_LINES)}" for controller in self.controllers
        ]
        return "\n".join(parts)

    def _scrape(
        self,
        name: str,
        address: str,
        *,
        token: str = "",
        labels: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> None:
        """Scrape pods over HTTP, or with a ``token`` a controller over HTTPS."""
        job = ScrapeJob(
            name=f"{self.namespace}.{name}",
            targets=[address],
            scheme="https" if token else "http",
            insecure_skip_verify=bool(token),
            bearer_token=token,
            honor_labels=labels is None,
            labels=labels or {},
            interval_seconds=self.scrape_seconds,
            dropped=self.dropped_series if name == "pods" else "",
            namespace=namespace,
        )
        self._stack.enter_context(self.plane.scraping(job))
