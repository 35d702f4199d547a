"""The annotations about objectives: what they ask for, and what is told of one that is not in force."""

from __future__ import annotations

import pytest

from tests.collect.test_bounds import va
from wva.collect.objectives import asked_objectives, objective_problems
from wva.model.objectives import AskedObjectives
from wva.model.policy import Policy, SaturationPolicy


def test_annotations_are_in_the_units_of_service_classes():
    """Milliseconds, and a share."""
    asked = asked_objectives(va(slo_ttft="3000", slo_tpot="50", in_time="0.95"))
    assert asked == AskedObjectives(3.0, 0.05, 0.95, "annotation of va", tenant=True)
    assert asked_objectives(va()) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[("slo_ttft", text) for text in ("3s", "0", "-1", "nan", "1e99", "", "3600001", "1_000", "9" * 5000)],
        *[("slo_tpot", text) for text in ("60001", "0.5", "fast")],
        *[("in_time", text) for text in ("99", "99%", "1", "0.4")],
    ],
)
def test_an_annotation_that_is_no_number_of_its_range_is_told_and_counts_as_absent(name, text):
    """The line names key, value, expectation and what is in force."""
    asking = va(**{name: text})
    assert asked_objectives(asking) is None
    (line,) = objective_problems(asking, Policy())
    assert line.startswith(f"annotation wva.llmd.ai/{name.replace('_', '-')}: got ")
    assert len(line) < 400
    assert line.endswith("in force: the objectives that are built in")
    (line,) = objective_problems(asking, Policy(SaturationPolicy(target_ttft_milliseconds=2000.0)))
    assert "in force: first token within 2 s (default of all namespaces)" in line


def test_an_objective_tighter_than_a_tenant_may_ask_for_is_told():
    """It is a number, and not in force."""
    (line,) = objective_problems(va(slo_ttft="1"), Policy())
    assert line == (
        "annotation of va: got time to the first token 1 ms, expected at least 100 ms, the tightest that a tenant may "
        "ask for; in force: 1 s"
    )
    assert objective_problems(va(slo_ttft="100", slo_tpot="20", in_time="0.999"), Policy()) == []
