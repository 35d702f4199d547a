"""The surge of ``test_surge``, by who applies the decision: what the users get from each way, and how soon it comes.

Namespaces side by side get the same requests, in every run of the test. Their controllers decide the same way, and
what applies the numbers differs.
All ways remove replicas after the same time, that of the samples in ``deploy/samples``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e import manifests
from e2e.controlplane.cluster import ControlPlane
from e2e.history import recording
from e2e.manifests import MAIN_CONFIG_MAP
from e2e.scene import Launch, Scene
from e2e.test_keda_push import Push
from e2e.test_surge import (
    A100,
    ENGINES,
    H100,
    HIGH_RATE,
    LOW_RATE,
    SERVED_SECONDS,
    STEP_SECONDS,
    Side,
)

VARIANTS = (A100, H100)
INTERVAL = "15s"
DOWN_SECONDS = 60
CALM_SECONDS = 120.0
"""How long the load is low before the step: the controllers start within it."""
USUAL_SECONDS = 30.0
LOAD = [
    (0.0, LOW_RATE),
    (CALM_SECONDS, LOW_RATE),
    (CALM_SECONDS + 1.0, HIGH_RATE),
    (CALM_SECONDS + STEP_SECONDS, HIGH_RATE),
    (CALM_SECONDS + STEP_SECONDS, 0.0),
]
DECIDED_SECONDS = 6.0
LOOK_SECONDS = 0.5
"""How late the history may notice a number."""
WITHIN_A_SECOND = 0.97
DEARER_BY = 1.15


@dataclass(frozen=True)
class Way:
    """What applies a decision: by annotations of the VA, by KEDA (which polls, or is pushed to) or without."""

    keda: bool = True
    push: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


POLLING = "polling"
WAYS = {
    POLLING: Way(),
    "direct": Way(
        keda=False,
        annotations={"wva.llmd.ai/actuation": "direct", "wva.llmd.ai/scale-down-window": f"{DOWN_SECONDS}s"},
        environment={"WVA_DIRECT_ACTUATION": "true"},
    ),
    "keda-push": Way(push=True, annotations={"wva.llmd.ai/actuation": "keda-push"}),
}


@dataclass
class Run(Side):
    """One way with its namespace. Times are seconds since the step."""

    way: Way = field(default_factory=Way)
    push: Push | None = None
    shown: float | None = None
    """The first scrape that has more requests in progress than ever before the step."""

    def deploy(self) -> None:
        """Start the replicas; the targets leave their number to whoever scales."""
        scene = self.scene
        for variant in VARIANTS:
            self.fleet.add(variant, ENGINES[variant.name])
            body = manifests.target(variant, namespace=scene.namespace)
            if not self.way.keda:
                del body["spec"]["replicas"]
            scene.api.apply(body)
        scene.wait_ready(*VARIANTS)

    def begin(self) -> None:
        """Start whoever decides and whoever scales."""
        scene = self.scene
        for variant in VARIANTS:
            scene.variants[variant.name] = variant
            item = manifests.variant_autoscaling(variant, namespace=scene.namespace)
            item["metadata"]["annotations"] = dict(self.way.annotations)
            scene.api.apply(item)
        flags = [] if self.push is None else self.push.flags()
        if self.way.keda:
            trigger = None if self.push is None else self.push.trigger
            scene.scale_by_keda(*VARIANTS, trigger=trigger, down_seconds=DOWN_SECONDS)
        scene.start_controller(*flags, environment=dict(self.way.environment))

    def requests(self) -> list[tuple[float, float]]:
        """Return the time of each new sample (seconds since the epoch), and the requests in progress in it."""
        where = f'{{namespace="{self.scene.namespace}"}}'
        running, waiting = f"vllm:num_requests_running{where}", f"vllm:num_requests_waiting{where}"
        api = self.scene.plane.prometheus_api
        found = api.query(f"sum({running}) + sum({waiting})")
        times = api.query(f"max(timestamp({running}))")
        return [(at.value, sample.value) for at, sample in zip(times, found, strict=False)]

    def decided(self, since: float) -> float:
        """Return when the first larger number was published, in seconds since the step at ``since``."""
        changes = self.scene.history.changes(since_seconds=since)
        return min((each.at_seconds - since for each in changes if each.new > each.old), default=float("inf"))

    def report(self, since: float) -> dict[str, Any]:
        """Return all figures of the run."""
        shown = float("inf") if self.shown is None else self.shown
        return {
            "within 1 s": round(self.attained(), 4),
            "cost": round(self.cost),
            "shown": round(shown, 1),
            "decided after it": round(self.decided(since) - shown, 1),
            "replicas": self.numbers,
        }


@pytest.fixture
def runs(own_control_plane: ControlPlane, namespace: str, launch: Launch, tmp_path: Path) -> Iterator[dict[str, Run]]:
    """Give each way a namespace."""
    with contextlib.ExitStack() as stack:
        made = {}
        for name, way in WAYS.items():
            own = f"{namespace}-{name}"
            own_control_plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}})
            stack.callback(own_control_plane.api.delete, "Namespace", own)
            history = stack.enter_context(recording())
            scene = Scene(own_control_plane, own, launch=launch, history=history, stack=stack)
            scene.install()
            scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": INTERVAL})
            made[name] = Run(
                scene, scene.fleet(arrivals="surge"), way=way, push=Push(scene, tmp_path) if way.push else None
            )
        yield made


@pytest.mark.disruptive  # it breaks no other test, but it measures times and needs the machine for itself
@pytest.mark.timeout(900)
def test_a_surge_is_met_sooner_without_polling(runs: dict[str, Run]) -> None:
    """The decision comes within six seconds, and acting on it at once serves nearly all in time for little more."""
    for run in runs.values():
        run.deploy()
    began = time.monotonic()
    for run in runs.values():
        run.fleet.offer_points(LOAD)
    for run in runs.values():
        run.begin()
    for run in runs.values():
        run.scene.wait_measured(*VARIANTS, timeout_seconds=60)
    since = began + CALM_SECONDS
    left = since - USUAL_SECONDS - time.monotonic()
    assert left > 0, "the controllers started too late to see a calm load"
    time.sleep(left)
    usual = _watched(runs, since - time.monotonic())  # a load that fits changes nothing
    _spend(runs, since, usual)
    time.sleep(SERVED_SECONDS)  # the test judges the users of the first 200 seconds
    report = {name: run.report(since) for name, run in runs.items()}
    print(report)
    for run in runs.values():
        assert run.shown is not None, report
        assert run.decided(since) - run.shown <= DECIDED_SECONDS + LOOK_SECONDS, report
    for name, run in runs.items():
        if name != POLLING:
            assert run.attained() >= WITHIN_A_SECOND, report
            assert run.cost <= runs[POLLING].cost * DEARER_BY, report


def _watched(runs: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """Return the most requests in progress that each run has shown within so many seconds."""
    most = dict.fromkeys(runs, 0.0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1.0)
        for name, run in runs.items():
            most[name] = max([most[name], *(count for _, count in run.requests())])
    return most


def _spend(runs: Mapping[str, Run], since: float, usual: Mapping[str, float]) -> None:
    """Let the step pass; charge the replicas, and note the first scrape that shows the step."""
    epoch = time.time() - (time.monotonic() - since)
    last = since
    while last - since < STEP_SECONDS:
        time.sleep(1.0)
        now = time.monotonic()
        for name, run in runs.items():
            run.charge(now - last, now - since)
            if run.shown is None:
                run.shown = _first(run.requests(), usual[name], epoch)
        last = now


def _first(seen: Sequence[tuple[float, float]], usual: float, epoch: float) -> float | None:
    return next((at - epoch for at, count in seen if count > usual and at > epoch), None)
