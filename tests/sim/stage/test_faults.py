"""What goes wrong in a scenario happens to the pods and at the times that it says, and nobody is told."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.stage.scenes import ENGINE, ScriptedScale, evenly, of_times, scene, variant
from wva.sim.fleet.columns import BROKEN, SERVED
from wva.sim.stage.faults import Eviction, NoStarts, SlowPods
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


def test_an_eviction_takes_the_oldest_ready_pods_and_others_start():
    """Of all Ready pods a share goes, rounded up, the oldest first. Others start at once and take their time."""
    eviction = Eviction(100.0, share=0.5)
    scenario = scene(evenly(1, 300), variant("a", replicas=2), variant("b"), faults=(eviction,))
    world = play(scenario, ScriptedScale({10.0: {"b": 2}, 95.0: {"b": 3}}))
    gone = [one for one in world.replicas if one.terminated_seconds == 100.0]
    assert [one.name for one in gone] == ["a-1-001", "a-1-002"]
    new = [one for one in world.replicas if one.created_seconds == 100.0]
    assert [(one.variant, one.ready_seconds) for one in new] == [("a", 160.0), ("a", 160.0)]
    assert {name: len(view.pods) for name, view in world.variants.items()} == {"a": 2, "b": 3}
    assert not world.asked[2:]


def test_an_eviction_of_a_variant_leaves_the_others():
    """Of the named variants alone pods go; the share is of their pods."""
    eviction = Eviction(100.0, share=0.25, variants=("b",))
    scenario = scene(evenly(1, 200), variant("a", replicas=4), variant("b", replicas=4), faults=(eviction,))
    gone = [one.name for one in play(scenario).replicas if one.terminated_seconds is not None]
    assert gone == ["b-1-001"]


@pytest.mark.parametrize(("grace", "broken"), [(0.0, 8), (None, 0)])
def test_an_evicted_pod_has_its_time_of_grace(grace, broken):
    """With a time of grace a pod finishes what it has; without one it breaks that."""
    traffic = of_times(np.linspace(20.0, 20.1, 8), 120.0, output=400)
    scenario = scene(traffic, variant(), faults=(Eviction(21.0, share=1.0, grace_seconds=grace),))
    states = list(play(scenario).service.columns.state)
    assert (states.count(BROKEN), states.count(SERVED)) == (broken, 8 - broken)


def test_no_pod_of_a_variant_becomes_ready_for_a_while():
    """Pods that would become Ready in the time do so at its end, those before and after it when they would anyway."""
    blocked = NoStarts("a", 100.0, 200.0)
    scenario = scene(evenly(1, 300), variant("a", maximum=9), variant("b"), faults=(blocked,))
    script = {10.0: {"a": 2}, 50.0: {"a": 3, "b": 2}, 120.0: {"a": 4}, 150.0: {"a": 5}}
    ready = [(one.variant, one.ready_seconds) for one in play(scenario, ScriptedScale(script)).replicas[2:]]
    expected = [("a", 70.5), ("a", 200.0), ("b", 110.5), ("a", 200.0), ("a", 210.5)]
    assert [name for name, _ in ready] == [name for name, _ in expected]
    assert [at for _, at in ready] == pytest.approx([at for _, at in expected], abs=0.5)


def test_faults_are_the_same_for_equal_seeds():
    """Equal seeds give equal worlds with faults, too."""
    faults = (SlowPods("a", 2, 0.5), Eviction(60.0, 0.5), NoStarts("a", 100.0, 200.0))
    scenario = scene(evenly(5, 300), variant(replicas=3), faults=faults)
    first, second = (play(scenario, ScriptedScale({50.0: {"a": 5}}), seed=3) for _ in range(2))
    assert first.moments == second.moments
    assert [one.scrapes for one in first.replicas] == [one.scrapes for one in second.replicas]
