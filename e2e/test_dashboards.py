"""The dashboards on the demo's data: a real Prometheus answers every query of every panel.

The data are those of the scenario ``bad-day``, in which GPUs run out, an entry of the configuration is wrong, a pod
reports rubbish and Prometheus is away. No control plane is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from e2e.dashboards import (
    FOLDER,
    NAMES,
    SampledPrometheus,
    SampleSpan,
    dashboard,
    defaults,
    filled_prometheus,
    queries,
    span_of,
    variables,
)

pytestmark = pytest.mark.timeout(600)

ALL = ".*"
MODEL = "meta/llama-3.1-70b"
GAUGE = re.compile(r"wva_(?!\w+_(bucket|sum|count|total)\{)")
TENANT = 'namespace="tenant"'
TARGET = defaults(dashboard("fleet"))
EVERYTHING = {
    "namespace": ALL,
    "model": MODEL,
    "variant": ALL,
    **TARGET,
}
ONE = {
    "namespace": "llm",
    "model": MODEL,
    "variant": "llama-h100",
    **TARGET,
}
CHOICES = (EVERYTHING, ONE)


@dataclass(frozen=True)
class Demo:
    """A Prometheus filled by the demo."""

    history: SampledPrometheus
    span: SampleSpan


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demo as a user would, and fill a real Prometheus with its samples."""
    folder = tmp_path_factory.mktemp("dashboards")
    samples = folder / "demo.om"
    words = ["demo", "--headless", "--scenario", "bad-day", "--openmetrics", str(samples)]
    subprocess.run([sys.executable, "-m", "wva", *words], check=True, timeout=500, stdout=subprocess.DEVNULL)
    _forge(samples)
    with filled_prometheus(samples, folder) as history:
        yield Demo(history, span_of(samples))


def _forge(samples: Path) -> None:
    """Add a page of a tenant: every gauge of the controller once more, with another value, from another namespace."""
    own = f'namespace="{TARGET["controller_namespace"]}"'
    lines = []
    for line in samples.read_text(encoding="utf-8").splitlines(keepends=True):
        lines.append(line)
        if GAUGE.match(line):
            labels, _, seconds = line.rpartition("} ")[0], *line.split()[-2:]
            assert f",{own}" in labels or f"{{{own}" in labels
            lines.append(f"{labels.replace(own, TENANT)}}} 1000 {seconds}\n")
    samples.write_text("".join(lines), encoding="utf-8")


@pytest.mark.smoke
def test_no_query_is_without_an_answer(demo):
    """Every query of every panel parses and has a result, with all values chosen and with one of each variable."""
    asked = [(name, query, choices) for name in NAMES for query in queries(dashboard(name)) for choices in CHOICES]
    assert len(asked) > 100
    empty = [entry for entry in asked if not demo.history.answers(entry[1], entry[2], demo.span)]
    assert empty == []


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_is_offered(demo, name):
    """Each variable has values, and the one that was chosen above is among them."""
    for variable, (selector, label, _) in variables(dashboard(name)).items():
        matchers = filled_with_all(selector)
        assert ONE[variable] in demo.history.values(label, matchers, demo.span)


def expression_of(name, panel, position=0):
    """Return one query of a panel."""
    (found,) = [query for query in queries(dashboard(name)) if query.panel == panel][position : position + 1]
    return found.expression


@pytest.mark.parametrize(
    ("name", "panel", "most"),
    [
        ("fleet", "Held", {2}),
        ("fleet", "Limited", {1, 2}),
        ("trust", "Rejected entries", {1}),
        ("trust", "Leaders", {1}),
    ],
)
def test_the_numbers_are_those_of_the_day(demo, name, panel, most):
    """Panels that show 0 on a quiet day show the troubles of the scenario ``bad-day``."""
    (values,) = demo.history.over_time(filled_with_all(expression_of(name, panel)), demo.span)
    assert max(values) in most


def filled_with_all(expression):
    """Return an expression with everything chosen."""
    for variable, choice in EVERYTHING.items():
        expression = expression.replace(f"${variable}", choice)
    return expression


def test_who_limits_is_named(demo):
    """The panel that asks what limits a number shows the GPU limiter with its accelerator."""
    expression = filled_with_all(expression_of("decision", "Who keeps it from being larger"))
    limited = demo.history.over_time(f'({expression}) and on (limited_by) {{limited_by="gpu-limiter H100"}}', demo.span)
    assert max(max(values) for values in limited) >= 1


@pytest.mark.parametrize(
    ("alert", "met"),
    [
        ("WVALeaderAbsent", False),
        ("WVALoopStalled", False),
        ("WVADataHeldTooLong", True),
        ("WVAGpuBudgetBinding", True),
        ("WVAConfigurationRejected", True),
    ],
)
def test_the_conditions_of_the_alerts_are_met_by_real_series(demo, alert, met):
    """The rules have the controller's names and labels. ``e2e/packaging`` tests when alerts fire."""
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    (expression,) = [rule["expr"] for rule in rules if rule["alert"] == alert]
    assert bool(demo.history.over_time(expression, demo.span)) is met
