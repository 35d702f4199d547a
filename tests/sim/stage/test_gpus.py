"""The GPUs of the stage's cluster: pods wait for them, and the models of a scenario share them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.stage.scenes import ScriptedScale, evenly, scene, variant
from wva.model.inventory import AcceleratorPool
from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.rivals import POLICIES
from wva.sim.rivals.wva import SETUPS, Cycles
from wva.sim.stage.faults import UnplayableError
from wva.sim.stage.run import figures, play, timeline
from wva.sim.stage.world import StageWorld

MINUTE = 60.0


def played(scenario, *scripts):
    """Run a scene with a script for each model, and return its world."""
    world = StageWorld(scenario, seed=1)
    world.run(*([script] for script in scripts))
    return world


def two(first_rate, second_rate, *, gpus, seconds=600.0, **more):
    """Return a scene of two models, whose variants ``a`` and ``b`` share GPUs."""
    other = scene(evenly(second_rate, seconds), variant("b", maximum=9), **more)
    first = scene(evenly(first_rate, seconds), variant("a", maximum=9), **more)
    return replace(first, others=(replace(other, model_id="org/other"),), gpus={"A100": gpus})


def test_a_pod_waits_until_gpus_come_free():
    """It exists and costs nothing; its start-up begins when it has its GPUs."""
    setups = variant("a", gpus=2), variant("b", gpus=1, replicas=2)
    script = ScriptedScale({10.0: {"a": 2}, 300.0: {"b": 1}, 400.0: {"b": 0}})
    world = played(scene(evenly(1, 900), *setups, gpus={"A100": 4}), script)
    late = world.replicas[-1]
    assert late.variant == "a"
    assert late.created_seconds == pytest.approx(10.5, abs=0.5)
    assert late.placed_seconds == pytest.approx(400.5, abs=16.0), "one of two GPUs is not enough"
    assert late.ready_seconds == pytest.approx(late.placed_seconds + 60.0)
    found = figures(world)
    assert found.replica_hours["a"] == pytest.approx((900 + 900 - late.placed_seconds) / 3600)
    waits = [pods["a"][1] for at, pods in script.seen if 11.0 < at < 400.0]
    assert not any(pod.placed or pod.ready for pod in waits)
    assert all(pods["a"][1].placed for at, pods in script.seen if at > 420.0)
    assert max(len(pods["a"]) for _, pods in script.seen) == 2


def test_pods_that_wait_are_the_first_to_go():
    """A smaller number takes them back, and a pod that serves goes only after them."""
    script = ScriptedScale({10.0: {"a": 5}, 100.0: {"a": 2}})
    world = played(scene(evenly(1, 300), variant(replicas=1), gpus={"A100": 2}), script)
    assert len(world.replicas) == 2
    assert all(replica.terminated_seconds is None for replica in world.replicas)


def test_a_small_pod_does_not_wait_for_a_large_one():
    """One that needs more GPUs than are free does not hold up the next."""
    setups = variant("large", gpus=4), variant("small", gpus=1)
    world = played(
        scene(evenly(1, 100), *setups, gpus={"A100": 7}), ScriptedScale({5.0: {"large": 2}, 10.0: {"small": 3}})
    )
    assert [replica.variant for replica in world.replicas] == ["large", "small", "small", "small"]


def test_gpus_of_one_accelerator_are_no_others():
    """A pod of an accelerator that the cluster has not waits for ever."""
    setups = variant("a"), replace(variant("b", replicas=0, minimum=0), accelerator="H100")
    world = played(scene(evenly(1, 100), *setups, gpus={"A100": 9}), ScriptedScale({5.0: {"b": 1}}))
    assert [replica.variant for replica in world.replicas] == ["a"]


@given(
    st.lists(st.tuples(st.integers(1, 299), st.sampled_from("ab"), st.integers(0, 9)), max_size=12),
    st.integers(2, 8),
)
@settings(max_examples=25)
def test_no_more_gpus_are_taken_than_there_are(steps, gpus):
    """Whatever two models ask for, no moment has more pods with GPUs than the cluster has, and none is left unused."""
    scripts = [ScriptedScale({float(at): {name: count} for at, of, count in steps if of == name}) for name in "ab"]
    world = played(two(1, 1, gpus=gpus, seconds=300.0), *scripts)
    assert world.pools.used["A100"] <= gpus
    times = sorted({replica.placed_seconds for model in world.models for replica in model.replicas})
    for at in times:
        having = [
            replica
            for model in world.models
            for replica in model.replicas
            if replica.placed_seconds <= at and (replica.ended_seconds is None or replica.ended_seconds > at)
        ]
        assert len(having) <= gpus
    views = [view for model in world.models for view in model.variants.values()]
    waiting = any(not pod.placed for view in views for pod in view.pods)
    assert not waiting or world.pools.used["A100"] == gpus


def test_the_figures_of_two_models_are_those_of_both():
    """Requests, costs and changes add up; the share is that of all users; what is needed is needed at once."""
    scenario = two(20, 5, gpus=12)
    steps = {100.0: {"a": 3}}, {200.0: {"b": 2}, 400.0: {"b": 1}}
    world = played(scenario, *map(ScriptedScale, steps))
    both = figures(world)
    parts = [
        figures(played(replace(model, gpus={}), ScriptedScale(its_own)))
        for model, its_own in zip(scenario.models, steps, strict=True)
    ]
    for name in ("requests", "served", "timed_out", "cost", "ideal_cost", "gpu_hours", "most_needed", "scale_ups"):
        assert getattr(both, name) == pytest.approx(sum(getattr(part, name) for part in parts)), name
    assert both.attainment == pytest.approx(sum(part.attainment * part.requests for part in parts) / both.requests)
    assert both.replica_hours == parts[0].replica_hours | parts[1].replica_hours
    assert both.most_asked == 50.0
    assert both.late_by_cause == {
        cause: count + parts[1].late_by_cause[cause] for cause, count in parts[0].late_by_cause.items()
    }
    shown = timeline(world)
    assert [one.name for one in shown.variants] == ["a", "b"]
    assert sum(shown.offered_per_second) * 30.0 == pytest.approx(both.requests)


@pytest.mark.parametrize("seed", [1, 2])
def test_wva_asks_for_no_gpus_that_are_not_there_and_keeps_what_it_has_promised(seed):
    """Two models jump at once, and want twelve of eight GPUs. At no time more than eight are asked for.

    The model that was promised more in one cycle has not less in the next, although its pods do not exist yet.
    """
    world = StageWorld(two(60, 60, gpus=8, seconds=130.0), seed=seed)
    world.run(POLICIES["wva"](world.scenario, seed))
    for changes in ([one for model in world.models for one in getattr(model, of)] for of in ("asked", "wanted")):
        numbers = {"a": 1, "b": 1}
        for change in sorted(changes, key=lambda one: one.at_seconds):
            assert change.after >= numbers[change.variant]
            numbers[change.variant] = change.after
            assert sum(numbers.values()) <= 8
        assert sum(numbers.values()) == 8


def test_a_snapshot_of_two_models_has_the_gpus_of_both():
    """The inventory counts the pods of both models; one without a node waits, and after a minute none is expected."""
    scenario = two(1, 1, gpus=3)
    world = played(scenario, ScriptedScale({10.0: {"a": 3}}), ScriptedScale({}))
    cycles = Cycles(SETUPS["wva"], scenario)
    seen = cycles.snapshot(world, 600.0)
    assert seen.inventory.pools == (AcceleratorPool("A100", 3, 3),)
    first, second = seen.variants
    assert (first.model.model_id, second.model.model_id) == ("org/model", "org/other")
    assert (first.unplaced_pods, first.unschedulable_pods, second.unplaced_pods) == (1, 1, 0)
    assert {replica.variant.name for replica in seen.replicas} == {"a", "b"}


def test_rivals_scale_each_model_by_itself():
    """A policy that knows one model is asked for each of them; none of its figures is missing."""
    scenario = two(40, 5, gpus=9, seconds=900.0)
    found = play(scenario, "hpa-inflight", 1, POLICIES["hpa-inflight"]).figures
    assert set(found.replica_hours) == {"a", "b"}
    assert found.replica_hours["a"] > found.replica_hours["b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": {"A100": 1}}, "it begins with more GPUs than there are"),
        ({"others": (scene(evenly(1, 600)),)}, "two of its models have a variant of one name"),
        (
            {"others": (replace(scene(evenly(1, 600), variant("b")), objectives=Objectives(9.0, 0.1)),)},
            "different objectives",
        ),
    ],
)
def test_what_makes_no_sense_together_is_refused(change, words):
    """The error says what does not fit."""
    with pytest.raises(UnplayableError, match=words):
        StageWorld(replace(two(1, 1, gpus=2), **change), seed=1)


def test_models_are_played_for_the_same_time():
    """Traffic of another length is refused before anything is played."""
    other = scene(evenly(1, 300), variant("b"))
    world = StageWorld(replace(scene(evenly(1, 600)), others=(other,)), seed=1)
    with pytest.raises(UnplayableError, match="takes different times"):
        world.run()
