"""WVA exchanges dear replicas for cheaper ones; the new replicas start before the old ones go."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.builders import NAMESPACE, NOW, variant
from tests.decide.story import BUSY, snapshot
from wva.decide.measure import ANALYZERS
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.pipeline import decide
from wva.model.memory import CapacityBasis, Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

A, B = VariantKey(NAMESPACE, "a"), VariantKey(NAMESPACE, "b")
POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))
MEASURED, SUPPOSED = CapacityBasis.OBSERVED, CapacityBasis.BORROWED


@dataclass
class SteadyAnalyzer:
    """An analyzer that measures the same demand in every cycle, or less in each one."""

    demand: float
    capacities: dict[VariantKey, Capacity] = field(default_factory=dict)
    foreseeable: bool = True
    fall: float = 0.0

    def __call__(self, models, memory, policy, now, seen):
        """Return the need of each model."""
        del policy, now, seen
        need = Need(ModelKey(NAMESPACE, "m"), "requests/s", self.demand, self.demand, self.demand, self.capacities)
        rate = DemandRate() if self.foreseeable else None
        self.demand -= self.fall
        return [replace(need, key=model.key, rate=rate) for model in models], memory


@pytest.fixture
def cycles(monkeypatch):
    """Return a function that runs cycles with a demand and capacities until something changes, for six minutes."""

    def run(
        *variants, demand=9.0, carries=(3.0, 9.0), bases=(MEASURED, MEASURED), foreseeable=True, turns=24, fall=0.0
    ):
        capacities = {key: Capacity(each, basis) for key, each, basis in zip((A, B), carries, bases, strict=True)}
        monkeypatch.setitem(ANALYZERS, Analyzer.DEMAND, SteadyAnalyzer(demand, capacities, foreseeable, fall))
        loads = {each.key.name: [BUSY] * each.ready_replicas for each in variants}
        memory = Memory()
        for turn in range(turns):
            decisions, memory = decide(snapshot(*variants, **loads), memory, POLICY, NOW + 15.0 * turn)
            if any(decision.desired != decision.current for decision in decisions):
                break
        return {decision.key.name: decision for decision in decisions}

    return run


def test_one_dear_replica_takes_the_place_of_four_cheap_ones(cycles):
    """Four at 20 carry 12, as do one at 40 and one at 20. The new one starts, and the others go when it serves."""
    found = cycles(variant("a", replicas=4, cost=20), variant("b", replicas=0, cost=40, minimum=0), demand=10.0)
    assert (found["a"].desired, found["b"].desired) == (4, 1)
    assert found["b"].message == "1 of b would carry the load for less in place of 3 of a"
    assert found["a"].message == found["b"].message


def test_when_it_serves_the_others_go(cycles):
    """The old replicas go by an ordinary shrink."""
    found = cycles(variant("a", replicas=4, cost=20), variant("b", replicas=1, cost=40), demand=10.0)
    assert (found["a"].desired, found["b"].desired) == (1, 1)


def test_while_it_starts_nothing_goes(cycles):
    """Starting replicas do not carry anything yet."""
    starting = variant("b", replicas=1, ready_replicas=0, cost=40)
    found = cycles(variant("a", replicas=4, cost=20), starting, demand=10.0)
    assert (found["a"].desired, found["b"].desired) == (4, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"carries": (3.0, 6.5)},  # two at 40 in place of four at 20 save nothing
        {"bases": (MEASURED, SUPPOSED)},
        {"foreseeable": False},
        {"turns": 3},  # WVA does not know yet how many would be enough
    ],
    ids=["no cheaper", "not measured", "not foreseen", "too early"],
)
def test_what_stays_as_it_is(cycles, changes):
    """A move must save money; with a supposed capacity, or a demand that may end soon, WVA does not know if it does."""
    found = cycles(
        variant("a", replicas=4, cost=20), variant("b", replicas=0, cost=40, minimum=0), demand=10.0, **changes
    )
    assert (found["a"].desired, found["b"].desired) == (4, 0)


def test_what_would_save_less_than_the_move_costs_is_left(cycles):
    """Three at 20 against one at 57: with a tenth of its price for the move, one costs more than three."""
    cheap, dear = variant("a", replicas=3, cost=20, minimum=0), variant("b", replicas=0, cost=57, minimum=0)
    assert cycles(cheap, dear, demand=8.5, carries=(3.0, 9.5))["b"].desired == 0
    assert cycles(cheap, replace(dear, cost=50.0), demand=8.5, carries=(3.0, 9.5), turns=80)["b"].desired == 1


@pytest.mark.parametrize(("turns", "fall", "moved"), [(24, 0.0, 1), (24, 4.0, 0), (8, 0.0, 0)])
def test_a_move_repays_its_start_while_demand_stays(cycles, turns, fall, moved):
    """The new replica costs 40 for 160 s beside the old ones, and saves 20: it takes more than five minutes."""
    cheap, dear = variant("a", replicas=4, cost=20), variant("b", replicas=0, cost=40, minimum=0)
    found = cycles(cheap, dear, demand=1000.0, carries=(300.0, 900.0), turns=turns, fall=fall)
    assert found["b"].desired == moved


def test_what_cannot_grow_takes_no_place(cycles):
    """The variant is at its maximum, or one of its pods finds no node."""
    cheap = variant("a", replicas=4, cost=20)
    assert cycles(cheap, variant("b", replicas=0, cost=40, minimum=0, maximum=0), demand=10.0)["b"].desired == 0


def test_only_the_cheapest_capacity_takes_the_place_of_others(cycles):
    """One cheap replica could replace one dear one, but the next change of demand would reverse that."""
    found = cycles(
        variant("a", replicas=1, cost=20), variant("b", replicas=3, cost=40), demand=24.0, carries=(3.0, 9.0)
    )
    assert (found["a"].desired, found["b"].desired) == (1, 3)


def test_what_goes_is_what_the_cheapest_numbers_lack(cycles):
    """The message does not say that the dearest goes, because the dearest stays if it carries more for its price."""
    found = cycles(variant("a", replicas=4, cost=20), variant("b", cost=40))["a"]
    assert found.message.endswith("can carry the load; the cheapest numbers have fewer of a (cost 20)")
