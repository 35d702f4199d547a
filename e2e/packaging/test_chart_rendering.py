"""Tests of the objects that the chart renders, for each branch of its templates."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from e2e import tools
from e2e.kustomize import DEPLOY
from e2e.packaging import chart
from e2e.packaging.chart import only, render
from e2e.packaging.chart_matrix import AUTHORITY, CASES, merged
from e2e.packaging.everything import of_the_chart
from e2e.packaging.schemas import problems
from e2e.rights import Right, places_of, rights_of
from tests.config.parsing import parse_saturation
from wva.api.meta import Key
from wva.config import Settings
from wva.config.kinds import MapKind
from wva.config.live import LiveConfiguration
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.optimizers import Analyzer
from wva.model.variant import ModelKey
from wva.targets import DEFAULT, KINDS, TargetKind

_TURN = re.compile(r"^(?P<indent> *)\{\{-? *(?P<word>if|else if|else|with|range)\b")
_SCALERS = {"HorizontalPodAutoscaler", "ScaledObject"}


def test_every_object_is_valid():
    """Strict schemas find no unknown field and no value of another type."""
    assert len(CASES) >= 30
    rendered = of_the_chart()
    assert problems(rendered) == []
    for name, items in rendered.items():
        identities = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in items]
        assert len(set(identities)) == len(identities), name


@pytest.mark.parametrize("name", ["default", "development", "version-0.5.0", "all-settings", "alerts-and-dashboards"])
def test_lint_finds_nothing(name: str):
    """``helm lint --strict`` of the chart and its values files; what each set of values renders is checked above."""
    case = CASES[name]
    files = [part for file in case.files for part in ("--values", str(file))]
    tools.output(
        "helm", "lint", "--strict", "--quiet", chart.CHART, *files, "--values", "-", stdin=yaml.safe_dump(case.values)
    )


def test_every_condition_goes_both_ways(tmp_path: Path):
    """Each branch of each template is taken by one set of values and left out by another."""
    marked = tmp_path / chart.CHART.name
    shutil.copytree(chart.CHART, marked)
    wanted = {mark for file in sorted(marked.rglob("templates/**/*.yaml")) for mark in _mark(file)}
    assert len(wanted) > 60
    taken = []
    for case in CASES.values():
        files = [part for file in case.files for part in ("--values", str(file))]
        apis = [part for api in case.apis for part in ("--api-versions", api)]
        text = yaml.safe_dump(case.values)
        done = tools.run(
            "helm", "template", case.release, marked, *files, *apis, "--values", "-", "--debug", stdin=text
        )
        taken.append(set(re.findall(r"taken:(\S+)", done.stdout)))
    assert wanted - set.union(*taken) == set(), "never taken"
    assert wanted & set.intersection(*taken) == set(), "always taken"


def _mark(file: Path) -> list[str]:
    """Write a mark behind each line that begins a branch, and return the marks."""
    marks, lines = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        lines.append(line)
        if (found := _TURN.match(line)) and line.rstrip().endswith("}}") and line.count("{{") == 1:
            marks.append(f"{file.name}:{number}")
            lines.append(f"{found['indent']}# taken:{marks[-1]}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return marks


def test_at_most_one_scaler():
    """No combination of values gives a Deployment two scalers."""
    chosen = {}
    for actuator in ("hpa", "keda", "none"):
        for enabled in (True, False):
            items = render({"actuator": actuator, "hpa": {"enabled": enabled}})
            chosen[actuator, enabled] = [item["kind"] for item in items if item["kind"] in _SCALERS]
    assert chosen == {
        ("hpa", True): ["HorizontalPodAutoscaler"],
        ("hpa", False): [],
        ("keda", True): ["ScaledObject"],
        ("keda", False): ["ScaledObject"],
        ("none", True): [],
        ("none", False): [],
    }


@pytest.mark.parametrize("actuator", ["hpa", "keda"])
@pytest.mark.parametrize("deployment", ["", "chat"])
def test_variant_and_scaler_have_one_target(actuator: str, deployment: str):
    """Variant and scaler name the same Deployment, even if the Deployment has a name of its own."""
    items = render({"actuator": actuator, "llmd": {"deploymentName": deployment, "modelName": "ms"}})
    expected = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment or "ms-decode"}
    for kind in ("VariantAutoscaling", "HorizontalPodAutoscaler" if actuator == "hpa" else "ScaledObject"):
        assert only(items, kind)["spec"]["scaleTargetRef"] == expected


@pytest.mark.parametrize("actuator", ["hpa", "keda"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_the_target_may_be_of_each_kind(actuator: str, kind: TargetKind):
    """The variant and its scaler name group and version of the kind as the controller knows them."""
    name = kind.resource.kind
    switched_on = [] if kind is DEFAULT else [name]
    items = render(
        {"actuator": actuator, "llmd": {"targetKind": name, "modelName": "ms"}, "wva": {"targetKinds": switched_on}}
    )
    expected = {"apiVersion": kind.resource.api_version, "kind": name, "name": "ms-decode"}
    for each in ("VariantAutoscaling", "HorizontalPodAutoscaler" if actuator == "hpa" else "ScaledObject"):
        assert only(items, each)["spec"]["scaleTargetRef"] == expected


def test_a_variant_alone_may_have_any_kind():
    """Another release installs the controller, and this release does not know its values."""
    items = render({"controller": {"enabled": False}, "llmd": {"targetKind": "StatefulSet"}})
    assert only(items, "VariantAutoscaling")["spec"]["scaleTargetRef"]["kind"] == "StatefulSet"


@pytest.mark.parametrize("instance", ["", "blue"])
def test_scalers_select_the_variants_own_series(instance: str):
    """Scalers select by variant name and namespace, and by an instance if there is one. KEDA also selects by target."""
    values = {"wva": {"controllerInstance": instance}}
    items = render(values)
    name = only(items, "VariantAutoscaling")["metadata"]["name"]
    labels = {"variant_name": name, "exported_namespace": "llm-d-autoscaler"}
    if instance:
        labels["controller_instance"] = instance
    metric = only(items, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    assert metric == {"name": "wva_desired_replicas", "selector": {"matchLabels": labels}}
    trigger = only(render({**values, "actuator": "keda"}), "ScaledObject")["spec"]["triggers"][0]["metadata"]
    labels |= {"job": f"{chart.fullname()}-metrics", "namespace": chart.NAMESPACE}
    selector = ",".join(f'{key}="{value}"' for key, value in labels.items())
    assert trigger["query"] == f"max(wva_desired_replicas{{{selector}}})"
    assert trigger["ignoreNullValues"] == "false"


def test_names_fit():
    """A long release name gives names that fit Services and label values, and all names differ."""
    items = CASES["long-release"].render()
    limited = {"Service", "VariantAutoscaling", "Deployment"}
    assert all(len(item["metadata"]["name"]) <= 63 for item in items if item["kind"] in limited)
    selector = only(items, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]["selector"]
    assert selector["matchLabels"]["variant_name"] == only(items, "VariantAutoscaling")["metadata"]["name"]


@pytest.mark.parametrize(
    ("case", "path"),
    [
        ("default", None),
        ("authority-nowhere", None),
        ("version-0.5.0", None),
        ("authority", "/etc/wva/prometheus-ca/ca.crt"),
        ("authority-in-a-secret", "/etc/wva/prometheus-ca/ca.crt"),
        ("authority-among-those-of-the-system", "/etc/ssl/certs/prometheus-ca.crt"),
        ("authority-in-a-volume", "/ca/ca.crt"),
        ("authority-of-the-image", "/etc/ssl/certs/ca-certificates.crt"),
    ],
)
def test_a_ca_path_is_set_with_and_without_a_ca(case: str, path: str | None):
    """The path is that of the mounted CA, or a file of the image. Version 0.5's path has no effect without a CA."""
    items = CASES[case].render()
    assert only(items, "ConfigMap", "variantautoscaling-config")["data"].get("PROMETHEUS_CA_CERT_PATH") == path
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    if path and "prometheus-ca" in mounts:
        assert mounts["prometheus-ca"] in {path, str(Path(path).parent)}
    mounted = path is not None and case != "authority-of-the-image"
    assert ("prometheus-ca" in mounts or "ca" in mounts) == mounted


