"""Holds every decision of these tests against its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.decide.contradictions import contradictions
from wva.decide import pipeline, v05
from wva.decide.failed import Outcome


def checked(engine: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return an engine whose decisions are held against their conditions."""

    def decide(*given: object, **named: object) -> Outcome:
        outcome = engine(*given, **named)
        assert not contradictions(outcome.decisions, outcome.late)
        return outcome

    return decide


@pytest.fixture(scope="session", autouse=True)
def no_condition_contradicts_a_decision() -> Iterator[None]:
    """Fail a test in which the conditions and the decisions of a cycle contradict each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "isolated", checked(pipeline.isolated))
        patch.setattr(v05, "conclude", checked(v05.conclude))
        yield
