"""HPAs on metrics of vLLM as rivals."""

from __future__ import annotations

import pytest

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.sim.rivals import POLICIES
from wva.sim.rivals.kubernetes import hpa_policy
from wva.sim.rivals.readings import TARGETS, LoadReading
from wva.sim.rivals.scope import Scope
from wva.sim.stage.scenario import WorldObservation


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("hpa-kv", 8),  # 1000 requests are 5.0 of KV cache, 0.7 each: 7.1
        ("hpa-queue", 20),  # 500 wait, and 5 per pod need more than the maximum
        ("hpa-inflight", 10),
        ("hpa-inflight@64", 16),
    ],
)
def test_the_load_per_pod_reaches_the_target(policy: str, expected: int) -> None:
    """Under a steady load the number settles where the mean is on target, to within the tolerance."""
    of = scenario()
    stage = FakeStage(of, lambda _: 1000.0).run(POLICIES[policy](of, 1), until=900)
    assert stage.replicas() == expected


@pytest.mark.parametrize(("load", "lowest", "highest"), [("kv", 0.05, 0.95), ("queue", 0.5, 160), ("inflight", 2, 256)])
def test_no_best_target_is_out_of_reach(load: str, lowest: float, highest: float) -> None:
    """The targets range from a few requests per pod, as for long prompts, to long queues, as for a cheap fleet."""
    targets = TARGETS[LoadReading(load)]
    assert (targets[0], targets[-1]) == (lowest, highest)
    assert list(targets) == sorted(set(targets))


def test_every_deployment_has_an_hpa_of_its_own() -> None:
    """Each variant follows the mean of its own pods, at any price."""
    of = scenario(setup("h100"), setup("l40s", price=1.0))
    stage = FakeStage(of, lambda _: 1000.0).run(POLICIES["hpa-inflight"](of, 1), until=900)
    assert (stage.replicas("h100"), stage.replicas("l40s")) == (5, 5)


def test_the_cheapest_alone() -> None:
    """Only the cheapest variant scales. The others stay at, or go to, their minimum."""
    of = scenario(setup("h100", replicas=4, minimum=2), setup("l40s", price=1.0))
    stage = FakeStage(of, lambda _: 1000.0).run(POLICIES["hpa-inflight-cheapest"](of, 1), until=900)
    assert (stage.replicas("h100"), stage.replicas("l40s")) == (2, 8)


def test_lost_scrapes_hold() -> None:
    """The HPA takes pods with a lost scrape as on target before it shrinks.

    If all scrapes are lost, nothing changes.
    """
    of = scenario(setup(replicas=10))
    all_lost = FakeStage(of, lambda _: 100.0, lost=lambda _, at: at > 0)
    assert all_lost.run(POLICIES["hpa-inflight"](of, 1), until=900).replicas() == 10
    half_lost = FakeStage(of, lambda _: 100.0, lost=lambda pod, _: int(pod[-1]) % 2 == 0)
    assert half_lost.run(POLICIES["hpa-inflight"](of, 1), until=330).replicas() == 6


def test_the_adapter_tells_of_the_past() -> None:
    """The HPA does not know scrapes from after the adapter's last read."""
    late = scenario(observation=WorldObservation(adapter_seconds=20.0))
    stage = FakeStage(late, lambda at: 100.0 if at < 15 else 1000.0)
    stage.run(hpa_policy(LoadReading.IN_FLIGHT, 100.0, Scope.ALL)(late, 1), until=45)
    assert stage.asked == []
    stage.run(hpa_policy(LoadReading.IN_FLIGHT, 100.0, Scope.ALL)(late, 1), until=46)
    assert stage.asked == [(45.0, "h100", 5)]


def test_a_deployment_at_zero_is_started() -> None:
    """An HPA on a metric of pods needs a minimum of 1 in Kubernetes, so the policy first starts one replica."""
    of = scenario(setup(minimum=0, replicas=0))
    stage = FakeStage(of, lambda _: 0.0).run(POLICIES["hpa-queue"](of, 1), until=900)
    assert stage.asked == [(0.0, "h100", 1)]
