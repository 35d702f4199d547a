"""The chart as its users render it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e import tools

CHART = Path(__file__).parents[2] / "charts" / "workload-variant-autoscaler"
DEVELOPMENT = CHART / "values-dev.yaml"
CONTROLLER = CHART / "values-controller.yaml"
LLM_D = CHART / "values-llm-d.yaml"
RELEASE = "wva"
NAMESPACE = "wva-system"
MONITORING = "monitoring.coreos.com/v1"
OPENSHIFT = "config.openshift.io/v1"
Values = Mapping[str, Any]
Body = dict[str, Any]


def fullname(release: str = RELEASE) -> str:
    """Return the name that the objects of a release begin with."""
    return release if CHART.name in release else f"{release}-{CHART.name}"


def defaults() -> Body:
    """Return the chart's own values."""
    return _document(CHART / "values.yaml")


def metadata() -> Body:
    """Return Chart.yaml."""
    return _document(CHART / "Chart.yaml")


def attempt(
    values: Values | None = None, *files: Path, apis: Sequence[str] = (), release: str = RELEASE
) -> subprocess.CompletedProcess[str]:
    """Render the chart and return the result, also after an error.

    ``apis`` are the APIs that the cluster serves beside its own.
    """
    flags = [part for file in files for part in ("--values", str(file))]
    flags += [part for api in apis for part in ("--api-versions", api)]
    return tools.run(
        "helm", "template", release, CHART, "--namespace", NAMESPACE, *flags, "--values", "-",
        stdin=json.dumps(dict(values or {})),
    )  # fmt: skip


def render(values: Values | None = None, *files: Path, apis: Sequence[str] = (), release: str = RELEASE) -> list[Body]:
    """Return the objects of the chart with values on top of its own."""
    return parsed(text(values, *files, apis=apis, release=release))


def text(values: Values | None = None, *files: Path, apis: Sequence[str] = (), release: str = RELEASE) -> str:
    """Return what Helm makes of the chart with values on top of its own, which must be acceptable."""
    done = attempt(values, *files, apis=apis, release=release)
    assert done.returncode == 0, done.stderr
    return done.stdout


def notes(values: Values, folder: Path, *, apis: Sequence[str] = ()) -> str:
    """Return the notes that Helm prints after an installation with these values.

    Without a cluster Helm renders no notes; so ``folder`` gets a copy of the chart whose notes are a manifest.
    """
    copy = folder / "chart"
    shutil.copytree(CHART, copy)
    text = (copy / "templates" / "NOTES.txt").rename(copy / "notes").read_text(encoding="utf-8")
    manifest = '{{- define "notes" }}' + text + '{{- end }}\nnotes: {{ include "notes" . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(manifest, encoding="utf-8")
    flags = [part for api in apis for part in ("--api-versions", api)]
    rendered = tools.output(
        "helm", "template", RELEASE, copy, "--namespace", NAMESPACE, *flags,
        "--show-only", "templates/notes.yaml", "--values", "-", stdin=json.dumps(dict(values)),
    )  # fmt: skip
    (item,) = parsed(rendered)
    said: str = item["notes"]
    return said


def parsed(manifests: str) -> list[Body]:
    """Return the objects of a text of many documents."""
    return [item for item in yaml.load_all(manifests, Loader=yaml.CSafeLoader) if item]


def refusal(values: Values) -> str:
    """Return the message with which values are refused."""
    done = attempt(values)
    assert done.returncode != 0, "rendered"
    return done.stderr


def nested(path: str, value: Any) -> Body:
    """Return values that set one key, given as ``a.b.c``."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def only(items: Sequence[Body], kind: str, suffix: str = "") -> Body:
    """Return the one object of a kind whose name ends so."""
    (found,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"].endswith(suffix)]
    return found


def _document(path: Path) -> Body:
    content: Body = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content
