"""Variants in shadow mode: no number under the acting name, and an account of what it would have cost."""

from __future__ import annotations

import pytest

from tests.builders import NOW, policy, replica, variant
from tests.publish.collectors import collector
from tests.publish.decisions import KEY, decision
from tests.publish.statuses import condition, patched
from wva.decide.failed import Load, Outcome
from wva.decide.pipeline import conclude
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey
from wva.publish.conditions import ConfigurationView
from wva.publish.ledger import Ledger
from wva.publish.shadow import ShadowAccounts, rows

A = VariantKey("ns", "a")
MODEL = ModelKey("ns", "m")
HOUR = 3600.0


def test_nothing_is_published_under_the_acting_name():
    """The number has a name of its own, and no HPA asks for that."""
    ledger, shadows = Ledger(), {KEY}
    made = collector(ledger, shadow=shadows.__contains__)
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


def outcome(desired, loads=None, **fields):
    """Return a snapshot of four replicas with two GPUs each, and the decision to have another number."""
    snapshot = Snapshot.of([variant(replicas=4, gpus_per_replica=2, cost=10.0, **fields)], [replica()])
    decided = conclude(snapshot, Memory(), policy(), NOW).decisions[0]
    return snapshot, Outcome((replace(decided, desired=desired),), Memory(), loads=loads or {})


def test_an_account_adds_gpu_hours_and_cost():
    """An hour with four real replicas of two GPUs, and three that would have been."""
    accounts = ShadowAccounts(lambda _: True)
    for minute in range(0, 61, 5):
        accounts.add(*outcome(3), NOW + 60 * minute)
    account = accounts[A]
    assert account.gpu_hours == {"real": pytest.approx(8.0), "shadow": pytest.approx(6.0)}
    assert account.cost == {"real": pytest.approx(40.0), "shadow": pytest.approx(30.0)}
    assert account.hours == pytest.approx(1.0)


def test_without_a_known_demand_no_late_requests_are_told():
    """Zero would say that none were late."""
    accounts = ShadowAccounts(lambda _: True)
    accounts.add(*outcome(3), NOW)
    accounts.add(*outcome(3), NOW + 60)
    assert not [name for name, _, _ in rows(accounts[A]) if "late" in name]
    accounts.add(*outcome(3, {MODEL: Load(demand=1.0, error=0.5, serving=8.0, desired=12.0)}), NOW + 120)
    assert sum("late" in name for name, _, _ in rows(accounts[A])) == 3


def test_late_requests_are_the_demand_beyond_what_replicas_carry():
    """A real fleet that carries too little has late requests; one that carries enough has none."""
    accounts = ShadowAccounts(lambda _: True)
    loads = {MODEL: Load(demand=10.0, error=0.5, serving=8.0, desired=12.0)}
    accounts.add(*outcome(5, loads), NOW)
    accounts.add(*outcome(5, loads), NOW + 60)
    assert accounts[A].late == {"real": pytest.approx(120.0), "shadow": 0.0}
    assert accounts[A].late_error == pytest.approx(30.0)


@pytest.mark.parametrize(("serving", "error"), [(12.0, 0.0), (10.2, 18.0)])
def test_the_error_is_what_one_standard_error_more_demand_would_add(serving, error):
    """Where replicas carry clearly more, no request would have been late with that demand either."""
    accounts = ShadowAccounts(lambda _: True)
    loads = {MODEL: Load(demand=10.0, error=0.5, serving=serving, desired=12.0)}
    accounts.add(*outcome(5, loads), NOW)
    accounts.add(*outcome(5, loads), NOW + 60)
    assert accounts[A].late_error == pytest.approx(error)


def test_a_variant_that_acts_has_no_account():
    """The account ends with the mode, and begins again with it."""
    shadows = {A}
    accounts = ShadowAccounts(shadows.__contains__)
    accounts.add(*outcome(3), NOW)
    shadows.clear()
    accounts.add(*outcome(3), NOW + 60)
    assert accounts[A] is None


def test_a_long_gap_counts_as_five_minutes():
    """After a time without cycles it is not known what existed in it."""
    accounts = ShadowAccounts(lambda _: True)
    accounts.add(*outcome(3), NOW)
    accounts.add(*outcome(3), NOW + HOUR)
    assert accounts[A].gpu_hours["real"] == pytest.approx(8.0 * 300.0 / HOUR)
