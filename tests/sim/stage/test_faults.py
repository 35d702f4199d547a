"""What goes wrong in a scenario happens to the pods and at the times that it says, and nobody is told."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.stage.scenes import ENGINE, ScriptedScale, evenly, of_times, scene, variant
from wva.sim.stage.faults import SlowPods
from wva.sim.stage.view import ScrapedSignal
from wva.sim.stage.world import StageWorld


def play(scenario, *controllers, seed=1):
    """Run a scene and return its world."""
    world = StageWorld(scenario, seed=seed)
    world.run(controllers)
    return world


def gap(replica):
    """Return the mean time between two tokens that the counters of a pod tell, in seconds."""
    last = replica.scrapes[-1].values
    return last[ScrapedSignal.ITL_SUM] / last[ScrapedSignal.ITL_COUNT]


def test_every_second_pod_of_one_variant_is_slow():
    """Every second pod of the variant takes twice as long, also one that comes later; those of another do not."""
    variants = variant("a", replicas=2), variant("b", replicas=2)
    scenario = scene(evenly(8, 300), *variants, faults=(SlowPods("a", every=2, speed=0.5),))
    world = play(scenario, ScriptedScale({10.0: {"a": 4}}))
    gaps = {name: [gap(one) for one in world.replicas if one.variant == name] for name in ("a", "b")}
    assert np.array(gaps["a"]) / gaps["b"][0] == pytest.approx([1.0, 2.0, 1.0, 2.0], rel=0.1)
    assert gaps["b"][1] == pytest.approx(gaps["b"][0], rel=0.1)


def test_slow_pods_look_like_the_others():
    """A slow pod has the size of its kind, and the gateway takes it in its turn, before the pods of later variants."""
    variants = variant("a", replicas=2), variant("b", replicas=2)
    at_once = of_times([20.0] * 4, 60.0)
    world = play(scene(at_once, *variants, faults=(SlowPods("a", every=2, speed=0.5),)))
    view = world.variants["a"]
    assert (view.kv_cache_tokens, view.max_num_seqs) == (ENGINE.kv_cache_tokens, ENGINE.max_num_seqs)
    assert list(world.service.columns.engine) == [one.row for one in world.replicas]


def test_a_slow_engine_takes_longer_for_everything():
    """Half the speed is twice the time of everything that has a time, and no other property changes."""
    slow = ENGINE.at_speed(0.5)
    assert slow.at_speed(2.0) == ENGINE
    for name in ENGINE.__slots__:
        factor = 2.0 if "seconds" in name else 1.0
        assert getattr(slow, name) == factor * getattr(ENGINE, name), name
