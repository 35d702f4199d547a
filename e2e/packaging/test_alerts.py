"""The alerts: promtool accepts the rules, and each fires when it should and ends when it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from deploy.observability.generate.__main__ import files
from deploy.observability.generate.queries import JOB, NAMESPACE
from e2e import tools
from e2e.dashboards import FOLDER

RULES = FOLDER / "rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS = [rule["alert"] for group in GROUPS for rule in group["rules"]]
FILES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
TESTS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["tests"] for path in FILES}
OWN_NAMESPACE = f' namespace="{NAMESPACE}"'
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text):
    """Return a time such as 4m30s in seconds."""
    total, digits = 0, ""
    for character in text:
        if character.isdigit():
            digits += character
        else:
            total, digits = total + int(digits) * _UNITS[character], ""
    return total


def test_promtool_accepts_the_rules():
    """Promtool finds no error and no warning in syntax, functions and templates."""
    tools.output("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_alerts_fire_and_end_as_they_should(path):
    """Promtool plays each file as a story on the rules."""
    tools.output("promtool", "test", "rules", path)


@pytest.mark.parametrize("value", [0, 1, 1_000_000])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_forged_series_changes_no_story(path, value, tmp_path):
    """A page of another namespace has every series as well, with all labels that a page can set: alerts stay the same.

    Its job may have the same name, since a tenant may give a Service any name. The namespace is that of its target.
    """
    text = re.sub(r"values: ([^}\n]*)", r"values: '\1'", path.read_text(encoding="utf-8"))  # for YAML 0x60 is a number
    story = yaml.safe_load(text)
    story["rule_files"] = [str(RULES)]
    leads = f'wva_leader{{job="{JOB}", namespace="tenant", pod="page"}}'
    for test in story["tests"]:
        own = [entry["series"] for entry in test["input_series"] if OWN_NAMESPACE in entry["series"]]
        twins = [series.replace(OWN_NAMESPACE, ' namespace="tenant"') for series in own]
        test["input_series"] += [{"series": series, "values": f"{value}x300"} for series in (*twins, leads)]
    (tmp_path / "story.yaml").write_text(yaml.safe_dump(story), encoding="utf-8")
    tools.output("promtool", "test", "rules", tmp_path / "story.yaml")


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_seen_silent_then_firing_then_silent_again(alert):
    """Each alert is silent, firing and silent again within one story, so that it fires because of the story alone."""
    stories = [
        [
            (seconds(check["eval_time"]), bool(check["exp_alerts"]))
            for check in test.get("alert_rule_test", ())
            if check["alertname"] == alert
        ]
        for tests in TESTS.values()
        for test in tests
    ]
    assert [False, True, False] in [[fires for _, fires in sorted(story)] for story in stories]


def test_the_object_of_the_operator_has_the_same_rules():
    """The file with the operator's object is made of the rules, and is current."""
    path = FOLDER / "prometheusrule.yaml"
    assert path.read_text(encoding="utf-8") == files()[path], "run python -m deploy.observability.generate"
    made = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert made["spec"] == {"groups": GROUPS}
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
