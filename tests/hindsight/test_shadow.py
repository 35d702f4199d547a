"""An account of what variants in shadow mode would have cost."""

from __future__ import annotations

import pytest

from tests.builders import NOW, policy, replica, variant
from wva.decide.failed import Load, Outcome
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Cycle, Recording
from wva.hindsight.shadow import ShadowAccounts
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

A = VariantKey("ns", "a")
MODEL = ModelKey("ns", "m")
HOUR = 3600.0


def cycle(desired, now, loads=None, **fields):
    """Return a cycle that saw four replicas with two GPUs each, and decided to have another number."""
    snapshot = Snapshot.of([variant(replicas=4, gpus_per_replica=2, cost=10.0, **fields)], [replica()])
    decided = conclude(snapshot, Memory(), policy(), NOW).decisions[0]
    outcome = Outcome((replace(decided, desired=desired),), Memory(), loads=loads or {})
    return Cycle(Recording(now, policy(), Memory(), snapshot, outcome.decisions), outcome)


def test_an_account_adds_gpu_hours_and_cost():
    """An hour with four real replicas of two GPUs, and three that would have been."""
    accounts = ShadowAccounts(lambda _: True)
    for minute in range(0, 61, 5):
        accounts.add(cycle(3, NOW + 60 * minute))
    account = accounts[A]
    assert account.gpu_hours.by_fleet() == {"real": pytest.approx(8.0), "shadow": pytest.approx(6.0)}
    assert account.cost.by_fleet() == {"real": pytest.approx(40.0), "shadow": pytest.approx(30.0)}
    assert account.hours == pytest.approx(1.0)


def test_without_a_known_demand_no_late_requests_are_told():
    """Zero would say that none were late."""
    accounts = ShadowAccounts(lambda _: True)
    accounts.add(cycle(3, NOW))
    accounts.add(cycle(3, NOW + 60))
    assert not [name for name, _, _ in accounts[A].series() if "late" in name]
    accounts.add(cycle(3, NOW + 120, {MODEL: Load(demand=1.0, error=0.5, serving=8.0, desired=12.0)}))
    assert sum("late" in name for name, _, _ in accounts[A].series()) == 3


def test_late_requests_are_the_demand_beyond_what_replicas_carry():
    """A real fleet that carries too little has late requests; one that carries enough has none."""
    accounts = ShadowAccounts(lambda _: True)
    loads = {MODEL: Load(demand=10.0, error=0.5, serving=8.0, desired=12.0)}
    accounts.add(cycle(5, NOW, loads))
    accounts.add(cycle(5, NOW + 60, loads))
    assert accounts[A].late.requests.by_fleet() == {"real": pytest.approx(120.0), "shadow": 0.0}
    assert accounts[A].late.error == pytest.approx(30.0)


@pytest.mark.parametrize(("serving", "error"), [(12.0, 0.0), (10.2, 18.0)])
def test_the_error_is_what_one_standard_error_more_demand_would_add(serving, error):
    """Where replicas carry clearly more, no request would have been late with that demand either."""
    accounts = ShadowAccounts(lambda _: True)
    loads = {MODEL: Load(demand=10.0, error=0.5, serving=serving, desired=12.0)}
    accounts.add(cycle(5, NOW, loads))
    accounts.add(cycle(5, NOW + 60, loads))
    assert accounts[A].late.error == pytest.approx(error)


def test_a_variant_that_acts_has_no_account():
    """The account ends with the mode, and begins again with it."""
    shadows = {A}
    accounts = ShadowAccounts(shadows.__contains__)
    accounts.add(cycle(3, NOW))
    shadows.clear()
    accounts.add(cycle(3, NOW + 60))
    assert accounts[A] is None


def test_a_long_gap_counts_as_five_minutes():
    """After a time without cycles it is not known what existed in it."""
    accounts = ShadowAccounts(lambda _: True)
    accounts.add(cycle(3, NOW))
    accounts.add(cycle(3, NOW + HOUR))
    assert accounts[A].gpu_hours.real == pytest.approx(8.0 * 300.0 / HOUR)
