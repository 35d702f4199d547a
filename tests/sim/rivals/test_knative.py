"""The Knative Pod Autoscaler as a rival."""

from __future__ import annotations

import pytest

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.sim.rivals import POLICIES
from wva.sim.rivals.knative import KnativeSettings, PodAutoscaler


def decisions(autoscaler: PodAutoscaler, concurrency, *, ready, seconds: range) -> dict[int, int | None]:
    """Return the replicas asked for at each second; ``concurrency`` and ``ready`` are functions of the second."""
    found = {}
    for now in seconds:
        autoscaler.record(concurrency(now), now=float(now))
        found[now] = autoscaler.decide(ready=ready(now), now=float(now))
    return found


def test_the_defaults_are_knatives() -> None:
    """By default the target is 70 % of 100 concurrent requests per pod."""
    assert (KnativeSettings().target, KnativeSettings().panic_window_seconds) == (70.0, 6.0)


def test_it_follows_the_mean_of_a_minute() -> None:
    """A rise of the load counts in full when the window of a minute has passed."""
    found = decisions(
        PodAutoscaler(KnativeSettings()), lambda now: 280 if now < 100 else 420, ready=lambda _: 4, seconds=range(200)
    )
    assert (found[99], found[101], found[130], found[160]) == (4, 5, 6, 6)


def test_panic_goes_by_six_seconds() -> None:
    """If the mean of six seconds needs twice the Ready pods, growth is immediate."""
    found = decisions(
        PodAutoscaler(KnativeSettings()), lambda now: 140 if now < 100 else 1400, ready=lambda _: 2, seconds=range(110)
    )
    assert found[99] == 2
    assert found[105] == 20
    assert found[101] == 8  # (4 x 140 + 2 x 1400) / 6 / 70


def test_a_panic_never_shrinks_and_ends_after_a_calm_minute() -> None:
    """The autoscaler keeps the highest number of the panic until a minute has passed without a reason for it."""
    found = decisions(
        PodAutoscaler(KnativeSettings()),
        lambda now: 1400 if 100 <= now < 110 else 70,
        ready=lambda now: 20 if now > 150 else 1,
        seconds=range(300),
    )
    kept = [now for now, pods in found.items() if pods == 20]
    assert (kept[0], kept[-1]) == (105, 174)
    assert found[175] == 10  # no more than half at once
    assert found[299] == 10  # 20 pods are still Ready in this test


def test_it_starts_as_in_panic() -> None:
    """The autoscaler keeps the present number for the first minute, as in a panic."""
    found = decisions(PodAutoscaler(KnativeSettings()), lambda _: 7, ready=lambda _: 8, seconds=range(70))
    assert (found[60], found[61]) == (8, 4)


def test_without_scrapes_it_does_nothing() -> None:
    """Without scrapes the autoscaler keeps the number."""
    assert PodAutoscaler(KnativeSettings()).decide(ready=3, now=0.0) is None


def test_on_the_stage() -> None:
    """The autoscaler settles on its target, grows within seconds, and shrinks a minute after the load has gone."""
    of = scenario(setup(replicas=2, maximum=12))
    stage = FakeStage(of, lambda at: 1400.0 if 300 <= at < 600 else 120.0)
    stage.run(POLICIES["kpa"](of, 1), until=300)
    assert stage.replicas() == 2
    stage.run(POLICIES["kpa"](of, 1), until=310)
    assert stage.replicas() == 12
    stage.run(POLICIES["kpa"](of, 1), until=800)
    assert stage.replicas() == 2


def test_the_gateway_wakes_it() -> None:
    """Requests that wait at the gateway count as concurrency, too."""
    of = scenario(setup(minimum=0, replicas=0))
    stage = FakeStage(of, lambda at: 10.0 if at > 100 else 0.0)
    stage.run(POLICIES["kpa"](of, 1), until=110)
    assert stage.replicas() == 1


PUBLISHED = {
    "UnpanicAfterSlowIncrease": (1.0, [(0, 11, 25, 10, 25), (30, 30, 41, 40, 41), (62, 50, 56, 55, 50)]),
    "ExtendPanicWindow": (1.0, [(0, 11, 25, 10, 25), (30, 30, 80, 40, 80)]),
    "StableModeDecrease": (10.0, [(0, 100, 100, 8, 10), (0, 50, 50, 8, 5)]),
    "StableModeNoTrafficScaleToZero": (10.0, [(0, 1, 0, 1, 1), (0, 0, 0, 1, 0)]),
    "StableModeIncreaseWithConcurrencyDefault": (10.0, [(0, 50, 10, 1, 5), (0, 100, 10, 1, 10)]),
}
"""Examples of pkg/autoscaler/scaling/autoscaler_test.go of Knative Serving (commit 01f103ef): target, and per look the
time in seconds, mean of the stable and of the panic window, Ready pods, and pods asked for."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_decides_as_in_knatives_own_tests(name) -> None:
    """The numbers are those of Knative's unit tests, which begin with one Ready pod and go to a tenth at once."""
    target, looks = PUBLISHED[name]
    settings = KnativeSettings(
        concurrency=target, target_utilization=1.0, max_scale_up_rate=10.0, max_scale_down_rate=10.0
    )
    autoscaler = PodAutoscaler(settings)
    autoscaler.scale(stable=0.0, panic=0.0, ready=1, now=-1.0)
    for now, stable, panic, ready, pods in looks:
        assert autoscaler.scale(stable=stable, panic=panic, ready=ready, now=float(now)) == pods


def test_the_last_pod_goes_after_the_grace_period() -> None:
    """Half a minute lies between the first wish for zero and zero: after a stable window without a request."""
    of = scenario(setup(minimum=0))
    stage = FakeStage(of, lambda at: 10.0 if at < 100 else 0.0).run(POLICIES["kpa"](of, 1), until=300)
    ((at, _, replicas),) = stage.asked
    assert replicas == 0
    assert 160 + 30 <= at <= 160 + 34


def test_a_request_in_the_grace_period_keeps_the_pod() -> None:
    """The grace period begins anew after every request."""
    of = scenario(setup(minimum=0))
    stage = FakeStage(of, lambda at: 10.0 if at < 100 or 170 <= at < 180 else 0.0)
    stage.run(POLICIES["kpa"](of, 1), until=400)
    assert [replicas for *_, replicas in stage.asked] == [0]
    assert stage.asked[0][0] > 180 + 60 + 30 - 2
