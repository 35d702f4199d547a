"""The stage and the embedded world play one scenario alike: they see the same samples, decide the same, cost the same.

The embedded world has the whole controller. The stage is many times faster, and the scorecard is made on it. With the
same phases nothing between the two is chance. ``bench/test_one_world.py`` compares them on eight scenarios.
"""

from __future__ import annotations

import pytest

from tests.sim.stage.scenes import evenly, of_times, scene, variant
from tests.sim.world.both import COST, SHARE, EmbeddedRun, StageRun
from wva.model.metrics import EngineCounters, EngineSignals
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.transfer import KvTransfer

SEED = 3


def surge():
    """Return ten minutes with three of ten times the load, for two variants whose pods start within a minute."""
    parts = [
        evenly(4, 240).arrival_seconds,
        240 + evenly(40, 180).arrival_seconds,
        420 + evenly(4, 180).arrival_seconds,
    ]
    traffic = of_times([at for part in parts for at in part], 600.0)
    return scene(traffic, variant("a", price=10.0), variant("b", price=8.0))


def surge_in_roles():
    """Return the same load for a variant for prompts, and one for answers."""
    plain = surge()
    roles = (variant("a", price=10.0, role=PREFILL), variant("b", price=8.0, role=DECODE))
    return replace(plain, variants=roles, gateway=replace(plain.gateway, transfer=KvTransfer(1e-4, 0.05, 100)))


@pytest.fixture(scope="module", params=[surge, surge_in_roles])
def runs(request, tmp_path_factory):
    """Return the run of the stage and the run of the embedded world."""
    scenario = request.param
    return StageRun(scenario(), seed=SEED), EmbeddedRun(scenario(), tmp_path_factory.mktemp("cycles"), seed=SEED)


def same(mine, real):
    """Tell whether two samples have the same state, value and time."""
    return (mine.state, mine.timestamp) == (real.state, real.timestamp) and mine.value == (
        None if real.value is None else pytest.approx(real.value, rel=1e-9, abs=1e-12)
    )


@pytest.mark.timeout(300)
def test_both_cost_and_serve_the_same(runs):
    """The cost is within 3 %, and the share of users in time within two points."""
    stage, embedded = runs
    assert embedded.cost == pytest.approx(stage.cost, rel=COST)
    assert embedded.share == pytest.approx(stage.share, abs=SHARE)


@pytest.mark.timeout(300)
def test_every_number_is_decided_at_the_same_time(runs):
    """Cycles, looks of the fast lane, scrapes and HPAs have the same phases, so also the numbers are the same."""
    stage, embedded = runs
    assert set(stage.wanted) == set(embedded.wanted) == {"a", "b"}
    for name, changes in stage.wanted.items():
        assert [number for _, number in changes] == [number for _, number in embedded.wanted[name]]
        assert [at for at, _ in changes] == pytest.approx([at for at, _ in embedded.wanted[name]], abs=1e-3)
    assert max(number for changes in stage.wanted.values() for _, number in changes) > 2


@pytest.mark.timeout(300)
def test_every_cycle_sees_the_same_samples(runs):
    """What the stage reads of its scrapes is what the collector reads of the pages: each sample of each pod."""
    stage, embedded = runs
    times, real_times = sorted(stage.snapshots), sorted(embedded.snapshots)
    assert times == pytest.approx(real_times, abs=1e-3)
    pods, fresh = set(), 0
    for at, real_at in zip(times, real_times, strict=True):
        mine, real = stage.snapshots[at], embedded.snapshots[real_at]
        for found, expected in zip(mine.variants, real.variants, strict=True):
            for name in ("spec_replicas", "current_replicas", "ready_replicas", "oldest_unready_since", "bounds"):
                assert getattr(found, name) == getattr(expected, name), (at, name)
        seen, there = ({each.pod: each for each in one.replicas} for one in (mine, real))
        assert seen.keys() == there.keys()
        for pod, found in seen.items():
            expected = there[pod]
            pods.add(pod)
            assert (found.ready_since, found.scrape_seconds) == (expected.ready_since, expected.scrape_seconds)
            for name in ("kv_usage", "queue_length"):
                assert same(getattr(found, name), getattr(expected, name)), (pod, name)
            for name in EngineSignals.__struct_fields__:
                assert same(getattr(found.engine, name), getattr(expected.engine, name)), (pod, name)
            assert (found.counters is None) == (expected.counters is None)
            if found.counters is not None:
                fresh += 1
                for name in EngineCounters.__struct_fields__:
                    read = pytest.approx(getattr(expected.counters, name), rel=1e-9, abs=1e-6)
                    assert getattr(found.counters, name) == read, (pod, name)
    assert len(pods) > 4
    assert fresh > 100