def test_the_default_is_hardened():
    """The pod fits the restricted level with a read-only root and no fixed user; Prometheus is verified."""
    items = render()
    spec = only(items, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert "runAs" not in str({**container, "securityContext": {}})
    assert (
        only(items, "ConfigMap", "variantautoscaling-config")["data"]["PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"] == "false"
    )
    assert container["image"] == f"wva:{chart.metadata()['appVersion']}"


def test_the_scraper_has_an_identity_of_its_own():
    """The token that Prometheus gets is of an account that may read /metrics and nothing else."""
    items = render(apis=[chart.MONITORING])
    reference = only(items, "ServiceMonitor", "metrics-monitor")["spec"]["endpoints"][0]["authorization"]["credentials"]
    secret = only(items, "Secret")
    assert (secret["metadata"]["name"], "token") == (reference["name"], reference["key"])
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    bindings = [item for item in items if account in [subject["name"] for subject in item.get("subjects", ())]]
    assert [binding["roleRef"]["name"] for binding in bindings] == [f"{chart.fullname()}-metrics-reader"]
    role = only(items, "ClusterRole", "metrics-reader")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_a_namespace_scoped_controller_has_rights_there_only():
    """The only ClusterRole that is bound to the controller lets it review the tokens of metrics readers."""
    items = CASES["named-namespace"].render()
    account = f"{chart.fullname()}-controller-manager"
    bindings = [item for item in items if item["kind"] == "ClusterRoleBinding" and account in str(item["subjects"])]
    assert [binding["roleRef"]["name"] for binding in bindings] == [f"{chart.fullname()}-metrics-auth-role"]
    assert only(items, "Role", "manager-role")["metadata"]["namespace"] == "models"
    assert "--watch-namespace=models" in str(only(items, "Deployment"))


@pytest.mark.parametrize("name", ["default", "named-namespace", "all-settings"])
def test_the_right_to_watch_names_the_chosen_config_map(name: str):
    """The ClusterRole names ConfigMaps one by one, and so the one that the setting names."""
    items = CASES[name].render()
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    chosen = {entry["name"]: entry.get("value") for entry in container["env"]}["SATURATION_CONFIG_MAP_NAME"]
    rules = [rule for item in items if "Role" in item["kind"] for rule in item.get("rules", ())]
    (rule,) = [rule for rule in rules if "resourceNames" in rule]
    assert chosen in rule["resourceNames"]
    assert only(items, "ConfigMap", chosen)["metadata"]["name"] == chosen


COPIES = [
    ({}, [], ["wva-system"]),
    ({}, [chart.OPENSHIFT], ["openshift-user-workload-monitoring", "wva-system"]),
    ({"monitoringNamespace": "monitoring"}, [], ["monitoring", "wva-system"]),
    ({"monitoringNamespace": "wva-system"}, [], ["wva-system"]),
]


@pytest.mark.parametrize(("prometheus", "apis", "namespaces"), COPIES)
def test_the_ca_goes_to_namespaces_that_are_there(prometheus: dict[str, str], apis: list[str], namespaces: list[str]):
    """The chart copies the CA to the namespace of Prometheus, but to OpenShift's monitoring only on OpenShift."""

    def copies(**more: str) -> list[str]:
        items = render({"wva": {"prometheus": {**prometheus, **more}}}, apis=apis)
        maps = [item["metadata"] for item in items if item["kind"] == "ConfigMap"]
        return sorted(entry["namespace"] for entry in maps if entry["name"].endswith("-prometheus-ca"))

    assert copies(caCert=AUTHORITY) == namespaces
    assert copies() == []


@pytest.mark.parametrize("actuator", ["hpa", "keda"])
def test_a_policy_may_be_given_in_part(actuator: str):
    """Helm puts a list of this one policy in the place of the default, and the keys left out keep their defaults."""
    text = tools.output(
        "helm", "template", "wva", chart.CHART, "--set", "hpa.behavior.scaleUp.policies[0].value=5",
        "--set", f"hpa.behavior.scaleDown.policies[0].periodSeconds=60,actuator={actuator}",
    )  # fmt: skip
    items = chart.parsed(text)
    if actuator == "hpa":
        behavior = only(items, "HorizontalPodAutoscaler")["spec"]["behavior"]
    else:
        behavior = only(items, "ScaledObject")["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    up, down = ({"stabilizationWindowSeconds": seconds, "selectPolicy": "Max"} for seconds in (0, 60))
    assert behavior == {
        "scaleUp": {**up, "policies": [{"type": "Pods", "value": 5, "periodSeconds": 150}]},
        "scaleDown": {**down, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 60}]},
    }


