"""The queueing model in the pipeline: as the analyzer of a model, and beside another analyzer (HYBRID)."""

from __future__ import annotations

import subprocess
import sys

from tests.builders import NOW, variant
from tests.decide.queueing.samples import KNOWN, pod, steady
from wva.decide.pipeline import decide
from wva.model.decision import Reason
from wva.model.memory import Memory
from wva.model.policy import Analyzer, Compatibility, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot

BUSY = Snapshot.of([variant(cost=40.0)], [pod(success_rate=40 / 60)])
QUEUEING = replace(KNOWN, saturation=SaturationPolicy(analyzer_name=Analyzer.QUEUEING))
HYBRID = replace(KNOWN, proactive_model=True)


def test_its_number_is_the_need_of_a_model_that_has_it_as_analyzer():
    """0.6667 requests/s at 0.3944 per replica take two; the pipeline remembers what the analyzer saw."""
    (decision,), memory = decide(BUSY, steady(BUSY, QUEUEING), QUEUEING, NOW)
    assert (decision.desired, decision.reason) == (2, Reason.SCALE_UP)
    assert "requests/s needed" in decision.message
    assert memory.demand


def test_without_an_opinion_the_number_is_held():
    """Without the size of requests there is no capacity, and no other analyzer decides in its place."""
    seen = replace(BUSY, replicas=(pod(success_rate=None, input_tokens=None, output_tokens=None),))
    (decision,), _ = decide(seen, Memory(), QUEUEING, NOW)
    assert (decision.desired, decision.held) == (1, True)


def test_beside_the_percentage_analyzer_the_larger_number_counts():
    """The percentage analyzer sees spare, but the queueing model needs two replicas."""
    (decision,), memory = decide(BUSY, steady(BUSY, HYBRID), HYBRID, NOW)
    assert (decision.desired, decision.reason) == (2, Reason.SCALE_UP)
    assert "requests/s needed" in decision.message
    assert [step.stage for step in decision.steps] == ["measure", "allocate", "settle"]
    assert "its service class" in decision.steps[0].reason
    assert memory.demand


def test_nobody_asks_it_by_default_or_in_compatibility_mode():
    """The decision does not mention the queueing model."""
    for policy in (KNOWN, replace(KNOWN, proactive_model=True, compatibility=Compatibility.V0_5)):
        (decision,), _ = decide(BUSY, steady(BUSY, policy), policy, NOW)
        assert decision.desired == 1
        assert not any("its service class" in step.reason for step in decision.steps)


def test_numpy_is_loaded_only_when_it_is_asked():
    """A controller without the queueing model starts without numpy."""
    code = "import sys, wva.decide.pipeline; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - our own interpreter
