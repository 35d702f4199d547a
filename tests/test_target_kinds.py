"""All places that name the kinds of scale targets: a further kind is in each of them, or a test here fails.

``wva.targets.KINDS`` is the list. ``wva.config.declare.TARGET_KINDS`` repeats its names, because settings are read
before anything of Kubernetes; everything else in the program is derived from one of the two.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from wva.config.declare import TARGET_KINDS
from wva.doctor.variants import ExaminedVariant, condition_links
from wva.targets import DEFAULT, KINDS

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "workload-variant-autoscaler"
ADDED = [kind for kind in KINDS if kind is not DEFAULT]


def test_the_setting_names_the_kinds_beside_the_default():
    """In the same order, so that messages and tables agree."""
    assert tuple(kind.resource.kind for kind in ADDED) == TARGET_KINDS


def test_the_chart_accepts_the_kinds_and_no_others():
    """``wva.targetKinds`` has those that are switched on, ``llmd.targetKind`` the kind of the chart's variant."""
    properties = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    assert tuple(properties["wva"]["properties"]["targetKinds"]["items"]["enum"]) == TARGET_KINDS
    assert tuple(properties["llmd"]["properties"]["targetKind"]["enum"]) == (DEFAULT.resource.kind, *TARGET_KINDS)


@pytest.mark.parametrize("kind", ADDED, ids=lambda kind: kind.resource.kind)
def test_each_kind_has_its_rights_its_component_and_its_lines_on_the_pages(kind):
    """The chart's helpers and the kustomize component grant what the kind needs; docs/targets.md has its row."""
    plural, group, name = kind.resource.plural, kind.resource.group, kind.resource.kind
    helpers = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    assert f'has "{name}" .Values.wva.targetKinds' in helpers
    assert f"{plural}/scale" in helpers
    folder = ROOT / "deploy" / "components" / ("-".join(re.findall("[A-Z][a-z]+", name)).lower() + "-targets")
    component = (folder / "kustomization.yaml").read_text(encoding="utf-8")
    assert group in component
    assert plural in component
    assert f"| `{name}` | `{kind.resource.api_version}`" in (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [*TARGET_KINDS, "Rollout"])
def test_doctor_advises_a_setting_only_for_a_kind_that_it_can_name(kind):
    """For a kind that WVA cannot scale, it names those that it can."""
    refused = {"type": "Ready", "status": "False", "reason": "TargetUnsupported", "message": "not scaled"}
    item = {
        "metadata": {"namespace": "models", "name": "chat"},
        "spec": {"scaleTargetRef": {"kind": kind, "name": "chat"}},
        "status": {"conditions": [refused]},
    }
    (said,) = [each.finding.change for each in condition_links(ExaminedVariant(item))]
    if kind in TARGET_KINDS:
        assert f"WVA_TARGET_KINDS={kind}" in said
    else:
        assert said == "name a Deployment or StatefulSet or LeaderWorkerSet in spec.scaleTargetRef"