NOTES = [
    ({}, ""),
    ({"wva": {"capacityScaling": {"default": {"kvSpareTrigger": 0.2}}}}, "percentage reads no objectives"),
    ({"wva": {"capacityScaling": {"default": {"analyzerName": "saturation"}}}}, "saturation reads no objectives"),
    ({"wva": {"capacityScaling": {"default": {"analyzerName": "queueing"}}}}, ""),
    ({"wva": {"capacityScaling": {"overrides": {"a": {"modelID": "m", "analyzerName": "queueing"}}}}}, ""),
    ({"wva": {"queueingModel": {"default": {"sloMultiplier": 4}}}}, ""),
    ({"wva": {"proactiveModel": True}}, ""),
    ({"va": {"serviceClass": ""}}, ""),
    ({"controller": {"enabled": False}}, "the release that installs the controller writes the service classes"),
]


@pytest.mark.parametrize(("values", "why"), NOTES)
def test_objectives_that_no_analyzer_reads_are_said(values: chart.Body, why: str, tmp_path: Path):
    """The notes name the analyzer that ignores the objectives, and say nothing if the analyzer uses them."""
    said = chart.notes(values, tmp_path)
    assert ("va.sloTpot and va.sloTtft are not used" in said) == bool(why)
    assert why in said


def test_the_notes_say_that_no_registry_has_the_default_image(tmp_path: Path):
    """Without this note the user learns it only from pods that do not start."""
    image = f"wva:{chart.metadata()['appVersion']}"
    assert f"the image is {image}, which no registry has" in chart.notes({}, tmp_path / "a")
    mine = {"wva": {"image": {"repository": "registry.example/wva"}}}
    assert "no registry has" not in chart.notes(mine, tmp_path / "b")


