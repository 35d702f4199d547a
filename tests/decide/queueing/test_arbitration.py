"""HYBRID: saturation vetoes shrinks and forces growth, the model grows earlier; no opinion is never 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NAMESPACE, variant
from tests.decide.story import Story
from wva.decide.arbitrate import STAGE, arbitrate
from wva.model.decision import Decision, Reason
from wva.model.queueing import VariantOpinion
from wva.model.variant import Bounds, VariantKey

KEY = VariantKey(NAMESPACE, "a")


def decision(current: int, desired: int, *, previous: int | None = None, reason: Reason = Reason.STEADY) -> Decision:
    """Return what the saturation analyzer decided."""
    drafted = Story().cycle(variant("a"), a=[(0.5, 0.0)])["a"]
    return replace(
        drafted, current=current, desired=desired, previous=previous, reason=reason, message="measured", steps=()
    )


def opinion(desired: int | None) -> VariantOpinion:
    """Return what the model says."""
    return VariantOpinion(KEY, "A100", desired, "because of the load")


@pytest.mark.parametrize(
    ("current", "saturation", "model", "result", "reason"),
    [
        (3, 4, 2, 4, Reason.SAFETY_OVERRIDE),
        (3, 3, 2, 3, Reason.SAFETY_OVERRIDE),
        (3, 4, 3, 4, Reason.SAFETY_OVERRIDE),
        (3, 2, 1, 2, Reason.SAFETY_OVERRIDE),
        (3, 3, 5, 5, Reason.MODEL_BASED),
        (3, 4, 6, 6, Reason.MODEL_BASED),
        (3, 2, 3, 3, Reason.MODEL_BASED),
        (4, 1, 2, 2, Reason.MODEL_BASED),
        (3, 2, 2, 2, Reason.STEADY),
        (3, 3, 3, 3, Reason.STEADY),
        (3, 2, None, 2, Reason.STEADY),
        (3, 4, None, 4, Reason.STEADY),
    ],
)
def test_who_decides(current, saturation, model, result, reason):
    """The larger number counts; the reason says whose it is, the step who wanted what."""
    found = arbitrate(decision(current, saturation), opinion(model), bounds=Bounds())
    assert (found.desired, found.reason) == (result, reason)
    assert found.steps[-1].stage == STAGE
    assert found.steps[-1].reason.startswith("Hybrid mode: ")


def test_a_model_that_was_not_asked_has_no_opinion():
    """None at all is like no opinion."""
    found = arbitrate(decision(3, 2), None, bounds=Bounds())
    assert found.desired == 2
    assert "no opinion" in found.steps[-1].reason


def test_a_growth_under_way_is_no_override():
    """Saturation only keeps the number it had published; the model asks for less of it, but for no shrink."""
    found = arbitrate(decision(2, 3, previous=3), opinion(2), bounds=Bounds())
    assert (found.desired, found.reason) == (3, Reason.STEADY)


def test_a_hold_keeps_its_reason_when_the_model_would_shrink():
    """That nothing was measured is the greater news."""
    found = arbitrate(decision(3, 3, reason=Reason.METRICS_STALE), opinion(1), bounds=Bounds())
    assert (found.desired, found.reason) == (3, Reason.METRICS_STALE)


def test_neither_bounds_nor_budget_are_passed():
    """The model grows as far as the scaler and the budget reach, and what is out of reach is said."""
    assert arbitrate(decision(3, 3), opinion(9), bounds=Bounds(None, 5)).desired == 5
    assert arbitrate(decision(3, 3), opinion(9), bounds=Bounds(), most=4).desired == 4
    found = arbitrate(decision(3, 3), opinion(9), bounds=Bounds(), most=2)
    assert (found.desired, found.reason) == (3, Reason.STEADY)
    assert "out of reach" in found.steps[-1].reason


def test_a_step_says_who_kept_the_model_from_more_and_by_how_much():
    """The solver, the budget and the bounds, whatever becomes of the number."""
    denied = replace(opinion(5), denied=2, limited_by="gpu-limiter A100")

    def limit(saturation, model, **limits):
        (step,) = arbitrate(decision(3, saturation), model, **({"bounds": Bounds()} | limits)).steps
        return step.limited_by, step.fewer

    assert limit(3, opinion(5)) == ("", 0)
    for saturation in (3, 5, 6):
        assert limit(saturation, denied) == ("gpu-limiter A100", 2)
    assert limit(3, denied, most=4) == ("the GPU budget", 3)
    assert limit(3, denied, most=1) == ("the GPU budget", 4)
    assert limit(3, opinion(5), bounds=Bounds(None, 4, maximum_origin="HPA")) == ("HPA", 1)


numbers = st.integers(0, 8)


@given(numbers, numbers, st.none() | numbers, st.none() | numbers, st.none() | st.integers(1, 8), st.none() | numbers)
def test_arbitration_is_safe(current, saturation, model, previous, maximum, most):
    """Never below saturation; above it only up to the model, within bounds, and beyond the replicas within budget."""
    bounds = Bounds(None, maximum)
    saturation = bounds.clamp(saturation)
    before = decision(current, saturation, previous=previous)
    found = arbitrate(before, opinion(model), bounds=bounds, most=most)
    assert found.desired >= saturation
    if model is None:
        assert found.desired == saturation
    else:
        assert found.desired <= max(saturation, model)
        if most is None:
            assert found.desired == max(saturation, bounds.clamp(model))
    assert bounds.clamp(found.desired) == found.desired
    if most is not None and found.desired > saturation:
        assert found.desired <= max(most, current)
    assert len(found.steps) == 1
