"""The chart's values: each has an effect, a description and a schema, and wrong ones are refused with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from e2e import tools
from e2e.packaging import chart
from e2e.packaging.chart import nested, refusal
from e2e.packaging.chart_matrix import AUTHORITY, DIGEST, merged
from e2e.packaging.chart_values import values
from wva.config.declare import GLOBAL_DEFAULT, declarations
from wva.config.keys import (
    ClassFields,
    CostFields,
    EntryFields,
    ProfileFields,
    QueueingFields,
    SaturationFields,
    ScaleToZeroFields,
    TargetFields,
)

VALUES = {value.path: value for value in values()}
SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
ENTRY = {"modelID": "m", "namespace": "prod"}
_RULE = {"targetLabel": "cluster", "replacement": "east"}
# Another value where a text with an x at its end, a number and one, or the opposite will not do.
OTHERS: dict[str, Any] = {
    "commonLabels": {"a": "b"},
    "commonAnnotations": {"a": "b"},
    "wva.image.digest": DIGEST,
    "wva.imagePullPolicy": "Never",
    "wva.imagePullSecrets": [{"name": "a"}],
    "wva.startupProbe": {"periodSeconds": 5},
    "wva.livenessProbe": {"periodSeconds": 5},
    "wva.readinessProbe": {"periodSeconds": 5},
    "wva.extraArgs": ["-v=4"],
    "wva.extraEnv": [{"name": "V", "value": "4"}],
    "wva.extraVolumes": [{"name": "a", "emptyDir": {}}],
    "wva.extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    "wva.reconcileInterval": "5s",
    "wva.targetKinds": ["StatefulSet"],
    "wva.roleLabels": ["example.com/stage"],
    "wva.roleValues": {"context": "prefill"},
    "wva.scaleNamespaces": ["prod"],
    "wva.poolGroup": "inference.networking.k8s.io",
    "wva.logging.level": "warn",
    "wva.logging.encoding": "console",
    "wva.leaderElection.leaseDuration": "90s",
    "wva.leaderElection.renewDeadline": "40s",
    "wva.leaderElection.retryPeriod": "5s",
    "wva.metrics.serviceAnnotations": {"a": "b"},
    "wva.metrics.serviceMonitor.enabled": False,
    "wva.metrics.serviceMonitor.interval": "5s",
    "wva.metrics.serviceMonitor.labels": {"a": "b"},
    "wva.metrics.serviceMonitor.tlsConfig": {"serverName": "a"},
    "wva.metrics.certificate.issuerRef": {"name": "b"},
    "vllmPodMonitor.namespaces": ["prod"],
    "vllmPodMonitor.selector": {"matchLabels": {"a": "b"}},
    "vllmPodMonitor.interval": "5s",
    "vllmPodMonitor.labels": {"a": "b"},
    "wva.metrics.certificate.duration": "720h",
    "wva.metrics.certificate.renewBefore": "240h",
    **{
        f"{monitor}.{key}": value
        for monitor in ("wva.metrics.serviceMonitor", "vllmService.serviceMonitor", "vllmPodMonitor")
        for key, value in {"scrapeTimeout": "5s", "relabelings": [_RULE], "metricRelabelings": [_RULE]}.items()
    },
    "wva.prometheus.caCert": AUTHORITY,
    "wva.prometheus.clusterMonitoringView": True,
    "wva.prometheus.monitoringNamespace": "monitoring",
    "wva.prometheus.tls.caCertPath": "/a/b",
    "wva.prometheus.token.source": "none",
    "wva.epp.tokenSource": "none",
    "wva.capacityScaling.default.kvCacheThreshold": 0.5,
    "wva.capacityScaling.default.kvSpareTrigger": 0.2,
    "wva.capacityScaling.default.scaleUpThreshold": 0.9,
    "wva.capacityScaling.default.scaleDownBoundary": 0.6,
    "wva.capacityScaling.default.unknownInventory": "unlimited",
    "wva.capacityScaling.default.analyzerName": "saturation",
    "wva.capacityScaling.default.optimizerName": "one-step",
    "wva.capacityScaling.default.transitionDeadline": "20m",
    "wva.capacityScaling.default.keepWarm": "30m",
    "wva.capacityScaling.default.surgeFactor": 1.25,
    "wva.capacityScaling.default.targetTTFT": 3000,
    "wva.capacityScaling.default.targetITL": 50,
    "wva.capacityScaling.default.inTime": 0.95,
    "wva.capacityScaling.default.compatibility": "v0.5",
    "wva.capacityScaling.overrides": {"a": {**ENTRY, "kvSpareTrigger": 0}},
    "wva.modelScaleToZero.default": {"enabled": True},
    "wva.modelScaleToZero.overrides": {"a": {**ENTRY, "enabled": True}},
    "wva.queueingModel.default": {"sloMultiplier": 4},
    "wva.queueingModel.overrides": {"a": {**ENTRY, "sloMultiplier": 4}},
    "wva.serviceClasses": {"premium": {"name": "Best"}},
    "wva.acceleratorCosts": {"A100": {"cost": "40.00"}},
    "wva.modelPerformance": {"a": {"modelID": "m", "acc": "A100", "alpha": 1, "beta": 1}},
    "wva.resources": {"limits": {"cpu": "2"}},
    "wva.topologySpreadConstraints": [],
    "wva.affinity": {"nodeAffinity": {}},
    "wva.tolerations": [{"operator": "Exists"}],
    "wva.podSecurityContext": {"runAsUser": 1000},
    "wva.securityContext": {"privileged": True},
    "wva.networkPolicy.ingressNamespaces": ["a"],
    "wva.networkPolicy.apiServerCIDRs": ["10.0.0.1/32"],
    "wva.networkPolicy.prometheusCIDRs": ["10.0.0.1/32"],
    "wva.networkPolicy.apiServerPorts": [6443],
    "wva.networkPolicy.eppPorts": [9091],
    "actuator": "keda",
    "keda.serverAddress": "https://a",
    "hpa.targetAverageValue": "2",
    "hpa.behavior.scaleUp.selectPolicy": "Min",
    "hpa.behavior.scaleDown.selectPolicy": "Min",
    "hpa.behavior.scaleUp.policies": [],
    "hpa.behavior.scaleDown.policies": [],
    "va.variantCost": "20",
    "va.serviceClass": "",
    "llmd.targetKind": "StatefulSet",
    "vllmService.interval": "5s",
    "vllmService.scheme": "https",
    "vllmService.type": "ClusterIP",
    "vllmService.serviceMonitor.enabled": False,
    "observability.alerts.labels": {"a": "b"},
    "observability.dashboards.labels": {"a": "b"},
    "observability.dashboards.annotations": {"a": "b"},
    **{f"wva.prometheus.metricsCache.{key}": "9s" for key in (
        "ttl", "cleanupInterval", "fetchInterval", "freshThreshold", "staleThreshold", "unavailableThreshold"
    )},
}  # fmt: skip
# Other values that a value needs to have its effect.
CONTEXT: dict[str, chart.Body] = {
    "keda": {"actuator": "keda"},
    "llmd.targetKind": nested("wva.targetKinds", ["StatefulSet"]),
    "keda.fallback.replicas": nested("keda.fallback.failureThreshold", 3),
    "wva.watchNamespace": nested("wva.namespaceScoped", True),
    **{
        f"wva.networkPolicy.{key}": nested("wva.networkPolicy.enabled", True)
        for key in ("ingressNamespaces", "apiServerCIDRs", "apiServerPorts", "eppPorts")
    },
    "wva.networkPolicy.prometheusCIDRs": merged(
        nested("wva.networkPolicy.enabled", True), nested("wva.prometheus.baseURL", "https://prometheus.example.org")
    ),
    "wva.prometheus.tls.caKey": nested("wva.prometheus.tls.caSecret", "a"),
    "wva.prometheus.monitoringNamespace": nested("wva.prometheus.caCert", AUTHORITY),
    "wva.prometheus.token.secretName": nested("wva.prometheus.token", {"source": "secret", "secretName": "a"}),
    "wva.prometheus.token.secretKey": nested("wva.prometheus.token", {"source": "secret", "secretName": "a"}),
    "wva.epp.secretName": nested("wva.epp", {"tokenSource": "secret", "secretName": "a"}),
    "wva.prometheus.headers.secretKey": nested("wva.prometheus.headers", {"secretName": "a"}),
    "wva.prometheus.parameters.secretKey": nested("wva.prometheus.parameters", {"secretName": "a"}),
    "wva.epp.secretKey": nested("wva.epp", {"tokenSource": "secret", "secretName": "a"}),
    "wva.metrics.namespace": nested("actuator", "keda"),
    "wva.console.port": nested("wva.console.enabled", True),
    "wva.kedaPush.port": nested("wva.kedaPush.enabled", True),
    "wva.kedaPush.clientCASecret": nested("wva.kedaPush.enabled", True),
    "wva.kedaPush.namespace": merged(nested("wva.kedaPush.enabled", True), nested("wva.networkPolicy.enabled", True)),
    "wva.leaderElection.enabled": nested("wva.replicaCount", 1),
    "wva.serviceAccount.create": nested("wva.serviceAccount.name", "a"),
    "vllmPodMonitor": nested("vllmService.serviceMonitor.enabled", False),
    **{
        f"vllmPodMonitor.{key}": nested("vllmPodMonitor.enabled", True)
        for key in SCHEMA["properties"]["vllmPodMonitor"]["properties"].keys() - {"enabled"}
    },
    "wva.metrics.certificate": nested("wva.metrics.certificate.issuerRef.name", "a"),
    **{
        f"wva.metrics.certificate.{key}": nested("wva.metrics.certificate.enabled", True)
        for key in ("issuerRef", "duration", "renewBefore")
    },
    "observability.alerts.labels": nested("observability.alerts.enabled", True),
    "observability.dashboards.labels": nested("observability.dashboards.enabled", True),
    "observability.dashboards.annotations": nested("observability.dashboards.enabled", True),
    "vllmService.serviceMonitor.insecureSkipVerify": nested("vllmService.scheme", "https"),
}


@pytest.mark.parametrize("path", VALUES)
def test_every_value_has_an_effect(path: str):
    """For each value, a change of the default changes the rendered objects."""
    contexts = [context for prefix, context in CONTEXT.items() if f"{path}.".startswith(f"{prefix}.")]
    before = _text(json.dumps(merged(*contexts)))
    changed = merged(*contexts, nested(path, _other(path)))
    assert chart.text(changed, apis=[chart.MONITORING]) != before


@cache
def _text(values: str) -> str:
    return chart.text(json.loads(values), apis=[chart.MONITORING])


def _other(path: str) -> Any:
    if path in OTHERS:
        return OTHERS[path]
    default = VALUES[path].default
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return default + 1
    if isinstance(default, str):
        return f"{default}x"
    assert default == {}, f"no other value for {path}"
    return {"a": "b"}


def test_other_values_are_of_values_that_exist():
    """The tables above name only existing values."""
    assert OTHERS.keys() <= VALUES.keys()
    assert all(any(f"{path}.".startswith(f"{prefix}.") for path in VALUES) for prefix in CONTEXT)


def test_every_value_is_described():
    """Each value has a description of at least ten characters, which does not end in the middle of a word."""
    missing = [
        path for path, value in VALUES.items() if len(value.description) < 10 or value.description[-1] not in ".nwsy"
    ]
    assert missing == []


def test_the_schema_is_about_the_values():
    """The schema has the keys of values.yaml, and two keys of older versions."""
    described = set(_leaves(SCHEMA, ""))
    assert {path for path in described if not _is_within(path, VALUES)} == {"global", "wva.baseName", "wva.modelName"}
    assert all(any(_is_within(leaf, [path]) or _is_within(path, [leaf]) for leaf in described) for path in VALUES)


def _is_within(path: str, others: Any) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in others)


def _leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    if path.startswith("hpa.behavior.") and "$ref" in schema:
        schema = {**SCHEMA["definitions"]["behavior"]}
        schema["properties"] = {key: {} for key in schema["properties"] if key != "tolerance"}  # of newer clusters
    if schema.get("additionalProperties") is False and "properties" in schema:
        for key, value in schema["properties"].items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path


def test_the_fields_of_entries_are_those_of_the_config_maps():
    """The values accept each field of a ConfigMap's entry, four of them under the chart's names."""
    names = {"modelID": "model_id", "enabled": "enable_scale_to_zero", "retentionPeriod": "retention_period"}

    def fields(path: str) -> set[str]:
        return {names.get(key, key) for key in _at(path)["properties"]}

    who = {"model_id", "namespace"}
    assert fields("wva.capacityScaling.default") == SaturationFields.names() - who
    assert fields("wva.capacityScaling.overrides.*") == SaturationFields.names() - _in_default_only(SaturationFields)
    assert fields("wva.modelScaleToZero.overrides.*") == ScaleToZeroFields.names()
    assert fields("wva.modelScaleToZero.default") == ScaleToZeroFields.names() - who
    assert fields("wva.queueingModel.default") == QueueingFields.names() - who
    assert fields("wva.queueingModel.overrides.*") == QueueingFields.names() - _in_default_only(QueueingFields)
    assert fields("wva.serviceClasses.*") - {"data"} == ClassFields.names()
    assert fields("wva.serviceClasses.*.data.*") == TargetFields.names()
    assert fields("wva.acceleratorCosts.*") == CostFields.names()
    assert fields("wva.modelPerformance.*") == ProfileFields.names() - {"name"}


def _in_default_only(fields: type[EntryFields]) -> set[str]:
    return {each.key for each in declarations(fields).values() if GLOBAL_DEFAULT in each.places}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("wva.capacityScaling.default", SaturationFields),
        ("wva.capacityScaling.overrides.*", SaturationFields),
        ("wva.queueingModel.default", QueueingFields),
        ("wva.queueingModel.overrides.*", QueueingFields),
        ("wva.serviceClasses.*", ClassFields),
        ("wva.serviceClasses.*.data.*", TargetFields),
        ("wva.modelPerformance.*", ProfileFields),
    ],
)
def test_ranges_and_words_of_fields_are_the_declared_ones(path: str, fields: type[EntryFields]):
    """The chart refuses what the process refuses. The process has its ranges and words from the declaration."""
    properties = _at(path)["properties"]
    for declared in declarations(fields).values():
        if declared.key not in properties:
            continue
        schema, limits = _at(f"{path}.{declared.key}"), declared.form.limits
        if declared.form.words:
            assert set(schema["enum"]) - {"auto", ""} == set(declared.form.words) - {""}, declared.key
        if limits is not None:
            least = schema.get("exclusiveMinimum", schema.get("minimum"))
            assert least >= limits.minimum, declared.key
            assert "exclusiveMinimum" in schema or not getattr(limits, "above", False), declared.key
            assert schema.get("maximum", 1_000_000_000) <= max(limits.maximum, 1_000_000_000), declared.key
            assert limits.maximum > 1 or schema["maximum"] == limits.maximum, declared.key


def _at(path: str) -> dict[str, Any]:
    """Return the schema at a path, where a star is any key or element."""
    found = SCHEMA
    for word in path.split("."):
        found = found["properties"][word] if word != "*" else found.get("additionalProperties") or found["items"]
        if "$ref" in found:
            found = SCHEMA["definitions"][found["$ref"].rpartition("/")[2]]
    return found


def test_unknown_keys_are_refused_everywhere():
    """A misspelt key anywhere is named with its place."""
    places = sorted({path.rpartition(".")[0] for path in VALUES})
    wrong = merged(*(nested(f"{place}.mispelt" if place else "mispelt", 1) for place in places))
    message = refusal(wrong)
    named = set(re.findall(r"at '([^']*)': additional properties 'mispelt' not allowed", message))
    assert named == {"/" + place.replace(".", "/") if place else "" for place in places}


def test_wrong_types_are_refused_everywhere():
    """Each value of a type that it cannot have is named with its place."""
    wrong = {
        path: 7 if isinstance(value.default, str | dict | list | bool) else "seven" for path, value in VALUES.items()
    }
    numbers = {"va.variantCost", "hpa.targetAverageValue", "wva.podDisruptionBudget.maxUnavailable"}
    numbers |= {f"wva.capacityScaling.default.{name}" for name in ("targetTTFT", "targetITL", "inTime")}
    wrong |= {path: [] for path in numbers}
    message = refusal(merged(*(nested(path, value) for path, value in wrong.items())))
    named = {place.strip("/").replace("/", ".") for place in re.findall(r"at '([^']*)'", message)}
    assert set(VALUES) - named == set()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("wva.replicaCount", "two", "at '/wva/replicaCount': got string, want integer"),
        ("actuator", "vpa", "at '/actuator': value must be one of 'hpa', 'keda', 'none'"),
        ("wva.reconcileInterval", "1 minute", "at '/wva/reconcileInterval': '1 minute' does not match pattern"),
        ("llmd.namespace", "A", "at '/llmd/namespace': 'A' does not match pattern"),
        ("wva.capacityScaling.default.kvCacheThreshold", 80, "kvCacheThreshold': maximum: got 80, want 1"),
        ("wva.prometheus.baseURL", "http://p", "baseURL is http://p: plain HTTP carries queries and token unencrypted"),
        ("wva.prometheus.caCert", "ca.crt", "wva.prometheus.caCert holds no PEM certificate"),
        ("wva.prometheus.token.source", "secret", "set wva.prometheus.token.secretName"),
        ("wva.epp.tokenSource", "secret", "set wva.epp.secretName"),
        ("wva.leaderElection.enabled", False, "wva.replicaCount is 2 without leader election"),
        ("wva.watchNamespace", "models", "set wva.namespaceScoped=true"),
        ("wva", {"namespaceScoped": True, "limitedMode": True}, "wva.limitedMode needs the nodes"),
        ("wva", {"console": {"enabled": True}, "metrics": {"secure": False}}, "wva.console.enabled needs wva.metrics"),
        ("wva", {"console": {"enabled": True}, "metrics": {"enabled": False}}, "wva.console.enabled needs wva.metrics"),
        ("wva.console", {"enabled": True, "port": 8443}, "wva.console.port and wva.metrics.port are both 8443"),
        (
            "wva",
            {"kedaPush": {"enabled": True}, "metrics": {"secure": False}},
            "wva.kedaPush.enabled needs wva.metrics",
        ),
        ("wva.kedaPush", {"enabled": True, "port": 8443}, "wva.kedaPush.port and wva.metrics.port are both 8443"),
        (
            "wva",
            {"kedaPush": {"enabled": True, "port": 8444}, "console": {"enabled": True}},
            "wva.kedaPush.port and wva.console.port are both 8444",
        ),
        ("wva.prometheus.tls", {"caConfigMap": "a", "caSecret": "b"}, "each give the CA of Prometheus"),
        (
            "wva",
            {"scaleNamespaces": ["prod"], "namespaceScoped": True},
            "wva.scaleNamespaces is set while wva.namespaceScoped is true",
        ),
        ("wva.serviceAccount.create", False, "set wva.serviceAccount.name to the ServiceAccount that exists"),
        ("wva.metrics.certificate.enabled", True, "set wva.metrics.certificate.issuerRef.name"),
        (
            "wva.metrics",
            {"certificate": {"enabled": True, "issuerRef": {"name": "a"}}, "secure": False},
            "wva.metrics.certificate.enabled needs wva.metrics.enabled=true and wva.metrics.secure=true",
        ),
        ("wva.imagePullSecrets", ["registry"], "at '/wva/imagePullSecrets/0': got string, want object"),
        ("wva.livenessProbe.periodSeconds", 0, "at '/wva/livenessProbe/periodSeconds': minimum: got 0, want 1"),
        ("llmd.targetKind", "DaemonSet", "value must be one of 'Deployment', 'StatefulSet', 'LeaderWorkerSet'"),
        ("llmd.targetKind", "StatefulSet", "llmd.targetKind is StatefulSet, which wva.targetKinds does not have"),
        ("hpa.minReplicas", 11, "hpa.minReplicas is 11, above hpa.maxReplicas 10"),
        (
            "va.serviceClass",
            "gold",
            "va.serviceClass is gold, which wva.serviceClasses does not have: freemium, p",
        ),
    ],
)
def test_what_is_wrong_is_said(path: str, value: Any, said: str):
    """The message has the key, its value and the expected form."""
    assert said in refusal(nested(path, value))


def test_no_pod_is_scraped_twice():
    """Two monitors of the same pods are refused, whether they are named or come with the cluster."""
    both = merged(nested("vllmPodMonitor.enabled", True), nested("vllmService.serviceMonitor.enabled", True))
    assert "would scrape the same pods twice" in refusal(both)
    by_itself = chart.attempt(nested("vllmPodMonitor.enabled", "auto"), apis=[chart.MONITORING])
    assert "would scrape the same pods twice" in by_itself.stderr


def test_contradictions_are_said_all_at_once():
    """One message names all contradictions, so that the user needs one attempt."""
    wrong = merged(nested("hpa.minReplicas", 11), nested("va.serviceClass", "gold"))
    message = refusal(wrong)
    assert "hpa.minReplicas" in message
    assert "va.serviceClass" in message


def test_a_variant_for_keda_must_say_which_controller_it_is_for():
    """The release of a variant does not know the controller, but KEDA must take the number from the controller only."""
    alone = merged(nested("controller.enabled", False), nested("actuator", "keda"))
    for given in ({}, nested("wva.metrics.job", "a"), nested("wva.metrics.namespace", "a")):
        message = refusal(merged(alone, given))
        assert "wva.metrics.namespace" in message
        assert "wva.metrics.job" in message
    chart.render(merged(alone, nested("wva.metrics", {"job": "a", "namespace": "b"})))


def test_set_takes_numbers_as_texts():
    """``--set`` makes a text of 0.7, and the ConfigMap must hold a number."""
    text = tools.output(
        "helm", "template", "wva", chart.CHART, "--set", "wva.capacityScaling.default.kvCacheThreshold=0.7"
    )
    items = [item for item in yaml.safe_load_all(text) if item]
    entry = chart.only(items, "ConfigMap", "saturation-scaling-config")["data"]["default"]
    assert yaml.safe_load(entry)["kvCacheThreshold"] == 0.7
