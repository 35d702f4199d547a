"""Every overlay with every combination of components, as kubectl renders it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from e2e import kustomize
from e2e.controlplane.api import Body
from e2e.kustomize import COMPONENTS, DEPLOY, MONITORS, OVERLAYS, PREFIX, combinations
from e2e.packaging.everything import of_kustomize
from e2e.packaging.everything import overlay as rendered
from e2e.packaging.schemas import problems
from e2e.rights import Right, places_of
from wva import __version__
from wva.api.meta import Key
from wva.cli.flags import expand_booleans, given_flags
from wva.cli.parser import build_parser
from wva.config import Inputs, Settings, load
from wva.config.live import LiveConfiguration
from wva.config.load import unknown_keys

OURS = "team-a"


def one(items: list[Body], kind: str, *, ending: str = "") -> Body:
    """Return the one object of a kind."""
    (found,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"].endswith(ending)]
    return found


def container(items: list[Body]) -> Body:
    """Return the controller's container."""
    (found,) = one(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def main_config(items: list[Body]) -> dict[str, str]:
    """Return the main ConfigMap's data."""
    data: dict[str, str] = one(items, "ConfigMap", ending="-variantautoscaling-config")["data"]
    return data


def test_every_object_is_valid():
    """Overlays with their components, all other folders and the samples fit strict schemas."""
    manifests = of_kustomize()
    assert {*OVERLAYS, "crd", "rbac", "base", "observability", "samples/two-variants"} <= manifests.keys()
    assert problems(manifests) == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_another_namespace_and_prefix_are_followed_everywhere(overlay: str):
    """Two installations in one cluster share no object, and nothing of one refers to the other."""
    items = rendered(overlay, combinations(overlay)[-1], namespace=OURS, prefix="blue-")
    others = {item["metadata"]["name"] for item in rendered(overlay, combinations(overlay)[-1])}
    names = {(item["kind"], item["metadata"]["name"]) for item in items}
    for kind, name in names - {("CustomResourceDefinition", "variantautoscalings.llmd.ai"), ("Namespace", OURS)}:
        assert name.startswith("blue-"), (kind, name)
        assert name not in others
    assert {item["metadata"]["namespace"] for item in items if "namespace" in item["metadata"]} == {OURS}
    assert references(items) - names <= FOREIGN


FOREIGN = {
    ("ClusterRole", "cluster-monitoring-view"),  # OpenShift's
    ("ConfigMap", "prometheus-ca"),  # the administrator's
    ("Secret", "workload-variant-autoscaler-metrics-tls"),  # made by OpenShift's service CA, by the name in the Service
}


def references(items: list[Body]) -> set[tuple[str, str]]:
    """Return every object that an object refers to by name, as kind and name."""
    found = set()
    for item in items:
        if "roleRef" in item:
            found.add((item["roleRef"]["kind"], item["roleRef"]["name"]))
            found |= {("ServiceAccount", subject["name"]) for subject in item["subjects"]}
            assert {subject["namespace"] for subject in item["subjects"]} == {OURS}
    spec = one(items, "Deployment")["spec"]["template"]["spec"]
    found.add(("ServiceAccount", spec["serviceAccountName"]))
    found |= {("ConfigMap", volume["configMap"]["name"]) for volume in spec["volumes"] if "configMap" in volume}
    found |= {("Secret", volume["secret"]["secretName"]) for volume in spec["volumes"] if "secret" in volume}
    named = [entry["value"] for entry in spec["containers"][0]["env"] if entry["name"].endswith("CONFIG_MAP_NAME")]
    assert len(named) == 3
    found |= {("ConfigMap", name) for name in named}
    (endpoint,) = one(items, "ServiceMonitor")["spec"]["endpoints"]
    if "authorization" in endpoint:
        name = endpoint["authorization"]["credentials"]["name"]
        found.add(("Secret", name))
        annotations = one(items, "Secret")["metadata"]["annotations"]
        found.add(("ServiceAccount", annotations["kubernetes.io/service-account.name"]))
    if "configMap" in endpoint.get("tlsConfig", {}).get("ca", {}):
        found.add(("ConfigMap", endpoint["tlsConfig"]["ca"]["configMap"]["name"]))
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_selector_picks_the_controllers_pods(overlay: str):
    """Service, budget, spread, policy and Deployment select the same pods. The monitor selects the Service."""
    items = rendered(overlay, combinations(overlay)[-1])
    spec = one(items, "Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    selectors = [
        spec["selector"]["matchLabels"],
        one(items, "Service")["spec"]["selector"],
        *(item["spec"]["selector"]["matchLabels"] for item in items if item["kind"] == "PodDisruptionBudget"),
        one(items, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(
            constraint["labelSelector"]["matchLabels"]
            for constraint in spec["template"]["spec"]["topologySpreadConstraints"]
        ),
    ]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels
    monitored = one(items, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= one(items, "Service")["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_fit(overlay: str):
    """Flag, container, Service, monitor and policy have the same port for metrics. The probes have another one."""
    items = rendered(overlay, combinations(overlay)[-1])
    flags = dict(argument.split("=", 1) for argument in container(items)["args"])
    ports = {port["name"]: port["containerPort"] for port in container(items)["ports"]}
    assert flags["--metrics-bind-address"] == f":{ports['metrics']}"
    assert flags["--health-probe-bind-address"] == f":{ports['probes']}"
    (port,) = one(items, "Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (ports["metrics"], "metrics")
    (endpoint,) = one(items, "ServiceMonitor")["spec"]["endpoints"]
    scheme = "https" if flags["--metrics-secure"] == "true" else "http"
    assert (endpoint["port"], endpoint["scheme"], port["name"]) == (scheme, scheme, scheme)
    allowed = {entry["port"] for rule in one(items, "NetworkPolicy")["spec"]["ingress"] for entry in rule["ports"]}
    assert allowed == set(ports.values())
    for probe in ("livenessProbe", "readinessProbe"):
        assert container(items)[probe]["httpGet"]["port"] == "probes"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_settings_are_taken_without_a_word(overlay: str):
    """The controller accepts flags, environment and ConfigMap without a warning, and knows all names."""
    items = rendered(overlay)
    flags = given_flags(build_parser().parse_args(expand_booleans(["run", *container(items)["args"]])))
    data = main_config(items)
    environment = {entry["name"]: entry.get("value", OURS) for entry in container(items)["env"]}
    loaded = load(Inputs(flags, environment, data))
    assert not loaded.problems
    assert not loaded.without_effect
    assert not unknown_keys(data)
    assert loaded.settings.prometheus_base_url.startswith("https://")
    insecure = loaded.settings.prometheus_tls_insecure_skip_verify
    assert insecure == (overlay == "dev")
    mounts = [mount["mountPath"] for mount in container(items)["volumeMounts"]]
    for path in (loaded.settings.prometheus_ca_cert_path, loaded.settings.metrics_cert_path):
        assert not path or any(path.startswith(mount) for mount in mounts), path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_config_maps_say_what_is_in_force_without_them(overlay: str):
    """The shipped thresholds are the defaults, so deleting the ConfigMap changes nothing."""
    items = rendered(overlay)
    environment = {entry["name"]: entry["value"] for entry in container(items)["env"] if "value" in entry}
    settings = load(Inputs({}, environment, main_config(items))).settings
    live = LiveConfiguration(settings)
    before = live.policy
    for ending in ("-saturation-scaling-config", "-service-classes-config"):
        item = one(items, "ConfigMap", ending=ending)
        outcome = live.apply(Key(settings.pod_namespace, item["metadata"]["name"]), item["data"])
        assert (outcome.problems, outcome.ignored) == ((), "")
    assert live.warnings() == []
    assert live.policy == before


def test_a_namespace_scoped_installation_has_nothing_of_the_cluster():
    """Every object lies in the namespace, and the controller reads nothing outside it."""
    items = rendered("namespace-scoped")
    assert all("namespace" in item["metadata"] for item in items)
    assert not {item["kind"] for item in items} & {"ClusterRole", "ClusterRoleBinding", "Namespace"}
    assert "--watch-namespace=$(POD_NAMESPACE)" in container(items)["args"]
    assert all(item["roleRef"]["kind"] == "Role" for item in items if "roleRef" in item)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_hardened_and_no_user_is_fixed(overlay: str):
    """The pod fits Pod Security's restricted level, and OpenShift's restricted-v2, which chooses user and groups."""
    spec = one(rendered(overlay), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container(rendered(overlay))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def test_openshift_uses_what_openshift_gives():
    """The overlay uses Thanos with the account's token, the service CA's certificates, and OpenShift's monitoring."""
    items = rendered("openshift", (MONITORS["openshift"],))
    settings = load(Inputs({}, {}, main_config(items))).settings
    assert settings.prometheus_token_path == "/var/run/secrets/wva/prometheus/token"
    trusted = one(items, "ConfigMap", ending="openshift-service-ca")
    assert trusted["metadata"]["annotations"] == {"service.beta.openshift.io/inject-cabundle": "true"}
    annotations = one(items, "Service")["metadata"]["annotations"]
    volumes = one(items, "Deployment")["spec"]["template"]["spec"]["volumes"]
    secrets = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    assert set(annotations.values()) == secrets
    view = one(items, "ClusterRoleBinding", ending="cluster-monitoring-view")
    assert view["subjects"][0]["name"] == f"{PREFIX}controller-manager"
    for item in (one(items, "Namespace"), one(items, "ServiceMonitor")):
        assert item["metadata"]["labels"]["openshift.io/user-monitoring"] == "true"
    (endpoint,) = one(items, "ServiceMonitor")["spec"]["endpoints"]
    service = one(items, "Service")["metadata"]
    assert endpoint["tlsConfig"]["serverName"] == f"{service['name']}.{service['namespace']}.svc"
    assert "insecureSkipVerify" not in endpoint["tlsConfig"]


def test_the_image_is_named_in_one_place():
    """A release's manifests install the release, and the emulated model servers run from the same image."""
    (named,) = [file for file in DEPLOY.rglob("[Kk]ustomization*") if "newTag" in file.read_text(encoding="utf-8")]
    assert named.parent == DEPLOY / "components" / "image"
    assert container(rendered("kubernetes"))["image"] == f"wva:{__version__}"
    for item in kustomize.render(DEPLOY / "samples" / "emulated-vllm"):
        if item["kind"] == "Deployment":
            assert item["spec"]["template"]["spec"]["containers"][0]["image"] == f"wva:{__version__}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_monitors_need_the_prometheus_operator(overlay: str):
    """Overlays have only kinds of Kubernetes. The user adds the component with the ServiceMonitor."""
    for components in [(), COMPONENTS[1:2], COMPONENTS[2:]]:
        extra = tuple(name for name in components if (name,) in combinations(overlay))
        groups = {item["apiVersion"].rpartition("/")[0] for item in rendered(overlay, extra)}
        assert {group for group in groups if "." in group and not group.endswith(".k8s.io")} == set()
    assert one(rendered(overlay, (MONITORS[overlay],)), "ServiceMonitor")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_monitor_may_be_added_later_by_itself(overlay: str):
    """``kubectl apply -k`` of the component alone gives the same objects as an installation with it."""
    whole = one(rendered(overlay, (MONITORS[overlay],)), "ServiceMonitor")
    assert kustomize.render(DEPLOY / "components" / MONITORS[overlay]) == [whole]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_of_a_namespace_says_which(overlay: str):
    """No object depends on kubectl's current namespace."""
    default = Settings.model_fields["pod_namespace"].default
    for item in rendered(overlay, combinations(overlay)[-1]):
        of_the_cluster = item["kind"].startswith("Cluster") or item["kind"] in {"Namespace", "CustomResourceDefinition"}
        assert item["metadata"].get("namespace") == (None if of_the_cluster else default), item["metadata"]


def test_kubectl_reads_nothing_but_the_kind_in_the_folder_of_the_crd():
    """``apply -f`` applies every file with one of these endings."""
    read = [file.name for file in (DEPLOY / "crd").iterdir() if file.suffix in {".yaml", ".yml", ".json"}]
    assert read == ["llmd.ai_variantautoscalings.yaml"]
    (kind,) = kustomize.render(DEPLOY / "crd")
    assert kind == yaml.safe_load((DEPLOY / "crd" / read[0]).read_text(encoding="utf-8"))


def test_defaults_of_the_namespace_are_those_of_the_settings():
    """The overlay installs into the default namespace of the settings."""
    assert (
        one(rendered("kubernetes"), "Namespace")["metadata"]["name"] == Settings.model_fields["pod_namespace"].default
    )


def test_the_guide_names_every_folder_and_its_examples_render(tmp_path: Path):
    """The guide names all folders but that with a page of its own, and no others. Its examples render."""
    page = (DEPLOY.parent / "docs" / "kustomize.md").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(DEPLOY) for path in DEPLOY.glob("*/[Kk]ustomization*")}
    folders |= {path.parent.relative_to(DEPLOY) for path in DEPLOY.glob("[!sb]*/*/kustomization.yaml")}
    undescribed = {folder for folder in folders if f"`deploy/{folder}`" not in page}
    assert undescribed == {Path("observability")}, "a page of its own"
    for sample in DEPLOY.glob("samples/*/kustomization.yaml"):
        assert f"`{sample.parent.name}`" in page, sample
    for named in re.findall(r"`deploy/([\w/-]+)`", page):
        assert (DEPLOY / named).exists(), named
    for name, example in zip(
        ("models", "named", "own"), re.findall(r"```yaml\n(.*?)```", page, re.DOTALL), strict=True
    ):
        folder = tmp_path / name
        folder.mkdir()
        text = example.replace("../deploy", os.path.relpath(DEPLOY, folder.resolve()))
        (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    places = places_of(f"{PREFIX}controller-manager", kustomize.render(tmp_path / "named"))
    assert places[Right("apps", "deployments/scale", "patch")] == {"models"}
    items = kustomize.render(tmp_path / "own")
    assert main_config(items)["PROMETHEUS_BASE_URL"] == "https://prometheus.monitoring.svc:9090"
    assert container(items)["image"] == f"registry.example/wva:{__version__}"
    assert one(items, "ClusterTriggerAuthentication")
