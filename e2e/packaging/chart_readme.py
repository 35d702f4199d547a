"""The tables in the chart's README: ``python -m e2e.packaging.chart_readme`` writes them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from e2e.packaging.chart import CHART
from e2e.packaging.chart_values import values

README = CHART / "README.md"
_WINDOWS: Final = "WVA has already waited until a change is justified; values.yaml has the figures"
DEVIATIONS = {
    "hpa.behavior.scaleDown.stabilizationWindowSeconds": _WINDOWS,
    "hpa.behavior.scaleUp.stabilizationWindowSeconds": _WINDOWS,
    "wva.image.repository": "It is another program. You build the image from the `Containerfile` of this repository",
    "wva.image.tag": "Empty is the appVersion of the chart, so chart and program have the same version",
    "wva.imagePullPolicy": "An image that you loaded onto the nodes is in no registry",
    "wva.prometheus.tls.caCertPath": "Without a CA there is no such file, and the process would not start",
    "wva.prometheus.tls.insecureSkipVerify": "Without the check an attacker could pose as Prometheus and set replicas",
    "wva.reconcileInterval": "A change of the load is seen earlier; values.yaml has the figures",
}
"""Defaults that are not those of the chart of version 0.5, and why."""
FORMER: dict[str, Any] = {
    "hpa.behavior.scaleDown.policies": [{"periodSeconds": 150, "type": "Pods", "value": 10}],
    "hpa.behavior.scaleDown.selectPolicy": "Max",
    "hpa.behavior.scaleDown.stabilizationWindowSeconds": 240,
    "hpa.behavior.scaleUp.policies": [{"periodSeconds": 150, "type": "Pods", "value": 10}],
    "hpa.behavior.scaleUp.selectPolicy": "Max",
    "hpa.behavior.scaleUp.stabilizationWindowSeconds": 240,
    "hpa.enabled": True,
    "hpa.maxReplicas": 10,
    "hpa.targetAverageValue": "1",
    "llmd.modelID": "unsloth/Meta-Llama-3.1-8B",
    "llmd.modelName": "ms-inference-scheduling-llm-d-modelservice",
    "llmd.namespace": "llm-d-autoscaler",
    "va.accelerator": "H100",
    "va.enabled": True,
    "va.sloTpot": 10,
    "va.sloTtft": 1000,
    "vllmService.enabled": True,
    "vllmService.interval": "15s",
    "vllmService.nodePort": 30000,
    "vllmService.scheme": "http",
    "wva.capacityScaling.default.kvCacheThreshold": 0.80,
    "wva.capacityScaling.default.queueLengthThreshold": 5,
    "wva.capacityScaling.default.kvSpareTrigger": 0.1,
    "wva.capacityScaling.default.queueSpareTrigger": 3,
    "wva.capacityScaling.overrides": {},
    "wva.configMap.immutable": False,
    "wva.controllerInstance": "",
    "wva.enabled": True,
    "wva.image.repository": None,
    "wva.image.tag": "latest",
    "wva.imagePullPolicy": "Always",
    "wva.metrics.enabled": True,
    "wva.metrics.port": 8443,
    "wva.metrics.secure": True,
    "wva.prometheus.baseURL": "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091",
    "wva.prometheus.monitoringNamespace": "openshift-user-workload-monitoring",
    "wva.prometheus.tls.caCertPath": "/etc/ssl/certs/prometheus-ca.crt",
    "wva.prometheus.tls.insecureSkipVerify": True,
    "wva.reconcileInterval": "60s",
    "wva.scaleToZero": False,
}
"""The documented defaults of the chart of version 0.5; None stands for what IN_WORDS describes."""
IN_WORDS: Final = {"wva.image.repository": "the image of the Go controller"}


def values_table() -> str:
    """Return one row per value."""
    rows = [
        (value.path, _type(value.default), f"`{json.dumps(value.default)}`", value.description)
        for value in sorted(values(), key=lambda value: value.path)
    ]
    return _table(("Key", "Type", "Default", "Description"), rows)


def deviations_table() -> str:
    """Return one row per default that differs."""
    now = {value.path: value.default for value in values()}
    rows = [
        (f"`{path}`", IN_WORDS.get(path) or f"`{json.dumps(FORMER[path])}`", f"`{json.dumps(now[path])}`", why)
        for path, why in sorted(DEVIATIONS.items())
    ]
    return _table(("Default of", "Was", "Is", "Why"), rows)


def rendered(text: str) -> str:
    """Return the README with its tables as the chart has them."""
    for name, table in (("deviations", deviations_table()), ("values", values_table())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        assert pattern.search(text), f"the README has no place for the table {name}"
        text = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


def _type(default: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
    return names[type(default)]


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def main() -> None:
    """Rewrite the tables."""
    README.write_text(rendered(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
