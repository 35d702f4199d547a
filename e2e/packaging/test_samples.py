"""The samples are valid, are about the same two variants, and are accepted by their readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from deploy.observability.generate.queries import JOB, NAMESPACE
from e2e import kustomize
from e2e.controlplane.api import Body
from e2e.external_metrics import read_rules
from e2e.kustomize import DEPLOY
from e2e.packaging.everything import folder
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.model.policy import Policy
from wva.model.roles import DECODE, PREFILL, RoleLabels
from wva.model.variant import ModelKey

SAMPLES = DEPLOY / "samples"
DIRECTORIES = sorted(path.parent.name for path in SAMPLES.glob("*/kustomization.yaml"))
PAIR = "prefill-decode"
SCALERS = ("hpa", "hpa-scale-to-zero", "keda", "keda-scale-to-zero")
ALIASED = ("desired_replicas", "current_replicas", "desired_ratio")
"""What an HPA of older manifests may ask for with the prefix ``inferno_``."""
TARGET = f'job="{JOB}",namespace="{NAMESPACE}"'
ADAPTERS = ("prometheus-adapter-values.yaml", "prometheus-adapter-values-openshift.yaml")


def rendered(name: str) -> list[Body]:
    """Return the objects of a sample."""
    return folder(SAMPLES / name)


def of_kind(name: str, kind: str) -> list[Body]:
    """Return the objects of a kind in a sample."""
    return [item for item in rendered(name) if item["kind"] == kind]


def test_every_folder_is_a_sample():
    """Every folder is a sample, and every file is a values file of prometheus-adapter."""
    assert {*DIRECTORIES, *ADAPTERS} == {path.name for path in SAMPLES.iterdir()}


def test_variants_say_what_they_need():
    """Accelerator, cost as text, the model, and a Deployment that the quick start has."""
    deployments = {item["metadata"]["name"]: item for item in of_kind("two-variants", "Deployment")}
    variants = of_kind("variantautoscalings", "VariantAutoscaling")
    assert len(variants) == 2
    for item in variants:
        accelerator = item["metadata"]["labels"][ACCELERATOR_LABEL]
        target = deployments[item["spec"]["scaleTargetRef"]["name"]]
        (container,) = target["spec"]["template"]["spec"]["containers"]
        assert f"--accelerator={accelerator}" in container["args"]
        assert f"--model={item['spec']['modelID']}" in container["args"]
        assert float(item["spec"]["variantCost"]) > 0
    assert len({item["spec"]["modelID"] for item in variants}) == 1
    assert len({item["spec"]["variantCost"] for item in variants}) == 2
    assert of_kind("two-variants", "VariantAutoscaling") == variants


def test_a_group_of_pods_is_scaled_as_such():
    """The variant on several nodes and its HPA name the same LeaderWorkerSet."""
    (variant,) = of_kind("multi-node", "VariantAutoscaling")
    (scaler,) = of_kind("multi-node", "HorizontalPodAutoscaler")
    assert variant["spec"]["scaleTargetRef"] == scaler["spec"]["scaleTargetRef"]
    assert variant["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    assert number_of(scaler["spec"]) == variant["metadata"]["name"]


def test_a_pair_has_two_roles_of_one_model_behind_one_pool():
    """The labels are those that WVA reads and that the pool selects by; each role has a scaler with its own number."""
    variants = {item["spec"]["scaleTargetRef"]["name"]: item for item in of_kind(PAIR, "VariantAutoscaling")}
    scalers = {item["spec"]["scaleTargetRef"]["name"]: item["spec"] for item in of_kind(PAIR, "ScaledObject")}
    templates = {item["metadata"]["name"]: item["spec"]["template"] for item in of_kind(PAIR, "Deployment")}
    pool = yaml.safe_load((SAMPLES / PAIR / "pool.yaml").read_text(encoding="utf-8"))
    assert templates.keys() == variants.keys() == scalers.keys()
    assert {RoleLabels().role_of(each["metadata"]["labels"]) for each in templates.values()} == {PREFILL, DECODE}
    assert len({item["spec"]["modelID"] for item in variants.values()}) == 1
    for name, template in templates.items():
        assert number_of(scalers[name]) == variants[name]["metadata"]["name"]
        assert pool["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("name", SCALERS)
def test_every_variant_has_one_scaler_and_its_own_number(name: str):
    """Target, selector or query of a scaler name its variant. Only samples for scale to zero allow zero replicas."""
    variants = {item["spec"]["scaleTargetRef"]["name"]: item for item in of_kind("two-variants", "VariantAutoscaling")}
    kind = "HorizontalPodAutoscaler" if name.startswith("hpa") else "ScaledObject"
    scalers = {item["spec"]["scaleTargetRef"]["name"]: item["spec"] for item in of_kind(name, kind)}
    assert scalers.keys() == variants.keys()
    for target, spec in scalers.items():
        minimum = spec["minReplicas" if kind == "HorizontalPodAutoscaler" else "minReplicaCount"]
        assert minimum == (0 if name.endswith("zero") else 1)
        assert number_of(spec) == variants[target]["metadata"]["name"]


def number_of(spec: Body) -> str:
    """Return the variant whose number a scaler applies, and check that it applies the number itself."""
    if "metrics" in spec:
        (metric,) = spec["metrics"]
        external = metric["external"]
        assert external["metric"]["name"] == "wva_desired_replicas"
        assert external["target"] == {"type": "AverageValue", "averageValue": "1"}
        variant: str = external["metric"]["selector"]["matchLabels"]["variant_name"]
        return variant
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("AverageValue", "1")
    assert spec["fallback"]["behavior"] == "currentReplicas"
    found = re.fullmatch(
        rf'max\(wva_desired_replicas\{{exported_namespace="models",{TARGET},variant_name="([^"]+)"\}}\)',
        trigger["metadata"]["query"],
    )
    assert found is not None
    return found[1]


def test_the_query_follows_the_namespace(tmp_path: Path):
    """KEDA's query names the namespace, and it is changed in one line."""
    for name in ("keda", "keda-scale-to-zero", "scale-to-zero"):
        copy_in(tmp_path, name, namespace="prod")
    for item in kustomize.render(tmp_path / "keda"):
        query = item["spec"]["triggers"][0]["metadata"]["query"]
        assert 'exported_namespace="prod"' in query
        assert TARGET in query


