"""The leader is killed again and again while it writes replicas itself; the API server's audit log is the witness.

The load rises in steps meanwhile and falls in the end. For each write of ``scale`` the log says which process sent it
and which number, and for each write of the Lease who holds it from then on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from e2e import manifests
from e2e.controller import ControllerProcess
from e2e.controlplane.audit import writes
from e2e.load import FleetProcess
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene
from e2e.test_leadership import CRASH_SECONDS, ELECTION, LEASE_SECONDS
from e2e.test_surge import ENGINES
from wva.actuation import MANAGER

A100 = ManifestedVariant(name="a100", cost=20, accelerator="A100", loading="2s")
MOST = 12
CARRIED = 4.0
"""Requests per second that an A100 carries, about."""
KILLS = int(os.environ.get("WVA_E2E_LEADER_KILLS", "20"))
KILL_SECONDS = 30.0
LOW_RATE, HIGH_RATE = 3.0, 24.0
STEPS = 6
"""In so many steps the load rises from the low to the high rate, while leaders are killed."""
FALL_SECONDS = 240.0
LATE_SECONDS = 2.0
"""How far the clocks of a process and of the log's writer may be apart, and how long a request may be under way."""
ANNOTATIONS = {
    "wva.llmd.ai/actuation": "direct",
    "wva.llmd.ai/max-replicas": str(MOST),
    "wva.llmd.ai/scale-down-window": "20s",
}


@dataclass(frozen=True, slots=True)
class Reign:
    """A time in which a process held the Lease, in seconds of the wall clock; it ends when another one took over."""

    process: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Order:
    """A number that a process wrote."""

    at_seconds: float
    process: str
    replicas: int


class Dynasty:
    """Controllers of which one leads; a killed one is replaced."""

    def __init__(self, scene: Scene) -> None:
        """Have nobody yet."""
        self._scene = scene
        self.identities: dict[str, Path] = {}
        self.alive: list[ControllerProcess] = []

    def start(self) -> ControllerProcess:
        """Start one more candidate."""
        identity, name = self._scene.identity(), f"candidate-{len(self.identities)}"
        controller = self._scene.start_controller(
            *ELECTION, name=name, kubeconfig=identity, environment={"WVA_DIRECT_ACTUATION": "true"}
        )
        self.identities[name] = identity
        self.alive.append(controller)
        return controller

    def leader(self) -> ControllerProcess | None:
        """Return who publishes, None if nobody does."""
        for controller in self.alive:
            with contextlib.suppress(OSError):
                if controller.metrics().value("wva_desired_replicas", variant_name=A100.name) is not None:
                    return controller
        return None

    def kill_leader(self) -> None:
        """Kill the leader without warning, wait until another one leads, and start one more candidate."""
        leader = self._scene.wait(self.leader, timeout_seconds=CRASH_SECONDS + 10, what="a leader")
        leader.process.kill()
        self.alive.remove(leader)
        self._scene.wait(self.leader, timeout_seconds=CRASH_SECONDS + 5, what="a successor")
        self.start()

    def orders(self, log: Path) -> list[Order]:
        """Return every number that the API server took, in the order of time."""
        found = [
            Order(write.at_seconds, name, write.body["spec"]["replicas"])
            for name, identity in self.identities.items()
            for write in writes(log, kubeconfig=identity)
            if "/scale" in write.path and write.code < 300 and "dryRun" not in write.path
        ]
        return sorted(found, key=lambda order: order.at_seconds)

    def reigns(self, log: Path) -> list[Reign]:
        """Return who held the Lease when, in the order of time."""
        taken = sorted(
            (write.at_seconds, name, write.body["spec"].get("holderIdentity", ""))
            for name, identity in self.identities.items()
            for write in writes(log, kubeconfig=identity)
            if "/leases" in write.path and write.code < 300
        )
        found: list[Reign] = []
        for at, name, holder in taken:
            if holder and (not found or found[-1].process != name):
                if found:
                    found[-1] = Reign(found[-1].process, found[-1].begin, at)
                found.append(Reign(name, at, float("inf")))
        return found


