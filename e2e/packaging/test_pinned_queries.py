"""Every query that is shipped takes the controller's series only, by labels of its target that no page can set.

The tests look at the chart with many values, every overlay and sample, the adapter's rules and the pages of docs. A
text in any other place that names one of our series is a failure, so that a new query cannot be forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from deploy.observability.generate.queries import JOB, NAMESPACE
from e2e.controlplane.api import Body
from e2e.external_metrics import read_rules
from e2e.kustomize import DEPLOY
from e2e.packaging import chart, everything
from e2e.packaging.chart import nested
from e2e.packaging.chart_matrix import merged
from wva.collect.queries import TargetLabels
from wva.hindsight.report.history import growth, served
from wva.hindsight.shadow import COST
from wva.model.variant import VariantKey
from wva.scale_from_zero.starts import published_query

ROOT = DEPLOY.parent
OURS = re.compile(r"\b(?:wva|inferno)_[a-z_]+[a-z]\b")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")])
PIN = {"job", "namespace"}
QUERY = re.compile(r"exported_namespace|variant_name|[\[(]")
"""Finds a query within a line. Other texts only name a series: ``wva_cycles_total{result="error"}``."""

OWN = TargetLabels("wva", "metrics")
Found = tuple[str, str]  # what kind of place it is, and the expression


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Return the selectors of our series in an expression."""
    return [node for node in _nodes(promql_parser.parse(expression)) if OURS.fullmatch(node.name or "")]


def _nodes(node: Any) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        child = getattr(node, name, None)
        if child is not None:
            yield from _nodes(child)
    for child in getattr(node, "args", ()):
        yield from _nodes(child)


def loose(expression: str, wanted: set[str] = PIN) -> list[str]:
    """Return the series of ours that an expression takes from more targets than one."""
    return [
        selector.name
        for selector in selectors(expression)
        if wanted
        - {
            matcher.name
            for matcher in selector.matchers.matchers
            if str(matcher.op) in {"MatchOp.Equal", "MatchOp.Re"} and ".*" not in matcher.value and matcher.value
        }
    ]


def expressions(item: Body) -> Iterator[Found]:
    """Yield every PromQL expression of an object, with the variables of dashboards at their defaults."""
    match item["kind"]:
        case "PrometheusRule":
            for group in item["spec"]["groups"]:
                for rule in group["rules"]:
                    yield "rule", rule["expr"]
        case "ScaledObject":
            for trigger in item["spec"]["triggers"]:
                if trigger["type"] == "prometheus":
                    yield "trigger", trigger["metadata"]["query"]
        case "ConfigMap" if is_dashboard(item):
            for text in item["data"].values():
                yield from (("dashboard", expression) for expression in of_dashboard(json.loads(text)))


def is_dashboard(item: Body) -> bool:
    """Tell whether a ConfigMap has a dashboard and nothing else."""
    return item["kind"] == "ConfigMap" and all(name.endswith(".json") for name in item.get("data", {"": ""}))


