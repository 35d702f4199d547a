"""Two controllers in one cluster, each with an instance and variants of its own. One variant changes its instance."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

LABEL = "wva.llmd.ai/controller-instance"
MOVING, STAYING = ManifestedVariant(name="moving"), ManifestedVariant(name="staying")
NUMBER = MOVING.replicas + 1
SCRAPE_SECONDS = 0.2
Publishers = tuple[tuple[str, int], ...]
"""The controllers that publish a variant in one round of scrapes, with their numbers."""


class Scrapes:
    """What all controllers published of one variant, scraped side by side five times a second."""

    def __init__(self, controllers: Sequence[ControllerProcess], variant: str) -> None:
        """Scrape nothing yet."""
        self._controllers, self._variant = controllers, variant
        self._stop = threading.Event()
        self.rounds: list[Publishers] = []

    def run(self) -> None:
        """Scrape until stopped."""
        with ThreadPoolExecutor(len(self._controllers)) as pool:
            while not self._stop.wait(SCRAPE_SECONDS):
                seen = zip(self._controllers, pool.map(self._number, self._controllers), strict=True)
                self.rounds.append(
                    tuple((controller.name, number) for controller, number in seen if number is not None)
                )

    def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    def _number(self, controller: ControllerProcess) -> int | None:
        value = controller.metrics().value("wva_desired_replicas", variant_name=self._variant)
        return None if value is None else int(value)


@contextmanager
def scraping(controllers: Sequence[ControllerProcess], variant: str) -> Iterator[Scrapes]:
    """Scrape inside the block."""
    scrapes = Scrapes(controllers, variant)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scrapes.run)
        try:
            yield scrapes
        finally:
            scrapes.stop()
            running.result()


def test_handed_over_without_gap_double_or_jump(scene: Scene):
    """A variant relabelled there and back keeps its number, and exactly one controller publishes it all the time."""
    metrics = scene.fixed_metrics()
    for variant in (MOVING, STAYING):
        metrics.set(variant.name, PodReport(kv_usage=0.5))
    scene.deploy(MOVING, STAYING)
    scene.wait_ready(MOVING, STAYING)
    scene.declare(MOVING, STAYING)
    _label(scene, MOVING, "blue")
    _label(scene, STAYING, "green")
    decided = {"accelerator": MOVING.accelerator, "numReplicas": NUMBER}
    patch = {"status": {"desiredOptimizedAlloc": decided}}
    scene.api.patch("VariantAutoscaling", MOVING.name, patch, namespace=scene.namespace, subresource="status")
    blue, green = (
        scene.start_controller("--leader-elect", name=name, environment={"CONTROLLER_INSTANCE": name})
        for name in ("blue", "green")
    )
    scene.wait_measured(MOVING, STAYING)
    names = {lease["metadata"]["name"] for lease in scene.api.list("Lease", namespace=scene.namespace)}
    assert names == {"blue.72dd1cf1.llm-d.ai", "green.72dd1cf1.llm-d.ai"}

    with scraping((blue, green), MOVING.name) as scrapes:
        time.sleep(1)
        for instance, owner in (("green", green), ("blue", blue)):
            _label(scene, MOVING, instance)
            scene.wait(
                lambda owner=owner: _publishes(owner, MOVING), timeout_seconds=10, what=f"{owner.name} publishes"
            )
            time.sleep(2 * CYCLE_SECONDS)
            assert f"instance {instance}" in scene.condition(MOVING.name, "Claimed").message
    _judge(scrapes.rounds, blue=blue.name, green=green.name)
    for controller in (blue, green):
        for series in controller.metrics().series("wva_desired_replicas"):
            assert controller.name.startswith(series.labels["controller_instance"])
    assert not _publishes(blue, STAYING)
    assert _publishes(green, STAYING)


def _judge(rounds: Sequence[Publishers], *, blue: str, green: str) -> None:
    """Assert one publisher all the time. One odd round at a change is allowed: two scrapes are not one instant."""
    assert {number for publishers in rounds for _, number in publishers} == {NUMBER}
    owners = [tuple(name for name, _ in publishers) for publishers in rounds]
    odd = [len(names) != 1 for names in owners]
    assert not any(first and second for first, second in itertools.pairwise(odd)), owners
    assert sum(odd) <= 2, owners
    order = [name for name, _ in itertools.groupby(names[0] for names in owners if len(names) == 1)]
    assert order == [blue, green, blue]


def _publishes(controller: ControllerProcess, variant: ManifestedVariant) -> bool:
    return controller.metrics().value("wva_desired_replicas", variant_name=variant.name) is not None


def _label(scene: Scene, variant: ManifestedVariant, instance: str) -> None:
    patch = {"metadata": {"labels": {LABEL: instance}}}
    scene.api.patch("VariantAutoscaling", variant.name, patch, namespace=scene.namespace)