def copy_in(folder: Path, name: str, *, namespace: str) -> None:
    """Copy a sample and change its namespace as a user does."""
    (folder / name).mkdir()
    for file in (SAMPLES / name).iterdir():
        text = file.read_text(encoding="utf-8").replace("namespace: models\n", f"namespace: {namespace}\n")
        (folder / name / file.name).write_text(text, encoding="utf-8")


def test_keda_reads_with_the_authority_of_the_component():
    """The ClusterTriggerAuthentication that the ScaledObjects name is the one of the component."""
    (authentication,) = [
        item
        for item in yaml.safe_load_all((DEPLOY / "components" / "keda" / "trigger_authentication.yaml").read_text())
        if item
    ]
    for item in of_kind("keda", "ScaledObject"):
        (trigger,) = item["spec"]["triggers"]
        reference = trigger["authenticationRef"]
        assert (reference["kind"], reference["name"]) == (authentication["kind"], authentication["metadata"]["name"])


@pytest.mark.parametrize("name", ["scale-to-zero", "queueing"])
def test_config_maps_are_taken_without_a_word(name: str):
    """The controller takes each ConfigMap without a warning. The only model that it names is the quick start's."""
    (item,) = of_kind(name, "ConfigMap")
    settings = load(Inputs({}, {"PROMETHEUS_BASE_URL": "https://p"}, {})).settings
    live = LiveConfiguration(settings)
    before: Policy = live.policy
    outcome = live.apply(Key(settings.pod_namespace, item["metadata"]["name"]), item["data"])
    assert (outcome.problems, outcome.ignored) == ((), "")
    assert live.warnings() == []
    assert live.policy != before
    models = {yaml.safe_load(entry).get("model_id") for entry in item["data"].values()}
    (served,) = {item["spec"]["modelID"] for item in of_kind("variantautoscalings", "VariantAutoscaling")}
    assert models == {None, served}


def test_the_service_classes_are_taken_without_a_word():
    """The classes replace the empty ones of the overlays. Premium comes first, and has the quick start's model."""
    (item,) = of_kind("service-classes", "ConfigMap")
    (shipped,) = [
        found
        for found in kustomize.render(DEPLOY / "base")
        if found["metadata"]["name"].endswith("-service-classes-config")
    ]
    for key in ("name", "namespace"):
        assert item["metadata"][key] == shipped["metadata"][key]
    for other in (item, shipped):
        assert other["data"].keys() == {"premium.yaml", "freemium.yaml"}
        classes = [yaml.safe_load(text) for text in other["data"].values()]
        assert {entry["name"]: entry["priority"] for entry in classes} == {"Premium": 1, "Freemium": 10}
    name = item["metadata"]["name"]
    given = {"PROMETHEUS_BASE_URL": "https://p", "SERVICE_CLASS_CONFIG_MAP_NAME": name}
    live = LiveConfiguration(load(Inputs({}, given, {})).settings)
    outcome = live.apply(Key(item["metadata"]["namespace"], name), item["data"])
    assert outcome is not None
    assert (outcome.problems, outcome.ignored, live.warnings()) == ((), "", [])
    (served,) = {variant["spec"]["modelID"] for variant in of_kind("variantautoscalings", "VariantAutoscaling")}
    target = live.policy.service_target_for(ModelKey("models", served))
    assert target is not None
    assert (target.priority, target.itl_milliseconds, target.ttft_milliseconds) == (1, 24, 500)


def test_the_monitor_finds_every_pod_of_the_quick_start():
    """The monitor finds the pods by their labels and their port."""
    (monitor,) = of_kind("podmonitor", "PodMonitor")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert expression["operator"] == "Exists"
    assert not endpoint.get("honorLabels")
    for item in of_kind("two-variants", "Deployment"):
        template = item["spec"]["template"]
        assert expression["key"] in template["metadata"]["labels"]
        (container,) = template["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_both_adapters_have_the_same_rules():
    """On Kubernetes and OpenShift the adapter has another address and user of Prometheus, but the same rules."""
    first, second = (read_rules(SAMPLES / name) for name in ADAPTERS)
    assert first == second
    names = [rule["name"]["as"] for rule in first]
    assert names == ["wva_desired_replicas", *(f"inferno_{name}" for name in ALIASED)]
    for rule, name in zip(first, names, strict=True):
        pinned = f"{name}{{{TARGET},<<.LabelMatchers>>}}"
        assert rule["metricsQuery"] == f"max by (variant_name, exported_namespace) ({pinned})"
        assert rule["seriesQuery"].startswith(f"{name}{{")
        assert [other["name"]["as"] for other in first if re.search(other["name"]["matches"], name)] == [name]


def test_openshift_chooses_the_adapters_user():
    """The chart's own user and group would be refused by restricted-v2; the token is the adapter's own."""
    values = yaml.safe_load((SAMPLES / ADAPTERS[1]).read_text(encoding="utf-8"))
    assert values["podSecurityContext"]["fsGroup"] is None
    assert values["securityContext"]["runAsUser"] is None
    assert any(argument.startswith("--prometheus-token-file=") for argument in values["extraArguments"])