def of_dashboard(document: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of a dashboard, including those for the values of its choices."""
    variables = document["templating"]["list"]
    values = {"__rate_interval": "1m"} | {
        variable["name"]: variable["query"] if variable["type"] == "textbox" else "chosen" for variable in variables
    }
    asked = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    for variable in variables:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            assert found, variable["query"]
            asked.append(found[1])
    for expression in asked:
        yield re.sub(r"\$(\w+)", lambda name: values[name[1]], expression)


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a document, keys included."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield str(key)
            yield from strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings(entry)
    elif isinstance(value, str):
        yield value


def rendered() -> Iterator[tuple[str, Body]]:
    """Yield every object that users apply, with the name of its source."""
    all_of_it = merged(
        nested("actuator", "keda"),
        nested("observability.alerts.enabled", True),
        nested("observability.dashboards.enabled", True),
    )
    manifests = {"chart with everything": chart.render(all_of_it), **everything.of_the_chart()}
    for name, items in chain(manifests.items(), everything.of_kustomize().items()):
        for item in items:
            yield name, item


def adapter_rules() -> Iterator[Found]:
    """Yield the queries of the adapter's rules, as it asks them."""
    for path in sorted((DEPLOY / "samples").glob("prometheus-adapter-values*.yaml")):
        for rule in read_rules(path):
            yield path.name, rule["seriesQuery"]
            yield path.name, rule["metricsQuery"].replace("<<.LabelMatchers>>", 'variant_name="x"')


def of_pages() -> Iterator[Found]:
    """Yield the queries of the pages: blocks of PromQL and code within a line."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"^```promql\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield str(path.relative_to(ROOT)), block
        for code in re.findall(r"`([^`\n]*\b(?:wva|inferno)_\w+\{[^`\n]*)`", text):
            if QUERY.search(code):
                yield str(path.relative_to(ROOT)), code


def test_every_query_of_what_users_apply_names_the_target():
    """Rules, triggers and dashboards of the chart and of kustomize name the target."""
    found = [(name, place, text) for name, item in rendered() for place, text in expressions(item)]
    assert {place for _, place, _ in found} == {"rule", "trigger", "dashboard"}
    assert [(name, place, text) for name, place, text in found if loose(text)] == []
    assert sum(bool(selectors(text)) for _, _, text in found) > 200


def test_no_query_is_in_an_unknown_place():
    """Every other text that has the name of a series has the name alone, or explains it to people."""
    texts = set()
    for name, item in rendered():
        known = {text for _, text in expressions(item)}
        if item["kind"] == "CustomResourceDefinition" or is_dashboard(item):
            continue
        for text in strings(item):
            if OURS.search(text) and text not in known and not OURS.fullmatch(text):
                texts.add((name, item["kind"], text))
    assert texts == set()


@pytest.mark.parametrize(("path", "expression"), list(adapter_rules()))
def test_every_rule_of_the_adapter_names_the_target(path: str, expression: str):
    """Both queries of each rule name the target, for discovery and for an HPA, also under the older names."""
    assert selectors(expression), path
    assert loose(expression) == []
    assert f'job="{JOB}",namespace="{NAMESPACE}"' in expression


@pytest.mark.parametrize(("path", "expression"), list(of_pages()))
def test_every_query_of_a_page_names_the_namespace_of_the_target(path: str, expression: str):
    """A reader copies it into an alert. The job is left out where it only makes the line longer."""
    assert loose(expression, {"namespace"}) == [], path


def test_the_files_for_prometheus_and_grafana_themselves():
    """The files that a user loads into Prometheus and Grafana directly name the target, too."""
    rules = yaml.safe_load((DEPLOY / "observability" / "rules.yaml").read_text(encoding="utf-8"))
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for path in (DEPLOY / "observability" / "dashboards").glob("*.json"):
        found += of_dashboard(json.loads(path.read_text(encoding="utf-8")))
    assert [expression for expression in found if loose(expression)] == []


def test_the_controller_asks_for_its_own_series_only():
    """The controller queries its own series before a start from zero, and names the target."""
    assert loose(published_query(VariantKey("ns", "va"), OWN)) == []
    assert loose(published_query(VariantKey("ns", "va"), TargetLabels("wva")), {"namespace"}) == []


@pytest.mark.parametrize("expression", [growth(COST, 60.0, OWN.matchers), served(60.0, OWN.matchers)])
def test_the_report_asks_for_the_series_of_the_controller_only(expression: str):
    """The report on shadow mode shows money: a tenant's page must not change it."""
    assert loose(expression) == []


@pytest.mark.parametrize(
    "expression",
    [
        "wva_leader",
        'max(wva_leader{job="a"})',
        'sum(rate(wva_x_total{job="a", exported_namespace="b"}[5m])) > 1',
        'up or on (job) absent(last_over_time(inferno_desired_replicas{job="a", namespace=~".*"}[5m]))',
        'wva_leader{job="a", namespace!="b"}',
    ],
)
def test_a_loose_query_would_be_found(expression: str):
    """The parser of expressions finds a query without the target."""
    assert loose(expression)


def test_release_and_namespace_are_in_the_queries_of_the_chart():
    """The Service of the release is the job; values say otherwise where another release has the controller."""
    values = merged(
        nested("actuator", "keda"),
        nested("observability.alerts.enabled", True),
        nested("observability.dashboards.enabled", True),
    )
    items = chart.render(values)
    (service,) = [
        item["metadata"]
        for item in items
        if item["kind"] == "Service" and item["spec"]["ports"][0]["targetPort"] == "metrics"
    ]
    pins = targets(items)
    assert pins == {(service["name"], service["namespace"])}
    (container,) = chart.only(items, "Deployment")["spec"]["template"]["spec"]["containers"]
    (job,) = [entry["value"] for entry in container["env"] if entry["name"] == "WVA_METRICS_JOB"]
    assert job == service["name"]
    other = merged(nested("wva.metrics.job", "by-hand"), nested("wva.metrics.namespace", "elsewhere"))
    assert targets(chart.render(merged(values, other))) == {("by-hand", "elsewhere")}
    alone = merged(nested("controller.enabled", False), nested("actuator", "keda"), other)
    assert targets(chart.render(alone)) == {("by-hand", "elsewhere")}


def targets(items: list[Body]) -> set[tuple[str, str]]:
    """Return job and namespace of every selector of our series."""
    found = set()
    for item in items:
        for _, expression in expressions(item):
            for selector in selectors(expression):
                values = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
                found.add((values.get("job", ""), values.get("namespace", "")))
    return found


def test_the_job_of_the_controller_is_the_service_that_the_monitor_finds():
    """The job is the Service that the monitor finds, also with a prefix in kustomize."""
    for prefix in ("", "blue-"):
        items = everything.overlay("kubernetes", ("service-monitor",), prefix=prefix)
        services = [item["metadata"]["name"] for item in items if item["kind"] == "Service"]
        (deployment,) = [item for item in items if item["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert services == [environment["WVA_METRICS_JOB"]] == [f"{prefix}{JOB}"]
        (monitor,) = [item for item in items if item["kind"] == "ServiceMonitor"]
        assert "jobLabel" not in monitor["spec"]
        assert not any(endpoint.get("honorLabels") for endpoint in monitor["spec"]["endpoints"])


def test_no_page_says_anything_of_a_file_that_is_not_there():
    """The tests above find pages, and queries on them."""
    assert Path(ROOT / "docs" / "hpa-integration.md") in PAGES
    assert len(list(of_pages())) >= 3
