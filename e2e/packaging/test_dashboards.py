"""The dashboards as files: current, complete, well laid out, and in Prometheus' language.

``e2e/test_dashboards.py`` asks a real Prometheus, filled by the demo, for what they show.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil

import pytest
import yaml

from deploy.observability.generate.__main__ import DASHBOARDS, files
from deploy.observability.generate.queries import JOB, NAMESPACE
from e2e import kustomize, tools
from e2e.dashboards import FOLDER, NAMES, dashboard, defaults, expressions, panels, queries, variables

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BUILT_IN = {"__rate_interval"}
GRAFANA_11 = 39
ANOTHER_JOB = """\
patches:
- target: {kind: PrometheusRule}
  patch: |
    - {op: replace, path: /metadata/annotations/wva.llmd.ai~1metrics-job, value: by-hand}
"""
COLUMNS = 24


def test_the_files_are_those_that_the_pages_make():
    """This test fails if a page or its file was changed alone."""
    assert set(DASHBOARDS) == set(NAMES)
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m deploy.observability.generate"
    assert {path.stem for path in (FOLDER / "dashboards").iterdir()} == set(NAMES)


def test_prometheus_understands_every_query(tmp_path):
    """The test passes the queries as rules, since promtool parses rules. promtool names a wrong query."""
    rules = [
        {"record": f"query:{number}", "expr": text}
        for number, text in enumerate(expressions([dashboard(name) for name in NAMES]))
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}), encoding="utf-8")
    assert f"{len(rules)} rules found" in tools.output("promtool", "check", "rules", path)


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_one_of_grafana_11(name):
    """Each dashboard has the schema, an address, and a choice of the data source."""
    document = dashboard(name)
    assert document["schemaVersion"] == GRAFANA_11
    assert document["uid"] == f"wva-{name}"
    assert document["title"]
    assert document["description"]
    first = document["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")


def test_namespace_model_and_variant_can_be_chosen():
    """Each variable is offered on the pages that use it."""
    offered = {name: set(variables(dashboard(name))) for name in NAMES}
    assert offered == {
        "fleet": {"namespace"},
        "model": {"namespace", "model"},
        "decision": {"namespace", "variant"},
        "trust": set(),
    }


@pytest.mark.parametrize("name", NAMES)
def test_whose_series_count_is_a_text_and_no_choice_of_what_is_there(name):
    """A choice of label values would offer forged series, too. The defaults are those of the manifests."""
    assert defaults(dashboard(name)) == {"controller_namespace": NAMESPACE, "job": JOB}


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_is_heeded_and_every_variable_offered(name):
    """The queries use all variables of the page, and no others. Only queries of vLLM's series need no default."""
    document = dashboard(name)
    for asked in queries(document):
        used = set(re.findall(r"\$\{?(\w+)\}?", asked.expression)) - BUILT_IN
        assert used - defaults(document).keys() == set(variables(document)), asked.panel
        if "vllm:" not in asked.expression:
            assert used >= defaults(document).keys(), asked.panel


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows(name):
    """Each panel has a title, a description and a unit. Each query uses the chosen data source."""
    for panel in panels(dashboard(name)):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == SOURCE
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == SOURCE
            assert target["instant"] is not target["range"]
            assert target["legendFormat"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_covers_another(name):
    """All panels lie within the 24 columns of the page without overlap. Each has a number of its own."""
    places = [(panel["id"], panel["gridPos"]) for panel in dashboard(name)["panels"]]
    assert len({number for number, _ in places}) == len(places)
    for _, place in places:
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
    for (_, one), (_, other) in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart


def test_kustomize_makes_the_rule_and_a_config_map_for_each_dashboard():
    """Each ConfigMap has the label for Grafana's sidecar, and is small enough for kubectl apply."""
    made = list(yaml.safe_load_all(tools.output("kubectl", "kustomize", FOLDER)))
    maps = [entry for entry in made if entry["kind"] == "ConfigMap"]
    assert [entry["kind"] for entry in made].count("PrometheusRule") == 1
    found = {}
    for entry in maps:
        assert entry["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((file, text),) = entry["data"].items()
        assert len(text) < 200_000
        found[file] = json.loads(text)
    assert found == {f"wva-{name}.json": dashboard(name) for name in NAMES}


def test_kustomize_puts_namespace_and_job_into_every_query(tmp_path):
    """A line of the kustomization sets the namespace and an annotation the job. No query keeps a default."""
    copy = tmp_path / "observability"
    shutil.copytree(FOLDER, copy)
    path = copy / "kustomization.yaml"
    changed = path.read_text(encoding="utf-8").replace(f"namespace: {NAMESPACE}\n", "namespace: elsewhere\n")
    path.write_text(f"{changed}{ANOTHER_JOB}", encoding="utf-8")
    text = "".join(yaml.safe_dump(item) for item in kustomize.render(copy))
    assert NAMESPACE not in text
    assert JOB not in text
    original = "".join(yaml.safe_dump(item) for item in kustomize.render(FOLDER))
    for value, default in (("elsewhere", NAMESPACE), ("by-hand", JOB)):
        assert text.count(value) == original.count(default) > len(NAMES)
