"""The demand of traffic whose prompts begin alike, and of prompts that cannot be in time."""

from __future__ import annotations

import numpy as np

from tests.sim.stage.scenes import evenly, scene, variant
from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.rivals.clairvoyant import static_peak
from wva.sim.stage.links import Reference
from wva.sim.stage.run import figures
from wva.sim.stage.world import StageWorld

SECONDS = 600.0
VARIANT = variant(maximum=40)


def chats(rate=20.0, *, turns=3):
    """Return chats of some turns one after the other, whose prompts are what the turn before had and a little more."""
    plain = evenly(rate, SECONDS, prompt=1900, output=10)
    number = np.arange(plain.count)
    turn = number // 60 % turns
    group = number // (60 * turns) * 60 + number % 60
    prefix = np.where(turn > 0, 1800, 0)
    draw = np.random.default_rng(5).random(plain.count)
    return replace(plain, group=group, prefix_tokens=prefix, shared_tokens=np.full(plain.count, 1800), draw=draw)


def with_routing(routing, traffic):
    """Return a scenario of one variant with some routing."""
    gateway = GatewaySettings(patience_seconds=30.0, attempts=1, routing=routing, prefix_weight=0.5)
    return scene(traffic, VARIANT, gateway=gateway, measured_from_seconds=120.0)


def test_caches_hold_what_routing_lets_them():
    """With random routing caches hold less than they may, so more replicas are needed than with one that looks."""
    traffic = chats()
    costs = {
        routing: Reference.of(with_routing(routing, traffic), traffic).cost(
            with_routing(routing, traffic), until_seconds=SECONDS
        )
        for routing in (Routing.RANDOM, Routing.PREFIX)
    }
    without = replace(traffic, prefix_tokens=np.zeros(traffic.count, dtype=np.int64))
    nothing_held = Reference.of(with_routing(Routing.RANDOM, without), without)
    assert costs[Routing.PREFIX] < 0.7 * costs[Routing.RANDOM]
    assert costs[Routing.RANDOM] <= nothing_held.cost(with_routing(Routing.RANDOM, without), until_seconds=SECONDS)


def test_a_fixed_fleet_is_right_under_prefix_caches():
    """The fixed fleet serves its users with random routing, and costs not much more than the ideal one."""
    traffic = chats()
    of = with_routing(Routing.RANDOM, traffic)
    world = StageWorld(of, seed=1, traffic=traffic)
    world.run(static_peak(of, 1))
    found = figures(world)
    assert found.attainment > 0.98
    assert found.cost < 2.5 * found.ideal_cost


def test_a_fleet_for_prompts_half_of_which_are_too_long():
    """Prompts that take longer than users accept do not make the fleet endless, nor so small that nobody is served."""
    plain = evenly(20.0, SECONDS, prompt=300, output=10)
    long = np.arange(plain.count) % 2 == 1
    traffic = replace(plain, prompt_tokens=np.where(long, 1500, 300))
    of = replace(
        scene(traffic, VARIANT, measured_from_seconds=120.0),
        objectives=Objectives(ttft_seconds=0.16, itl_seconds=0.5),
    )
    reference = Reference.of(of, traffic)
    assert 2 < reference.counts.max() < VARIANT.maximum
    world = StageWorld(of, seed=1, traffic=traffic)
    world.run(static_peak(of, 1))
    assert figures(world, reference).attainment > 0.4, "of the half that can be in time"
