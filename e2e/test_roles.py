"""Prefill and decode in separate pods: each role is scaled by its own pods, and one request starts what serves it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import yaml

from e2e import manifests
from e2e.controlplane.layout import LOOPBACK
from e2e.gateway import gateway
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import MAIN_CONFIG_MAP, MODEL, POOLED, SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.test_doctor import controller_pod, doctor, reading
from e2e.test_explain import explain
from e2e.test_from_zero import SCALE_TO_ZERO_CONFIG_MAP, SCRAPE_SECONDS, STAYS_SECONDS
from wva.model.roles import ROLE_LABEL

IDLE, CALM, BUSY = PodReport(kv_usage=0.0), PodReport(kv_usage=0.5), PodReport(kv_usage=0.78)
SIZE = 2
QUIET_SECONDS = 2 * CYCLE_SECONDS


def pair(*, replicas: int, minimum: int = 1, kind: str = "Deployment", size: int = 1) -> list[ManifestedVariant]:
    """Return a variant for prefill and one for decode; in LeaderWorkerSets the workers of the first say its role."""
    return [
        ManifestedVariant(
            name=role,
            role=role,
            role_of_workers=kind == "LeaderWorkerSet" and role == "prefill",
            replicas=replicas,
            minimum=minimum,
            kind=kind,
            size=size,
            loading="500ms",
            address=LOOPBACK,
        )
        for role in ("prefill", "decode")
    ]


def mixed(cost: float) -> ManifestedVariant:
    """Return a variant at zero whose pods compute both stages."""
    return ManifestedVariant(name="mixed", role="both", cost=cost, replicas=0, loading="500ms", address=LOOPBACK)


def test_the_roles_go_to_zero_together_and_one_request_brings_them_back(scene: Scene):
    """The picker holds the request until there is a pod; KEDA applies the numbers, and takes no start back."""
    variants = pair(replicas=1, minimum=0)
    scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": "2s"})
    scene.configure(SCALE_TO_ZERO_CONFIG_MAP, {"default": "enable_scale_to_zero: true\nretention_period: 8s"})
    metrics = _reporting(scene, variants, IDLE)
    scene.deploy(*variants)
    scene.wait_ready(*variants)
    scene.declare(*variants)
    scene.scale_by_keda(*variants)
    scene.scrape_seconds = SCRAPE_SECONDS
    scene.start_controller()
    with gateway(scene, *variants, port=metrics.port) as client:
        for _ in range(2):
            scene.wait(lambda: not _replicas(scene) and not _pods(scene), timeout_seconds=90, what="both roles at zero")
            version = _version(scene)
            (request,) = client.send(1, model=MODEL)
            answer = request.result(timeout=30)
            assert (answer.status, answer.endpoint) == (200, f"{LOOPBACK}:{metrics.port}")
            scene.wait(
                lambda: _replicas(scene) == {"prefill": 1, "decode": 1}, timeout_seconds=10, what="one replica of each"
            )
            time.sleep(STAYS_SECONDS)
            asked: dict[str, list[int]] = {}
            for state in scene.api.changes("Deployment", namespace=scene.namespace, since=version):
                asked.setdefault(state["metadata"]["name"], []).append(state["spec"]["replicas"])
            assert all(numbers[-1] == 1 and numbers == sorted(numbers) for numbers in asked.values()), asked
            assert asked.keys() == {"prefill", "decode"}
            client.hang_up()
    scene.assert_allowed()


@pytest.mark.parametrize(
    ("cost", "started"), [(15.0, {"mixed": 1}), (30.0, {"prefill": 1, "decode": 1})], ids=["mixed", "pair"]
)
def test_one_request_starts_the_cheapest_set_that_serves_it(scene: Scene, cost: float, started: dict[str, int]):
    """A variant for both stages goes before the pair exactly if it costs less than the two."""
    variants = [*pair(replicas=0), mixed(cost)]
    metrics = _reporting(scene, variants, IDLE)
    with gateway(scene, *variants, port=metrics.port) as client:
        scene.deploy(*variants)
        scene.declare(*variants)
        scene.start_controller()
        for variant in variants:
            scene.wait(lambda name=variant.name: scene.desired(name) == 0, timeout_seconds=60, what="a number of zero")
        (request,) = client.send(1, model=MODEL)
        assert request.result(timeout=60).endpoint == f"{LOOPBACK}:{metrics.port}"
        scene.wait(lambda: _replicas(scene) == started, timeout_seconds=10, what="the cheapest set")
        time.sleep(STAYS_SECONDS)
        assert _replicas(scene) == started


def test_each_role_grows_by_its_own_pods_and_is_shown(scene: Scene):
    """Status, series and messages have the role; nobody's series has another label than before."""
    variants = pair(replicas=1)
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    metrics = _reporting(scene, variants, CALM)
    scene.deploy(*variants)
    scene.declare(*variants)
    scene.scale_by_keda(*variants)
    controller = scene.start_controller()
    for variant in variants:
        scene.wait_measured(variant)
        name = variant.name
        scene.wait(
            lambda name=name: scene.variant_autoscaling(name)["status"].get("role") == name,
            timeout_seconds=30,
            what="the role in the status",
        )
        assert controller.metrics().value("wva_variant_role", variant_name=name, role=name, model_name=MODEL) == 1
        (series,) = controller.metrics().series("wva_desired_replicas", variant_name=name)
        assert set(series.labels) == {"variant_name", "namespace", "accelerator_type"}
        assert scene.condition(name, "OptimizationReady").message.startswith(f"{name}: ")
    metrics.set("decode", BUSY)
    scene.wait(lambda: _replicas(scene) == {"prefill": 1, "decode": 2}, timeout_seconds=90, what="growth of decode")
    assert {change.variant for change in scene.history.changes()} == {"decode"}


