"""The main ConfigMap on the real control plane: live changes, rejected ones, an immutable one, a late API server."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from e2e import manifests
from e2e.controller import ControllerProcess
from e2e.controlplane.api import Body, RefusedRequestError
from e2e.manifests import ManifestedVariant
from e2e.relay import relaying
from e2e.scene import Scene

VARIANT = ManifestedVariant(name="variant")
REASON = "ImmutableConfigChangeRejected"
SLOW, QUICK = "60s", "5s"
QUICK_SECONDS = 5.0
EFFECT_SECONDS = 2.0
DECIDED = "variant_decided"
READER = "reader"


def test_a_shorter_interval_takes_effect_at_once(scene: Scene):
    """After a change from 60 s to 5 s the next cycle begins within two seconds, and the one after it 5 s later."""
    scene.configure(manifests.MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": SLOW})
    controller = scene.start_controller()
    scene.wait(lambda: _cycles(controller) == 1, timeout_seconds=20, what="first cycle")
    time.sleep(QUICK_SECONDS + 1)
    assert _cycles(controller) == 1
    scene.configure(manifests.MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": QUICK})
    scene.wait(lambda: _cycles(controller) == 2, timeout_seconds=EFFECT_SECONDS, what="a cycle at once")
    began = time.monotonic()
    scene.wait(lambda: _cycles(controller) == 3, timeout_seconds=2 * QUICK_SECONDS, what="the next cycle")
    assert time.monotonic() - began > QUICK_SECONDS - EFFECT_SECONDS
    line = _line(controller, "Updated optimization interval")
    assert (line["old"], line["new"]) == (SLOW, QUICK)


def test_a_change_that_needs_a_restart_has_an_event(scene: Scene):
    """The event has the old and the new value and no secret. The rest of the edit applies at once."""
    before = {"GLOBAL_OPT_INTERVAL": SLOW, "REST_CLIENT_TIMEOUT": "30s"}
    scene.configure(manifests.MAIN_CONFIG_MAP, before)
    controller = scene.start_controller()
    scene.wait(lambda: _cycles(controller) == 1, timeout_seconds=20, what="first cycle")
    assert _events(scene) == []
    after = {"GLOBAL_OPT_INTERVAL": QUICK, "REST_CLIENT_TIMEOUT": "40s", "EPP_METRIC_READER_BEARER_TOKEN": "hunter2"}
    scene.configure(manifests.MAIN_CONFIG_MAP, after)
    (event,) = scene.wait(lambda: _events(scene), timeout_seconds=10, what="the event")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["name"] == manifests.MAIN_CONFIG_MAP
    assert "REST_CLIENT_TIMEOUT: 30s -> 40s" in event["message"]
    assert "EPP_METRIC_READER_BEARER_TOKEN: (not set) -> ***" in event["message"]
    assert "hunter2" not in json.dumps(scene.api.list("Event", namespace=scene.namespace))
    assert "hunter2" not in controller.log(10_000)
    assert "Attempted to change immutable parameters" in controller.log(10_000)
    scene.wait(lambda: _cycles(controller) >= 2, timeout_seconds=QUICK_SECONDS * 2, what="the interval applies")
    scene.configure(manifests.MAIN_CONFIG_MAP, {**after, "GLOBAL_OPT_INTERVAL": "6s"})
    time.sleep(2)
    (event,) = _events(scene)
    assert event["count"] == 1, "another edit is no second attempt"

    controller.process.stop()
    second = scene.start_controller(name="second")
    scene.wait(lambda: _cycles(second) >= 1, timeout_seconds=20, what="first cycle of the second controller")
    assert "immutable" not in second.log(10_000)


def test_an_immutable_config_map_is_read_like_any_other(scene: Scene):
    """Its values are in force. Kubernetes refuses to change them, and they outlive the deletion of the ConfigMap."""
    name = manifests.MAIN_CONFIG_MAP
    scene.api.delete("ConfigMap", name, namespace=scene.namespace)
    body = manifests.config_map(name, namespace=scene.namespace, data={"GLOBAL_OPT_INTERVAL": QUICK})
    scene.api.create({**body, "immutable": True})
    controller = scene.start_controller()
    scene.wait(lambda: _cycles(controller) >= 2, timeout_seconds=20, what="two quick cycles")
    with pytest.raises(RefusedRequestError) as refused:
        scene.api.patch("ConfigMap", name, {"data": {"GLOBAL_OPT_INTERVAL": SLOW}}, namespace=scene.namespace)
    assert refused.value.status == 422
    scene.api.delete("ConfigMap", name, namespace=scene.namespace)
    scene.wait(lambda: _events(scene, "ConfigurationDeleted"), timeout_seconds=10, what="the event of the deletion")
    done = _cycles(controller)
    scene.wait(lambda: _cycles(controller) > done, timeout_seconds=2 * QUICK_SECONDS, what="the interval stays")


def test_the_log_level_is_live(scene: Scene):
    """With LOG_LEVEL=warn the controller logs no line for a decision. Without it, the lines come back."""
    scene.deploy(VARIANT)
    scene.declare(VARIANT)
    data = {"GLOBAL_OPT_INTERVAL": "1s"}
    scene.configure(manifests.MAIN_CONFIG_MAP, data)
    controller = scene.start_controller()
    scene.wait(lambda: _decided(controller) >= 1, timeout_seconds=30, what="the line of a decision")
    scene.configure(manifests.MAIN_CONFIG_MAP, {**data, "LOG_LEVEL": "warn"})
    scene.wait(lambda: _line(controller, "Updated log config"), timeout_seconds=EFFECT_SECONDS * 2, what="the change")
    quiet, done = _decided(controller), _cycles(controller)
    scene.wait(lambda: _cycles(controller) >= done + 3, timeout_seconds=20, what="three cycles")
    assert _decided(controller) <= quiet + 1
    scene.configure(manifests.MAIN_CONFIG_MAP, data)
    scene.wait(lambda: _decided(controller) > quiet + 1, timeout_seconds=10, what="the lines are back")


def test_what_is_in_force_is_told_to_those_who_may_ask(scene: Scene):
    """``/debug/config`` asks for the same kind of token as the metrics, and follows the ConfigMap."""
    controller = scene.start_controller()
    controller.wait_metrics()
    assert _config(controller, "")[0] == 401
    assert _config(controller, scene.plane.service_account_token(scene.namespace, manifests.SCRAPER))[0] == 403
    role = f"wva-debug-{scene.namespace}"
    for item in _readers(role, scene.namespace):
        scene.api.create(item)
    try:
        reader = scene.plane.service_account_token(scene.namespace, READER)
        scene.configure(manifests.MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": "7s"})
        scene.wait(
            lambda: _told(controller, reader)["GLOBAL_OPT_INTERVAL"] == ("7s", "configmap"),
            timeout_seconds=20,
            what="the new interval on the page",
        )
        assert _told(controller, reader)["POD_NAMESPACE"] == (scene.namespace, "environment")
        assert _told(controller, reader)["WATCH_NAMESPACE"] == (scene.namespace, "flag")
    finally:
        scene.api.delete("ClusterRoleBinding", role)
        scene.api.delete("ClusterRole", role)


def _readers(role: str, namespace: str) -> list[Body]:
    """Describe the role and binding of an account that may read the page."""
    group = "rbac.authorization.k8s.io"
    rule = {"nonResourceURLs": ["/debug/config"], "verbs": ["get"]}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": [rule]},
        manifests.service_account(READER, namespace=namespace),
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": namespace}],
        },
    ]


def test_a_late_api_server_is_waited_for(scene: Scene):
    """The probes answer meanwhile and name the reason. Later the controller works without a restart."""
    with relaying(scene.plane.endpoint.server.removeprefix("https://")) as relay:
        relay.cut()
        controller = scene.start_controller(kubeconfig=scene.identity(through=relay.address))
        status, text = controller.readiness()
        assert status == 503
        assert "waiting for the API server" in text
        assert controller.liveness()[0] == 200
        relay.restore()
        scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=40, what="ready")
        scene.wait(lambda: _cycles(controller) >= 1, timeout_seconds=20, what="a cycle")


def _cycles(controller: ControllerProcess) -> int:
    return int(controller.metrics().total("wva_cycles_total"))


def _decided(controller: ControllerProcess) -> int:
    return controller.log(100_000).count(DECIDED)


def _line(controller: ControllerProcess, event: str) -> dict[str, Any]:
    """Return the last log line of an event; empty when there is none."""
    lines = [line for line in controller.log(100_000).splitlines() if event in line and line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


def _events(scene: Scene, reason: str = REASON) -> list[Body]:
    selector = urllib.parse.quote(f"reason={reason}")
    found: list[Body] = scene.api.raw(f"/api/v1/namespaces/{scene.namespace}/events?fieldSelector={selector}")["items"]
    return found


def _config(controller: ControllerProcess, token: str) -> tuple[int, str]:
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE  # self-signed
    request = urllib.request.Request(f"https://{controller.addresses.metrics}/debug/config")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=5, context=tls) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _told(controller: ControllerProcess, token: str) -> dict[str, tuple[str, str]]:
    status, text = _config(controller, token)
    assert status == 200, text
    return {entry["name"]: (entry["value"], entry["source"]) for entry in json.loads(text)}
