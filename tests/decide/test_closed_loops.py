"""Closed loops that froze the Go controller: the same workload and HPA, with our numbers.

They show rows 1, 3 and 5 of docs/decisions.md#departures-from-v051.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decide.loop import Loop, LoopWorkload
from tests.golden.vectors import find
from wva.model.decision import Reason

pytestmark = pytest.mark.long_story

TRACE = {
    "initial_replicas": 1,
    "pod_startup_ticks": 2,
    "hpa_min": 1,
    "hpa_max": 20,
    "hpa_tolerance": 0.1,
    "hpa_stabilization_up_ticks": 1,
    "hpa_stabilization_down_ticks": 1,
}
DEADLINE_TICKS = 20


def recorded(identifier: str) -> dict[str, Any]:
    """Return a recorded loop."""
    content = find("trace")
    if content is None:
        pytest.skip("golden_trace.json.gz is not present")
    return next(case for case in content["cases"] if case["id"] == identifier)


def loads(trace: dict[str, Any]) -> list[float]:
    """Return the load of every tick of a recorded loop."""
    return [step["load_replica_units"] for step in trace["steps"]]


def numbers(loop: Loop, name: str = "va") -> list[int]:
    """Return what was published, tick by tick."""
    return [decisions[name].desired for decisions in loop.history]


def test_a_surge_during_a_shrink_is_answered_at_once():
    """Trace 03: the original went on shrinking to 1 for seven more ticks."""
    trace = recorded("trace-03")
    loop = Loop([LoopWorkload("va", trace)])
    loop.run(loads(trace))
    surge = next(tick for tick, load in enumerate(loads(trace)) if load > 1)
    existing = loop.replicas[surge]["va"]
    assert numbers(loop)[surge] == 2 * existing
    assert trace["steps"][surge]["expected_wva_desired_replicas"] < existing
    loop.run([6.0] * 60)
    assert numbers(loop)[-1] >= 8


def test_a_minimum_of_the_scaler_does_not_freeze():
    """Trace 04: the original stayed at number 1 with two saturated replicas."""
    trace = recorded("trace-04")
    loop = Loop([LoopWorkload("va", trace, bounded=True)])
    loop.run(loads(trace))
    assert min(numbers(loop)) == trace["hpa_min"]
    assert numbers(loop)[-1] > trace["hpa_min"]
    assert trace["steps"][-1]["expected_wva_desired_replicas"] == 1


def test_a_maximum_of_the_scaler_does_not_freeze():
    """Trace 05: the original stayed at number 4 when the load was gone."""
    trace = recorded("trace-05")
    loop = Loop([LoopWorkload("va", trace, bounded=True)])
    loop.run(loads(trace))
    assert max(numbers(loop)) == trace["hpa_max"]
    assert numbers(loop)[-1] == 1
    assert trace["steps"][-1]["expected_wva_desired_replicas"] == 4


def test_a_pod_that_never_starts_does_not_freeze_its_variant():
    """Trace 07: the original stayed at 2 for ever; WVA asks for other replicas beside the stuck one."""
    trace = recorded("trace-07")
    loop = Loop([LoopWorkload("va", trace, broken_pod=trace["pod_number_that_never_reports"])])
    loop.run([*loads(trace), *[6.0] * 3 * DEADLINE_TICKS])
    assert trace["steps"][-1]["expected_wva_desired_replicas"] == 2
    assert loop.workloads[0].ready(loop.tick) >= 8
    assert loop.history[-1]["va"].reason not in {Reason.SCALE_UP, Reason.NO_CANDIDATE}


def test_pods_that_never_start_leave_the_growth_to_the_sibling():
    """Each new replica of the cheap variant gets stuck, so the dear variant takes the load."""
    trace = recorded("trace-07")
    broken = LoopWorkload("va", trace, broken_from=2)
    sibling = LoopWorkload("zz", trace, cost=50.0)
    loop = Loop([broken, sibling])
    loop.run([*loads(trace), *[6.0] * 3 * DEADLINE_TICKS])
    assert broken.ready(loop.tick) == 1
    assert numbers(loop)[-1] <= 4
    assert sibling.ready(loop.tick) >= 7
    assert loop.history[-1]["zz"].reason not in {Reason.SCALE_UP, Reason.NO_CANDIDATE}


@settings(max_examples=settings.default.max_examples // 5)
@given(
    load=st.floats(0.1, 5.0),
    replicas=st.integers(1, 8),
    startup=st.integers(0, 8),
    up=st.integers(1, 8),
    down=st.integers(1, 8),
)
def test_a_constant_load_comes_to_rest(load, replicas, startup, up, down):
    """Whatever the delays, the number stops moving, and the model is neither short of replicas nor saturated."""
    trace = TRACE | {
        "initial_replicas": replicas,
        "pod_startup_ticks": startup,
        "hpa_stabilization_up_ticks": up,
        "hpa_stabilization_down_ticks": down,
    }
    loop = Loop([LoopWorkload("va", trace)])
    loop.run([load] * 160)
    assert len(set(numbers(loop)[-10:])) == 1
    assert loop.history[-1]["va"].reason in {Reason.STEADY, Reason.SHRINK_UNSAFE}
