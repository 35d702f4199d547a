"""``python -m deploy.observability.generate``: write what follows from the sources in this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from deploy.observability.generate import decision, fleet, model, trust

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
spec:
"""


def files() -> dict[Path, str]:
    """Return the text of every file that is made, by its path."""
    made = {FOLDER / "prometheusrule.yaml": _HEAD + _rules()}
    made[CHART / "rules.yaml"] = _uncommented()
    for name, dashboard in DASHBOARDS.items():
        text = json.dumps(dashboard.document(), indent=1, ensure_ascii=False)
        for folder in (FOLDER, CHART):
            made[folder / "dashboards" / f"{name}.json"] = f"{text}\n"
    return made


def _rules() -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in _uncommented().splitlines())


def _uncommented() -> str:
    lines = RULES.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if not line.startswith("#"))


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
