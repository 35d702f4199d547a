"""Where evidence is missing, WVA keeps the numbers, names the cause, and never publishes 0."""

from __future__ import annotations

import pytest

from tests.builders import INVALID, NAMESPACE, NOW, stale, variant
from tests.decide.story import BUSY, FULL, IDLE, SILENT, Story, numbers, reasons
from wva.decide.pipeline import decide
from wva.model.decision import HOLD_REASONS, Reason, Source
from wva.model.memory import Memory
from wva.model.metrics import Sample, SampleState
from wva.model.policy import Compatibility, Policy
from wva.model.snapshot import CollectionFailure, Snapshot


@pytest.mark.parametrize(
    ("report", "reason", "verdict"),
    [
        (SILENT, Reason.METRICS_MISSING, "MetricsUnavailable"),
        ((stale(0.2), None), Reason.METRICS_STALE, "MetricsStale"),
        ((stale(0.2), INVALID), Reason.METRICS_STALE, "MetricsStale"),
        ((None, INVALID), Reason.METRICS_INVALID, "MetricsInvalid"),
    ],
    ids=["missing", "stale", "stale-before-invalid", "invalid-before-missing"],
)
def test_samples_that_cannot_be_believed_keep_the_number(report, reason, verdict):
    """WVA names the cause that is nearest to a usable sample, in the decision and in the condition."""
    decision = Story().cycle(variant(replicas=3, desired=3), a=[report] * 3)["a"]
    assert (decision.desired, decision.reason, decision.source) == (3, reason, Source.PREVIOUS_DESIRED)
    assert decision.held
    assert (decision.metrics.available, decision.metrics.reason) == (False, verdict)
    assert decision.metrics.message.startswith("0 of 3 replicas report fresh metrics; a-0: ")
    assert decision.message.endswith("; keeping 3 (previous-desired)")


def test_the_detail_of_a_sample_reaches_the_message():
    """The condition shows the detail of the sample, so a user can find a wrong model name there."""
    hint = Sample(SampleState.MISSING, detail='its pods report model_name "other"')
    message = Story().cycle(variant(), a=[(hint, None)])["a"].metrics.message
    assert message == '0 of 1 replicas report fresh metrics; a-0: KV usage missing (its pods report model_name "other")'


def test_a_failed_collection_keeps_the_number():
    """When Prometheus is down, the message has the cause and the number."""
    decision = Story().cycle(variant(replicas=2, desired=2), failure="connection refused", a=[SILENT] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.PROMETHEUS_ERROR)
    assert decision.message == "connection refused; keeping 2 (previous-desired)"
    assert (decision.metrics.reason, decision.metrics.message) == ("PrometheusError", "connection refused")


def test_without_history_the_number_follows_what_exists():
    """A number that WVA kept without history follows the replicas that exist, until WVA measures the model."""
    story = Story()
    assert story.cycle(variant(replicas=3, desired=None), failure="refused", a=[SILENT] * 3)["a"].desired == 3
    kept = story.cycle(variant(replicas=5, desired=3), after=60, failure="refused", a=[SILENT] * 5)["a"]
    assert (kept.desired, kept.source) == (5, Source.CURRENT_REPLICAS)
    measured = story.cycle(variant(replicas=5, desired=5), after=120, a=[BUSY] * 5)["a"]
    assert measured.source is Source.MEASURED
    after = story.cycle(variant(replicas=2, desired=5), after=180, failure="refused", a=[SILENT] * 2)["a"]
    assert (after.desired, after.source) == (measured.desired, Source.PREVIOUS_DESIRED)


def test_a_failed_collection_elsewhere_does_not_matter():
    """A failed collection counts only for the namespaces that it names."""
    elsewhere = variant("b", namespace="other")
    decisions = Story().cycle(variant(), elsewhere, failure="refused", a=[FULL])
    assert reasons(decisions) == {"a": "PrometheusError", "b": "NoReadyReplicas"}


def test_a_model_without_ready_replicas_keeps_the_number():
    """The first pods are still loading, so WVA keeps the number."""
    decision = Story().cycle(variant(replicas=2, ready_replicas=0, desired=2))["a"]
    assert (decision.desired, decision.reason, decision.source) == (
        2,
        Reason.NO_READY_REPLICAS,
        Source.PREVIOUS_DESIRED,
    )
    assert (decision.metrics.reason, decision.metrics.message) == ("MetricsUnavailable", "no ready replica")
    assert decision.coverage.expected == 0


