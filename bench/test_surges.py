"""What users get of a surge and of a steady load, and what it costs, sized growth beside v0.5.1, over many phases."""

from __future__ import annotations

from tests.decide.fleet_loop import FleetLoop
from tests.decide.test_surges import COMPATIBLE, SIZED, STEP, steady

SEEDS = range(1, 11)


def test_surges() -> None:
    """The aim of the real control plane holds in the mean of the phases of cycles, scrapes and HPA against the step."""
    worst, attained = [1.0, 1.0, 0.0], 0.0
    for seed in SEEDS:
        sized, old = (FleetLoop(STEP, policy, seed=seed).run() for policy in (SIZED, COMPATIBLE))
        figures = (sized.attained, sized.attained - old.attained, sized.cost / old.cost)
        print(f"\nseed {seed}: within 1 s {figures[0]:.3f}, better by {figures[1]:.3f}, cost x{figures[2]:.3f}", end="")
        attained += figures[0] / len(SEEDS)
        worst = [min(worst[0], figures[0]), min(worst[1], figures[1]), max(worst[2], figures[2])]
    print(f"\nwithin 1 s {attained:.3f}; worst {worst[0]:.3f}, better by {worst[1]:.3f}, cost x{worst[2]:.3f}")
    assert attained >= 0.90
    assert worst[1] >= 0.08
    assert worst[2] <= 1.10


def test_steady_load() -> None:
    """Two hours at one rate: how often a number turns round, and what users and the bill see of it."""
    for rate in (10.0, 20.0, 30.0, 40.0):
        loop = FleetLoop(steady(rate, 7200.0), SIZED, seed=1).run(afterwards_seconds=0.0)
        hours = loop.cost / 3600.0
        print(f"\n{rate:g}/s: within 1 s {loop.attained:.3f}, cost {hours:.0f}, {loop.reversals} reversals", end="")
        assert loop.reversals <= 8
    print()