def test_the_notes_say_what_the_adapter_must_name(tmp_path: Path):
    """The notes name the target of this release's controller. A release without a controller has no such note."""
    target = f'{{job="{chart.fullname()}-metrics",namespace="{chart.NAMESPACE}"}}'
    assert target in chart.notes({}, tmp_path / "a")
    assert "its series" not in chart.notes({"controller": {"enabled": False}}, tmp_path / "b")


def test_the_notes_name_the_namespace_of_the_variants(tmp_path: Path):
    """Without a variant in the release these are all that the controller watches, and the notes say what comes next."""
    assert "kubectl get va -n llm-d-autoscaler" in chart.notes({}, tmp_path / "a")
    alone = yaml.safe_load((chart.CHART / "values-controller.yaml").read_text(encoding="utf-8"))
    said = chart.notes(alone, tmp_path / "b")
    assert "kubectl get va -A" in said
    assert "llm-d-autoscaler" not in said
    assert "Try it beside what you have" in said
    kept = merged(alone, {"wva": {"namespaceScoped": True}})
    assert f"kubectl get va -n {chart.NAMESPACE}" in chart.notes(kept, tmp_path / "c")


def test_a_ca_path_without_effect_is_said(tmp_path: Path):
    """The notes warn if the values have version 0.5's default path and no CA is mounted there."""
    old = {"wva": {"prometheus": {"tls": {"caCertPath": "/etc/ssl/certs/prometheus-ca.crt"}}}}
    assert "caCertPath has no effect" in chart.notes(old, tmp_path / "a")
    assert "caCertPath has no effect" not in chart.notes(
        merged(old, {"wva": {"prometheus": {"caCert": AUTHORITY}}}), tmp_path / "b"
    )


def test_a_static_setting_replaces_the_pods_and_a_live_one_does_not():
    """Only settings that the process reads at its start are in the pod template, so only they replace the pods."""

    def template(values):
        return only(render(values), "Deployment")["spec"]["template"]

    assert template({"wva": {"limitedMode": True}}) != template({})
    assert template({"wva": {"scaleToZero": True}}) != template({})
    assert template({"wva": {"prometheus": {"serverName": "p"}}}) != template({})
    assert template({"wva": {"reconcileInterval": "10s", "logging": {"level": "debug"}}}) == template({})


