"""A variant starts from zero for the requests at a gateway: the real endpoint picker, KEDA and the controller."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass

import pytest

from e2e.controller import ControllerProcess
from e2e.controlplane.build import PICKER_1_2, PICKER_1_3, Module
from e2e.controlplane.layout import LOOPBACK
from e2e.controlplane.polling import eventually
from e2e.ext_proc import ExtProcClient
from e2e.gateway import gateway
from e2e.load import PodReport
from e2e.manifests import MAIN_CONFIG_MAP, MODEL, SCRAPER, ManifestedVariant
from e2e.scene import Scene

WAKING = ManifestedVariant(name="model", minimum=0, loading="500ms")
ASLEEP = ManifestedVariant(name="asleep", replicas=0, loading="500ms", address=LOOPBACK)
ROUNDS = 20
WITHIN_SECONDS = 3.0
STAYS_SECONDS = 4.0
KEDA_POLLING_SECONDS = 1
"""The shortest interval of KEDA: it polls every second, so it also polls while a start is under way."""
SCRAPE_SECONDS = 1
"""The scrape interval that the documentation asks for, so that KEDA takes no start back."""
SCALE_TO_ZERO_CONFIG_MAP = "wva-model-scale-to-zero-config"
POWERLESS = "default"
"""A ServiceAccount of each namespace, without rights."""
FEW = 2
FLOWS = 300
REPLICAS_FOR_FLOWS = 2
"""A replica takes 256 requests where its target does not say otherwise."""
QUEUE_SERIES = b"\ninference_extension_flow_control_queue_size{"
LONG_PAGE_BYTES = 1024 * 1024
IDLE = PodReport(kv_usage=0.0)


@dataclass(frozen=True, slots=True)
class WakingRound:
    """The seconds until the replica was asked for, and every number of replicas asked for from then on."""

    took_seconds: float
    asked: tuple[int, ...]


@pytest.mark.smoke
def test_requests_that_the_picker_holds_start_the_model_and_are_served(scene: Scene):
    """Requests wait at the picker, WVA starts a replica for them, and the picker sends them to its pod."""
    metrics = scene.fixed_metrics()
    metrics.set(ASLEEP.name, IDLE)
    with gateway(scene, ASLEEP, port=metrics.port) as client:
        _declare_asleep(scene, reason="QueueNotYetKnown")
        requests = client.send(2, model=MODEL)
        scene.wait(lambda: scene.replicas(ASLEEP.name) == 1, timeout_seconds=30, what="a replica")
        answers = [request.result(timeout=30) for request in requests]
    assert [(answer.status, answer.endpoint) for answer in answers] == [(200, f"{LOOPBACK}:{metrics.port}")] * 2
    scene.wait(lambda: _gateway_reason(scene) == "GatewayRead", timeout_seconds=30, what="a readable gateway")


@pytest.mark.parametrize(
    ("picker", "flow_control"),
    [
        pytest.param(PICKER_1_2, False, id="1.2"),
        pytest.param(PICKER_1_2, True, id="1.2 with flow control"),
        pytest.param(PICKER_1_3, False, id="1.3 without flow control"),
    ],
)
def test_a_request_that_the_picker_refuses_starts_the_only_model_of_its_pool(
    scene: Scene, picker: Module, *, flow_control: bool
):
    """Such a picker refuses at zero. Its count of this starts the model, and the next try is served.

    What was refused before the first look starts nothing, but tells that the picker holds none.
    """
    metrics = scene.fixed_metrics()
    metrics.set(ASLEEP.name, IDLE)
    with gateway(scene, ASLEEP, picker=picker, flow_control=flow_control, port=metrics.port) as client:
        _refuse(client)
        _declare_asleep(scene, reason="QueueMissing")
        assert scene.replicas(ASLEEP.name) == 0
        _refuse(client)
        scene.wait(lambda: scene.replicas(ASLEEP.name) == 1, timeout_seconds=30, what="a replica")
        eventually(lambda: _served(client), timeout_seconds=30, what="a pod for the next try")


def test_what_clients_choose_hides_no_request(scene: Scene):
    """Names of flows that clients choose make a page long, and an adapter has a name of its own: all requests count."""
    with gateway(scene, ASLEEP) as client:
        _send_flows(client)
        scene.wait(lambda: _page(scene).count(QUEUE_SERIES) == FLOWS, timeout_seconds=20, what="a queue for each flow")
        client.hang_up()
        scene.wait(lambda: len(_page(scene)) > LONG_PAGE_BYTES, timeout_seconds=20, what="a long page")
        _send_flows(client)
        scene.wait(lambda: _waiting(scene) == FLOWS, timeout_seconds=30, what="all requests")
        scene.deploy(ASLEEP)
        scene.declare(ASLEEP)
        scene.start_controller()
        scene.wait(lambda: scene.replicas(ASLEEP.name) > 0, timeout_seconds=60, what="a replica")
        assert scene.replicas(ASLEEP.name) == REPLICAS_FOR_FLOWS


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        pytest.param("", 401, "is not set", id="no token"),
        pytest.param("a-wrong-token", 500, "is wrong or expired", id="wrong token"),
        pytest.param(POWERLESS, 403, "may not get /metrics", id="token without the right"),
    ],
)
def test_a_picker_that_does_not_accept_the_token_is_told(scene: Scene, token: str, status: int, words: str):
    """The picker asks the API server whose token it is and what it allows; the condition says what is wrong."""
    if token == POWERLESS:
        token = scene.plane.service_account_token(scene.namespace, POWERLESS)
    with gateway(scene, ASLEEP):
        scene.deploy(ASLEEP)
        scene.declare(ASLEEP)
        scene.start_controller(environment={"EPP_METRIC_READER_BEARER_TOKEN": token})
        scene.wait(
            lambda: scene.condition(ASLEEP.name, "GatewayReadable").status == "False", timeout_seconds=60, what="told"
        )
    said = scene.condition(ASLEEP.name, "GatewayReadable")
    assert said.reason == "GatewayUnreadable"
    assert f"answered {status}" in said.message
    assert words in said.message
    assert token not in said.message or not token


def _declare_asleep(scene: Scene, *, reason: str) -> None:
    """Start a controller, and wait until it has read the picker and gives this reason for what it thinks of it."""
    scene.deploy(ASLEEP)
    scene.declare(ASLEEP)
    controller = scene.start_controller()
    scene.wait(lambda: scene.desired(ASLEEP.name) == 0, timeout_seconds=60, what="a number of zero")
    scene.wait(lambda: _reads(controller) > FEW, timeout_seconds=30, what="a few pages of the picker")
    scene.wait(lambda: _gateway_reason(scene) == reason, timeout_seconds=30, what=reason)


def _send_flows(client: ExtProcClient) -> None:
    for flow in range(FLOWS):
        client.send(1, model="an-adapter", x_gateway_inference_fairness_id=f"flow-{flow}")


def _refuse(client: ExtProcClient) -> None:
    (request,) = client.send(1, model=MODEL)
    refusal = request.result(timeout=10)
    assert (refusal.status, refusal.endpoint) == (503, ""), refusal


def _gateway_reason(scene: Scene) -> str:
    return scene.condition(ASLEEP.name, "GatewayReadable").reason


def _page(scene: Scene) -> bytes:
    """Return what the picker serves to the account whose token the controller has."""
    port = scene.api.get("Service", "epp", namespace=scene.namespace)["spec"]["ports"][0]["port"]
    token = scene.plane.service_account_token(scene.namespace, SCRAPER)
    request = urllib.request.Request(f"http://{LOOPBACK}:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        content: bytes = response.read()
    return content


def _waiting(scene: Scene) -> float:
    """Return how many requests the picker holds."""
    lines = _page(scene).splitlines()
    return sum(float(line.rsplit(b" ", 1)[1]) for line in lines if line.startswith(QUEUE_SERIES.strip()))


def _reads(controller: ControllerProcess) -> float:
    """Return how often the controller has read a picker."""
    return controller.metrics().value("wva_gateway_reads_total", result="success") or 0.0


def _served(client: ExtProcClient) -> bool:
    (request,) = client.send(1, model=MODEL)
    return bool(request.result(timeout=10).endpoint)


@pytest.mark.disruptive  # it breaks no other test, but it measures times and needs the machine for itself
@pytest.mark.timeout(1200)
def test_to_zero_and_back_twenty_times(scene: Scene):
    """Each start comes within three seconds of the first waiting request, and KEDA takes no start back."""
    scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": "2s"})
    scene.configure(SCALE_TO_ZERO_CONFIG_MAP, {"default": "enable_scale_to_zero: true\nretention_period: 8s"})
    metrics = scene.fixed_metrics()
    metrics.set(WAKING.name, IDLE)
    scene.deploy(WAKING)
    scene.wait_ready(WAKING)
    scene.declare(WAKING)
    scene.scale_by_keda(WAKING)
    scene.scrape_seconds = SCRAPE_SECONDS
    scene.start_controller()
    with gateway(scene, WAKING) as client:
        rounds = [_round(scene, client, part=number / ROUNDS) for number in range(ROUNDS)]
    took = [each.took_seconds for each in rounds]
    print(f"from zero after {min(took):.2f} to {max(took):.2f} s")
    assert max(took) <= WITHIN_SECONDS, took
    assert all(set(each.asked) == {1} for each in rounds), rounds
    scene.assert_allowed()


def _round(scene: Scene, client: ExtProcClient, *, part: float) -> WakingRound:
    """Go to zero and back once, while KEDA polls at this fraction of every second."""
    scene.wait(lambda: scene.replicas(WAKING.name) == 0, timeout_seconds=90, what="scale to zero")
    _look_at(scene, part)
    time.sleep(1.0)
    client.send(2, model=MODEL)
    asked = time.monotonic()
    eventually(lambda: scene.replicas(WAKING.name) >= 1, timeout_seconds=30, interval_seconds=0.05)
    took = time.monotonic() - asked
    started = scene.api.get("Deployment", WAKING.name, namespace=scene.namespace)
    time.sleep(STAYS_SECONDS)
    version = started["metadata"]["resourceVersion"]
    later = scene.api.changes("Deployment", namespace=scene.namespace, since=version)
    client.hang_up()
    return WakingRound(took, tuple(state["spec"]["replicas"] for state in (started, *later)))


def _look_at(scene: Scene, part: float) -> None:
    """Let KEDA poll at this fraction of every second: a change of the ScaledObject restarts its polling."""
    time.sleep((part - time.time()) % 1.0)
    cooldown = 3 + round(part * ROUNDS) % 2
    spec = {"pollingInterval": KEDA_POLLING_SECONDS, "cooldownPeriod": cooldown}
    scene.api.patch("ScaledObject", WAKING.name, {"spec": spec}, namespace=scene.namespace)
