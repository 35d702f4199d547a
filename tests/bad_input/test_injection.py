"""Text of a tenant is never interpreted, in PromQL, URLs, log lines, labels, events and conditions.

The tenant controls VariantAutoscalings and ConfigMaps, and the series of the pods.
"""

from __future__ import annotations

import json
import re

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.app.stage import MODEL, VARIANTS, until
from tests.bad_input.hostile import series
from wva import log
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.collect.queries import regex_literal
from wva.collect.surplus import MAX_MODEL_ID_CHARACTERS
from wva.sim.world.workloads import DEPLOYMENTS

ATTACKS = {
    "changelog": 'prod",malicious="attack',
    "matcher": 'x"} or vllm:kv_cache_usage_perc{namespace=~".*',
    "braces": "}{}}{{",
    "backslashes": "\\\\\\",
    "escaped quote": '\\"',
    "newline": 'a\n# HELP wva_desired_replicas forged\nwva_desired_replicas{variant_name="va"} 999\n',
    "carriage return": "a\r\nX-Evil: 1",
    "nul": "a\x00b",
    "escape": "\x1b]0;owned\x07\x1b[2J",
    "right to left": "\u202egpj.exe\u202c\u2066x\u2069",
    "line separators": "a\u2028b\u2029c\u0085d",
    "regex": "(.*|.+)?[^a]{1,99}$^",
    "label": 'wva_desired_replicas{variant_name="va"}',
    "template": "{{.namespace}}%s%n${HOME}",
    "path": "../../../../apis/apps/v1/namespaces/kube-system/deployments/x?y=z#",
    "astral": "\U0001f4a5\ud7ff\ue000\ufffe",
    "long": "A" * 1_000_000,
}
MOST_CHARACTERS = 10_000
EVENT_CHARACTERS = 1024


LIKE_OTHERS = {"changelog", "braces", "carriage return", "right to left", "label", "template"}
"""They have nothing that another one has not."""


@pytest.fixture(
    params=[
        pytest.param(text, id=name, marks=pytest.mark.nightly if name in LIKE_OTHERS else ())
        for name, text in ATTACKS.items()
    ]
)
def attack(request):
    """Return a text of a tenant."""
    return request.param


def pods(stage):
    """Return the names of the pods of the variant."""
    return [entry["metadata"]["name"] for entry in stage.api.store.list("pods") if entry["metadata"]["name"][0] == "d"]


FIRST = "default"
"""The namespace of the question that a process asks until Prometheus has answered once."""


def alternatives(models):
    """Return the pattern for models."""
    return "|".join(map(regex_literal, sorted(models)))


async def queries(prometheus, stage):
    """Return all PromQL queries of two cycles."""
    asked = []
    answer = prometheus.answer

    async def noting(request):
        asked.append((await request.post())["query"])
        return await answer(request)

    prometheus.answer = noting
    await stage.works()
    return asked


def selectors(expression):
    """Return the matchers (value by label) of every selector of a query, nested ones included."""
    if isinstance(expression, promql_parser.VectorSelector):
        return [{matcher.name: matcher.value for matcher in expression.matchers.matchers}]
    inner = [getattr(expression, name, None) for name in ("expr", "vector_selector", "lhs", "rhs")]
    inner += getattr(expression, "args", [])
    return [found for part in inner if part is not None for found in selectors(part)]


async def test_text_of_a_tenant_stays_text_everywhere(stage, prometheus, output, attack):
    """The text is model, accelerator and annotation of a VA, and a label of the series of its pods."""
    model = attack[:MAX_MODEL_ID_CHARACTERS]
    stage.patch_va({"spec": {"modelID": model}})
    stage.force(
        VARIANTS,
        "va",
        lambda value: value["metadata"].update(labels={ACCELERATOR_LABEL: attack}, annotations={"x/y": attack}),
    )
    prometheus.report(values=[series("0.5", pod=pod, model_name=attack + "x", evil=attack) for pod in pods(stage)])
    recordings = stage.folder / "recordings"
    async with stage.controller(interval="100ms", PROMETHEUS_BASE_URL=prometheus.url, RECORD_DIR=str(recordings)):
        await until(lambda: stage.told("MetricsAvailable"))
        asked = await queries(prometheus, stage)
        await until(lambda: stage.api.store.list("events"))  # WVA posts events after it writes the statuses
        page, status, events = stage.page(), stage.status(), stage.api.store.list("events")
    assert asked
    for query in asked:
        for found in selectors(promql_parser.parse(query)):
            if "ray_vllm" in query:  # it looks for series of the model under labels that are not as expected
                assert set(found.values()) <= {"", "ns", *map(alternatives, ([model], [MODEL], [MODEL, model]))}
                continue
            assert found.pop("namespace") in {"ns", FIRST}
            assert found.pop("finished_reason", "abort") == "abort"  # WVA's own query contains this matcher
            assert found.pop("sleep_state", "awake") == "awake"  # and this one
            assert set(found.values()) <= {"", model}
    _assert_page(page, attack)
    _assert_lines(output())
    assert_told([entry["message"] for entry in status["conditions"]], most=MOST_CHARACTERS)
    assert_told([event["message"] for event in events], most=EVENT_CHARACTERS)


def _assert_page(page, attack):
    """Assert that the metrics page can be parsed, and that the text is one label value of one series."""
    found = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "wva_desired_replicas" and sample.labels["variant_name"] == "va"
    ]
    (sample,) = found
    assert sample.value == 2
    assert sample.labels["accelerator_type"] == attack


def _assert_lines(text):
    """Assert that each log line is valid JSON of limited length."""
    for line in text.splitlines():
        assert line.isprintable()
        assert len(line) < 2 * MOST_CHARACTERS
        json.loads(line)


def assert_told(messages, *, most):
    """Assert that each message is one printable line of limited length."""
    assert messages
    for message in messages:
        assert message.isprintable()
        assert len(message) <= most


async def test_the_console_form_of_the_log_shows_no_raw_text(stage, capsys, attack):
    """The console format escapes the text, as the JSON format does."""
    log.configure(level="debug", encoding="console")
    stage.patch_va({"spec": {"modelID": attack}})
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
    lines = capsys.readouterr().err
    assert "event" not in lines.split("\n")[0]
    for line in re.split(r"[\n\r\u2028\u2029\u0085]", lines):
        assert line.isprintable()
        assert len(line) < 2 * MOST_CHARACTERS


async def test_names_of_a_tenant_leave_no_path(stage, attack):
    """WVA sends no request for a target whose name looks like a path."""
    stage.force(VARIANTS, "va", lambda value: value["spec"]["scaleTargetRef"].update(name=attack))
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        await stage.works()
        assert_told([stage.message("Ready"), stage.message("TargetResolved")], most=MOST_CHARACTERS)
    paths = {request.path for request in stage.api.requests.entries}
    assert not any("kube-system" in path or "%2F" in path.upper() for path in paths)


@pytest.mark.parametrize("kind", [DEPLOYMENTS, VARIANTS])
async def test_a_name_that_is_none_does_not_reach_another_object(stage, kind):
    """WVA escapes invalid names in the path of a request."""
    odd = "../../kube-system/x?force=true#"
    for resource in (DEPLOYMENTS, VARIANTS):
        origin = stage.api.store.list(resource)[0]
        stage.force(
            resource, odd if resource == kind else "plain", lambda value, o=origin: value.update(spec=o["spec"])
        )
    async with stage.controller(interval="100ms"):
        await stage.works()
    for request in stage.api.requests.entries:
        assert "kube-system" not in request.path.split("/")
