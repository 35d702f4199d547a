"""Properties of every status patch, whatever the status before; the embedded API server checks the schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.publish.decisions import NOW, decisions
from tests.publish.statuses import BROKEN, CONFLICT, FOUND, GONE, UNSUPPORTED, VALID, patched, wire
from wva.api.crd import definition
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.model.records import replace
from wva.model.trouble import Trouble
from wva.publish.conditions import ConfigurationView
from wva.sim.apiserver import ObjectStore, Patch, ServedError, StoreOptions, kind_from_definition

CLAIMED = ConfigurationView(claim="decided by controller s/mine")
REFUSED = ConfigurationView(start=Trouble("ScaleFromZeroRefused", "requests wait, nothing can start"))
FOREIGN = {
    "type": "Other",
    "status": "Unknown",
    "reason": "Foreign",
    "message": "",
    "lastTransitionTime": "2020-01-01T00:00:00Z",
    "observedGeneration": 0,
}


@st.composite
def situations(draw):
    """Return arguments of ``status_patch`` in combinations that the reconciler makes."""
    target = draw(st.sampled_from([FOUND, GONE, CONFLICT, UNSUPPORTED]))
    there = target in (FOUND, CONFLICT)
    return {
        "target": replace(target, current=draw(st.integers(0, 50)) if there else None),
        "decision": draw(decisions()) if target is FOUND else None,
        "configuration": draw(st.sampled_from([VALID, BROKEN, CLAIMED, REFUSED])),
        "generation": draw(st.integers(1, 3)),
    }


histories = st.lists(st.tuples(situations(), st.integers(0, 1200)), min_size=1, max_size=5)
beginnings = st.sampled_from([None, {}, {"conditions": [FOREIGN]}, {"actuation": {"applied": True}}])


def _steps(beginning, history):
    """Yield status before, situation, time and status after of each step; None means that nothing was written."""
    status, now = beginning, NOW
    for situation, seconds in history:
        now += seconds
        after = patched(status, now=now, **situation)
        yield status, situation, now, after
        status = status if after is None else after


@given(beginnings, histories)
def test_what_was_said_is_not_said_again(beginning, history):
    """After a patch, the same facts give no further patch."""
    for before, situation, now, after in _steps(beginning, history):
        assert patched(before if after is None else after, now=now, **situation) is None


@given(beginnings, histories)
def test_an_allocation_is_whole_or_absent(beginning, history):
    """The allocation has all three fields, or the status has no allocation."""
    for *_, after in _steps(beginning, history):
        if after is not None and "desiredOptimizedAlloc" in after:
            assert set(after["desiredOptimizedAlloc"]) == {"accelerator", "numReplicas", "lastRunTime"}


@given(beginnings, histories)
def test_a_transition_time_changes_exactly_with_its_status(beginning, history):
    """The same status keeps its time, another status gets the time of the patch."""
    for before, _, _, after in _steps(beginning, history):
        if after is None:
            continue
        old = {entry["type"]: entry for entry in (before or {}).get("conditions", [])}
        for entry in after["conditions"]:
            known = old.get(entry["type"])
            if known is not None and known["status"] == entry["status"]:
                assert entry["lastTransitionTime"] == known["lastTransitionTime"]
            elif known is not None:
                assert entry["lastTransitionTime"] >= known["lastTransitionTime"]


@given(beginnings, histories)
def test_nothing_of_others_is_lost(beginning, history):
    """A patch keeps the conditions of other controllers."""
    for before, _, _, after in _steps(beginning, history):
        if after is None:
            continue
        for entry in (before or {}).get("conditions", []):
            if entry["type"] == "Other":
                assert entry in after["conditions"]


@given(beginnings, histories)
def test_what_goes_with_the_target_is_there_exactly_with_it(beginning, history):
    """Actuation and Limited need a decision, and the claim needs a number."""
    for _, situation, _, after in _steps(beginning, history):
        if after is None:
            continue
        types = {entry["type"] for entry in after["conditions"]}
        decided = situation["decision"] is not None
        assert ("actuation" in after) == decided
        assert ("Limited" in types) == decided
        assert after.get("currentReplicas") == situation["target"].current
        claims = bool(situation["configuration"].claim) and "desiredOptimizedAlloc" in after
        assert ("Claimed" in types) == claims


@given(histories)
def test_the_api_server_accepts_every_patch(history):
    """The patched object fits the schema of the CustomResourceDefinition."""
    store = ObjectStore([kind_from_definition(definition())], now=lambda: NOW, options=StoreOptions(namespaces=("ns",)))
    made = wire()
    made["metadata"] = {"name": "va", "namespace": "ns"}
    store.create(VARIANT_AUTOSCALINGS, made)
    for before, situation, now, after in _steps(None, history):
        if after is None:
            continue
        body = {"status": {**{key: None for key in (before or {}) if key not in after}, **after}}
        patch = Patch(body=body, subresource="status")
        stored = store.patch(VARIANT_AUTOSCALINGS, Key("ns", "va"), patch)
        assert stored["status"] == after, (situation, now)


def test_the_api_server_would_have_complained():
    """The API server refuses an allocation without a number, so the test above can fail."""
    store = ObjectStore([kind_from_definition(definition())], now=lambda: NOW, options=StoreOptions(namespaces=("ns",)))
    made = wire()
    made["metadata"] = {"name": "va", "namespace": "ns"}
    store.create(VARIANT_AUTOSCALINGS, made)
    patch = Patch(body={"status": {"desiredOptimizedAlloc": {"accelerator": "H100"}}}, subresource="status")
    with pytest.raises(ServedError, match="numReplicas"):
        store.patch(VARIANT_AUTOSCALINGS, Key("ns", "va"), patch)