def test_the_labels_of_another_stack_are_read_and_the_doctor_and_explain_tell_the_roles(scene: Scene):
    """The doctor asks the controller which labels count. It warns of a role without a partner, until it has one."""
    prefill, decode = pair(replicas=1)
    _reporting(scene, [prefill, decode], CALM)
    scene.api.apply(controller_pod(scene.namespace))
    reading(scene)
    for variant, value in ((prefill, "context"), (decode, "generation")):
        target = manifests.target(variant, namespace=scene.namespace)
        labels = target["spec"]["template"]["metadata"]["labels"]
        del labels[ROLE_LABEL]
        labels["example.com/stage"] = value
        scene.api.apply(target)
    scene.declare(prefill)
    words = {"WVA_ROLE_LABELS": "example.com/stage", "WVA_ROLE_VALUES": "context=prefill,generation=decode"}
    scene.start_controller("--leader-elect", environment=words)
    scene.wait_measured(prefill)
    assert {"roles", "role-without-partner"} <= doctor(scene).names
    scene.declare(decode)
    scene.wait_measured(decode)
    found = doctor(scene, prefill.name)
    (told,) = [each["problem"] for each in found.findings if each["name"] == "roles"]
    assert told == f"the roles of model {MODEL} are decode: decode; prefill: prefill"
    assert "role-without-partner" not in found.names
    said = explain(scene, f"{scene.namespace}/{decode.name}", "--no-changes").stdout
    assert f"  model {MODEL} in {scene.namespace}, role decode, " in said
    assert ", role prefill\n" in said


@pytest.mark.disruptive
def test_an_older_definition_goes_on_working_and_a_newer_one_gets_the_role(scene: Scene):
    """An API server drops a field that it does not know. WVA does not write it again and again."""
    prefill, decode = pair(replicas=1)
    metrics = _reporting(scene, [prefill, decode], CALM)
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    newer = manifests.CRD.read_text(encoding="utf-8")
    older = yaml.safe_load(newer)
    (version,) = older["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["role"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = [column for column in columns if column["name"] != "Role"]
    scene.api.apply(older)
    try:
        scene.deploy(prefill, decode)
        scene.declare(prefill, decode)
        controller = scene.start_controller()
        scene.wait_measured(prefill)
        scene.wait_measured(decode)
        time.sleep(QUIET_SECONDS)
        written = controller.metrics().value("wva_status_patches_total", result="success")
        time.sleep(QUIET_SECONDS)
        assert controller.metrics().value("wva_status_patches_total", result="success") == written
        assert "role" not in scene.variant_autoscaling("decode")["status"]
        assert controller.metrics().value("wva_variant_role", variant_name="decode", role="decode") == 1
    finally:
        scene.api.apply_yaml(newer)
    metrics.set("decode", BUSY)
    scene.wait(lambda: scene.desired("decode") == 2, timeout_seconds=60, what="another number")
    scene.wait(
        lambda: scene.variant_autoscaling("decode")["status"].get("role") == "decode", timeout_seconds=30, what="a role"
    )


def test_leader_worker_sets_in_roles_start_from_zero_and_grow_apart(scene: Scene):
    """The real controller makes their pods. The label stands in the template of the leader or of the workers."""
    variants = pair(replicas=0, kind="LeaderWorkerSet", size=SIZE)
    scene.scale_kind("LeaderWorkerSet")
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    metrics = _reporting(scene, variants, CALM)
    with gateway(scene, *variants, port=metrics.port) as client:
        scene.deploy(*variants)
        scene.declare(*variants)
        scene.start_controller(environment={"WVA_TARGET_KINDS": "LeaderWorkerSet"})
        for variant in variants:
            scene.wait(lambda name=variant.name: scene.desired(name) == 0, timeout_seconds=60, what="a number of zero")
        (request,) = client.send(1, model=MODEL)
        assert request.result(timeout=60).endpoint == f"{LOOPBACK}:{metrics.port}"
        for variant in variants:
            name = variant.name
            scene.wait(lambda name=name: scene.ready_replicas(name) == 1, timeout_seconds=60, what="a group of each")
            assert scene.variant_autoscaling(name)["status"]["role"] == name
        assert len(scene.api.list("Pod", namespace=scene.namespace)) == 2 * SIZE + 1  # and that of the picker
        for variant in variants:
            scene.wait_measured(variant)
        scene.scale_by_keda(*variants)
        metrics.set("decode", BUSY)
        scene.wait(lambda: scene.ready_replicas("decode") == 2, timeout_seconds=90, what="growth of decode")
        assert scene.ready_replicas("prefill") == 1


def _reporting(scene: Scene, variants: Sequence[ManifestedVariant], report: PodReport) -> FixedMetrics:
    metrics = scene.fixed_metrics()
    for variant in variants:
        metrics.set(variant.name, report)
    return metrics


def _replicas(scene: Scene) -> dict[str, int]:
    """Return the replicas of the Deployments that are not at zero."""
    found = scene.api.list("Deployment", namespace=scene.namespace)
    counts = {item["metadata"]["name"]: int(item["spec"]["replicas"]) for item in found}
    return {name: count for name, count in counts.items() if count}


def _pods(scene: Scene) -> list[str]:
    """Return the pods behind the pool. While one is left, a picker sends a request there and holds none."""
    return [
        pod["metadata"]["name"] for pod in scene.api.list("Pod", namespace=scene.namespace, labels=f"{POOLED}=true")
    ]


def _version(scene: Scene) -> str:
    """Return the version of the newest Deployment, from which on changes count."""
    found = scene.api.list("Deployment", namespace=scene.namespace)
    return str(max(int(item["metadata"]["resourceVersion"]) for item in found))
