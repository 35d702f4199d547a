"""The recorded closed loops of v0.5.1: in compatibility mode the whole loop runs as the original's did.

Controller, workload, pods and HPA start once, at the recorded beginning, and nothing is corrected on the way: one
different number would lead the loop elsewhere. So the model of the loop that other tests use is checked as well.
"""

from __future__ import annotations

import pytest

from tests.decide.loop import Loop, Workload
from tests.golden.vectors import Case, parameters, tally
from wva.model.policy import Compatibility, Policy

NAME = "trace"


def scales_to_zero(case: Case) -> str | None:
    """Leave out what compatibility does not bring back."""
    return "with scale to zero" if case["scale_to_zero"] else None


@pytest.mark.parametrize("case", parameters(NAME, left_out=scales_to_zero))
def test_recorded_loop(case):
    """Numbers, replicas and Ready pods of every tick are the recorded ones."""
    tally(NAME).run += 1
    workload = Workload("va", case, broken_pod=case.get("pod_number_that_never_reports"))
    loop = Loop([workload], Policy(compatibility=Compatibility.V0_5))
    for step in case["steps"]:
        seen = (len(workload.pods), workload.ready(loop.tick), workload.desired)
        assert seen == (step["status_replicas"], step["ready_replicas"], step["status_desired_before"])
        loop.step(step["load_replica_units"])
        assert workload.desired == step["expected_wva_desired_replicas"] == step["expected_status_desired_after"]
        assert len(workload.pods) == step["hpa_sets_spec_to"]
