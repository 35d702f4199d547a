"""The plan is as good as the plan of an integer solver that shares no code with the allocator.

All 10,000 fleets: ``FLEETS=10000 pytest tests/decide/allocate/test_solver.py -k random_fleets``, some minutes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decide.allocate.fleets import FleetSizes, SolverAnswer, exact, price_of, random_fleet
from wva.decide.allocate import AllocationPolicy, Plan, Want, allocate

POLICY = AllocationPolicy()
FLEETS = int(os.environ.get("FLEETS", "300"))
CHUNK = 100


def covered(want: Want, plan: Plan) -> float:
    """Return the part of a need that a plan covers."""
    return max(0.0, want.need) - plan.missing.get(want.key, 0.0)


def equal(wants: Sequence[Want], plan: Plan, answer: SolverAnswer) -> bool:
    """Tell whether a plan covers as much of each need as the solver's, at the same price."""
    return price_of(wants, plan.numbers, POLICY) == pytest.approx(answer.price, rel=1e-5) and all(
        covered(want, plan) == pytest.approx(answer.covered[want.key], rel=1e-6, abs=1e-6) for want in wants
    )


def check_equal(seed: int) -> None:
    """Compare a plan with the solver's; where they differ, compare again without the solver's presolve."""
    wants, stock = random_fleet(seed)
    plan = allocate(wants, stock)
    assert plan.gap == 0.0
    found = equal(wants, plan, exact(wants, stock)) or equal(wants, plan, exact(wants, stock, presolve=False))
    assert found, f"fleet {seed}"


@pytest.mark.parametrize("first", range(0, FLEETS, CHUNK))
def test_random_fleets(first):
    """The first random fleets, the same in each run."""
    for seed in range(first, first + CHUNK):
        check_equal(seed)


@given(st.integers(10_000, 10**9))
def test_other_fleets(seed):
    """A hundred other fleets; in the nightly profile ten thousand."""
    check_equal(seed)


def test_a_need_that_a_number_covers_but_for_rounding():
    """The last model's need is what seven of its replicas carry, one bit more; eight must not count as its cheapest."""
    check_equal(21769099)


@pytest.mark.parametrize("seed", [4933, 4978])
def test_fleets_that_presolve_gets_wrong(seed):
    """The plan is cheaper than the answer with presolve, and as good as the one without."""
    check_equal(seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "sizes",
    [FleetSizes(models=30, variants=3, pools=3, replicas=6), FleetSizes(models=12, variants=6, pools=4, replicas=20)],
    ids=["many models", "many replicas"],
)
def test_larger_fleets(sizes, seed):
    """Within one per cent of the coverage and, where both cover the same, of the price."""
    wants, stock = random_fleet(1000 + seed, sizes)
    plan, answer = allocate(wants, stock), exact(wants, stock, POLICY)
    mine = [covered(want, plan) / want.need for want in wants if want.need > 0]
    best = [answer.covered[want.key] / want.need for want in wants if want.need > 0]
    assert sum(mine) >= 0.99 * sum(best)
    if mine == pytest.approx(best, abs=1e-6):
        assert price_of(wants, plan.numbers, POLICY) <= 1.01 * answer.price
