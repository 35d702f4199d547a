"""What the doctor finds in the objects of a variant, link by link."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import wva.doctor
from tests.builders import replica
from wva.api.meta import Key
from wva.decide.trust import reported
from wva.doctor.diagnosis import MEANINGS, Link
from wva.doctor.examination import CHECKS, Examination, _of_controller
from wva.doctor.installation import pod_trouble
from wva.doctor.roles import role_labels_of, role_links
from wva.doctor.variants import (
    STALE_SECONDS,
    ExaminedVariant,
    condition_links,
    own_links,
    pod_links,
    publication_links,
    replica_links,
    sample_links,
)
from wva.model.records import replace
from wva.model.roles import RoleLabels
from wva.publish.obstacles import OBSTACLES

NOW = 1_800_000_000.0
WRITTEN = "2027-01-15T08:00:00Z"
"""NOW as a text."""
SOURCES = sorted(Path(wva.doctor.__file__).parent.glob("*.py"))


def condition(type_, status="True", reason="Fine", message="words"):
    """Return a condition."""
    return {"type": type_, "status": status, "reason": reason, "message": message}


def variant(*conditions, desired=2, written=WRITTEN, labels=None):
    """Return a VariantAutoscaling that a controller has looked at."""
    return {
        "metadata": {"name": "chat", "namespace": "models", "labels": labels or {}},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}},
        "status": {
            "conditions": list(conditions) or [condition("Ready")],
            "desiredOptimizedAlloc": {"numReplicas": desired, "lastRunTime": written},
        },
    }


def pod(name="chat-0", **status):
    """Return a Ready pod, unless the status says otherwise."""
    return {"metadata": {"name": name, "namespace": "models"}, "status": {"conditions": [condition("Ready")], **status}}


def told(diagnoses):
    """Return link, name and exit-relevant severity of diagnoses."""
    return [(each.link.value, each.name, each.finding.severity.value) for each in diagnoses]


def own(view, *, instance="", watched=""):
    """Return what ``own_links`` says of a variant now."""
    return told(own_links(view, instance=instance, watched=watched, now=NOW))


def test_a_sound_variant_has_no_finding():
    """Every link of it is whole."""
    view = ExaminedVariant(variant(), {"spec": {"replicas": 2}}, [pod(), pod("chat-1")], published=2.0, page_read=True)
    found = [*own(view), *condition_links(view), *pod_links(view), *sample_links(view)]
    assert [*found, *publication_links(view), *replica_links(view)] == []


@pytest.mark.parametrize(
    ("changed", "more", "expected"),
    [
        ({"labels": {"wva.llmd.ai/controller-instance": "b"}}, {}, ("variant", "other-instance", "must")),
        ({}, {"instance": "b"}, ("variant", "other-instance", "must")),
        ({}, {"watched": "others"}, ("variant", "namespace-not-watched", "must")),
        ({"written": "2027-01-15T07:00:00Z"}, {}, ("decision", "status-old", "must")),
    ],
)
def test_the_controller_does_not_take_it(changed, more, expected):
    """The finding says which setting, label or age it is."""
    assert own(ExaminedVariant(variant(**changed)), **more) == [expected]
    assert NOW - STALE_SECONDS > 0


def test_settings_that_are_not_known_accuse_nobody():
    """Without the controller's answer its instance is unknown."""
    labelled = variant(labels={"wva.llmd.ai/controller-instance": "b"})
    assert own(ExaminedVariant(labelled), instance=None) == []


def test_an_excluded_namespace_and_a_missing_status_are_named():
    """No controller has looked at the variant."""
    view = ExaminedVariant({**variant(), "status": {}})
    view.namespace = {"metadata": {"annotations": {"wva.llmd.ai/exclude": "true"}}}
    assert own(view) == [("variant", "namespace-excluded", "must"), ("variant", "never-seen", "must")]


def test_shadow_mode_is_a_note():
    """It is no fault, and it says why nothing follows the number."""
    view = ExaminedVariant(variant(condition("Shadow", message="would have 3 replicas; 1 exist")))
    assert own(view) == [("variant", "shadow-mode", "note")]


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda each: f"{each.condition}-{each.reason}")
def test_each_obstacle_of_a_condition_is_a_finding(obstacle):
    """It has the name of the reason, the message, and what the reason means."""
    view = ExaminedVariant(variant(condition(obstacle.condition, obstacle.status, obstacle.reason, "the message")))
    (found,) = list(condition_links(view))
    assert (found.name, found.finding.severity.value) == (obstacle.reason, "must")
    assert "the message" in found.finding.problem
    assert found.finding.change


