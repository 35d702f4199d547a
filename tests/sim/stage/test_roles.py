"""A model in roles on the stage: what its pods show, what its traffic demands, and what its users got."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.stage.scenes import ScriptedScale, evenly, scene, variant
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL
from wva.model.variant import ModelKey
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings
from wva.sim.rivals.clairvoyant import clairvoyant, static_peak
from wva.sim.stage.capacity import saturation
from wva.sim.stage.faults import UnplayableError
from wva.sim.stage.links import Reference, chain, shortages
from wva.sim.stage.observe import Observer
from wva.sim.stage.roles import demands
from wva.sim.stage.run import figures, play
from wva.sim.stage.world import StageWorld

TRANSFER = KvTransfer(token_seconds=0.0001, delay_seconds=0.05, least_prompt_tokens=100)
GATEWAY = GatewaySettings(patience_seconds=30.0, attempts=1, transfer=TRANSFER)
PROMPTS = variant("prompts", price=10.0, role=PREFILL)
ANSWERS = variant("answers", price=20.0, role=DECODE)


def in_roles(traffic, *variants, **more):
    """Return a scenario of both roles."""
    return scene(traffic, *(variants or (PROMPTS, ANSWERS)), gateway=GATEWAY, **more)


def played(scenario, *controllers):
    """Return the stage after a run."""
    world = StageWorld(scenario, seed=1)
    world.run(controllers)
    return world


def test_users_get_prompt_transfer_and_step():
    """Users' first tokens and times between tokens; the rows of prompts are no users."""
    world = played(in_roles(evenly(1.0, 300.0)))
    found = figures(world)
    assert (found.requests, found.served) == (300, 300)
    assert found.ttft_p50_seconds == pytest.approx(0.0402 + 0.070 + 0.0202 + 0.0001, abs=0.02)
    assert found.itl_p50_seconds == pytest.approx(0.0202, abs=0.001)


def test_snapshot_has_the_roles_and_the_time_of_prompts():
    """Each role is a group of its own in the snapshot, and a decode pod has computed one token of each prompt."""
    seen = {}

    class SnapshotLooker:
        period_seconds = 100.0
        decides = False

        def act(self, stage, now_seconds):
            observer = Observer(ModelKey("llm", "org/model"), engines=False, counters=True)
            seen[now_seconds] = observer.snapshot(stage, now_seconds, status=lambda _: None)

    played(in_roles(evenly(1.0, 300.0)), SnapshotLooker())
    snapshot = seen[max(seen)]
    assert {one.key.name: one.role for one in snapshot.variants} == {"prompts": PREFILL, "answers": DECODE}
    counters = {one.variant.name: one.counters for one in snapshot.replicas}
    prompts, answers = counters["prompts"], counters["answers"]
    assert prompts.prompt_tokens == 200 * prompts.prompts > 0
    assert prompts.prefill_seconds / prompts.prompts == pytest.approx(0.0402, abs=0.001)
    assert prompts.answer_tokens == prompts.answers
    assert prompts.gaps == 0
    assert answers.prompt_tokens == answers.prompts > 0
    assert answers.answer_tokens == 50 * answers.answers
    assert answers.first_seconds / answers.prompts == pytest.approx(0.1, abs=0.001)


def test_demand_of_each_role_is_its_own():
    """Prefill carries what it gets through; decode carries more than a pod that computes prompts, too."""
    traffic = evenly(20.0, 600.0)
    prefill, decode = demands(in_roles(traffic), traffic)
    assert prefill.rate[5] == decode.rate[5] == pytest.approx(20.0)
    assert prefill.capacity[5, 0] == pytest.approx(saturation(PROMPTS.parameters, 200, 1))
    (whole,) = demands(scene(traffic, variant()), traffic)
    assert decode.capacity[5, 0] > whole.capacity[5, 0]


def test_short_prompts_are_no_demand_on_prefill():
    """Half of the prompts is below the threshold."""
    traffic = evenly(20.0, 600.0)
    traffic = replace(traffic, prompt_tokens=np.where(np.arange(traffic.count) % 2, 40, 200))
    prefill, decode = demands(in_roles(traffic), traffic)
    assert prefill.rate[5] == pytest.approx(10.0)
    assert decode.rate[5] == pytest.approx(20.0, rel=0.2)


def test_shortage_of_one_role_is_a_shortage():
    """Three decode replicas are of no use with one for prefill; capacity is there when both are."""
    scenario = in_roles(evenly(60.0, 600.0), replace(PROMPTS, replicas=1), replace(ANSWERS, replicas=8))
    world = played(scenario, ScriptedScale({100.0: {"prompts": 4}}))
    reference = Reference.of(scenario, world.traffic)
    at = np.array([50.0, 300.0])
    needed, ready = chain(world, reference).needed.at(at), chain(world, reference).ready.at(at)
    assert (ready < needed).tolist() == [True, False]
    assert len(shortages(world, reference)) == 1


def test_policies_that_know_the_traffic_fit_both_roles():
    """The fixed fleet and the clairvoyant serve nearly all users in time, and the latter costs less."""
    traffic = evenly(2.0, 900.0)
    later = traffic.arrival_seconds > 400.0
    busy = evenly(60.0, 300.0)
    rows = np.argsort(np.concatenate((traffic.arrival_seconds[~later], busy.arrival_seconds + 400.0)), kind="stable")
    times = np.concatenate((traffic.arrival_seconds[~later], busy.arrival_seconds + 400.0))[rows]
    made = replace(
        busy,
        duration_seconds=900.0,
        arrival_seconds=times,
        **{
            name: np.resize(getattr(busy, name), len(times))
            for name in ("prompt_tokens", "output_tokens", "group", "prefix_tokens", "shared_tokens", "draw")
        },
    )
    scenario = in_roles(made)
    fixed, knowing = (play(scenario, "one", 1, policy).figures for policy in (static_peak, clairvoyant))
    assert fixed.attainment >= 0.99
    assert knowing.attainment >= 0.99
    assert knowing.cost < 0.8 * fixed.cost
    assert knowing.ideal_cost <= knowing.cost


@pytest.mark.parametrize(
    ("variants", "gateway", "words"),
    [
        ((PROMPTS, variant("b")), GATEWAY, "all variants of a model say prefill or decode"),
        ((replace(PROMPTS, role="encode"), ANSWERS), GATEWAY, "all variants of a model say prefill or decode"),
        ((ANSWERS, PROMPTS), GATEWAY, "come before those for decode"),
        ((PROMPTS, ANSWERS), replace(GATEWAY, transfer=None), "a transfer where the variants have roles"),
        ((variant("b"),), GATEWAY, "a transfer where the variants have roles"),
    ],
)
def test_scenario_that_does_not_fit_together_is_refused(variants, gateway, words):
    """The message says what the stage lacks."""
    scenario = replace(in_roles(evenly(1.0, 60.0), *variants), gateway=gateway)
    with pytest.raises(UnplayableError, match=words):
        StageWorld(scenario, seed=1)