def test_without_starts_from_zero_nothing_writes_to_workloads():
    """Without starts from zero the controller has no right to write a scale."""
    assert "deployments/scale" in str(CASES["default"].render())
    assert "deployments/scale" not in str(CASES["no-start-from-zero"].render())


@pytest.mark.parametrize("more", [{}, {"directActuation": True}], ids=["from-zero", "direct"])
def test_in_named_namespaces_the_rights_to_scale_are_the_same_and_elsewhere_there_are_none(more: dict[str, bool]):
    """Each namespace has a Role and a binding with the rules of the ClusterRole; no ClusterRole may scale."""
    values = {"targetKinds": ["StatefulSet"], **more}
    whole, named = render({"wva": values}), render({"wva": {**values, "scaleNamespaces": ["prod", "staging"]}})
    account = f"{chart.fullname()}-controller-manager"
    assert rights_of(account, named) == rights_of(account, whole)
    before, after = places_of(account, whole), places_of(account, named)
    scaling = {Right("apps", f"{plural}/scale", "patch") for plural in ("deployments", "statefulsets")}
    scaling.add(Right("", "services", "get"))
    assert {place for right in scaling for place in before[right]} == {""}
    assert {right: after[right] for right in scaling} == {right: {"prod", "staging"} for right in scaling}
    assert {right: places for right, places in after.items() if right not in scaling} == {
        right: places for right, places in before.items() if right not in scaling
    }


def test_immutable_is_the_main_config_map_alone():
    """No other ConfigMap of the chart is immutable."""
    items = CASES["immutable"].render()
    immutable = [item["metadata"]["name"] for item in items if item.get("immutable")]
    assert immutable == [f"{chart.fullname()}-variantautoscaling-config"]


def test_values_of_version_0_5_0_keep_their_meaning():
    """Each old value reaches the object in which it has its effect."""
    items = CASES["version-0.5.0"].render()
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("wva:v0.5.0", "Always")
    assert "--watch-namespace=llm-d-autoscaler" in container["args"]
    main = only(items, "ConfigMap", "variantautoscaling-config")["data"]
    assert main["PROMETHEUS_METRICS_CACHE_TTL"] == "30s"
    assert main["PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"] == "true"
    override = yaml.safe_load(only(items, "ConfigMap", "saturation-scaling-config")["data"]["llm-d"])
    assert (
        parse_saturation(only(items, "ConfigMap", "saturation-scaling-config")["data"]).policy.analyzer_for(
            ModelKey("llm-d-autoscaler", "Qwen/Qwen3-0.6B")
        )
        is Analyzer.PERCENTAGE
    )
    assert override == {
        "model_id": "Qwen/Qwen3-0.6B",
        "namespace": "llm-d-autoscaler",
        "kvCacheThreshold": 0.7,
        "kvSpareTrigger": 0.35,
    }
    premium = yaml.safe_load(only(items, "ConfigMap", "service-classes-config")["data"]["premium.yaml"])
    assert {"model": "Qwen/Qwen3-0.6B", "slo-tpot": 10, "slo-ttft": 1000} in premium["data"]
    binding = only(items, "ClusterRoleBinding", "metrics-reader-rolebinding")
    assert "kube-prometheus-stack-prometheus" in str(binding["subjects"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, DEFAULT_OBJECTIVES),
        ({"va": {"sloTtft": 3000}}, Objectives(3.0)),
        ({"va": {"sloTpot": 50}}, Objectives(itl_seconds=0.05)),
        ({"wva": {"capacityScaling": {"default": {"targetTTFT": 2000, "inTime": 0.95}}}}, Objectives(2.0, 0.1, 0.95)),
    ],
)
def test_an_upgrade_without_values_asks_for_nothing(values: chart.Body, expected: Objectives):
    """The chart writes its untouched objectives for everybody; the controller plans as if they were not there."""
    items, live = render(values), LiveConfiguration(Settings())
    for kind, suffix in (
        (MapKind.SATURATION, "saturation-scaling-config"),
        (MapKind.SERVICE_CLASSES, "classes-config"),
    ):
        data = only(items, "ConfigMap", suffix)["data"]
        outcome = live.apply(Key(live.main.namespace, kind.canonical), data)
        assert outcome is not None
        assert outcome.problems == ()
    model = ModelKey("llm-d-autoscaler", chart.defaults()["llmd"]["modelID"])
    assert live.policy.objectives_for(model).objectives == expected
    assert bool(live.policy.objectives_for(model).words) == bool(values)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ({}, "demand"),
        ({"kvCacheThreshold": "0.80", "queueLengthThreshold": 5.0, "transitionDeadline": "20m"}, "demand"),
        ({"kvCacheThreshold": 0.7}, None),
        ({"queueSpareTrigger": "2"}, None),
        ({"optimizerName": "one-step"}, None),
        ({"kvCacheThreshold": 0.7, "analyzerName": "demand"}, "demand"),
        ({"analyzerName": "percentage"}, "percentage"),
        ({"analyzerName": ""}, None),
        ({"analyzerName": "saturation", "kvCacheThreshold": 0.7}, "saturation"),
    ],
)
def test_auto_is_the_demand_analyzer_unless_thresholds_are_chosen(default: chart.Body, expected: str | None):
    """Thresholds that a release has set stay in force: an entry with them alone has the percentage analyzer."""
    items = render({"wva": {"capacityScaling": {"default": default}}})
    entry = yaml.safe_load(only(items, "ConfigMap", "saturation-scaling-config")["data"]["default"])
    assert entry.get("analyzerName") == expected
    found = parse_saturation({"default": yaml.safe_dump(entry)})
    assert found.errors == ()
    assert found.policy.saturation.analyzer_name == ("" if expected in {None, "percentage"} else expected)


