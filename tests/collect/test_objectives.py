"""The annotations about objectives: what they ask for, and what is told of one that is not in force."""

from __future__ import annotations

import pytest

from tests.collect.test_bounds import va
from wva.collect.objectives import asked_objectives, objective_problems
from wva.model.objectives import AskedObjectives
from wva.model.optimizers import Analyzer
from wva.model.policy import NamespacePolicy, Policy, SaturationPolicy, SaturationRules


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


@pytest.mark.parametrize(
    ("analyzer", "name", "instead"),
    [
        (Analyzer.PERCENTAGE, "percentage", "its thresholds"),
        (Analyzer.TOKENS, "saturation", "its thresholds"),
        (Analyzer.QUEUEING, "queueing", "the targets of its ConfigMaps"),
    ],
)
def test_an_objective_that_the_analyzer_of_the_model_does_not_read_is_told(analyzer, name, instead):
    """Each annotation has its line, and a variant without one has none."""
    policy = Policy(SaturationPolicy(analyzer_name=analyzer))
    first, second = objective_problems(va(slo_ttft="300", in_time="fast"), policy)
    assert first == (
        "annotation wva.llmd.ai/slo-ttft: got '300', expected none, since the analyzer of the model is "
        f"{name}, which does not read it; in force: {instead}"
    )
    assert second.startswith("annotation wva.llmd.ai/in-time: got 'fast', expected none, ")
    assert objective_problems(va(), policy) == []


def test_beside_it_what_the_namespace_may_not_ask_for_is_told():
    """As without an annotation."""
    rules = SaturationRules(SaturationPolicy(analyzer_name=Analyzer.PERCENTAGE, target_ttft_milliseconds=1.0))
    policy = Policy(namespaces=(NamespacePolicy("ns", rules),))
    (refused,) = objective_problems(va(), policy)
    _, beside_it = objective_problems(va(slo_ttft="300"), policy)
    assert beside_it == refused


def beside(name, **said):
    """Return what another variant of the model asks for."""
    return AskedObjectives(**said, origin=f"annotation of {name}", tenant=True)


@pytest.mark.parametrize(
    ("text", "other", "in_force"),
    [
        ("50", {"ttft_seconds": 0.3}, "300 ms"),
        ("50", {"ttft_seconds": 3.0}, "3 s"),
        ("50", {"itl_seconds": 0.05}, "1 s"),
        (
            "3s",
            {"ttft_seconds": 0.3},
            "first token within 300 ms (annotation of b), between tokens 100 ms (built in), ",
        ),
    ],
)
def test_what_another_variant_of_the_model_asks_for_is_in_force(text, other, in_force):
    """The line says the same as ``OptimizationReady``, which tells the objectives of the model."""
    (line,) = objective_problems(va(slo_ttft=text), Policy(), lambda: [beside("b", **other)])
    assert f"; in force: {in_force}" in line


def test_what_another_variant_asks_for_in_vain_is_told_of_that_one_alone():
    """The condition of each variant names its own annotations, and what its namespace says."""
    policy = Policy(namespaces=(NamespacePolicy("ns", SaturationRules(SaturationPolicy(target_itl_milliseconds=5.0))),))
    (line,) = objective_problems(va(slo_ttft="3000"), policy, lambda: [beside("b", ttft_seconds=0.05)])
    assert line.startswith("default of namespace ns: got time between tokens 5 ms")


def test_other_variants_are_not_searched_if_everything_is_in_force():
    """A namespace may have thousands of variants, and each is looked at every minute."""
    searched = []
    assert objective_problems(va(slo_ttft="3000"), Policy(), lambda: searched.append(1) or []) == []
    assert objective_problems(va(), Policy(), lambda: searched.append(1) or []) == []
    assert not searched
