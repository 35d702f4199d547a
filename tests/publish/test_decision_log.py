"""The log lines of a decision: their fields, and the text that operators search for."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.builders import variant
from tests.publish.decisions import decision, held
from wva import log
from wva.model.decision import Source, Step
from wva.publish.announce import log_decision
from wva.publish.ledger import Ledger


def lines_of(made):
    """Return the captured log entries of one decision."""
    with capture_logs() as captured:
        log_decision(log.get("optimizer"), made)
    return captured


def test_one_canonical_line_per_decision():
    """One line has all fields that explain the number."""
    (line,) = lines_of(decision(3))
    assert line == {
        "event": "variant_decided",
        "log_level": "info",
        "component": "optimizer",
        "variant": "ns/va",
        "model": "org/model",
        "accelerator": "H100",
        "current": 2,
        "desired": 3,
        "previous": 2,
        "action": "scale-up",
        "reason": "ScaleUp",
        "source": "measured",
        "coverage": "2/2",
        "message": "2 of 2 reporting replicas saturated",
        "limited_by": [],
        "fewer": [],
        "steps": ["analyze: 2 -> 2 (draft)", "optimize: 2 -> 3 (one more)"],
    }


def test_a_step_says_who_limited_it_and_by_how_much():
    """The step has the limit, and the field ``limited_by`` has its name."""
    steps = (Step("optimize", "three more", 2, 5), Step("limit", "two left", 5, 4, "gpu-limiter A100", 1))
    (line,) = lines_of(decision(4, steps=steps))
    assert line["steps"][1] == "limit: 5 -> 4 (two left) [limited by gpu-limiter A100: 1 fewer]"
    assert line["limited_by"] == ["gpu-limiter A100"]
    assert line["fewer"] == [1]


@pytest.mark.parametrize("source", [Source.PREVIOUS_DESIRED, Source.CURRENT_REPLICAS])
def test_the_safety_net_says_so_in_the_documented_words(source):
    """The message begins with the text of the configuration guide, and the line has the guide's fields."""
    _, line = lines_of(held(3, source=source))
    assert line["event"].startswith("Safety net activated")
    assert line["log_level"] == "warning"
    expected = {
        "event_name": "safety_net_activated",
        "variant": "va",
        "namespace": "ns",
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "accelerator": "H100",
        "fallbackSource": source.value,
        "reason": "Prometheus did not answer",
    }
    assert expected.items() <= line.items()


def test_a_measured_decision_does_not_mention_the_safety_net():
    """A measured decision that keeps the number has no warning."""
    assert len(lines_of(decision(2))) == 1


def test_a_variant_at_zero_does_not_activate_the_safety_net():
    """The number of an inactive variant is its current replicas, but no measurement is missing."""
    idle = decision(0, current=0, reason=decision().reason.INACTIVE, source=Source.CURRENT_REPLICAS)
    assert len(lines_of(idle)) == 1


def test_a_held_number_of_the_ledger_is_a_fallback():
    """A variant without a decision uses the safety net, too."""
    lines = lines_of(Ledger().hold(variant("va", replicas=2)))
    assert lines[1]["fallbackSource"] == "current-replicas"
