"""The rules of step 5: one order, and one of them for each variant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from wva.decide.progress import Moment, progress_of
from wva.decide.rules import RULES, Course, ModelCase, Rule, VariantCase, verdict
from wva.model.decision import NO_LIMIT, Limit

COURSES = {
    Course.HOLD: {Rule.HELD},
    Course.GROW: {Rule.NO_CANDIDATE},
    Course.WAIT: {Rule.DEFERRED, Rule.SUFFICES, Rule.ANSWERED},
    Course.SHRINK: {Rule.STEADY},
    Course.REPLACE: {Rule.STEADY, Rule.KEPT},
    Course.STAY: {
        *(Rule.SIBLING_PENDING, Rule.SIBLING_UNFINISHED, Rule.UNCOUNTED, Rule.OBJECTED),
        *(Rule.STEADY, Rule.KEPT),
    },
}
"""The rules about a whole model that ``terms`` finds on each course."""


def test_the_words_of_the_rules_have_the_order_of_their_table() -> None:
    """One order; at the end comes what makes an idle model go to zero."""
    assert tuple(Rule) == (*(row.rule for row in RULES), Rule.IDLE)


def test_each_rule_says_when_it_holds_and_what_becomes_of_the_number() -> None:
    """The page prints both in columns of their own."""
    assert all(len(rule.split(": ")) == 2 for rule in Rule)


@given(data=st.data())
@pytest.mark.parametrize("course", Course)
def test_a_rule_decides_on_every_variant(course: Course, data: st.DataObject) -> None:
    """Whatever the rules look at: one that is asked on the course matches, and its number is none below zero."""
    few, truth = st.integers(0, 4), st.booleans()
    at = variant("a", replicas=data.draw(few), ready_replicas=data.draw(few), desired=data.draw(few))
    progress = progress_of(at, replicas=(), entry=None, moment=Moment(NOW, 600.0))
    case = VariantCase(
        course,
        data.draw(st.sampled_from(sorted(COURSES[course]))),
        ModelCase(("a",), *[data.draw(truth) for _ in range(7)], progresses=(progress,)),
        at.key,
        progress,
        planned=data.draw(few),
        leaving=0,
        limit=data.draw(st.sampled_from([NO_LIMIT, Limit("gpu-limiter", 1)])),
    )
    found = verdict(case)
    assert course in next(row.courses for row in RULES if row.rule is found.rule)
    assert found.number >= 0
