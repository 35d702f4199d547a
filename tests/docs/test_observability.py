"""Alerts, runbooks and dashboards name only existing alerts, pages, metrics, labels and reasons."""

from __future__ import annotations

import json
import re

import promql_parser
import pytest

from tests.docs.alerts import ALERTS, FOLDER, selectors
from tests.docs.rendering import DOCS
from wva.model.decision import HOLD_REASONS, Reason
from wva.publish.obstacles import OBSTACLES

ROOT = DOCS.parent
RUNBOOKS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "runbooks").glob("*.md"))}
PAGE = (DOCS / "observability.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
DASHBOARDS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (FOLDER / "dashboards").glob("*.json")
}
OF_THE_TARGET = {"namespace", "job", "instance", "pod"}
OF_PROCESSES = {"process_cpu_seconds_total": OF_THE_TARGET, "process_resident_memory_bytes": OF_THE_TARGET}


def ours():
    """Return the labels of each of WVA's series after a scrape, by name, from the tables of docs/metrics.md."""
    found = {}
    for name, kind, labels in re.findall(r"^\| `(wva_\w+)` \| (\w+) \| ([^|]*) \|", METRICS, re.MULTILINE):
        own = set() if labels == "-" else set(labels.split(", "))
        renamed = {"exported_namespace" if label == "namespace" else label for label in own}
        of_histogram = (f"{name}_bucket", f"{name}_sum", f"{name}_count")
        for series in of_histogram if kind == "histogram" else (name,):
            found[series] = renamed | OF_THE_TARGET | ({"le"} if series.endswith("_bucket") else set())
    return found


def theirs():
    """Return the names of vLLM's series in docs/metrics.md."""
    named = set(re.findall(r"vllm:\w+", METRICS))
    histograms = {name.removesuffix("_sum") for name in named if name.endswith("_sum")}
    return named | {f"{name}_bucket" for name in histograms}


VLLM_LABELS = {"model_name", "engine", "finished_reason", "le", "namespace", "pod"}
KNOWN = ours() | OF_PROCESSES | dict.fromkeys(theirs(), VLLM_LABELS)


def expressions():
    """Yield the place and the text of each expression of rules and dashboards, with variables replaced."""
    for name, rule in ALERTS.items():
        yield name, rule["expr"]
    for name, document in sorted(DASHBOARDS.items()):
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                text = target["expr"].replace("$__rate_interval", "1m")
                yield f"{name}: {panel['title']}", re.sub(r"\$(\w+)", r"\1", text)


EXPRESSIONS = list(expressions())


def aggregations(node):
    """Return the labels of each aggregation below a node, with the selectors inside the aggregation."""
    found = []
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
        found.append((set(node.modifier.labels), selectors(node)))
    for name in ("lhs", "rhs", "expr"):
        child = getattr(node, name, None)
        found += [] if child is None else aggregations(child)
    return found + [entry for child in getattr(node, "args", ()) for entry in aggregations(child)]


@pytest.mark.parametrize(
    ("place", "text"), EXPRESSIONS, ids=[f"{place} {n}" for n, (place, _) in enumerate(EXPRESSIONS)]
)
def test_every_metric_is_known_with_its_labels(place, text):
    """Each series and label of an expression is in docs/metrics.md."""
    tree = promql_parser.parse(text)
    assert selectors(tree), place
    for selector in selectors(tree):
        assert selector.name in KNOWN
        assert {matcher.name for matcher in selector.matchers.matchers} <= KNOWN[selector.name]
    made = set(re.findall(r'label_replace\(.*?, "(\w+)", "', text))
    for labels, inside in aggregations(tree):
        assert labels - made <= set().union(*(KNOWN[selector.name] for selector in inside))


def test_the_page_of_metrics_is_read():
    """``KNOWN`` contains the tables and the queries of docs/metrics.md."""
    assert KNOWN["wva_desired_reason"] == {"variant_name", "exported_namespace", "reason", "held"} | OF_THE_TARGET
    assert "le" in KNOWN["wva_cycle_duration_seconds_bucket"]
    assert "vllm:kv_cache_usage_perc" in KNOWN


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    """Alerts and runbooks have the same names, and each alert links its runbook."""
    assert sorted(RUNBOOKS) == sorted(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert RUNBOOKS[name].startswith(f"# {name}\n")


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_says_what_to_do(name):
    """A runbook has its four sections, and all metrics and pages in it exist."""
    headings = re.findall(r"^## (.*)", RUNBOOKS[name], re.MULTILINE)
    assert headings == ["What it means for users", "Look", "Do", "When it ends"]
    families = KNOWN.keys() | {series.removesuffix("_bucket") for series in KNOWN}
    assert set(re.findall(r"`(wva_\w+)", RUNBOOKS[name])) <= families
    for target in re.findall(r"\]\(([\w./-]+\.md)", RUNBOOKS[name]):
        assert (DOCS / "runbooks" / target).exists()


def test_every_alert_says_what_it_is():
    """Every alert has severity, summary, description and duration."""
    for rule in ALERTS.values():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["for"]


def test_the_table_of_alerts_is_current():
    """The table has each alert with its runbook, severity and duration."""
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| [^|]+ \| (\w+) \|", PAGE, re.MULTILINE)
    assert rows == [(name, name, rule["labels"]["severity"], rule["for"]) for name, rule in ALERTS.items()]


def test_the_table_of_dashboards_is_current():
    """The table has each dashboard file with its variables."""
    rows = dict(re.findall(r"^\| `(\w+)\.json` \| [^|]+ \| ([^|]+) \|", PAGE, re.MULTILINE))
    offered = {
        name: ", ".join(
            variable["label"].lower() for variable in document["templating"]["list"] if variable["type"] == "query"
        )
        or "-"
        for name, document in DASHBOARDS.items()
    }
    assert rows == offered


def test_the_reasons_in_the_rules_exist():
    """Every reason in the rules exists; otherwise the alert never fires."""
    text = "".join(rule["expr"] for rule in ALERTS.values())
    named = set(re.findall(r'reason="(\w+)"', text))
    assert named
    assert named <= {reason.value for reason in Reason}
    of_obstacles = set("|".join(re.findall(r'reason=~"([\w|]+)"', text)).split("|"))
    assert of_obstacles <= {obstacle.reason for obstacle in OBSTACLES}


def test_the_reasons_of_a_hold_are_in_the_runbook():
    """The runbook has all reasons of a hold except NotDecided, which lasts one cycle at most."""
    rows = set(re.findall(r"^\| `(\w+)` \|", RUNBOOKS["WVADataHeldTooLong"], re.MULTILINE))
    assert rows == {reason.value for reason in HOLD_REASONS} - {Reason.NOT_DECIDED.value}
