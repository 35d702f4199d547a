"""The chart and kustomize render the same objects."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from e2e import kustomize
from e2e.controlplane.api import Body
from e2e.kustomize import DEPLOY, MONITORS, OVERLAYS
from e2e.packaging import chart
from wva.api.meta import Key
from wva.cli.flags import expand_booleans, given_flags
from wva.cli.parser import build_parser
from wva.config import Inputs, Settings, load
from wva.config.live import LiveConfiguration
from wva.model.policy import Policy

FULL_NAME = "workload-variant-autoscaler"
NAMESPACE = "workload-variant-autoscaler-system"
CONTROLLER_ALONE: Body = {
    "va": {"enabled": False},
    "hpa": {"enabled": False},
    "vllmService": {"enabled": False},
}
IN_CLUSTER = "https://kube-prometheus-stack-prometheus.workload-variant-autoscaler-monitoring.svc.cluster.local:9090"
RELEASE_LABEL = {"release": "kube-prometheus-stack"}
KUBERNETES: Body = {
    "prometheus": {
        "baseURL": IN_CLUSTER,
        "tls": {"caConfigMap": "prometheus-ca", "caCertPath": "/etc/prometheus-ca/ca.crt"},
        "token": {"source": "none"},
    },
    "metrics": {"serviceMonitor": {"labels": RELEASE_LABEL}},
}
SERVING = f"{FULL_NAME}-metrics-tls"
VALUES: dict[str, Body] = {
    "kubernetes": KUBERNETES,
    "kubernetes+without-scale-from-zero": {**KUBERNETES, "scaleFromZeroMaxConcurrency": 0},
    "kubernetes+stateful-set-targets": {**KUBERNETES, "targetKinds": ["StatefulSet"]},
    "kubernetes+direct-actuation": {**KUBERNETES, "directActuation": True},
    "kubernetes+keda-push": {**KUBERNETES, "kedaPush": {"enabled": True}},
    "kubernetes+leader-worker-set-targets": {**KUBERNETES, "targetKinds": ["LeaderWorkerSet"]},
    "dev": {
        "prometheus": {**KUBERNETES["prometheus"], "tls": {"insecureSkipVerify": True}},
        "metrics": KUBERNETES["metrics"],
        "replicaCount": 1,
        "logging": {"level": "debug", "encoding": "console"},
    },
    "openshift": {
        "prometheus": {
            "tls": {
                "caConfigMap": "openshift-service-ca",
                "caKey": "service-ca.crt",
                "caCertPath": "/etc/openshift-ca/service-ca.crt",
            },
        },
        "metrics": {
            "certSecret": SERVING,
            "serviceAnnotations": {"service.beta.openshift.io/serving-cert-secret-name": SERVING},
            "serviceMonitor": {
                "labels": RELEASE_LABEL,
                "tlsConfig": {
                    "ca": {"configMap": {"name": "openshift-service-ca", "key": "service-ca.crt"}},
                    "serverName": f"{FULL_NAME}-metrics.{NAMESPACE}.svc",
                },
            },
        },
    },
    "namespace-scoped": {
        **KUBERNETES,
        "namespaceScoped": True,
        "watchNamespace": chart.NAMESPACE,
        "metrics": {"port": 8080, "secure": False, "serviceMonitor": {"labels": RELEASE_LABEL}},
        "epp": {"tokenSource": "none"},
    },
}
CACHE = ("TTL", "CLEANUP_INTERVAL", "FETCH_INTERVAL", "MAX_SIZE")
THRESHOLDS = ("FRESH", "STALE", "UNAVAILABLE")
THIRTEEN = {
    "GLOBAL_OPT_INTERVAL", "PROMETHEUS_BASE_URL", "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
    "WVA_LIMITED_MODE", "WVA_NODE_SELECTOR", "WVA_SCALE_TO_ZERO",
    *(f"PROMETHEUS_METRICS_CACHE_{name}" for name in CACHE),
    *(f"PROMETHEUS_METRICS_CACHE_{name}_THRESHOLD" for name in THRESHOLDS),
}  # fmt: skip
"""The keys that the main ConfigMap of the original has."""
# Objects that only one of both tools renders, with the reason.
ONLY_KUSTOMIZE = {
    ("Namespace", NAMESPACE): "helm makes the namespace by --create-namespace",
    ("CustomResourceDefinition", "variantautoscalings.llmd.ai"): "the chart has it in crds/, which is not rendered",
    ("ConfigMap", "openshift-service-ca"): "for the chart it is made by hand, or another ConfigMap is named",
    ("NetworkPolicy", f"{FULL_NAME}-controller-manager"): "off in the chart unless asked for",
}
ONLY_CHART: dict[tuple[str, str], str] = {}
# Labels and annotations of the tools themselves.
OF_TOOLS = {
    "helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name", "checksum/config", "checksum/prometheus-ca", "kubectl.kubernetes.io/default-container",
}  # fmt: skip


@cache
def of_kustomize(overlay: str) -> list[Body]:
    """Return the objects of an overlay with its monitor, ``OVERLAY+COMPONENT`` with one component more."""
    name, _, component = overlay.partition("+")
    with TemporaryDirectory() as directory:
        components = [MONITORS[name], *([component] if component else [])]
        return kustomize.render(kustomize.write(Path(directory), DEPLOY / "overlays" / name, components=components))


@cache
def of_chart(overlay: str) -> list[Body]:
    """Return what the chart makes of the values that mean the overlay."""
    apis = [chart.MONITORING, *([chart.OPENSHIFT] if overlay == "openshift" else [])]
    return chart.render({**CONTROLLER_ALONE, "wva": VALUES[overlay]}, apis=apis, release=FULL_NAME)


def by_name(items: list[Body]) -> dict[tuple[str, str], Body]:
    """Return objects by kind and name."""
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


@pytest.mark.parametrize("overlay", VALUES)
def test_they_have_the_same_objects(overlay: str):
    """They agree by kind and name, but for the objects that the tables list with a reason."""
    ours, theirs = by_name(of_kustomize(overlay)), by_name(of_chart(overlay))
    assert ours.keys() - theirs.keys() <= ONLY_KUSTOMIZE.keys()
    assert theirs.keys() - ours.keys() <= ONLY_CHART.keys()


@pytest.mark.parametrize("overlay", VALUES)
def test_each_object_is_the_same(overlay: str):
    """The objects are equal without the labels of each tool, and without the settings, which another test compares."""
    ours, theirs = by_name(of_kustomize(overlay)), by_name(of_chart(overlay))
    for key in sorted(ours.keys() & theirs.keys()):
        assert normal(ours[key]) == normal(theirs[key]), key


@pytest.mark.parametrize("overlay", VALUES)
def test_each_process_has_the_same_settings(overlay: str):
    """Flags, environment and ConfigMap together give the process the same settings."""
    assert settings_of(of_kustomize(overlay)) == settings_of(of_chart(overlay))


@pytest.mark.parametrize("overlay", VALUES)
def test_the_same_thresholds_are_in_force(overlay: str):
    """The controller reads the same policy from the other ConfigMaps of both."""
    assert policy_of(of_kustomize(overlay)) == policy_of(of_chart(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_without_the_prometheus_operator_they_are_the_same_too(overlay: str):
    """The overlay alone is what the chart renders for a cluster that serves no ServiceMonitor."""
    with TemporaryDirectory() as directory:
        alone = by_name(kustomize.render(kustomize.write(Path(directory), DEPLOY / "overlays" / overlay)))
    apis = [chart.OPENSHIFT] if overlay == "openshift" else []
    theirs = by_name(chart.render({**CONTROLLER_ALONE, "wva": VALUES[overlay]}, apis=apis, release=FULL_NAME))
    assert alone.keys() - theirs.keys() <= ONLY_KUSTOMIZE.keys()
    assert theirs.keys() <= alone.keys()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_main_config_map_has_the_thirteen_keys(overlay: str):
    """Both tools write all keys. Keys that the overlay does not need have the default, but for the interval."""
    for items in (of_kustomize(overlay), of_chart(overlay)):
        (data,) = [
            item["data"] for item in items if item["metadata"]["name"] == f"{FULL_NAME}-variantautoscaling-config"
        ]
        assert data.keys() >= THIRTEEN
    base = {"PROMETHEUS_BASE_URL": "https://p"}
    (shipped,) = [
        item["data"]
        for item in kustomize.render(DEPLOY / "base")
        if item["metadata"]["name"] == f"{FULL_NAME}-variantautoscaling-config"
    ]
    # The log level is the same by another key, with which it is easier to change; the interval is that of the chart.
    chosen = {"LOG_LEVEL": shipped["LOG_LEVEL"], "GLOBAL_OPT_INTERVAL": "15s"}
    assert load(Inputs({}, {}, base | shipped)).settings == load(Inputs({}, {}, base | chosen)).settings


def test_every_overlay_is_compared():
    """A new overlay needs the chart's values for the same objects."""
    assert {name.partition("+")[0] for name in VALUES} == set(OVERLAYS)


