"""The table of old and new names has every default that differs, with ours, and names nothing that is not there."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.rendering import DOCS
from wva.api.crd import definition
from wva.config import Settings
from wva.config.declare import declarations, shown

ROOT = DOCS.parent
CHART = ROOT / "charts" / "workload-variant-autoscaler"
PAGE = (DOCS / "migrate-from-go.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

CHART_BEFORE = {
    "hpa.behavior.scaleDown.policies": [{"periodSeconds": 150, "type": "Pods", "value": 10}],
    "hpa.behavior.scaleDown.selectPolicy": "Max",
    "hpa.behavior.scaleDown.stabilizationWindowSeconds": 240,
    "hpa.behavior.scaleUp.policies": [{"periodSeconds": 150, "type": "Pods", "value": 10}],
    "hpa.behavior.scaleUp.selectPolicy": "Max",
    "hpa.behavior.scaleUp.stabilizationWindowSeconds": 240,
    "hpa.enabled": True,
    "hpa.maxReplicas": 10,
    "hpa.minReplicas": 1,
    "hpa.targetAverageValue": "1",
    "llmd.modelID": "unsloth/Meta-Llama-3.1-8B",
    "llmd.modelName": "ms-inference-scheduling-llm-d-modelservice",
    "llmd.namespace": "llm-d-autoscaler",
    "va.accelerator": "H100",
    "va.enabled": True,
    "va.sloTpot": 10,
    "va.sloTtft": 1000,
    "va.variantCost": "10.0",
    "vllmService.enabled": True,
    "vllmService.interval": "15s",
    "vllmService.nodePort": 30000,
    "vllmService.scheme": "http",
    "controller.enabled": True,
    "wva.capacityScaling.default.enableLimiter": False,
    "wva.capacityScaling.default.kvCacheThreshold": 0.80,
    "wva.capacityScaling.default.kvSpareTrigger": 0.1,
    "wva.capacityScaling.default.queueLengthThreshold": 5,
    "wva.capacityScaling.default.queueSpareTrigger": 3,
    "wva.configMap.immutable": False,
    "wva.controllerInstance": "",
    "wva.enabled": True,
    "wva.image.repository": "ghcr.io/llm-d/llm-d-workload-variant-autoscaler",
    "wva.image.tag": "latest",
    "wva.imagePullPolicy": "Always",
    "wva.limitedMode": False,
    "wva.logging.level": "info",
    "wva.metrics.enabled": True,
    "wva.metrics.port": 8443,
    "wva.metrics.secure": True,
    "wva.namespaceScoped": True,
    "wva.nodeSelector": "",
    "wva.prometheus.baseURL": "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091",
    "wva.prometheus.monitoringNamespace": "openshift-user-workload-monitoring",
    "wva.prometheus.serviceAccountName": "kube-prometheus-stack-prometheus",
    "wva.prometheus.tls.caCertPath": "/etc/ssl/certs/prometheus-ca.crt",
    "wva.prometheus.tls.insecureSkipVerify": True,
    "wva.reconcileInterval": "60s",
    "wva.scaleToZero": False,
}
"""The values of the chart of v0.4.1, and those that v0.5.1 added."""

SETTINGS_BEFORE = {
    "METRICS_BIND_ADDRESS": "0",
    "HEALTH_PROBE_BIND_ADDRESS": ":8081",
    "LEADER_ELECT": "false",
    "LEADER_ELECTION_ID": "72dd1cf1.llm-d.ai",
    "LEADER_ELECTION_LEASE_DURATION": "60s",
    "LEADER_ELECTION_RENEW_DEADLINE": "50s",
    "LEADER_ELECTION_RETRY_PERIOD": "10s",
    "REST_CLIENT_TIMEOUT": "60s",
    "METRICS_SECURE": "true",
    "ENABLE_HTTP2": "false",
    "WATCH_NAMESPACE": "",
    "METRICS_CERT_PATH": "",
    "METRICS_CERT_NAME": "tls.crt",
    "METRICS_CERT_KEY": "tls.key",
    "V": "2",
    "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "false",
    "PROMETHEUS_METRICS_CACHE_ENABLED": "true",
    "PROMETHEUS_METRICS_CACHE_TTL": "30s",
    "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL": "60s",
    "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL": "30s",
    "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "60s",
    "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD": "120s",
    "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD": "300s",
    "PROMETHEUS_METRICS_CACHE_MAX_SIZE": "0",
    "GLOBAL_OPT_INTERVAL": "60s",
    "WVA_SCALE_TO_ZERO": "false",
    "WVA_LIMITED_MODE": "false",
    "WVA_NODE_SELECTOR": "",
    "SCALE_FROM_ZERO_ENGINE_MAX_CONCURRENCY": "10",
    "EXPERIMENTAL_PROACTIVE_MODEL": "false",
    "CONTROLLER_INSTANCE": "",
    "POOL_GROUP": "inference.networking.x-k8s.io",
    "POD_NAMESPACE": "workload-variant-autoscaler-system",
    "CONFIG_MAP_NAME": "wva-variantautoscaling-config",
    "SATURATION_CONFIG_MAP_NAME": "wva-saturation-scaling-config",
    "QUEUEING_MODEL_CONFIG_MAP_NAME": "wva-queueing-model-config",
}
"""The defaults of v0.5.1, in our spelling of durations."""


def table():
    """Return the rows: what, there, here, what to do."""
    text = re.search(r"<!-- old-new -->\n(.*?)<!-- /old-new -->", PAGE, re.DOTALL)[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]


ROWS = table()


def value(path):
    """Return a value of the chart by its path."""
    found = VALUES
    for part in path.split("."):
        found = found[part]
    return found


def text(found):
    """Return a value as the table writes it; empty for a value that is not set."""
    return str(found).lower() if isinstance(found, bool) else str(found)


def rows(what):
    """Return what was and what is, by name, of the rows about one kind of thing."""
    return {row[0].split("`")[1]: row for row in ROWS if row[0].startswith(what) and row[0].count("`") == 2}


def test_every_row_says_what_was_what_is_and_what_to_do():
    """No cell is empty, and no row is there twice."""
    assert len(ROWS) > 60
    assert all(len(row) == 4 and all(row) for row in ROWS)
    assert len({(row[0], row[1]) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("path", sorted(CHART_BEFORE))
def test_a_value_of_the_chart_is_listed_if_its_default_differs(path):
    """The row has both defaults, so it is wrong as soon as ours changes."""
    row, before, now = rows("chart value").get(path), CHART_BEFORE[path], value(path)
    if before != now:
        assert row is not None, f"{path} is {now!r} and was {before!r}"
        assert f"`{text(before)}`" in row[1]
        assert row[2].startswith(f"`{text(now)}`" if text(now) else "empty")
    elif row is not None:  # two former versions differ, and ours is the older one
        assert row[2].startswith(f"`{text(now)}`")


def test_a_setting_is_listed_if_its_default_differs():
    """The row has both defaults."""
    defaults = {
        each.key: shown(getattr(Settings.model_construct(), name))
        for name, each in declarations(Settings).items()
        if each.key in SETTINGS_BEFORE
    }
    assert defaults.keys() == SETTINGS_BEFORE.keys()
    differing = {key for key, before in SETTINGS_BEFORE.items() if before != defaults[key]}
    listed = {name: row for name, row in rows("variable").items() if name in SETTINGS_BEFORE}
    assert differing == listed.keys()
    for key, row in listed.items():
        assert row[1] == f"`{SETTINGS_BEFORE[key]}`"
        assert row[2].startswith(f"`{defaults[key]}`" if defaults[key] else "empty")


def test_the_columns_are_there():
    """Every column that the table names here is one of the definition."""
    (version,) = definition()["spec"]["versions"]
    names = {column["name"].upper() for column in version["additionalPrinterColumns"]}
    listed = [row for row in ROWS if row[0].startswith("column")]
    for row in listed:
        assert set(re.findall(r"`([A-Z]+)`", row[1] + row[2])) <= names


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] == "path"], ids=lambda row: row[1])
def test_a_path_here_exists_and_the_one_there_does_not(row):
    """A page or a manifest that is moved makes the row wrong."""
    for path in re.findall(r"`((?:deploy|docs)/[^`]*)`", row[2]):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`([^`]*/[^`]*)`", row[1]):
        assert not (ROOT / path).exists(), path


@pytest.mark.parametrize("page", ["install.md", "install-script.md"])
def test_the_window_of_the_hpa_in_the_pages_is_that_of_the_chart(page):
    """Both pages say after how many seconds the HPA of the chart follows a smaller number."""
    window = VALUES["hpa"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
    found = re.search(r"smaller one after (\d+) s|0 for more replicas and (\d+) for fewer", (DOCS / page).read_text())
    assert int(found[1] or found[2]) == window
