"""The alerts: promtool accepts the rules, and each fires when it should and ends when it should."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.observability.generate.__main__ import files
from e2e import tools
from e2e.dashboards import FOLDER

RULES = FOLDER / "rules.yaml"
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS = [rule["alert"] for group in GROUPS for rule in group["rules"]]
FILES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
TESTS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["tests"] for path in FILES}
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
    """Syntax, functions, templates; what it warns of counts too."""
    tools.output("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_alerts_fire_and_end_as_they_should(path):
    """Each file is a story that promtool plays on the rules."""
    tools.output("promtool", "test", "rules", path)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_seen_silent_then_firing_then_silent_again(alert):
    """Within one story, so that it fires for what happens in it and ends with that."""
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
    """It is made of them, and current."""
    path = FOLDER / "prometheusrule.yaml"
    assert path.read_text(encoding="utf-8") == files()[path], "run python -m deploy.observability.generate"
    made = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert made["spec"] == {"groups": GROUPS}
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
