"""The guides have valid examples, and describe defaults and mistakes as the code treats them."""

from __future__ import annotations

import re

import yaml

from tests.docs.rendering import DOCS
from wva.api.meta import Key
from wva.cli import main
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.model.policy import SaturationPolicy

SATURATION = (DOCS / "saturation-scaling-config.md").read_text(encoding="utf-8")
HPA = (DOCS / "hpa-integration.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "crd-reference.md").read_text(encoding="utf-8")
NAME = "wva-saturation-scaling-config"
FIELDS = {
    "kvCacheThreshold": "kv_cache_threshold",
    "queueLengthThreshold": "queue_length_threshold",
    "kvSpareTrigger": "kv_spare_trigger",
    "queueSpareTrigger": "queue_spare_trigger",
}


def applied(data):
    """Return the outcome of a saturation ConfigMap with these entries."""
    settings = load(Inputs({}, {"PROMETHEUS_BASE_URL": "https://p"}, {})).settings
    return LiveConfiguration(settings).apply(Key(settings.pod_namespace, NAME), data)


def entries():
    """Return the entries of every ConfigMap in the commands of the guide to thresholds."""
    found = re.findall(r"^data:\n((?:  .*\n)+)", SATURATION, re.MULTILINE)
    return [yaml.safe_load(text) for text in found]


def test_the_entries_of_the_guide_to_thresholds_are_valid():
    """The entries for all models, for one model and for one namespace are valid."""
    found = entries()
    assert [sorted(data) for data in found] == [["default"], ["chat"], ["default"]]
    for data in found:
        assert applied(data).problems == ()


def test_the_defaults_of_the_guide_to_thresholds_are_those_in_force():
    """The guide has the default of each field."""
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", SATURATION, re.MULTILINE))
    assert {FIELDS[name]: float(value) for name, value in rows.items()} == {
        name: getattr(SaturationPolicy(), name) for name in FIELDS.values()
    }


def test_the_mistakes_of_the_guide_to_thresholds_are_answered_as_it_says():
    """WVA rejects each wrong entry with the words that the guide shows next to it."""
    rows = re.findall(r"^\| `(\w+: [^`]+)` \| `([^`]+)` \|", SATURATION, re.MULTILINE)
    assert len(rows) == 4
    for entry, words in rows:
        (problem,) = applied({"default": entry}).problems
        assert words in str(problem)


def test_a_misspelled_field_is_a_warning():
    """A misspelled field is not an error."""
    outcome = applied({"default": "kvSpareTriger: 0.2"})
    assert outcome.problems == ()


def test_the_hpa_of_the_guide_fits_the_variant_of_the_reference(tmp_path, capsys):
    """``wva migrate`` finds nothing to change in the two objects."""
    for name, page in (("hpa.yaml", HPA), ("va.yaml", REFERENCE)):
        (example,) = re.findall(r"```yaml\n(apiVersion.*?)```", page, re.DOTALL)
        (tmp_path / name).write_text(example, encoding="utf-8")
    assert main(["migrate", str(tmp_path)]) == 0
    assert "0 must, 0 should" in capsys.readouterr().out
