"""The stage's HPA has the algorithm of the HorizontalPodAutoscaler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.rivals.hpa import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    Behavior,
    External,
    PerPod,
    Rate,
    ScalingRules,
    SimulatedHpa,
)

AT_ONCE = Behavior(DEFAULT_UP, ScalingRules(0.0, DEFAULT_DOWN.rates))
"""The behavior without a stabilization window."""


def hpa(minimum: int = 1, maximum: int = 100, behavior: Behavior = AT_ONCE) -> SimulatedHpa:
    """Return an HPA with wide bounds."""
    return SimulatedHpa(minimum, maximum, behavior)


def test_the_behavior_of_a_spec_replaces_the_defaults() -> None:
    """Fields that a spec leaves out have the defaults of Kubernetes."""
    assert Behavior.parse({}) == Behavior(
        ScalingRules(0.0, (Rate("Pods", 4, 15.0), Rate("Percent", 100, 15.0))),
        ScalingRules(300.0, (Rate("Percent", 100, 15.0),)),
    )
    up = {"stabilizationWindowSeconds": 60, "selectPolicy": "Min"}
    down = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    assert Behavior.parse({"scaleUp": up, "scaleDown": down}) == Behavior(
        ScalingRules(60, DEFAULT_UP.rates, "Min"), ScalingRules(300.0, (Rate("Pods", 1, 60),))
    )


def test_a_restart_does_not_shrink_at_once() -> None:
    """After a restart the HPA takes the present number for a proposal, which the window for shrinking keeps."""
    scaler = hpa(behavior=Behavior())
    assert scaler.external(current=6, exists=6, value=1, average=1, now=0) == 6
    assert scaler.external(current=6, exists=6, value=1, average=1, now=300) == 6
    assert scaler.external(current=6, exists=6, value=1, average=1, now=315) == 1


@pytest.mark.parametrize(("current", "expected"), [(0, 0), (1, 2), (7, 5)])
def test_bounds_come_before_metrics(current: int, expected: int) -> None:
    """Without a metric the HPA moves a target into its bounds, but leaves a target at 0 alone."""
    assert hpa(2, 5).external(current=current, exists=current, value=None, average=1, now=0) == expected


def test_a_minimum_of_zero_wakes_up() -> None:
    """With minReplicas 0 an HPA starts a target that has no replicas."""
    assert hpa(0).external(current=0, exists=0, value=3, average=2, now=0) == 2


def test_several_metrics_grow_by_the_highest_and_shrink_by_all() -> None:
    """A metric without a value stops shrinking, and does not stop growing."""
    both = [External(4, 1), External(6, 1)]
    assert hpa().look(both, current=5, exists=5, now=0) == 6
    one = [External(4, 1), External(None, 1)]
    assert hpa().look(one, current=5, exists=5, now=0) == 5
    assert hpa().look(one, current=3, exists=3, now=0) == 4
    assert hpa().look([External(None, 1)], current=3, exists=3, now=0) == 3
    assert hpa().look([], current=3, exists=3, now=0) == 3


@pytest.mark.parametrize(
    ("current", "readings", "missing", "pending", "expected"),
    [
        (2, (1.0, 1.0), 0, 0, 4),  # twice the target
        (2, (0.5, 0.55), 0, 0, 2),  # within the tolerance: 1.05
        (2, (0.1, 0.1), 0, 0, 1),
        (4, (1.0, 1.0), 2, 0, 4),  # on target, because pods without a reading count as idle
        (4, (1.0, 1.0, 1.0), 1, 0, 6),  # 3.0 over 4 pods of 0.5 each
        (4, (1.0, 1.0, 1.0), 0, 1, 6),  # the same if the pod does not run yet
        (4, (0.2, 0.2), 2, 0, 3),  # pods without a reading count as on target: 1.4 over 0.5
        (4, (0.2, 0.2), 0, 2, 1),  # pods that do not run yet are left out: 0.4 over 0.5
        (5, (1.0, 0.2), 3, 0, 5),  # the mean is above the target, but below it with idle pods
        (9, (1.0, 1.0, 1.0), 1, 0, 9),  # the readings ask for growth, but the result would be lower
        (5, (), 3, 0, 5),  # no reading at all
    ],
)
def test_pods_without_a_reading_never_add_to_a_change(
    current: int, readings: tuple[float, ...], missing: int, pending: int, expected: int
) -> None:
    """The HPA compares the mean per pod with a target of 0.5. Pods without a reading only make the change smaller."""
    metric = PerPod(readings, 0.5, missing, pending)
    assert hpa().look([metric], current=current, exists=current, now=0) == expected


def test_growth_is_limited_by_the_larger_of_two_rates() -> None:
    """By default the HPA adds at most four pods or doubles the target in each 15 s."""
    scaler = hpa()
    counts, current = [], 1
    for now in range(0, 60, 15):
        current = scaler.external(current=current, exists=current, value=90, average=1, now=now)
        counts.append(current)
    assert counts == [5, 10, 20, 40]


@pytest.mark.parametrize(("select", "expected"), [("Max", 14), ("Min", 11), ("Disabled", 10)])
def test_the_policy_that_counts_can_be_chosen(select, expected: int) -> None:
    """The HPA makes the largest change, the smallest change, or none."""
    up = ScalingRules(0.0, (Rate("Pods", 4, 15.0), Rate("Percent", 10, 15.0)), select)
    assert hpa(behavior=Behavior(up)).external(current=10, exists=10, value=90, average=1, now=0) == expected


@pytest.mark.parametrize(("select", "expected"), [("Max", 6), ("Min", 9), ("Disabled", 10)])
def test_the_policy_that_counts_can_be_chosen_for_shrinking(select, expected: int) -> None:
    """The policy for shrinking can be chosen like that for growth."""
    down = ScalingRules(0.0, (Rate("Pods", 4, 15.0), Rate("Percent", 10, 15.0)), select)
    assert hpa(behavior=Behavior(down=down)).external(current=10, exists=10, value=1, average=1, now=0) == expected


def test_a_rate_counts_from_what_there_was_at_the_start_of_its_period() -> None:
    """One pod a minute means one pod a minute, for any number of polls."""
    down = ScalingRules(0.0, (Rate("Pods", 1, 60.0),))
    scaler = hpa(behavior=Behavior(down=down))
    counts, current = [], 5
    for now in range(0, 151, 15):
        current = scaler.external(current=current, exists=current, value=1, average=1, now=now)
        counts.append(current)
    assert counts == [4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2]


METRICS = st.lists(
    st.one_of(
        st.builds(External, st.one_of(st.none(), st.floats(0, 500)), st.floats(0.1, 20)),
        st.builds(
            PerPod, st.lists(st.floats(0, 50), max_size=8), st.floats(0.1, 20), st.integers(0, 5), st.integers(0, 5)
        ),
    ),
    max_size=3,
)


@given(st.lists(METRICS, max_size=12), st.integers(0, 3), st.integers(3, 40), st.integers(0, 50))
def test_a_decision_stays_in_the_bounds(looks, minimum: int, maximum: int, current: int) -> None:
    """Bounds hold for all readings, and an unknown metric never shrinks the target."""
    scaler = SimulatedHpa(minimum, maximum)
    for number, metrics in enumerate(looks):
        unknown = any(metric.propose(current, current, 0.1) is None for metric in metrics) or not metrics
        before = current
        current = scaler.look(metrics, current=before, exists=before, now=15.0 * number)
        held = before == 0 < minimum
        assert current == before if held else minimum <= current <= maximum
        if unknown and minimum <= before <= maximum:
            assert current >= before
