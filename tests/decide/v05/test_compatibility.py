"""``compatibility: v0.5`` brings back three things of v0.5, and only these."""

from __future__ import annotations

import pytest

from tests.builders import INVALID, policy, stale, standing, variant
from tests.decide.story import BUSY, FULL, IDLE, SILENT, TIGHT, Story, numbers, reasons
from wva.decide.v05 import analyze, targets
from wva.model.decision import Reason, Source
from wva.model.policy import Compatibility, SaturationPolicy
from wva.model.variant import UNKNOWN_ACCELERATOR


def old() -> Story:
    """Return a story in compatibility mode."""
    return Story(policy(compatibility=Compatibility.V0_5))


def test_the_old_arithmetic_decides():
    """The cheapest variant grows; the reason has the old text, followed by the numbers."""
    decisions = old().cycle(
        variant("a", cost=20, desired=1), variant("b", cost=5, desired=1), a=[(0.75, 2)], b=[(0.75, 2)]
    )
    assert numbers(decisions) == {"a": 1, "b": 2}
    assert {decision.reason for decision in decisions.values()} == {Reason.COMPATIBILITY}
    assert decisions["b"].message == "saturation-only mode: scale-up; KV spare Saturation low (0.050 < 0.100)"
    assert decisions["b"].source is Source.MEASURED


def test_an_idle_pair_shrinks():
    """The message carries no shortage."""
    decision = old().cycle(variant(replicas=2, desired=2), a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.message) == (1, "saturation-only mode: scale-down")


def test_an_unreached_number_blocks_the_whole_model():
    """The model is saturated, but the status says 2 and one replica exists, so nothing changes."""
    decisions = old().cycle(variant("a", desired=2), variant("b", desired=1), a=[FULL], b=[FULL])
    assert numbers(decisions) == {"a": 2, "b": 1}


@pytest.mark.parametrize("report", [(None, 0), (0.0, None), (stale(0.95), 0), (INVALID, 0)])
def test_a_sample_that_is_not_fresh_counts_as_idle(report):
    """The other sample is fresh: the pair shrinks although only one replica reports."""
    assert old().cycle(variant(replicas=2, desired=2), a=[IDLE, report])["a"].desired == 1


def test_a_pod_without_fresh_samples_is_no_replica():
    """Two replicas have one report, so the variant is in transition, and nothing happens."""
    assert old().cycle(variant(replicas=2, desired=2), a=[FULL, SILENT])["a"].desired == 2


def test_a_pod_that_reports_nothing_but_nan_counts_as_idle():
    """The original read NaN as 0, so one of the two idle replicas goes."""
    assert old().cycle(variant(replicas=2, desired=2), a=[(INVALID, INVALID)] * 2)["a"].desired == 1


def test_without_any_decision_the_status_is_published():
    """The series has the number and the accelerator of the status."""
    given = variant(replicas=4, desired=3, status_accelerator="H100")
    decision = old().cycle(given, a=[SILENT] * 4)["a"]
    assert (decision.desired, decision.reason, decision.source) == (3, Reason.METRICS_MISSING, Source.PREVIOUS_DESIRED)
    assert decision.accelerator == "H100"
    assert decision.message.endswith("; publishing 3, the number in the status")


def test_without_any_decision_a_status_of_zero_is_published():
    """The original did this, too; the test is here for comparison only."""
    given = variant(replicas=2, desired=0, status_accelerator="H100")
    decision = old().cycle(given, failure="refused")["a"]
    assert (decision.desired, decision.reason, decision.source) == (0, Reason.PROMETHEUS_ERROR, Source.PREVIOUS_DESIRED)
    assert decision.message == "refused; publishing 0, the number in the status"


@pytest.mark.parametrize("status", [None, 0])
def test_without_any_decision_and_status_what_exists_is_published(status):
    """The original had no series here."""
    decision = old().cycle(variant(replicas=2, desired=status), failure="refused")["a"]
    assert (decision.desired, decision.source, decision.accelerator) == (2, Source.CURRENT_REPLICAS, "A100")
    assert decision.message == "refused; publishing 2, what exists, never decided on"


def test_a_variant_without_samples_is_left_out_of_its_model():
    """The other variants are decided without it; it keeps the number in its status."""
    decisions = old().cycle(variant("a", desired=1), variant("b", desired=2, ready_replicas=0), a=[FULL])
    assert numbers(decisions) == {"a": 2, "b": 2}
    assert reasons(decisions) == {"a": "SaturationOnlyMode", "b": "MetricsMissing"}


def test_nobody_grows_while_all_have_pending_replicas():
    """All pods report, but the Deployment does not count one of them as Ready yet."""
    assert old().cycle(variant(desired=1, ready_replicas=0), a=[FULL])["a"].desired == 1


def test_bounds_hold_in_compatibility_mode_too():
    """The mode does not bring back numbers that the scaler cannot reach."""
    decision = old().cycle(variant(replicas=2, desired=2, minimum=2), a=[IDLE] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.BOUNDED)


def test_a_variant_without_accelerator_gets_its_number():
    """The original published nothing for variants without a label; the mode does not bring that back."""
    decision = old().cycle(variant(desired=1, accelerator=""), a=[TIGHT])["a"]
    assert (decision.desired, decision.accelerator) == (2, UNKNOWN_ACCELERATOR)


def test_the_mode_can_be_left_and_entered():
    """Both modes keep the same memory, so the next engine continues an unfinished number."""
    story = old()
    story.cycle(variant(desired=1), a=[FULL])
    story.policy = policy()
    assert story.cycle(variant(desired=2), after=30, a=[BUSY])["a"].desired == 2


def test_an_empty_analysis_asks_for_nothing():
    """Without replicas the analysis has no wish to grow, no permission to shrink, and no targets."""
    analysis = analyze([standing(variant("b", replicas=2)), standing(variant("a"))], SaturationPolicy())
    assert (analysis.loads, analysis.shortage, analysis.may_shrink, targets(analysis)) == ((), "", False, {})
