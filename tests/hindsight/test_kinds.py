"""The kind of a difference between two engines follows from numbers, reasons and rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, policy, replica, variant
from wva.decide.pipeline import conclude
from wva.decide.rules import Rule
from wva.hindsight.differences import WHY, Kind, kind_of
from wva.model.decision import Reason
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey

A, B = VariantKey("ns", "a"), VariantKey("ns", "b")
(DECISION,) = conclude(Snapshot.of([variant("a")], [replica("a-0")]), Memory(), policy(), NOW).decisions


def decided(number, reason):
    """Return a decision on the variant a."""
    return replace(DECISION, desired=number, reason=reason)


@pytest.mark.parametrize(
    ("then", "now", "rule", "kind"),
    [
        ((2, Reason.STEADY), (2, Reason.STEADY), Rule.STEADY, Kind.SAME),
        ((2, Reason.STEADY), (2, Reason.SIBLING_GROWS), Rule.SIBLING_PENDING, Kind.REASON),
        ((3, Reason.SCALE_UP), (5, Reason.SCALE_UP), Rule.GROWS, Kind.GROWS_BY_MORE),
        ((5, Reason.SCALE_UP), (3, Reason.SCALE_UP), Rule.GROWS, Kind.GROWS_BY_LESS),
        ((2, Reason.PENDING_SUFFICES), (3, Reason.SCALE_UP), Rule.GROWS, Kind.GROWS_HERE),
        ((2, Reason.SIBLING_GROWS), (3, Reason.SCALE_UP), Rule.GROWS, Kind.GROWS_ELSEWHERE),
        ((3, Reason.SCALE_UP), (2, Reason.SIBLING_GROWS), Rule.SIBLING_GROWS, Kind.GROWS_ELSEWHERE),
        ((3, Reason.SCALE_UP), (2, Reason.GROWTH_SETTLING), Rule.ANSWERED, Kind.WAITS),
        ((3, Reason.SCALE_UP), (2, Reason.STEADY), Rule.STEADY, Kind.NEEDS_NO_MORE),
        ((4, Reason.SCALE_DOWN), (2, Reason.SCALE_DOWN), Rule.SHRINKS, Kind.SHRINKS_BY_MORE),
        ((2, Reason.SCALE_DOWN), (4, Reason.SCALE_DOWN), Rule.SHRINKS, Kind.SHRINKS_BY_LESS),
        ((4, Reason.SHRINK_UNSAFE), (3, Reason.SCALE_DOWN), Rule.SHRINKS, Kind.SHRINKS_HERE),
        ((1, Reason.STEADY), (0, Reason.SCALE_DOWN), Rule.SHRINKS, Kind.LAST_GOES),
        ((1, Reason.STEADY), (2, Reason.SCALE_UP), Rule.REPLACES, Kind.EXCHANGES),
        ((3, Reason.SCALE_DOWN), (4, Reason.SIBLING_SHRINKS), Rule.SIBLING_UNFINISHED, Kind.SHRINK_WAITS),
        ((3, Reason.SHRINK_UNFINISHED), (4, Reason.SHRINK_WITHDRAWN), Rule.SHRINK_WITHDRAWN, Kind.WITHDRAWS),
        ((4, Reason.SHRINK_WITHDRAWN), (3, Reason.SHRINK_UNFINISHED), Rule.SHRINK_UNFINISHED, Kind.KEEPS),
        ((4, Reason.SCALE_UP), (3, Reason.GPU_LIMITED), Rule.GROWS, Kind.LIMITED),
        ((4, Reason.SCALE_UP), (3, Reason.METRICS_STALE), Rule.HELD, Kind.EVIDENCE),
        ((4, Reason.SCALE_UP), (3, Reason.COMPATIBILITY), None, Kind.OTHER),
    ],
)
def test_the_kind_of_a_difference(then, now, rule, kind):
    """The kind follows from both numbers, the recorded reason and the rule."""
    assert kind_of(decided(*then), decided(*now), {} if rule is None else {A: rule}, [A]) is kind


def test_a_variant_that_waits_while_another_one_grows():
    """The kind says that another variant grows, and not that this one waits."""
    then, now = decided(3, Reason.SCALE_UP), decided(2, Reason.REPLICAS_PENDING)
    assert kind_of(then, now, {A: Rule.OWN_PENDING, B: Rule.GROWS}, [A, B]) is Kind.GROWS_ELSEWHERE
    assert kind_of(then, now, {A: Rule.OWN_PENDING, B: Rule.GROWS}, [A]) is Kind.WAITS


@pytest.mark.parametrize(
    ("previous", "number", "kind"), [(2, 3, Kind.NEEDS_NO_MORE), (2, 1, Kind.SHRINK_WAITS), (1, 1, Kind.OTHER)]
)
def test_reasons_that_are_gone_are_told_by_their_numbers(previous, number, kind):
    """Old reasons stood for growth and for shrinks, so the numbers give the kind."""
    then = replace(decided(number, Reason.SAFETY_OVERRIDE), previous=previous)
    assert kind_of(then, decided(2, Reason.STEADY), {A: Rule.STEADY}, [A]) is kind


@given(st.integers(0, 9), st.sampled_from(Reason), st.integers(0, 9), st.sampled_from(Reason), st.sampled_from(Rule))
def test_every_difference_has_a_kind_with_a_reason(then, reason, now, other, rule):
    """The kind says "same number" exactly if both numbers are the same."""
    kind = kind_of(decided(then, reason), decided(now, other), {A: rule}, [A])
    assert (kind in {Kind.SAME, Kind.REASON}) is (then == now)
    assert WHY[kind]
