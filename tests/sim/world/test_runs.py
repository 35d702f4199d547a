"""Whole runs: the real controller in the embedded world, over real HTTP, in virtual time."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from wva.api.kinds import EVENTS, VARIANT_AUTOSCALINGS
from wva.model.decision import Reason, Source
from wva.model.records import replace
from wva.sim.commands.demo import play
from wva.sim.stage.faults import NoStarts, PrometheusOutage, SlowPods, UnplayableError, UnreadablePod
from wva.sim.stage.scenario import Scenario, StartUp, WorldObservation
from wva.sim.stage.world import StageWorld
from wva.sim.world.scenarios import SCENARIOS, between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
FAST = StartUp(30.0, 0.2)
VARIANTS = (demo_variant("h100", "H100", 40.0, start_up=FAST), demo_variant("a100", "A100", 20.0, start_up=FAST))
UP_AND_DOWN = demo_scenario(
    "up-and-down",
    "a steep hill",
    VARIANTS,
    between((0, 3), (1, 3), (5, 24), (8, 24), (9, 2), minutes=12),
    hpa_down_seconds=0.0,
    saturation={"default": "analyzerName: percentage\n"},
)
CALM = demo_scenario("calm", "the same load all the time", VARIANTS, between((0, 3), minutes=4))


async def _nothing() -> None:
    return


async def _run(scenario: Scenario, *, seed: int = 1) -> EmbeddedWorld:
    world = EmbeddedWorld(scenario, seed=seed)
    await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing)
    return world


def _changes(world: EmbeddedWorld) -> list[tuple[str, int]]:
    """Return (variant, +1 or -1) for every change of a published number, in order."""
    return [
        (entry.variant, 1 if entry.desired > entry.previous else -1)
        for entry in world.timeline.decisions
        if entry.previous is not None and entry.previous != entry.desired
    ]


@pytest.mark.timeout(300)
async def test_the_cheapest_grows_first_and_the_dearest_shrinks_first() -> None:
    """The cheaper variant grows first up to its maximum, the dearer one shrinks first, and the requests are served."""
    small = replace(VARIANTS[1], maximum=2)
    world = await _run(replace(UP_AND_DOWN, variants=(VARIANTS[0], small)))
    changes = _changes(world)
    assert changes[0] == ("a100", 1)
    first_shrink = next(name for name, direction in changes if direction < 0)
    grown = {name for name, direction in changes if direction > 0}
    assert grown == {"a100", "h100"}
    assert first_shrink == "h100"
    for name in grown:
        points = world.timeline.variants[name].points
        assert points[-1].current == 1
        assert max(point.current for point in points) > 1
    summary = world.timeline.summary(world.model)
    assert summary["requests_dropped"] == 0
    assert summary["requests_served"] > 0.95 * summary["requests_arrived"]
    assert summary["replica_cost"] == pytest.approx(sum(summary["replica_cost_by_variant"].values()), abs=0.01)


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_the_quickstart_takes_both_variants_up_and_down() -> None:
    """In the default scenario of ``wva demo`` the numbers rise ahead of the load, and fall again."""
    world = await _run(SCENARIOS["quickstart"].lasting(95 * MINUTE))
    changes = _changes(world)
    assert changes[0] == ("llama-a100", 1)
    for name, variant in world.timeline.variants.items():
        assert {direction for changed, direction in changes if changed == name} == {1, -1}
        assert variant.points[-1].current == 1
    summary = world.timeline.summary(world.model)
    assert (summary["requests_dropped"], summary["ttft_attainment"] > 0.99) == (0, True)


@pytest.mark.timeout(300)
async def test_a_run_is_a_function_of_its_seed() -> None:
    """The same seed gives the same decisions, and another seed gives other decisions."""
    short = UP_AND_DOWN.lasting(3 * MINUTE)
    first, again, other = [await _run(short, seed=seed) for seed in (1, 1, 2)]
    assert first.timeline.decisions == again.timeline.decisions
    assert first.timeline.decisions != other.timeline.decisions


@pytest.mark.timeout(300)
async def test_nothing_is_scaled_while_prometheus_is_away() -> None:
    """During the outage WVA keeps the numbers and marks them as not measured. Afterwards it measures them again."""
    down, up = 1.5 * MINUTE, 3 * MINUTE
    world = await _run(replace(CALM, faults=(PrometheusOutage(down, up),)))
    held = [entry for entry in world.timeline.decisions if down < entry.at_seconds < up]
    assert {entry.reason for entry in held} == {Reason.PROMETHEUS_ERROR.value}
    assert {entry.source for entry in held} == {Source.PREVIOUS_DESIRED.value}
    assert all(entry.desired == entry.previous for entry in held)
    assert world.timeline.decisions[-1].source == Source.MEASURED.value


@pytest.mark.timeout(300)
async def test_pods_that_never_become_ready_do_not_freeze_the_sibling() -> None:
    """After the transition deadline WVA no longer counts the stuck replicas, and the dearer variant grows.

    Status and events say that replicas of the stuck variant are late, and nothing of the other.
    """
    stuck = replace(
        UP_AND_DOWN,
        traffic=between((0, 3), (1, 3), (3, 14), minutes=8),
        faults=(NoStarts("a100", MINUTE, inf),),
        saturation={"default": "analyzerName: percentage\ntransitionDeadline: 90s\n"},
    )
    world = await _run(stuck)
    assert _changes(world)[0] == ("a100", 1)
    assert ("h100", 1) in _changes(world)
    assert world.timeline.variants["a100"].points[-1].ready == 1
    told = {
        va["metadata"]["name"]: (condition["status"], condition["reason"])
        for va in world.api.store.list(VARIANT_AUTOSCALINGS)
        for condition in va["status"]["conditions"]
        if condition["type"] == "ReplicasOnTime"
    }
    assert told == {"a100": ("False", "ReplicasLate")}
    events = [
        (event["involvedObject"]["name"], event["type"])
        for event in world.api.store.list(EVENTS)
        if event["reason"] == "ReplicasLate"
    ]
    assert events == [("a100", "Warning")]


@pytest.mark.timeout(300)
async def test_samples_that_are_not_numbers_shrink_nothing() -> None:
    """If one replica reports no numbers, the idle model keeps its size. It shrinks when the replica reports again."""
    broken = replace(
        CALM,
        saturation={"default": "analyzerName: percentage\n"},
        variants=(replace(VARIANTS[0], replicas=2), VARIANTS[1]),
        faults=(UnreadablePod("h100", 0.0, 2 * MINUTE),),
        hpa_down_seconds=0.0,
    )
    world = await _run(broken)
    shrinks = [entry for entry in world.timeline.decisions if entry.reason == Reason.SCALE_DOWN.value]
    assert shrinks
    # A cycle at 2 minutes already sees the scrape of the same moment.
    assert min(entry.at_seconds for entry in shrinks) >= 2 * MINUTE


@pytest.mark.timeout(300)
async def test_growth_stops_at_the_gpus_of_the_cluster() -> None:
    """In ``bad-day`` decisions name the GPU limiter, and no variant gets a replica without a GPU."""
    scenario = SCENARIOS["bad-day"].lasting(15 * MINUTE)
    world = await _run(scenario)
    limited = [entry for entry in world.timeline.decisions if entry.reason == Reason.GPU_LIMITED.value]
    assert "gpu-limiter H100" in limited[-1].message
    most = {name: max(point.current for point in run.points) for name, run in world.timeline.variants.items()}
    assert most == {"llama-h100": scenario.gpus["H100"], "llama-a100": scenario.variants[1].maximum}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_every_scenario_that_ships_starts(name: str) -> None:
    """In two minutes of each scenario WVA accepts its objects and decides on them."""
    world = await _run(SCENARIOS[name].lasting(2 * MINUTE))
    assert {entry.variant for entry in world.timeline.decisions} == {setup.name for setup in SCENARIOS[name].variants}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation": WorldObservation(lost_share=0.1)}, "calm: the embedded world loses no scrapes"),
        ({"variants": (replace(VARIANTS[0], minimum=0),)}, "calm: the embedded world has no endpoint picker"),
        ({"faults": (SlowPods("a100", 2, 0.5),)}, "calm: the embedded world has no SlowPods"),
        (
            {"others": (replace(CALM, variants=(replace(VARIANTS[0], name="other"),)),)},
            "calm: the embedded world has one model",
        ),
    ],
)
def test_what_only_the_stage_can_play_is_refused(changes: dict[str, Any], words: str) -> None:
    """The error says what this world lacks. The stage plays it."""
    scenario = replace(CALM, **changes)
    with pytest.raises(UnplayableError, match=words):
        EmbeddedWorld(scenario, seed=1)
    assert StageWorld(scenario, seed=1).replicas


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_stage_plays_a_scenario_or_says_what_it_lacks(name: str) -> None:
    """Some faults and ConfigMaps are in the demo alone."""
    scenario = SCENARIOS[name]
    if name in {"quickstart", "surge", "prefill-decode"}:
        assert StageWorld(scenario, seed=1).traffic.count == EmbeddedWorld(scenario, seed=1).traffic.count
        return
    with pytest.raises(UnplayableError, match=f"^{name}: .*, so only wva demo can play it$"):
        StageWorld(scenario, seed=1)
    with pytest.raises(UnplayableError, match="read no ConfigMap"):
        StageWorld(replace(scenario, faults=(), saturation={"default": ""}), seed=1)