def test_a_release_of_a_variant_alone_has_nothing_of_the_controller():
    """The release has neither pods nor roles of the controller."""
    kinds = {item["kind"] for item in CASES["variant-alone"].render()}
    assert kinds == {"VariantAutoscaling", "HorizontalPodAutoscaler", "Service", "ServiceMonitor"}


def test_metrics_are_scraped_where_they_are_served():
    """Flag, port of the container, Service and ServiceMonitor agree, with other ports and without TLS."""
    items = CASES["plain-metrics"].render()
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"--metrics-bind-address=:8080", "--metrics-secure=false"} <= set(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (port,) = only(items, "Service", "-metrics")["spec"]["ports"]
    assert (ports[port["targetPort"]], port["port"]) == (8080, 8080)
    endpoint = only(items, "ServiceMonitor", "metrics-monitor")["spec"]["endpoints"][0]
    assert (endpoint["port"], endpoint["scheme"], "authorization" in endpoint) == (port["name"], "http", False)


def test_the_console_is_served_beside_the_metrics():
    """Flag, port of the container and Service agree; Prometheus scrapes its own port, and cannot reach this one."""
    items = CASES["console"].render()
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"--console-bind-address=:9444", "--metrics-secure=true"} <= set(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    served = {port["name"]: port for port in only(items, "Service", "-metrics")["spec"]["ports"]}
    assert (ports[served["console"]["targetPort"]], served["console"]["port"]) == (9444, 9444)
    assert (ports[served["https"]["targetPort"]], served["https"]["port"]) == (8443, 8443)
    (endpoint,) = only(items, "ServiceMonitor", "metrics-monitor")["spec"]["endpoints"]
    assert endpoint["port"] == "https"
    rules = only(items, "NetworkPolicy")["spec"]["ingress"]
    sources = {rule["ports"][0]["port"]: str(rule.get("from")) for rule in rules}
    assert "openshift-user-workload-monitoring" in sources[8443]
    assert "openshift-user-workload-monitoring" not in sources[9444]
    assert "ingress" in sources[9444]


def test_without_its_value_there_is_no_console():
    """Neither flag nor port."""
    items = CASES["default"].render()
    assert "console" not in str([only(items, "Deployment"), only(items, "Service", "-metrics")])


def test_keda_reaches_the_leader_that_it_asks():
    """Flags, port of the container, headless Service and NetworkPolicy agree, and the authorities are mounted."""
    items = CASES["keda-push"].render()
    pod = only(items, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    path = "/etc/wva/keda-push-client-ca"
    assert {"--keda-push-bind-address=:9444", f"--keda-push-client-ca-path={path}/ca.crt"} <= set(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    service = only(items, "Service", "-keda-push")["spec"]
    (port,) = service["ports"]
    assert (service["clusterIP"], ports[port["targetPort"]], port["port"]) == ("None", 9444, 9444)
    assert service["selector"].items() <= only(items, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == path]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "keda-ca"
    rules = only(items, "NetworkPolicy")["spec"]["ingress"]
    sources = {rule["ports"][0]["port"]: str(rule.get("from")) for rule in rules}
    assert "autoscaling" in sources[9444]
    assert "autoscaling" not in sources[8443]


def test_without_its_value_keda_has_nobody_to_ask():
    """Neither flag, nor port, nor Service."""
    assert "keda-push" not in str(CASES["default"].render())


def test_the_network_policy_follows_the_url_of_prometheus():
    """The policy allows the namespace of a Service, or any address if the host is elsewhere, on the URL's port."""
    inside = only(CASES["plain-prometheus"].render(), "NetworkPolicy")["spec"]["egress"]
    namespaces = [
        peer.get("namespaceSelector", {}).get("matchLabels") for rule in inside for peer in rule.get("to", ())
    ]
    assert {"kubernetes.io/metadata.name": "monitoring"} in namespaces
    outside = only(CASES["prometheus-elsewhere"].render(), "NetworkPolicy")["spec"]
    assert any(
        rule.get("ports") == [{"port": 443, "protocol": "TCP"}] and "ipBlock" in str(rule["to"])
        for rule in outside["egress"]
    )
    allowed = [peer["namespaceSelector"]["matchLabels"] for peer in outside["ingress"][0]["from"]]
    assert [labels["kubernetes.io/metadata.name"] for labels in allowed] == [
        "openshift-user-workload-monitoring",
        "monitoring",
    ]


def test_development_is_laid_over_the_default():
    """The values for development change the defaults, and add no key to them."""
    changes = yaml.safe_load(chart.DEVELOPMENT.read_text(encoding="utf-8"))
    both = merged(chart.defaults(), changes)
    assert both.keys() == chart.defaults().keys()
    assert both != chart.defaults()
    main = only(CASES["development"].render(), "ConfigMap", "variantautoscaling-config")["data"]
    assert (main["LOG_LEVEL"], main["PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"]) == ("debug", "true")


@pytest.mark.parametrize("file", [chart.CONTROLLER, chart.LLM_D], ids=lambda file: file.stem)
def test_the_controller_alone_brings_nothing_that_a_stranger_must_switch_off(file: Path):
    """No variant, scaler, Service of vLLM, port of a node, Thanos or token, and memory for an idle controller."""
    items = render({}, file, apis=[chart.MONITORING])
    kinds = {item["kind"] for item in items}
    assert kinds.isdisjoint({"VariantAutoscaling", "HorizontalPodAutoscaler", "ScaledObject", "PodMonitor"})
    assert "NodePort" not in str(items)
    assert "thanos" not in str(items)
    main = only(items, "ConfigMap", "variantautoscaling-config")["data"]
    assert "PROMETHEUS_TOKEN_PATH" not in main
    assert main["PROMETHEUS_ALLOW_HTTP"] == "true"
    (container,) = only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "10m", "memory": "128Mi"},
        "limits": chart.defaults()["wva"]["resources"]["limits"],
    }


@pytest.mark.parametrize("file", [chart.CONTROLLER, chart.LLM_D], ids=lambda file: file.stem)
def test_the_controller_alone_is_reached_by_its_prometheus_and_nobody_else(file: Path):
    """The NetworkPolicy names the namespace in the URL of Prometheus, both ways."""
    items = render({}, file, apis=[chart.MONITORING])
    policy = only(items, "NetworkPolicy")["spec"]
    values = yaml.safe_load(file.read_text(encoding="utf-8"))["wva"]["prometheus"]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": values["monitoringNamespace"]}}}
    assert policy["ingress"][0]["from"] == [peer]
    assert [peer] in [rule.get("to") for rule in policy["egress"]]


def test_llm_d_differs_from_the_controller_alone_in_its_prometheus():
    """What both files set is the same but for the address, its namespace and the label of the ServiceMonitor."""
    alone, beside = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in (chart.CONTROLLER, chart.LLM_D))
    del alone["wva"]["metrics"]
    for key in ("monitoringNamespace", "baseURL"):
        assert alone["wva"]["prometheus"].pop(key) != beside["wva"]["prometheus"].pop(key)
    assert alone == beside


