"""The page about ConfigMaps has the names, fields and defaults of the code, and valid examples."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.rendering import DOCS
from wva.api.core import CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION
from wva.api.meta import Key
from wva.collect.retention import WINDOWS
from wva.config import Inputs, load
from wva.config.keys import (
    ClassFields,
    CostFields,
    ProfileFields,
    QueueingFields,
    SaturationFields,
    ScaleToZeroFields,
    TargetFields,
)
from wva.config.kinds import local_names
from wva.config.live import LiveConfiguration
from wva.godurations import format_promql_duration

PAGE = (DOCS / "config-maps.md").read_text()
ROLE = (DOCS.parent / "deploy" / "rbac" / "cluster_role.yaml").read_text()
SECTIONS = {
    "The saturation ConfigMap": ("wva-saturation-scaling-config", SaturationFields.names()),
    "The scale-to-zero ConfigMap": ("wva-model-scale-to-zero-config", ScaleToZeroFields.names()),
    "The queueing ConfigMap": ("wva-queueing-model-config", QueueingFields.names()),
    "Service classes": ("service-classes-config", ClassFields.names() | TargetFields.names() | {"data"}),
    "Accelerator costs": ("accelerator-unit-costs", CostFields.names()),
    "Known performance": ("wva-model-performance-config", ProfileFields.names()),
}


def section(title):
    """Return the text of one section."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


def rows(text):
    """Return the cells of the rows of a table."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def words(cell):
    """Return the code words in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_is_described_and_exists(title):
    """The first column of each section's table has exactly the fields of the code."""
    described = [word for row in rows(section(title)) for word in words(row[0])]
    assert sorted(described) == sorted(SECTIONS[title][1])


@pytest.mark.parametrize("title", SECTIONS)
def test_the_examples_are_accepted_without_a_word(title):
    """The controller accepts the examples without error or warning, and they change the policy."""
    given = Inputs({}, {"PROMETHEUS_BASE_URL": "https://p"}, {})
    settings = load(given).settings
    examples = re.findall(r"```yaml\n(.*?)```", section(title), re.DOTALL)
    assert examples
    for example in examples:
        live = LiveConfiguration(settings)
        before = live.policy
        data = yaml.safe_load(example)["data"]
        outcome = live.apply(Key(settings.pod_namespace, SECTIONS[title][0]), data)
        assert (outcome.problems, outcome.ignored) == ((), "")
        assert live.warnings() == []
        assert live.policy != before


def test_the_label_and_the_annotation_are_named_as_they_are():
    """The page has the label and the annotation of the code, so a copied one takes effect."""
    assert f'`{CONFIG_ENABLED_LABEL}: "true"`' in PAGE
    assert f'`{EXCLUDE_ANNOTATION}: "true"`' in PAGE


def test_the_cluster_role_names_every_config_map_of_namespaces():
    """The ClusterRole has the default names. An operator who chooses other names must add them."""
    (rule,) = [
        rule
        for document in yaml.safe_load_all(ROLE)
        for rule in document["rules"]
        if "configmaps" in rule["resources"] and document["kind"] == "ClusterRole"
    ]
    settings = load(Inputs({}, {"PROMETHEUS_BASE_URL": "https://p"}, {})).settings
    assert rule["resourceNames"] == list(local_names(settings))
    assert rule["verbs"] == ["list", "watch"]


def test_the_windows_of_retention_periods_are_those_of_the_code():
    """The page lists all windows, and the page about Prometheus has the right number of them."""
    listed = re.search(r"<!-- windows -->(.*?)<!-- /windows -->", PAGE)[1]
    assert listed == ", ".join(format_promql_duration(window.seconds) for window in WINDOWS)
    assert f"window in use ([{len(WINDOWS)} exist]" in (DOCS / "prometheus-integration.md").read_text()