@pytest.fixture
def fleet(scene: Scene) -> FleetProcess:
    """Deploy a variant with direct actuation and a low load."""
    found = scene.fleet()
    found.add(A100, ENGINES["a100"])
    body = manifests.target(A100, namespace=scene.namespace)
    del body["spec"]["replicas"]
    scene.api.apply(body)
    scene.wait_ready(A100)
    found.offer(LOW_RATE)
    item = manifests.variant_autoscaling(A100, namespace=scene.namespace)
    item["metadata"]["annotations"] = dict(ANNOTATIONS)
    scene.api.apply(item)
    scene.variants[A100.name] = A100
    return found


@pytest.mark.disruptive  # it takes ten minutes, and the times of the Lease need a machine that is not busy
@pytest.mark.timeout(1500)
def test_leaders_are_killed_while_they_write(scene: Scene, fleet: FleetProcess):
    """No two processes write at the same time, no number jumps, and each rise of the load is met."""
    dynasty = Dynasty(scene)
    dynasty.start()
    dynasty.start()
    scene.wait_measured(A100, timeout_seconds=60)
    stairs = KILLS * KILL_SECONDS / STEPS
    points = [(0.0, LOW_RATE)]
    for step in range(1, STEPS + 1):
        rate = LOW_RATE + (HIGH_RATE - LOW_RATE) * step / STEPS
        points += [(step * stairs - stairs / 2, points[-1][1]), (step * stairs - stairs / 2, rate)]
    fleet.offer_points(points)
    offered, began = time.time(), time.monotonic()
    for kill in range(1, KILLS + 1):
        time.sleep(max(0.0, began + kill * KILL_SECONDS - time.monotonic()))
        dynasty.kill_leader()
    risen = time.time()
    highest = scene.replicas(A100.name)
    fleet.offer(LOW_RATE)
    scene.wait(lambda: scene.replicas(A100.name) < highest, timeout_seconds=FALL_SECONDS, what="a shrink")

    log = scene.plane.layout.audit_log
    orders, reigns = dynasty.orders(log), dynasty.reigns(log)
    said = {
        "kills": KILLS,
        "reigns": len(reigns),
        "writers": len({order.process for order in orders}),
        "numbers": [order.replicas for order in orders],
    }
    print(said)
    assert len(reigns) == KILLS + 1, reigns
    assert_each_writer_led(orders, reigns)
    assert_no_jump(orders, risen, lambda at: max(rate for second, rate in points if second <= max(0.0, at - offered)))
    assert len({order.process for order in orders}) >= min(KILLS, STEPS) / 2, said
    assert highest * CARRIED >= 0.9 * HIGH_RATE, said
    assert not scene.events("ReplicasOwned")
    target = scene.api.get("Deployment", A100.name, namespace=scene.namespace)
    owners = [
        entry["manager"]
        for entry in target["metadata"]["managedFields"]
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    assert owners == [MANAGER]


def assert_each_writer_led(orders: Sequence[Order], reigns: Sequence[Reign]) -> None:
    """Assert that each write came from the holder of the Lease, and none after its successor had taken it."""
    for order in orders:
        own = [reign for reign in reigns if reign.process == order.process]
        assert any(reign.begin <= order.at_seconds <= reign.end for reign in own), (order, reigns)
    for former, latter in pairwise(reigns):
        last = max((order.at_seconds for order in orders if order.process == former.process), default=former.begin)
        first = min((order.at_seconds for order in orders if order.process == latter.process), default=latter.end)
        assert last <= latter.begin <= first, (former, latter)
        assert latter.begin - last <= KILL_SECONDS + LEASE_SECONDS + LATE_SECONDS or last == former.begin


def assert_no_jump(orders: Sequence[Order], risen: float, load: Callable[[float], float]) -> None:
    """Assert that numbers fit the load, which rises until ``risen`` and is low from then on.

    Until then a number falls only after a queue, and no lower than the ``load`` of its moment asks for: who takes over
    after a step finds requests that wait, and orders for them, too. From then on numbers only fall.
    """
    up = [order for order in orders if order.at_seconds < risen]
    down = [order.replicas for order in orders if order.at_seconds >= risen]
    assert up, "nothing was written"
    for before, after in pairwise(up):
        enough = after.replicas * CARRIED >= 0.9 * load(after.at_seconds)
        assert after.replicas > before.replicas or enough, (after, load(after.at_seconds), orders)
    assert down == sorted(down, reverse=True), down
    numbers = [order.replicas for order in orders]
    assert min(numbers) >= 1
    assert max(numbers) <= 2.0 * HIGH_RATE / CARRIED
