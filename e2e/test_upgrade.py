"""From the release before to this one and back, while an HPA follows the number: no number and no replica moves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from e2e import release_before
from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.succession import start_standby

SCALED = ManifestedVariant(name="scaled", maximum=3)
"""It is full whatever it has, so its HPA has brought it to its maximum."""
UNFINISHED = ManifestedVariant(name="unfinished", model="acme/other", accelerator="A100")
"""No scaler applies its number, and its load needs one replica less: who forgets the number publishes another."""
NUMBERS = {SCALED.name: SCALED.maximum, UNFINISHED.name: UNFINISHED.replicas + 1}


def test_a_rollout_and_its_way_back_move_nothing(scene: Scene, tmp_path: Path):
    """Each release takes the Lease of the other, goes on with its numbers, and reads the recordings of the other."""
    before = tmp_path / "before"
    name = release_before.unpack(before)
    cycles = tmp_path / "cycles"
    _declare(scene)
    old = release_before.environment(before)
    first = scene.start_controller("--leader-elect", f"--record-dir={cycles}", name="before", environment=old)
    _wait_numbers(scene)
    since = scene.condition(UNFINISHED.name, "Progressing").since
    assert since
    started = time.monotonic()

    new = start_standby(scene, "--leader-elect", name="after")
    _hand_over(scene, first, new)
    back = scene.start_controller("--leader-elect", name="back", environment=old)
    scene.wait(lambda: back.readiness()[0] == 200, timeout_seconds=60, what="the release before is ready again")
    _hand_over(scene, new, back)

    assert scene.history.changes(since_seconds=started) == [], (name, str(scene.history))
    assert scene.replicas(SCALED.name) == SCALED.maximum
    assert scene.condition(UNFINISHED.name, "Progressing").since == since, "the clock of the change was reset"
    # One look asks one after the other, so it may see the old leader just before and the new one just after.
    both = [len([entry for entry in entries if entry.desired]) > 1 for entries in scene.history.rounds()]
    assert not any(first and second for first, second in pairwise(both)), "both releases publish"
    assert _replayed(cycles) > 0


def test_the_release_before_is_another_program(tmp_path: Path):
    """The folder has a program, and it is this one that runs with the variables: the comparison is of two releases."""
    release_before.unpack(tmp_path)
    code = "import wva, pathlib; print(pathlib.Path(wva.__file__).parents[1])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **release_before.environment(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert Path(done.stdout.strip()) == tmp_path
    here = {path.relative_to(release_before.ROOT) for path in (release_before.ROOT / "wva").rglob("*.py")}
    there = {path.relative_to(tmp_path) for path in (tmp_path / "wva").rglob("*.py")}
    assert any(
        path not in there or (tmp_path / path).read_bytes() != (release_before.ROOT / path).read_bytes()
        for path in here
    )


def _declare(scene: Scene) -> None:
    """Make the two variants, their load, and the HPA of the first."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    metrics = scene.fixed_metrics()
    metrics.set(SCALED.name, PodReport(kv_usage=0.9))
    metrics.set(UNFINISHED.name, PodReport(kv_usage=0.5), model=UNFINISHED.model)
    scene.deploy(SCALED, UNFINISHED)
    scene.wait_ready(SCALED, UNFINISHED)
    scene.declare(SCALED, UNFINISHED)
    decided = {"accelerator": UNFINISHED.accelerator, "numReplicas": NUMBERS[UNFINISHED.name]}
    patch = {"status": {"desiredOptimizedAlloc": decided}}
    scene.api.patch("VariantAutoscaling", UNFINISHED.name, patch, namespace=scene.namespace, subresource="status")
    scene.scale_by_keda(SCALED)


def _wait_numbers(scene: Scene) -> None:
    """Wait until the HPA has followed, the pods are there, and both numbers are decided from measurements."""
    scene.wait(
        lambda: scene.ready_replicas(SCALED.name) == SCALED.maximum,
        timeout_seconds=180,
        what=f"the HPA gives {SCALED.name} {SCALED.maximum} replicas",
    )
    scene.wait_measured(SCALED, UNFINISHED)
    for variant, number in NUMBERS.items():
        scene.wait(lambda v=variant, n=number: scene.desired(v) == n, timeout_seconds=60, what=f"{variant}: {number}")


def _hand_over(scene: Scene, old: ControllerProcess, new: ControllerProcess) -> None:
    """End one controller as a rollout does, and let the other decide for some cycles with the HPA behind it."""
    old.process.stop(grace_seconds=30)
    scene.wait(
        lambda: all(new.metrics().value("wva_desired_replicas", variant_name=name) for name in NUMBERS),
        timeout_seconds=30,
        what=f"{new.name} publishes both numbers",
    )
    scene.wait_measured(SCALED, UNFINISHED)
    time.sleep(3 * CYCLE_SECONDS)


def _replayed(cycles: Path) -> int:
    """Let this release decide again what the release before recorded, and return how many recordings it read."""
    files = sorted(cycles.glob("cycle-*.json"))
    done = subprocess.run(
        [sys.executable, "-m", "wva", "replay", str(cycles)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in {0, 1}, done.stderr  # 1: it decides otherwise, and says where
    read = re.search(r"^(\d+) cycles?, ", done.stdout, re.MULTILINE)  # of the same format, and of an older one
    assert read is not None, done.stdout
    assert int(read[1]) == len(files)
    return len(files)
