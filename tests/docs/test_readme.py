"""README links the page that answers each question of somebody new, and what it says in figures is so.

The pages that one asks for first (troubleshooting, engines, size) are held to the code here, too.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
import yaml

from bench.vllm.engine import VERSION as VLLM
from tests.docs.rendering import DOCS
from wva.config import Settings
from wva.decide.measure.demand_engine import EMPTY_STEPS
from wva.model.decision import HOLD_REASONS, Reason
from wva.model.objectives import DEFAULT_OBJECTIVES
from wva.publish.obstacles import OBSTACLES

ROOT = DOCS.parent
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)(#[\w-]+)?\)")
CHART = ROOT / "charts" / "workload-variant-autoscaler" / "values.yaml"


def read(*parts):
    """Return the text of a file of the repository."""
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


README = read("README.md")
VALUES = yaml.safe_load(CHART.read_text(encoding="utf-8"))
SECTION = re.search(
    r"^## Ten questions about the product\n(.*?)^## ", read("docs", "development.md"), re.DOTALL | re.MULTILINE
)[1]
QUESTIONS = re.findall(r"^\| (.*\?) \| (.*) \|$", SECTION, re.MULTILINE)


def marked(text, name):
    """Return the text between two marks."""
    return re.search(rf"<!-- {re.escape(name)} -->(.*?)<!-- /{re.escape(name)} -->", text, re.DOTALL)[1]


def test_there_are_ten_questions():
    """The table has ten different questions."""
    assert len({question for question, _ in QUESTIONS}) == 10


@pytest.mark.parametrize(("question", "answer"), QUESTIONS, ids=[answer for _, answer in QUESTIONS])
def test_readme_links_the_answer_to_each_question(question, answer):
    """README has the question itself, and in its row a link to every page that answers it, at the same heading."""
    (row,) = re.findall(rf"^\| {re.escape(question)} \| (.*) \|$", README, re.MULTILINE)
    shown = {(PurePosixPath(path).name, anchor) for path, anchor in LINK.findall(row)}
    pages = {(path, anchor) for path, anchor in LINK.findall(answer)}
    assert pages
    assert pages <= shown


def test_the_first_screen_names_what_one_needs_first():
    """Before the first section after the questions, README names shadow mode, doctor, explain and day two."""
    first = README.partition("\n## Who it is for\n")[0]
    for word in ("wva.llmd.ai/mode: shadow", "`wva doctor`", "`wva explain`", "docs/day-two.md", "docs/scorecard.md"):
        assert word in first


def test_the_figures_of_readme_are_those_of_the_scorecard_and_of_the_chart():
    """README's figures are the scorecard's, the chart's interval, and the default of the process."""
    assert f"has 99% of the requests in time in {marked(README, 'goal').split()[0]} of them" in read(
        "docs", "scorecard.md"
    )
    assert re.search(rf"best in \d+ of {marked(README, 'goal').split()[-1]} scenarios", read("docs", "scorecard.md"))
    assert f"{marked(README, 'interval')}s" == VALUES["wva"]["reconcileInterval"]
    default = Settings().global_opt_interval
    assert f"every {default:g} seconds unless `GLOBAL_OPT_INTERVAL`" in README


def test_the_chart_leaves_figures_to_the_page_that_measures_them():
    """A comment on the interval or the windows cites docs/hpa-integration.md, and has no share or cost of its own."""
    text = CHART.read_text(encoding="utf-8")
    for key in ("reconcileInterval", "stabilizationWindowSeconds"):
        comments = re.findall(rf"((?:^ *#.*\n)+) *{key}:", text, re.MULTILINE)
        assert comments
        assert not any("%" in comment for comment in comments)


def test_the_policies_of_the_hpa_page_are_those_of_the_files():
    """The two policies that the page names are those of the samples and of the chart, for both directions."""
    page = read("docs", "hpa-integration.md")
    behaviors = [
        yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["behavior"]
        for path in sorted((ROOT / "deploy" / "samples" / "hpa").glob("chat-*.yaml"))
    ]
    assert behaviors
    for name, found in (("samples", behaviors), ("chart", [VALUES["hpa"]["behavior"]])):
        policies = [policy for each in found for way in each.values() for policy in way["policies"]]
        told = {f"{policy['value']} in {policy['periodSeconds']} seconds" for policy in policies}
        assert told == {marked(page, name)}
        assert {policy["type"] for policy in policies} == {"Pods"}


def test_troubleshooting_has_every_obstacle():
    """The page has each reason why a variant is not scaled, and no reason that does not exist."""
    page = read("docs", "troubleshooting.md")
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", page))
    reasons = {obstacle.reason for obstacle in OBSTACLES}
    conditions = {obstacle.condition.value for obstacle in OBSTACLES} | {"Shadow", "ConfigurationValid"}
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in page] == []
    known = reasons | conditions | {reason.value for reason in Reason} | {reason.value for reason in HOLD_REASONS}
    assert named - known == set()


def test_the_versions_of_engines_are_those_that_run():
    """The versions on the page are those of the real parts of the end-to-end tests and of the runs with real vLLM."""
    page = read("docs", "engines.md")
    modules = ROOT / "e2e" / "controlplane" / "modules"
    assert marked(page, "vllm") == VLLM
    for mark, folder, module in (
        ("lws", "lws", "sigs.k8s.io/lws"),
        ("picker-1.3", "picker-1.3", "sigs.k8s.io/gateway-api-inference-extension"),
        ("picker-1.2", "picker-1.2", "sigs.k8s.io/gateway-api-inference-extension"),
    ):
        pinned = re.search(rf"{re.escape(module)} v(\S+)", (modules / folder / "go.mod").read_text(encoding="utf-8"))[1]
        assert marked(page, mark) == pinned


def test_the_size_is_that_of_the_chart_and_of_the_measurement():
    """The resources on the page are the chart's, and the largest fleet is the one that the benchmark measures."""
    page = read("docs", "size.md")
    resources = VALUES["wva"]["resources"]
    told = {name: marked(page, name) for name in ("memory", "memory-limit", "cpu", "cpu-limit")}
    assert told == {
        **resources["requests"],
        "memory-limit": resources["limits"]["memory"],
        "cpu-limit": resources["limits"]["cpu"],
    }
    bench = read("bench", "test_fleet_growth.py")
    sizes = re.search(r'"WVA_BENCH_MODELS", "([\d,]+)"', bench)[1].split(",")
    assert f"{int(sizes[-1]):,}" == marked(page, "largest")
    assert re.search(r"^MOST_RATIO = (\S+)", bench, re.MULTILINE)[1] == marked(page, "ratio")


def test_the_objectives_of_the_default_analyzer_are_those_of_the_code():
    """The page on objectives has the defaults of the default analyzer."""
    page = read("docs", "objectives.md")
    assert float(marked(page, "share")) == 100.0 * DEFAULT_OBJECTIVES.in_time
    assert float(marked(page, "steps")) == EMPTY_STEPS
    assert float(marked(page, "first")) == DEFAULT_OBJECTIVES.ttft_seconds
    assert float(marked(page, "between")) == DEFAULT_OBJECTIVES.itl_seconds