@pytest.mark.parametrize("status", [None, 0])
def test_without_a_previous_number_the_replicas_that_exist_are_kept(status):
    """WVA does not go back to a 0 in the status of a running workload."""
    decision = Story().cycle(variant(replicas=4, desired=status), failure="refused")["a"]
    assert (decision.desired, decision.source, decision.previous) == (4, Source.CURRENT_REPLICAS, None)


def test_the_remembered_number_wins_over_the_status():
    """The number that WVA remembers counts more than the status, which may be older."""
    story = Story()
    story.cycle(variant(desired=1), a=[FULL])
    decision = story.cycle(variant(desired=1), after=30, failure="refused")["a"]
    assert (decision.desired, decision.previous) == (2, 2)


def test_an_active_variant_without_replicas_is_never_held_at_zero():
    """The scaler asks for one replica and none is counted yet: WVA does not hold the variant at zero."""
    decision = Story().cycle(variant(replicas=1, current_replicas=0, ready_replicas=0))["a"]
    assert decision.desired == 1


def test_a_gap_without_growth_wish_holds():
    """Three of four replicas need no growth and the fourth does not report, so WVA keeps the number."""
    decision = Story().cycle(variant(replicas=4, desired=4), a=[BUSY, BUSY, BUSY, SILENT])["a"]
    assert (decision.desired, decision.reason, decision.source) == (4, Reason.METRICS_INCOMPLETE, Source.HELD)
    assert (decision.metrics.available, decision.metrics.reason) == (True, "MetricsAvailable")
    assert decision.metrics.message == "3 of 4 replicas report fresh metrics; a-3: KV usage missing"


def test_a_variant_reports_for_itself_while_its_model_goes_on():
    """The metrics condition of a variant counts its own samples only, not those of a sibling."""
    decisions = Story().cycle(variant("a"), variant("b", ready_replicas=0), a=[BUSY])
    assert decisions["a"].metrics.available
    assert decisions["a"].metrics.message == "1 of 1 replicas report fresh metrics"
    assert (decisions["b"].metrics.available, decisions["b"].metrics.message) == (False, "no ready replica")


def test_numbers_survive_an_outage():
    """WVA keeps the number during the outage and decides again after it."""
    story = Story()
    story.cycle(variant(replicas=3), a=[(0.5, 0)] * 3)
    assert story.cycle(variant(replicas=3), after=30, failure="refused", a=[SILENT] * 3)["a"].desired == 3
    assert story.cycle(variant(replicas=3), after=60, a=[IDLE] * 3)["a"].desired == 2


@pytest.mark.parametrize("policy", [Policy(), Policy(compatibility=Compatibility.V0_5)], ids=["default", "v0.5"])
def test_a_variant_at_zero_stays_at_zero(policy):
    """Only scale-from-zero starts the variant again. It takes no part in its model, and WVA forgets its past."""
    story = Story(policy)
    story.cycle(variant("a", replicas=2, cost=1), variant("b", replicas=2, desired=2), a=[BUSY] * 2, b=[BUSY] * 2)
    decisions = story.cycle(variant("a", replicas=0, cost=1), variant("b", replicas=2, desired=2), b=[FULL] * 2)
    assert numbers(decisions) == {"a": 0, "b": 3 if policy.compatibility else 4}
    asleep = decisions["a"]
    assert (asleep.reason, asleep.source, asleep.current) == (Reason.INACTIVE, Source.CURRENT_REPLICAS, 0)
    assert (asleep.metrics.available, asleep.settling_since) == (False, None)
    assert story.remembers("a").desired == 0


def test_a_variant_that_wakes_up_starts_from_what_exists():
    """WVA does not use the number from before the variant went to zero."""
    story = Story()
    story.cycle(variant(replicas=5), a=[BUSY] * 5)
    story.cycle(variant(replicas=0), after=30)
    decision = story.cycle(variant(replicas=1, ready_replicas=0), after=60)["a"]
    assert (decision.desired, decision.source, decision.previous) == (1, Source.CURRENT_REPLICAS, None)


def test_hold_reasons_are_exactly_those_without_evidence():
    """Each reason for which `held` is true makes OptimizationReady False."""
    assert Reason.METRICS_INCOMPLETE in HOLD_REASONS
    assert Reason.STEADY not in HOLD_REASONS


def test_of_two_failures_the_same_one_is_named_whatever_their_order():
    """The message stays the same from cycle to cycle, so it makes no new event."""
    failures = [CollectionFailure((NAMESPACE,), message) for message in ("timed out", "refused")]
    for order in (failures, failures[::-1]):
        decisions, _ = decide(Snapshot((variant(),), (), tuple(order)), Memory(), Policy(), NOW)
        assert decisions[0].metrics.message == "refused"
