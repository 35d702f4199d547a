"""An explanation says what a decision stands on, and what it ignored."""

from __future__ import annotations

from tests.builders import INVALID, NAMESPACE, NOW, policy, replica, sample, stale, variant
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.explanation import explanation
from wva.hindsight.flips import Input
from wva.model.inventory import Inventory
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals
from wva.model.objectives import AskedObjectives
from wva.model.policy import Compatibility, Policy
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, RequestCounts, SchedulerQueue, Snapshot, UnreadModel
from wva.model.variant import ModelKey, VariantKey

MODEL = ModelKey(NAMESPACE, "m")
A = VariantKey(NAMESPACE, "a")


def recorded(*replicas, rules=None, variants=None, **snapshot):
    """Return a recorded cycle with its decisions."""
    taken = replace(Snapshot.of(variants or [variant()], list(replicas) or [replica()]), **snapshot)
    rules = rules or policy()
    outcome = conclude(taken, Memory(), rules, NOW)
    return Recording(NOW, rules, Memory(), taken, outcome.decisions)


def test_the_number_comes_with_its_steps_and_samples():
    """The steps are those of the decision; each sample has its age and state."""
    found = explanation(recorded(replica(kv=0.79)), A)
    assert (found.variant, found.desired, found.reason) == ("ns/a", 2, "ScaleUp")
    assert [step.stage for step in found.steps] == ["measure", "allocate", "settle"]
    assert [(each.signal, each.value, each.age_seconds) for each in found.samples] == [
        ("kv_usage", 0.79, 5.0),
        ("queue_length", 0.0, 5.0),
    ]
    assert found.analyzer == "percentage"


def test_samples_that_were_not_believed_are_apart():
    """Stale, missing and invalid samples are ignored, and each says why."""
    found = explanation(recorded(replica(kv=stale(0.5), queue=INVALID), replica("a-1")), A)
    assert [(each.signal, each.state.value, each.detail) for each in found.ignored] == [
        ("kv_usage", "stale", "120 s old"),
        ("queue_length", "invalid", "'NaN' is not a number"),
    ]
    assert {each.of for each in found.samples} == {"a-1"}


def test_what_could_not_be_read_is_noted():
    """Failures of queries, objects, request counts and the inventory are sentences of their own."""
    found = explanation(
        recorded(
            failures=(CollectionFailure((NAMESPACE,), "Prometheus is away"), CollectionFailure(("other",), "not ours")),
            unread=(UnreadModel(MODEL, "a variant has no label"), UnreadModel(ModelKey("other", "m"), "not ours")),
            request_counts=(RequestCounts(MODEL, 600.0, detail="no answer"),),
            inventory=Inventory(),
            inventory_detail="nodes may not be read",
        ),
        A,
    )
    assert found.notes == ("Prometheus is away", "a variant has no label", "no answer", "nodes may not be read")


def test_engines_and_gateways_are_samples_too():
    """Counters count as one sample, or say why they are not believed; means over nothing are left out."""
    counters = EngineCounters(NOW - 3, 70.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    pods = [
        replace(replica("a-0"), engine=EngineSignals(running=sample(4)), counters=counters),
        replace(replica("a-1"), counters_detail="the counters went back"),
    ]
    found = explanation(recorded(*pods, queues=(SchedulerQueue(MODEL, sample(2)),)), A)
    names = [(each.of, each.signal, each.value) for each in found.samples]
    assert ("a-0", "running", 4.0) in names
    assert ("a-0", "finished", 70.0) in names
    assert ("gateway", "size", 2.0) in names
    assert [(each.of, each.detail) for each in found.ignored] == [("a-1", "the counters went back")]


def test_other_variants_of_the_model_are_named():
    """The number of a sibling is often the answer to the question why this one did not grow."""
    variants = [variant(), variant("b", cost=5.0), variant("c", model="other")]
    found = explanation(recorded(replica(kv=0.79), replica("b-0", variant="b"), variants=variants), A)
    assert [each.variant for each in found.siblings] == ["ns/b"]


def test_the_roles_of_the_variant_and_of_the_others_are_told():
    """The number of each comes from its own pods, so a reader has to know which they are."""
    variants = [replace(variant(), role="prefill"), replace(variant("b"), role="decode"), variant("c")]
    found = explanation(recorded(replica(), replica("b-0", variant="b"), variants=variants), A, with_changes=False)
    assert found.role == "prefill"
    assert {each.variant: each.role for each in found.siblings} == {"ns/b": "decode", "ns/c": ""}


def test_changes_can_be_left_out():
    """Without changes nothing is decided again; with them the first is a change of the load."""
    assert explanation(recorded(), A, with_changes=False).changes is None
    found = explanation(recorded(replica(kv=0.69)), A)
    assert found.changes.flips[0].change.input is Input.LOAD


def test_a_recording_without_decisions_is_decided_on():
    """Recordings of the oldest format have no decisions."""
    recording = replace(recorded(replica(kv=0.79)), decisions=())
    assert explanation(recording, A).desired == 2


def test_there_is_no_explanation_of_what_was_not_decided():
    """The variant may be new, or of another controller."""
    assert explanation(recorded(), VariantKey(NAMESPACE, "nowhere")) is None


def test_the_analyzer_is_named_as_in_the_configuration():
    """The compatibility mode replaces all analyzers."""
    assert explanation(recorded(rules=Policy()), A).analyzer == "demand"
    built_in = "first token within 1 s, between tokens 100 ms, in time 99 % (built in)"
    assert explanation(recorded(rules=Policy()), A).objectives == built_in
    asked = [replace(variant(), asked=AskedObjectives(3.0, origin="annotation of a"))]
    assert explanation(recorded(rules=Policy(), variants=asked), A).objectives == (
        "first token within 3 s (annotation of a), between tokens 100 ms (built in), in time 99 % (built in)"
    )
    assert explanation(recorded(), A).objectives == ""
    assert explanation(recorded(rules=policy(compatibility=Compatibility.V0_5)), A).analyzer == "v0.5"
