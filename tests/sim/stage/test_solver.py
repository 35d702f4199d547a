"""The exact solver finds the same fleets as a search of all fleets."""

from __future__ import annotations

import sys
from itertools import product

import highspy
from hypothesis import given, settings
from hypothesis import strategies as st

from wva.sim.stage.solver import ReplicaKind, cheapest

MODELS = ("a", "b")
LIMITS = ("pool", "quota")


def price(kinds, counts) -> float:
    """Return what a fleet costs."""
    return sum(kind.price * count for kind, count in zip(kinds, counts, strict=True))


def fits(kinds, counts, demands, limits) -> bool:
    """Return whether a fleet serves the demands within the limits."""
    fleet = list(zip(kinds, counts, strict=True))
    carried = {name: sum(kind.carries.get(name, 0) * count for kind, count in fleet) for name in demands}
    taken = {name: sum(kind.takes.get(name, 0) * count for kind, count in fleet) for name in limits}
    return all(carried[name] >= demands[name] for name in demands) and all(
        taken[name] <= limits[name] for name in limits
    )


def by_trying_all(kinds, demands, limits) -> float | None:
    """Return the price of the cheapest fleet."""
    fleets = product(*(range(kind.minimum, kind.maximum + 1) for kind in kinds))
    return min((price(kinds, counts) for counts in fleets if fits(kinds, counts, demands, limits)), default=None)


@st.composite
def kind(draw) -> ReplicaKind:
    """Return a kind of replica of one model, with whole numbers everywhere."""
    minimum = draw(st.integers(0, 2))
    return ReplicaKind(
        price=draw(st.integers(1, 20)),
        carries={draw(st.sampled_from(MODELS)): draw(st.integers(1, 12))},
        minimum=minimum,
        maximum=minimum + draw(st.integers(0, 5)),
        takes=draw(st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 4))),
    )


@settings(deadline=None)
@given(
    st.lists(kind(), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(MODELS), st.integers(0, 40)),
    st.dictionaries(st.sampled_from(LIMITS), st.integers(0, 30)),
)
def test_nothing_is_cheaper(kinds, demands, limits) -> None:
    """The solver's price is the lowest of all fleets, and it returns None if no fleet fits."""
    found = cheapest(kinds, demands, limits)
    expected = by_trying_all(kinds, demands, limits)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert all(one.minimum <= count <= one.maximum for one, count in zip(kinds, found, strict=True))
    assert fits(kinds, found, demands, limits)
    assert price(kinds, found) == expected


def test_a_greedy_choice_would_be_dearer() -> None:
    """For 10 requests, a replica for 7 and one for 3 are cheaper than two for 7 with their better price per request."""
    kinds = [ReplicaKind(7.0, {"m": 7.0}), ReplicaKind(3.5, {"m": 3.0})]
    assert cheapest(kinds, {"m": 10.0}) == (1, 1)


def test_scarce_gpus_change_the_choice() -> None:
    """With only four of the cheap GPUs left, the dear variant carries the rest."""
    kinds = [ReplicaKind(1.0, {"m": 1.0}, takes={"l40s": 1}), ReplicaKind(5.0, {"m": 4.0}, takes={"h100": 1})]
    assert cheapest(kinds, {"m": 8.0}, {"l40s": 100, "h100": 100}) == (8, 0)
    assert cheapest(kinds, {"m": 8.0}, {"l40s": 4, "h100": 100}) == (4, 1)
    assert cheapest(kinds, {"m": 8.0}, {"l40s": 4, "h100": 0}) is None


def test_the_solver_prints_nothing(monkeypatch, capfd):
    """Its constructor enables callbacks, with which highspy 1.16 prints a banner unless it is silent."""
    enable = highspy.Highs.enableCallbacks

    def told(solver):
        if solver.getOptionValue("output_flag")[1]:
            sys.stdout.write("Running HiGHS")
        enable(solver)

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", told)
    assert cheapest([ReplicaKind(1.0, {"a": 1.0})], {"a": 2.0}) == (2,)
    assert capfd.readouterr() == ("", "")
