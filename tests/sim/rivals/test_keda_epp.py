"""KEDA on metrics of llm-d's endpoint picker as a rival."""

from __future__ import annotations

import pytest

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.sim.rivals import POLICIES
from wva.sim.rivals.hpa import Rate
from wva.sim.rivals.keda import ExternalAutoscaler
from wva.sim.rivals.keda_epp import (
    KV_CACHE,
    POOL_SATURATION,
    QUEUE_DEPTH,
    RUNNING_REQUESTS,
    EppSignal,
    keda_epp_policy,
    pool_saturation,
)


def test_the_thresholds_are_those_of_the_guides() -> None:
    """The thresholds are 16 running requests and a saturation of 0.7; the detector's are its defaults, 5 and 0.8."""
    assert (RUNNING_REQUESTS, POOL_SATURATION, QUEUE_DEPTH, KV_CACHE) == (16.0, 0.7, 5.0, 0.8)


def test_the_running_requests_over_the_threshold_are_the_number() -> None:
    """200 requests in the pods need 13 replicas with 16 each; the number doubles at most once in 15 s."""
    of = scenario()
    stage = FakeStage(of, lambda _: 200.0).run(POLICIES["keda-epp-inflight"](of, 1), until=300)
    assert [replicas for _, _, replicas in stage.asked] == [2, 4, 8, 13]


def test_saturation_grows_only_after_a_window_of_five_minutes() -> None:
    """The overlay for saturation takes the lowest proposal of 300 s."""
    of = scenario()
    stage = FakeStage(of, lambda at: 200.0 if at > 20 else 10.0).run(POLICIES["keda-epp-saturation"](of, 1), until=1000)
    assert stage.asked[0][0] >= 30 + 285  # the lower proposals have left the window
    assert stage.replicas() == 13


def test_an_average_value_of_a_mean_asks_for_few_pods() -> None:
    """The saturation, though several times its threshold, asks for as many pods in all, and not for each pod."""
    of = scenario(setup(replicas=8))
    full = FakeStage(of, lambda _: 8 * 240.0)  # half waits: 120 / 5 is 24 times the queue
    full.run(keda_epp_policy(EppSignal.SATURATION, 1000.0)(of, 1), until=900)
    assert full.replicas() == 16  # where it is 12, which asks for 17 pods: within the tolerance
    filled = FakeStage(of, lambda _: 8 * 6.0)  # 3 wait in each: a saturation of 0.6
    filled.run(keda_epp_policy(EppSignal.SATURATION, 1000.0)(of, 1), until=900)
    assert filled.asked[0][2] == 1  # of eight pods that serve well


def test_the_saturation_is_the_mean_of_the_fuller_resource() -> None:
    """As in the detector's description: the larger of both ratios, 1 without metrics, 1 for an empty pool."""
    of = scenario(setup(replicas=2))
    stage = FakeStage(of, lambda _: 8.0, lost=lambda pod, _: pod == "h100-1").run([], until=16)
    pods = list(stage.variants["h100"].pods)
    assert pool_saturation(stage, pods[:1], 15.0) == pytest.approx(2 / 5)  # 4 requests each, of which 2 wait
    assert pool_saturation(stage, pods, 15.0) == pytest.approx((2 / 5 + 1.0) / 2)
    assert pool_saturation(stage, [], 15.0) == 1.0


def test_a_lost_page_is_no_load() -> None:
    """Without the picker's page both queries are empty, which KEDA takes for 0."""
    of = scenario(setup(replicas=10))
    stage = FakeStage(of, lambda _: 160.0)
    stage.gateway_queue = lambda: None if stage.now > 30 else 0.0  # type: ignore[method-assign]
    stage.run(POLICIES["keda-epp-inflight"](of, 1), until=320)
    assert stage.replicas() == 10
    assert stage.run(POLICIES["keda-epp-inflight"](of, 1), until=900).replicas() == 1


def test_the_behavior_is_the_guides() -> None:
    """Both double at most once in 15 s and shrink after 300 s; only the overlay for saturation waits to grow."""
    of = scenario()
    windows = {}
    for signal in EppSignal:
        (scaler,) = [each for each in keda_epp_policy(signal)(of, 1) if isinstance(each, ExternalAutoscaler)]
        behavior = scaler._hpa.behavior
        assert behavior.up.rates == behavior.down.rates == (Rate("Percent", 100, 15),)
        windows[signal] = (behavior.up.window_seconds, behavior.down.window_seconds)
    assert windows == {EppSignal.IN_FLIGHT: (0, 300), EppSignal.SATURATION: (300, 300)}
