"""The loads of docs/emulator.md that take two replicas, on simulated replicas of the emulator's speed."""

from __future__ import annotations

from itertools import groupby

import pytest

from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.service import PerformanceProfile, ServiceTarget
from wva.sim.fleet.parameters import PRESETS
from wva.sim.rivals.wva import WvaSetup, controllers
from wva.sim.stage.run import play
from wva.sim.stage.scenario import MODEL_ID, Scenario, StartUp, VariantSetup
from wva.sim.traffic.assembly import poisson_traffic
from wva.sim.traffic.lengths import Sizes, fixed
from wva.sim.traffic.rates import steps

LOAD_SECONDS, PER_MINUTE = 1200.0, 40.0
SIZES = Sizes(fixed(70), lambda generator, count: generator.integers(89, 268, count))
ENGINE = replace(PRESETS["A100"], max_num_seqs=4)


PREMIUM = ServiceTarget("Premium", 1, ttft_milliseconds=500.0, itl_milliseconds=24.0)
MEASURED = PerformanceProfile(20.58, 0.41, max_batch_size=4, accelerator="A100")
QUEUEING = SaturationPolicy(analyzer_name=Analyzer.QUEUEING)


def traffic_after(quiet_seconds):
    """Return no request for so long, then 40 a minute for twenty minutes."""

    def traffic(seed):
        profile = steps(((quiet_seconds, 1e-6), (LOAD_SECONDS, PER_MINUTE / 60)))
        return poisson_traffic(seed, profile, duration_seconds=quiet_seconds + LOAD_SECONDS, sizes=SIZES)

    return traffic


def asked_for(policy, seed, *, quiet_seconds=300.0, engine=ENGINE):
    """Return the numbers that are asked for, with the chart's interval of a minute; a pod starts in half of one."""
    variant = VariantSetup("a", "A100", engine, 40.0, maximum=10, start_up=StartUp(30.0, 0.1))
    scenario = Scenario("two", "two", "two", (variant,), traffic_after(quiet_seconds), interval_seconds=60.0)
    (asked,) = play(scenario, "wva", seed, lambda of, _: controllers(WvaSetup(policy), of)).timeline.variants
    return [number for number, _ in groupby(asked.asked)]


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_variant_goes_from_one_replica_to_two_and_stays(seed):
    """With the default analyzer."""
    assert asked_for(Policy(), seed) == [1, 2]


@pytest.mark.parametrize("seed", range(1, 9))
def test_it_does_so_by_the_queueing_model_whenever_the_load_begins(seed):
    """With a service class and known parameters, at any time of a cycle, and at the speed of these parameters."""
    policy = Policy(
        QUEUEING,
        service_targets=(replace(PREMIUM, model_id=MODEL_ID),),
        profiles=(replace(MEASURED, model_id=MODEL_ID),),
    )
    engine = replace(ENGINE, alpha_seconds=0.02058, beta_seconds_per_sequence=0.00041)
    assert asked_for(policy, seed, quiet_seconds=300.0 + 7.0 * seed, engine=engine) == [1, 2]