def test_the_secrets_of_the_image_are_where_they_work():
    """They are on the chart's ServiceAccount, each once, and on the pods where the account is not the chart's."""
    items = CASES["several-pull-secrets"].render()
    names = [{"name": "registry"}, {"name": "mirror"}]
    assert only(items, "ServiceAccount", "controller-manager")["imagePullSecrets"] == names
    assert "imagePullSecrets" not in only(items, "Deployment")["spec"]["template"]["spec"]
    items = CASES["account-of-ones-own"].render()
    pod = only(items, "Deployment")["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("autoscaler", [{"name": "mirror"}])


def test_an_account_of_ones_own_gets_the_rights_and_is_not_made():
    """The roles are bound to the account that exists: it may do what the chart's own account may do."""
    items = CASES["account-of-ones-own"].render()
    assert [item["metadata"]["name"] for item in items if item["kind"] == "ServiceAccount"] == [
        f"{chart.fullname()}-metrics-reader"
    ]
    assert rights_of("autoscaler", items) == rights_of(f"{chart.fullname()}-controller-manager", render())


def test_probes_keep_what_is_not_given():
    """What the probes ask is fixed; of their times only those that are given change."""
    (container,) = only(CASES["probes"].render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    health, ready = ({"httpGet": {"path": path, "port": "probes"}} for path in ("/healthz", "/readyz"))
    assert container["livenessProbe"] == {
        **health, "initialDelaySeconds": 15, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 3
    }  # fmt: skip
    assert container["readinessProbe"] == {**ready, "initialDelaySeconds": 5, "periodSeconds": 5}
    assert container["startupProbe"] == {**health, "failureThreshold": 60}


def test_a_certificate_is_for_the_names_that_are_asked_and_goes_where_it_is_served():
    """cert-manager writes the Secret that the pods mount and Prometheus verifies, for the names of the Services."""
    items = CASES["certificate-of-cert-manager"].render()
    certificate = only(items, "Certificate")["spec"]
    service = only(items, "Service", "-metrics")["metadata"]["name"]
    assert certificate["issuerRef"] == {"name": "internal", "kind": "ClusterIssuer"}
    assert certificate["dnsNames"] == [
        f"{service}.{chart.NAMESPACE}.svc",
        f"{service}.{chart.NAMESPACE}.svc.cluster.local",
    ]
    (volume,) = [
        volume
        for volume in only(items, "Deployment")["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "metrics-cert"
    ]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    (endpoint,) = only(items, "ServiceMonitor", "metrics-monitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == certificate["secretName"]
    assert endpoint["tlsConfig"]["serverName"] in certificate["dnsNames"]
    items = CASES["certificate-of-cert-manager-with-all-settings"].render()
    certificate = only(items, "Certificate")["spec"]
    assert certificate["secretName"] == "metrics-tls"
    asked = only(items, "Service", "-keda-push")["metadata"]["name"]
    assert f"{asked}.{chart.NAMESPACE}.svc" in certificate["dnsNames"]


def test_monitors_take_what_prometheus_takes():
    """Time-out and both kinds of relabelings reach each monitor, and an empty value leaves no field."""
    given = {"scrapeTimeout", "relabelings", "metricRelabelings"}
    found = [item for item in CASES["more-of-the-scrapes"].render() if item["kind"] == "ServiceMonitor"]
    assert len(found) == 2
    assert all(given <= item["spec"]["endpoints"][0].keys() for item in found)
    (endpoint,) = only(CASES["pod-monitor-with-all-settings"].render(), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert given <= endpoint.keys()
    (endpoint,) = only(CASES["pod-monitor"].render(), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "vllm", "path": "/metrics", "interval": "15s"}


def test_the_pod_monitor_is_the_sample():
    """The chart's PodMonitor selects and scrapes as ``deploy/samples/podmonitor`` does."""
    sample = yaml.safe_load((DEPLOY / "samples" / "podmonitor" / "vllm.yaml").read_text(encoding="utf-8"))
    assert only(CASES["pod-monitor"].render(), "PodMonitor")["spec"] == sample["spec"]
