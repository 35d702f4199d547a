"""``wva migrate`` finds each fault of an installation and says how to mend it; it finds nothing in a working one."""

from __future__ import annotations

import pytest
import yaml

ACCELERATOR = "inference.optimization/acceleratorName"


def metric(objects):
    """Return the one metric of the HPA."""
    return objects["hpa"]["spec"]["metrics"][0]


def labels(objects):
    """Return the labels by which the HPA selects its series."""
    return metric(objects)["external"]["metric"]["selector"]["matchLabels"]


def test_sound_installation_has_no_finding(sound, findings):
    """The check has no finding about objects that work."""
    assert findings(sound.values()) == []


def spoil_target(objects):
    """Remove the target, as in a variant from before 0.5."""
    del objects["variant"]["spec"]["scaleTargetRef"]
    del objects["hpa"]


def spoil_empty_target(objects):
    """Leave the name of the target empty."""
    objects["variant"]["spec"]["scaleTargetRef"]["name"] = ""
    del objects["hpa"]


def spoil_target_kind(objects):
    """Name a kind that WVA does not scale."""
    objects["variant"]["spec"]["scaleTargetRef"]["kind"] = "DaemonSet"


def spoil_default_kind(objects):
    """Name a kind that WVA scales only where ``WVA_TARGET_KINDS`` has it."""
    objects["variant"]["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"


def spoil_deployment(objects):
    """Leave the Deployment out."""
    del objects["workload"]


def spoil_accelerator(objects):
    """Remove the label of the accelerator."""
    del objects["variant"]["metadata"]["labels"]


def spoil_cost(objects):
    """Write the cost without quotes."""
    objects["variant"]["spec"]["variantCost"] = 40


def spoil_model(objects):
    """Remove the model."""
    del objects["variant"]["spec"]["modelID"]


def spoil_second_variant(objects):
    """Add a second variant for the same Deployment."""
    second = {**objects["variant"], "metadata": {**objects["variant"]["metadata"], "name": "other-va"}}
    objects["second"] = second


def spoil_metric_type(objects):
    """Ask for the number as a metric of type Pods."""
    metric(objects)["pods"] = metric(objects).pop("external")
    metric(objects)["type"] = "Pods"


def spoil_metric_target(objects):
    """Set the target value to 2, which gives half as many replicas."""
    metric(objects)["external"]["target"]["averageValue"] = "2"


def spoil_alias(objects):
    """Ask for the number under its old name."""
    metric(objects)["external"]["metric"]["name"] = "inferno_desired_replicas"


def spoil_variant_name(objects):
    """Select the series of every variant."""
    del labels(objects)["variant_name"]


def spoil_exported_namespace(objects):
    """Select the variants of this name in every namespace."""
    del labels(objects)["exported_namespace"]


def spoil_other_namespace(objects):
    """Select the series of another namespace."""
    labels(objects)["exported_namespace"] = "elsewhere"


def spoil_unknown_variant(objects):
    """Misspell the variant."""
    labels(objects)["variant_name"] = "chat"


def spoil_hpa_target(objects):
    """Let the HPA scale another Deployment by this number."""
    objects["hpa"]["spec"]["scaleTargetRef"]["name"] = "chat-decode"


def spoil_instance(objects):
    """Give the variant a controller instance that its HPA does not select."""
    objects["variant"]["metadata"]["labels"]["wva.llmd.ai/controller-instance"] = "blue"


def spoil_minimum(objects):
    """Let the HPA go to zero."""
    objects["hpa"]["spec"]["minReplicas"] = 0


def spoil_no_scaler(objects):
    """Leave the HPA out."""
    del objects["hpa"]


def spoil_adapter_sum(objects):
    """Sum the series."""
    text = objects["adapter"]["data"]["config.yaml"]
    objects["adapter"]["data"]["config.yaml"] = text.replace("max by", "sum by")


def spoil_adapter_plain(objects):
    """Remove the aggregation, as in the sample of the original."""
    text = objects["adapter"]["data"]["config.yaml"]
    objects["adapter"]["data"]["config.yaml"] = text.replace("max by (variant_name) ", "")


def spoil_adapter_pin(objects):
    """Read the series of every page, as the sample of the original does."""
    text = objects["adapter"]["data"]["config.yaml"]
    objects["adapter"]["data"]["config.yaml"] = text.replace('namespace="wva",', "")


def spoil_alias_rule(objects):
    """Add a rule for the old name that reads the series of every page."""
    rule = {
        "seriesQuery": "inferno_desired_replicas",
        "metricsQuery": "max by (variant_name) (inferno_desired_replicas)",
    }
    objects["adapter"]["data"]["aliases.yaml"] = yaml.safe_dump({"externalRules": [rule]})


def spoil_image(objects):
    """Run the Go image."""
    container = objects["controller"]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.5.1"


def spoil_lease(objects):
    """Remove the controller that holds the Lease."""
    del objects["controller"]


def spoil_url(objects):
    """Use plain HTTP."""
    objects["main"]["data"]["PROMETHEUS_BASE_URL"] = "http://prometheus:9090"


def spoil_unknown_key(objects):
    """Misspell a key."""
    objects["main"]["data"]["GLOBAL_OPT_INTERVALL"] = "30s"


def spoil_interval(objects):
    """Set a key that had no effect in the original."""
    objects["main"]["data"]["GLOBAL_OPT_INTERVAL"] = "15s"


def spoil_saturation(objects):
    """Set a threshold that is out of range."""
    objects["saturation"]["data"]["default"] = "kvCacheThreshold: 80\n"


def spoil_undecodable(objects):
    """Give a field a value of another type."""
    objects["hpa"]["spec"]["minReplicas"] = [1]


FAULTS = [
    (
        spoil_target,
        "must",
        "models/chat-va",
        "spec.scaleTargetRef is missing",
        "kubectl patch variantautoscaling chat-va -n models --type merge",
    ),
    (spoil_empty_target, "must", "models/chat-va", "spec.scaleTargetRef is missing", '"kind":"Deployment"'),
    (spoil_target_kind, "must", "models/chat-va", "kind is 'DaemonSet'", "name a Deployment"),
    (spoil_default_kind, "note", "models/chat-va", "only where WVA_TARGET_KINDS names the kind", ""),
    (spoil_deployment, "should", "models/chat-va", "its Deployment chat does not exist", "create the Deployment"),
    (
        spoil_accelerator,
        "should",
        "models/chat-va",
        f"no label {ACCELERATOR}",
        f"kubectl label variantautoscaling chat-va -n models {ACCELERATOR}=ACCELERATOR",
    ),
    (spoil_cost, "must", "models/chat-va", "spec.variantCost is 40", '"variantCost":"10.0"'),
    (spoil_model, "must", "models/chat-va", "spec.modelID is empty", "the model that vLLM serves"),
    (spoil_second_variant, "must", "models/other-va", "scales Deployment chat as chat-va does", "keep one variant"),
    (spoil_metric_type, "must", "models/chat-hpa", "metric of type Pods", "type: External"),
    (spoil_metric_target, "must", "models/chat-hpa", "one to one", 'averageValue: "1"'),
    (spoil_alias, "must", "models/chat-hpa", "WVA_INFERNO_METRIC_ALIASES", "ask for wva_desired_replicas"),
    (spoil_variant_name, "must", "models/chat-hpa", "no variant_name", "add variant_name"),
    (spoil_exported_namespace, "should", "models/chat-hpa", "no exported_namespace", "exported_namespace: models"),
    (spoil_other_namespace, "must", "models/chat-hpa", "exported_namespace elsewhere", "exported_namespace: models"),
    (spoil_unknown_variant, "must", "models/chat-hpa", "the variant chat, which does not exist", "name the variant"),
    (spoil_hpa_target, "must", "models/chat-hpa", "scales Deployment chat-decode", "name to chat"),
    (spoil_instance, "should", "models/chat-hpa", "no controller_instance: blue", "controller_instance: blue"),
    (spoil_minimum, "note", "models/chat-hpa", "HPAScaleToZero", ""),
    (spoil_no_scaler, "should", "models/chat-va", "no HPA and no ScaledObject", "deploy/samples"),
    (spoil_adapter_sum, "must", "monitoring/prometheus-adapter", "sums", "max by"),
    (spoil_adapter_plain, "should", "monitoring/prometheus-adapter", "does not aggregate", "max by"),
    (
        spoil_adapter_pin,
        "should",
        "monitoring/prometheus-adapter",
        "its rule for wva_desired_replicas takes the number from every page",
        'job="NAME-OF-ITS-METRICS-SERVICE",namespace="wva"',
    ),
    (
        spoil_alias_rule,
        "should",
        "monitoring/prometheus-adapter",
        "its rule for inferno_desired_replicas takes the number from every page",
        'namespace="wva"',
    ),
    (
        spoil_image,
        "must",
        "wva/wva-controller-manager",
        "image of the Go controller",
        "kubectl set image deployment/wva-controller-manager -n wva manager=IMAGE",
    ),
    (spoil_lease, "must", "wva/72dd1cf1.llm-d.ai", "is held by wva-controller-manager-abc_123", "stop it"),
    (spoil_url, "must", "wva/wva-variantautoscaling-config", "PROMETHEUS_BASE_URL", "mend it"),
    (
        spoil_unknown_key,
        "should",
        "wva/wva-variantautoscaling-config",
        "GLOBAL_OPT_INTERVALL: no such setting",
        "mend its name",
    ),
    (spoil_interval, "note", "wva/wva-variantautoscaling-config", "GLOBAL_OPT_INTERVAL='15s' takes effect", ""),
    (spoil_saturation, "should", "wva/release-wva-saturation-scaling-config", "kvCacheThreshold", "mend the entry"),
    (spoil_undecodable, "must", "models/chat-hpa", "cannot be read: Expected `int", "mend the field"),
]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [(spoil, expected) for spoil, *expected in FAULTS],
    ids=[fault[0].__name__ for fault in FAULTS],
)
def test_fault_is_found(sound, findings, spoil, expected):
    """One finding names the object, the problem and the change that mends it."""
    severity, key, problem, change = expected
    spoil(sound)
    found = [
        finding
        for finding in findings(sound.values())
        if (finding.severity.value, str(finding.key)) == (severity, key) and problem in finding.problem
    ]
    assert len(found) == 1
    assert change in found[0].change