def test_the_reasons_are_needed():
    """Every entry of ONLY_KUSTOMIZE is needed by some overlay."""
    extra = {key for overlay in VALUES for key in by_name(of_kustomize(overlay)).keys() - by_name(of_chart(overlay))}
    assert extra == ONLY_KUSTOMIZE.keys()


def test_a_confined_chart_has_nothing_of_the_cluster_either():
    """The objects are Roles only, with plain metrics and no token for endpoint pickers."""
    assert all("namespace" in item["metadata"] for item in of_chart("namespace-scoped"))
    assert {item["kind"] for item in of_chart("namespace-scoped")} >= {"Role", "RoleBinding"}


def normal(item: Body) -> Body:
    """Return an object in the form that both tools come to."""
    item = copy.deepcopy(item)
    item["metadata"].pop("namespace", None)
    if item["kind"] == "ConfigMap":
        item.pop("data")
    if item["kind"] == "Deployment":
        pod = item["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        for part in ("args", "env", "imagePullPolicy"):  # the settings are compared by their meaning
            container.pop(part, None)
        pod["volumes"] = sorted(map(without_items, pod["volumes"]), key=name_of)
        container["volumeMounts"] = sorted(container["volumeMounts"], key=name_of)
        container["ports"] = sorted(container["ports"], key=name_of)
    result: Body = plain(item)
    return result


def name_of(part: Body) -> str:
    """Return the name of a part of a list whose order means nothing."""
    name: str = part["name"]
    return name


def without_items(volume: Body) -> Body:
    """Return a volume without the list of its keys, all of which are mounted then."""
    for source in volume.values():
        if isinstance(source, dict):
            source.pop("items", None)
    return volume


def plain(value: Any) -> Any:
    """Return a part of an object without the tools' labels, empty parts and the namespace."""
    if isinstance(value, dict):
        parts = {key: plain(part) for key, part in value.items() if key not in OF_TOOLS}
        return {key: part for key, part in parts.items() if part not in ({}, [], None)}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.replace(chart.NAMESPACE, NAMESPACE) if isinstance(value, str) else value


def _deployment(items: list[Body]) -> Body:
    (deployment,) = [item for item in items if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def settings_of(items: list[Body]) -> Settings:
    """Return the settings of the process."""
    container = _deployment(items)
    environment = {
        entry["name"]: entry.get("value", NAMESPACE if "fieldRef" in entry["valueFrom"] else "a-token")
        if "valueFrom" in entry
        else entry["value"]
        for entry in container["env"]
    }
    name = environment["CONFIG_MAP_NAME"]
    (data,) = [item["data"] for item in items if item["kind"] == "ConfigMap" and item["metadata"]["name"] == name]
    own = ("$(POD_NAMESPACE)", chart.NAMESPACE)
    arguments = [argument.replace(own[0], NAMESPACE).replace(own[1], NAMESPACE) for argument in container["args"]]
    flags = given_flags(build_parser().parse_args(expand_booleans(["run", *arguments])))
    loaded = load(Inputs(flags, environment, data))
    assert not loaded.problems
    return loaded.settings


def policy_of(items: list[Body]) -> Policy:
    """Return the policy that is in force after all ConfigMaps were read."""
    settings = settings_of(items)
    live = LiveConfiguration(settings)
    for item in items:
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] != settings.config_map_name:
            live.apply(Key(settings.pod_namespace, item["metadata"]["name"]), item.get("data", {}))
    assert live.warnings() == []
    return live.policy
