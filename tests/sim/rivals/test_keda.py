"""KEDA's Prometheus scaler as a rival."""

from __future__ import annotations

from tests.sim.rivals.fake_stage import FakeStage, scenario, setup
from wva.sim.rivals import POLICIES
from wva.sim.rivals.keda import ExternalAutoscaler, KedaRules, keda_policy, sum_of_pods
from wva.sim.rivals.readings import LoadReading


def test_the_sum_over_the_threshold_is_the_number() -> None:
    """The number is the sum of the load over the threshold, even if pods are not Ready."""
    of = scenario()
    stage = FakeStage(of, lambda _: 1000.0).run(POLICIES["keda-inflight"](of, 1), until=300)
    assert stage.replicas() == 10


def test_an_empty_answer_is_no_load() -> None:
    """By default KEDA takes lost scrapes for no load and shrinks the target.

    It keeps the number if empty answers are errors.
    """
    of = scenario(setup(replicas=10))
    lost = FakeStage(of, lambda _: 1000.0, lost=lambda _, at: at > 30)
    assert lost.run(POLICIES["keda-inflight"](of, 1), until=340).replicas() == 10
    assert lost.run(POLICIES["keda-inflight"](of, 1), until=900).replicas() == 1
    careful = KedaRules((sum_of_pods(LoadReading.IN_FLIGHT, 100.0),), ignore_null_values=False)
    held = FakeStage(of, lambda _: 1000.0, lost=lambda _, at: at > 30)
    assert held.run([ExternalAutoscaler(of, of.variants[0], careful)], until=900).replicas() == 10


def test_zero_is_the_operators() -> None:
    """KEDA scales to 0 300 s after the last load, and back at the next poll that sees waiting requests."""
    of = scenario(setup(minimum=0))
    stage = FakeStage(of, lambda at: 40.0 if at < 100 or at > 1000 else 0.0)
    stage.run(keda_policy(LoadReading.IN_FLIGHT, 100.0)(of, 1), until=1100)
    assert stage.asked == [(420.0, "h100", 0), (1020.0, "h100", 1)]


def test_a_minimum_above_zero_needs_no_operator() -> None:
    """With a minimum above zero the HPA alone acts, and keeps the minimum."""
    of = scenario()
    assert len(POLICIES["keda-queue"](of, 1)) == 1
