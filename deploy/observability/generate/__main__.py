"""``python -m deploy.observability.generate``: write what follows from the sources in this folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from deploy.observability.generate import decision, fleet, model, trust
from deploy.observability.generate.queries import JOB, NAMESPACE

FOLDER: Final = Path(__file__).resolve().parents[1]
RULES: Final = FOLDER / "rules.yaml"
CHART: Final = FOLDER.parents[1] / "charts" / "workload-variant-autoscaler" / "files"
"""Helm reads no file outside of the chart."""
DASHBOARDS: Final = {
    "fleet": fleet.DASHBOARD,
    "model": model.DASHBOARD,
    "decision": decision.DASHBOARD,
    "trust": trust.DASHBOARD,
}
_HEAD: Final = """\
# Made of rules.yaml: python -m deploy.observability.generate
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: workload-variant-autoscaler
  labels:
    app.kubernetes.io/name: workload-variant-autoscaler
  annotations:
    wva.llmd.ai/metrics-job: workload-variant-autoscaler-metrics  # replacements.yaml puts it into the queries
spec:
"""
_REPLACEMENTS_HEAD: Final = """\
# Where kustomize puts the namespace and the job of the controller into the alerts and the dashboards.
# Made with them: python -m deploy.observability.generate
"""
_SOURCES: Final = {"metadata.namespace": NAMESPACE, r"metadata.annotations.wva\.llmd\.ai/metrics-job": JOB}
"""Fields of the PrometheusRule, and the texts in the files that they replace."""


def files() -> dict[Path, str]:
    """Return the text of every file that is made, by its path."""
    made = {FOLDER / "prometheusrule.yaml": _HEAD + _rules()}
    made[CHART / "rules.yaml"] = _uncommented()
    places = [
        _Place("kind: PrometheusRule", f"spec.groups.0.rules.{number}.expr", expression)
        for number, expression in enumerate(_expressions())
    ]
    for name, dashboard in DASHBOARDS.items():
        text = json.dumps(dashboard.document(), indent=1, ensure_ascii=False)
        for folder in (FOLDER, CHART):
            made[folder / "dashboards" / f"{name}.json"] = f"{text}\n"
        config_map = f"kind: ConfigMap, name: workload-variant-autoscaler-dashboard-{name}"
        places.append(_Place(config_map, rf"data.wva-{name}\.json", text))
    made[FOLDER / "replacements.yaml"] = _REPLACEMENTS_HEAD + _replacements(places)
    return made


def _rules() -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in _uncommented().splitlines())


def _uncommented() -> str:
    lines = RULES.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class _Place:
    """A field with PromQL: which object kustomize is to select, the path of the field there, and its text."""

    selected: str
    path: str
    text: str


def _expressions() -> list[str]:
    """Return the expressions of the alerts, in their order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def _replacements(places: Sequence[_Place]) -> str:
    """Return the replacements of kustomize: each replaces one text between two quotation marks."""
    lines = []
    for source, value in _SOURCES.items():
        lines += ["- source:", "    kind: PrometheusRule", f"    fieldPath: {source}", "  targets:"]
        for place in places:
            for index, part in enumerate(place.text.split('"')):
                if part == value:
                    lines += [
                        f"  - select: {{{place.selected}}}",
                        f"    fieldPaths: ['{place.path}']",
                        f"""    options: {{delimiter: '"', index: {index}}}""",
                    ]
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