@pytest.mark.parametrize(
    ("type_", "reason", "message"),
    [
        (
            "EnginesReadable",
            "EngineSeriesUnusable",
            "the percentage analyzer decides instead: chat-0: num_gpu_blocks 'None' and block_size '16' are not counts",
        ),
        (
            "OptimizationReady",
            "MetricsMissing",
            "0 of 1 replicas report fresh metrics; chat-0: KV usage missing (series of its model have no label pod)",
        ),
        ("QueriesAnswered", "QueryFailed", "query in_progress: HTTP 422; in force: a load that rises waits"),
    ],
)
def test_series_and_queries_that_are_wrong_are_findings_about_metrics(type_, reason, message):
    """The finding has the words of the condition: the series, the query, and what decides instead."""
    (found,) = list(condition_links(ExaminedVariant(variant(condition(type_, "False", reason, message)))))
    assert (found.link, found.name) == (Link.METRICS, reason)
    assert message in found.finding.problem


def test_wrong_configuration_is_a_finding():
    """The message of the condition names key and value."""
    view = ExaminedVariant(variant(condition("ConfigurationValid", "False", "Rejected", "max-replicas: got 'many'")))
    (found,) = list(condition_links(view))
    assert (found.link, found.name) == (Link.CONFIGURATION, "configuration-invalid")
    assert "got 'many'" in found.finding.problem


