"""Variants in shadow mode: no number under the acting name."""

from __future__ import annotations

from tests.builders import NOW
from tests.publish.collectors import collector
from tests.publish.decisions import KEY, decision
from tests.publish.statuses import condition, patched
from wva.publish.conditions import ConfigurationView
from wva.publish.ledger import Ledger


def test_nothing_is_published_under_the_acting_name():
    """The number has a name of its own, and no HPA asks for that."""
    shadows = {KEY}
    ledger = Ledger(asked_for_shadow=shadows.__contains__)
    made = collector(ledger)
    ledger.record([decision(3)])
    names = {sample.name: sample.value for samples in made.samples_of(KEY) for sample in samples}
    assert names["wva_shadow_desired_replicas"] == 3
    assert not names.keys() & {"wva_desired_replicas", "wva_desired_ratio", "wva_desired_source"}
    shadows.clear()
    names = {sample.name for samples in made.samples_of(KEY) for sample in samples}
    assert "wva_desired_replicas" in names
    assert "wva_shadow_desired_replicas" not in names


def test_the_status_has_the_number_in_words_alone():
    """The allocation goes, and comes back with the mode."""
    acting = patched(None, now=NOW, decision=decision(3))
    assert acting["desiredOptimizedAlloc"]["numReplicas"] == 3
    shadow = patched(acting, now=NOW + 60, decision=decision(3), configuration=ConfigurationView(shadow=True))
    assert shadow.get("desiredOptimizedAlloc") is None
    assert condition(shadow, "Shadow")["message"] == "would have 3 replicas; 2 exist"
    again = patched(shadow, now=NOW + 120, decision=decision(3))
    assert again["desiredOptimizedAlloc"]["numReplicas"] == 3
    assert (condition(again, "Shadow")["status"], condition(again, "Shadow")["reason"]) == ("False", "Acting")