def test_worst_comes_first(sound, told):
    """Findings of severity "must" come first, then "should", then notes."""
    for spoil in (spoil_interval, spoil_accelerator, spoil_metric_target):
        spoil(sound)
    assert [severity for severity, _, _ in told(sound.values())] == ["must", "should", "note"]


def test_manifests_are_not_a_cluster(sound, told):
    """Files may lack objects that the cluster has, so the check does not report missing objects."""
    for name in ("workload", "hpa", "controller"):
        del sound[name]
    assert told(sound.values(), whole=False) == []


def test_expired_lease_is_nobodys(sound, told):
    """An expired Lease whose holder is unknown gives no finding."""
    spoil_lease(sound)
    assert told(sound.values(), now=1_800_000_100.0) == []


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 1),
        ({"env": [{"name": "CONTROLLER_INSTANCE", "value": "blue"}]}, 0),
        ({"args": ["--watch-namespace=$(POD_NAMESPACE)"]}, 1),
    ],
    ids=["alike", "another instance", "one watches all"],
)
def test_two_controllers_for_the_same_variants(sound, told, change, count):
    """Controllers in two namespaces are kept apart by their instance, or by the namespaces they watch."""
    container = {**sound["controller"]["spec"]["template"]["spec"]["containers"][0], **change}
    sound["old"] = {
        **sound["controller"],
        "metadata": {**sound["controller"]["metadata"], "namespace": "old"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    assert sum("same variants as" in problem for _, _, problem in told(sound.values())) == count


def test_controllers_of_one_namespace_each_are_apart(sound, told):
    """Two controllers that each watch their own namespace have no variant in common."""
    container = sound["controller"]["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["--watch-namespace=$(POD_NAMESPACE)"]
    sound["old"] = {**sound["controller"], "metadata": {**sound["controller"]["metadata"], "namespace": "old"}}
    assert not any("same variants as" in problem for _, _, problem in told(sound.values()))


def test_scaled_down_controller_does_nothing(sound, told):
    """The check ignores a controller whose Deployment has no replicas."""
    sound["old"] = {
        **sound["controller"],
        "metadata": {**sound["controller"]["metadata"], "namespace": "old"},
        "spec": {**sound["controller"]["spec"], "replicas": 0},
    }
    assert told(sound.values()) == []


def test_names_are_quoted_for_the_shell(sound, findings):
    """A suggested command quotes names, so that a name from a file cannot run as a command."""
    spoil_accelerator(sound)
    sound["variant"]["metadata"]["name"] = "x; rm -rf ~"
    (finding,) = findings([sound["variant"]], whole=False)
    assert "'x; rm -rf ~'" in finding.change


@pytest.mark.parametrize(("annotation", "value"), [("actuation", "direct"), ("mode", "shadow")])
def test_a_variant_that_no_scaler_is_to_follow_needs_none(annotation, value, sound, findings):
    """The controller writes the number itself, or nobody does."""
    spoil_no_scaler(sound)
    sound["variant"]["metadata"]["annotations"] = {f"wva.llmd.ai/{annotation}": value}
    assert findings(sound.values()) == []


@pytest.mark.parametrize(("status", "count"), [("True", 0), ("False", 1)])
def test_a_variant_in_the_shadow_of_its_namespace_needs_no_scaler(status, count, sound, findings):
    """The namespace has the annotation, and the controller says so in a condition."""
    spoil_no_scaler(sound)
    sound["variant"]["status"] = {"conditions": [{"type": "Shadow", "status": status}]}
    assert len(findings(sound.values())) == count