def waiting(reason, message=""):
    """Return the status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"conditions": [condition("Ready", "False")], "containerStatuses": [{"name": "vllm", "state": state}]}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"conditions": [condition("PodScheduled", "False", message="0/3 nodes")]}, "has no node: 0/3 nodes"),
        (waiting("ImagePullBackOff", "no such image"), "vllm does not run: ImagePullBackOff: no such image"),
        (waiting("ContainerCreating"), "is not Ready: words"),
        (
            {"containerStatuses": [{"name": "vllm", "state": {"terminated": {"exitCode": 137}}}], "conditions": []},
            "137",
        ),
        ({"conditions": [], "phase": "Pending"}, "is not Ready: Pending"),
    ],
)
def test_why_a_pod_is_not_ready(status, words):
    """The first cause is told."""
    assert words in pod_trouble(pod(**status))


def test_pods_that_are_missing_or_not_ready_are_named():
    """Three are named, the others are counted."""
    target = {"spec": {"replicas": 2}}
    assert told(pod_links(ExaminedVariant(variant(), target))) == [("pods", "no-pods", "must")]
    broken = [pod(f"p{number}", conditions=[]) for number in range(5)]
    found = list(pod_links(ExaminedVariant(variant(), target, broken)))
    assert [each.name for each in found] == ["pod-not-ready"] * 4
    assert "2 more pods" in found[-1].finding.problem
    assert list(pod_links(ExaminedVariant(variant(), {"spec": {"replicas": 0}}))) == []


@pytest.mark.parametrize(("message", "name"), [("exceeded quota: gpus", "quota"), ("webhook says no", "pods-refused")])
def test_pods_that_the_api_server_refuses_are_a_finding(message, name):
    """The Deployment says so in its condition."""
    target = {"spec": {"replicas": 1}, "status": {"conditions": [condition("ReplicaFailure", message=message)]}}
    (found,) = list(pod_links(ExaminedVariant(variant(), target, [pod()])))
    assert (found.name, message in found.finding.problem) == (name, True)


@pytest.mark.parametrize("state", ["missing", "stale", "invalid"])
def test_samples_that_were_not_believed_are_named_once_for_all_pods(state):
    """Those of the gateway are not about the pods."""
    rows = [{"of": f"p{number}", "signal": "kv_usage", "state": state, "detail": "why"} for number in range(4)]
    gateway = {"of": "gateway", "signal": "size", "state": "missing"}
    view = ExaminedVariant(variant(), shown={"ignored": [*rows, gateway]})
    (found,) = list(sample_links(view))
    assert found.name == f"samples-{state}"
    assert "p0, p1, p2 are" in found.finding.problem


@pytest.mark.parametrize(("interval", "told_"), [(60.0, []), (90.0, [("metrics", "scraped-seldom", "should")])])
def test_a_long_scrape_interval_is_a_finding(interval, told_):
    """The condition has the interval that was seen, and stays True."""
    _, verdict = reported([replace(replica(kv=0.5, queue=0), scrape_seconds=interval)], None)
    said = condition("MetricsAvailable", "True", verdict.reason, verdict.message)
    found = list(condition_links(ExaminedVariant(variant(said))))
    assert told(found) == told_
    assert all("every 90 s" in each.finding.problem for each in found)


def test_a_number_that_is_not_published_or_not_followed_is_named():
    """The page must have been read, and the target must be there."""
    view = ExaminedVariant(variant(), {"spec": {"replicas": 1}}, page_read=True)
    assert told(publication_links(view)) == [("publication", "not-published", "must")]
    assert told(replica_links(view)) == [("replicas", "not-followed", "should")]
    assert told(publication_links(ExaminedVariant(variant()))) == []


def in_role(name, role="", said=()):
    """Return a variant whose target has this role, or none; ``said`` are its conditions."""
    item = variant(*said)
    item["metadata"]["name"] = name
    labels = {"example.com/stage": role} if role else {}
    return ExaminedVariant(item, {"spec": {"template": {"metadata": {"labels": labels}}}})


STAGE = RoleLabels.of("example.com/stage", "context=prefill")


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([in_role("a"), in_role("b")], []),
        ([in_role("a", "context"), in_role("b", "decode")], [("roles", "note")]),
        ([in_role("b", "decode")], [("roles", "note")]),
        ([in_role("a", "context")], [("roles", "note"), ("role-without-partner", "should")]),
        ([in_role("a", "context"), in_role("b")], [("roles", "note"), ("role-unknown", "should")]),
        ([in_role("a", "both"), in_role("b", "router")], [("roles", "note"), ("role-unknown", "should")]),
        (
            [in_role("a", "context"), ExaminedVariant(variant())],
            [("roles", "note"), ("role-without-partner", "should")],
        ),
        (
            [in_role("a", "decode"), in_role("b", said=[condition("EnginesReadable", "False", "RoleUnknown")])],
            [("roles", "note")],
        ),
    ],
)
def test_the_roles_of_a_model_are_told_and_what_is_wrong_with_them(views, expected):
    """Answers need decode pods, and a variant without a role is no partner. What a condition says is told once."""
    found = list(role_links("acme/chat", views, STAGE))
    assert [(each.name, each.finding.severity.value) for each in found] == expected
    assert all("acme/chat" in each.finding.problem for each in found)
    assert all("example.com/stage" in each.finding.change for each in found[1:])


def test_decode_alone_computes_the_prompts_too():
    """Plain pods of llm-d have this role, so it is no fault."""
    (note,) = role_links("acme/chat", [in_role("b", "decode"), in_role("a", "decode")], STAGE)
    assert note.finding.key.name == "a"
    assert note.finding.problem == (
        "the roles of model acme/chat are decode: a, b; decode pods compute the prompts, too"
    )


async def test_the_labels_are_those_that_the_controller_reads():
    """Without its settings they are those of llm-d."""
    rows = [
        {"name": "WVA_ROLE_LABELS", "value": "example.com/stage"},
        {"name": "WVA_ROLE_VALUES", "value": "P=prefill"},
    ]

    async def ask(path):
        return json.dumps(rows).encode() if path == "/debug/config" else b""

    settings, _, _ = await _of_controller(ask, Key("models", "a"), Examination())
    assert role_labels_of(settings) == RoleLabels(("example.com/stage",), {"P": "prefill"})
    assert role_labels_of({}) == RoleLabels()


def test_each_finding_has_a_meaning_and_each_meaning_its_finding():
    """The table in the documentation has all names that the code gives, under their links."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            if ast.unparse(node.func) == "say":
                found.add(("SCALER", ast.literal_eval(node.args[0])))
            elif ast.unparse(node.func) == "Diagnosis" and isinstance(node.args[1], ast.Constant):
                found.add((node.args[0].attr, node.args[1].value))
    computed = {("PODS", "pod-unschedulable"), ("REPLICAS", "quota"), ("REPLICAS", "pods-refused")}
    computed |= {("METRICS", f"samples-{state}") for state in ("missing", "stale", "invalid")}
    computed |= {(link.name, f"{link.value}-wrong") for link in CHECKS}
    assert found | computed == {(link.name, name) for link, names in MEANINGS.items() for name in names}


@pytest.mark.parametrize(
    ("only", "explained"), [(None, {Key("models", "half")}), (Key("models", "whole"), {Key("models", "whole")})]
)
async def test_only_variants_with_silent_replicas_are_explained(only, explained):
    """Each explanation costs a review of a right, so a healthy fleet needs none."""
    asked, found = [], Examination()
    decisions = [
        {"key": {"namespace": "models", "name": name}, "coverage": {"fresh": fresh, "expected": 2}}
        for name, fresh in (("whole", 2), ("half", 1))
    ]
    pages = {"/debug/config": b"[]", "/metrics": b"", "/v1/decisions": json.dumps({"decisions": decisions}).encode()}

    async def ask(path):
        asked.append(path)
        return pages.get(path, b'{"ignored": []}')

    _, _, explain = await _of_controller(ask, only, found)
    for name in ("whole", "half"):
        await explain(Key("models", name))
    assert {path for path in asked if path not in pages} == {
        f"/v1/explain/{key.namespace}/{key.name}?changes=false" for key in explained
    }
    assert ("/v1/decisions" in asked) == (only is None)
    assert found.unread == []
