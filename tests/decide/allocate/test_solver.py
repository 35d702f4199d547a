"""The plan is as good as the plan of an integer solver that shares no code with the allocator.

All 10,000 fleets: ``FLEETS=10000 pytest tests/decide/allocate/test_solver.py -k random_fleets``, some minutes. With
``-k fleets_in_roles`` all those whose models are in roles.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decide.allocate.fleets import (
    FleetSizes,
    SolverAnswer,
    exact,
    of_models,
    price_of,
    random_fleet,
    random_roles,
    requests,
)
from tests.rows import by_day
from wva.decide.allocate import AllocationPolicy, Plan, Stock, Want, allocate

POLICY = AllocationPolicy()
FLEETS = int(os.environ.get("FLEETS", "300"))
CHUNK = 100


def covered(roles: Sequence[Want], plan: Plan) -> list[float]:
    """Return the requests that all roles of a model carry, that all but the first carry, and so on."""
    lacks = [plan.missing.get(want.key, 0.0) for want in roles]
    carried = [requests(want, want.need - lack) for want, lack in zip(roles, lacks, strict=True) if lack]
    most = max(requests(want, want.need) for want in roles)
    return [min([most, *carried])] if len(roles) == 1 else [min([most, *carried]), *covered(roles[1:], plan)]


def equal(wants: Sequence[Want], plan: Plan, answer: SolverAnswer) -> bool:
    """Tell whether a plan covers as much of each need as the solver's, at the same price."""
    return price_of(wants, plan.numbers, POLICY) == pytest.approx(answer.price, rel=1e-5) and all(
        covered(roles, plan) == pytest.approx(answer.covered[key], rel=1e-6, abs=1e-6)
        for key, roles in of_models(wants).items()
    )


def check_equal(wants: Sequence[Want], stock: Stock) -> None:
    """Compare a plan with the solver's; where they differ, compare again without the solver's presolve."""
    plan = allocate(wants, stock)
    assert plan.gap == 0.0
    assert equal(wants, plan, exact(wants, stock)) or equal(wants, plan, exact(wants, stock, presolve=False))


@pytest.mark.long_story
@pytest.mark.parametrize("first", range(0, FLEETS, CHUNK))
def test_random_fleets(first):
    """The first random fleets, the same in each run."""
    for seed in range(first, first + CHUNK):
        check_equal(*random_fleet(seed))


@given(st.integers(10_000, 10**9))
def test_other_fleets(seed):
    """Fifty other fleets; in the nightly profile ten thousand."""
    check_equal(*random_fleet(seed))


@pytest.mark.long_story
@pytest.mark.parametrize("first", range(0, FLEETS, CHUNK))
def test_fleets_in_roles(first):
    """Some models are in two or three roles: no role carries more requests than those after it."""
    for seed in range(first, first + CHUNK):
        check_equal(*random_roles(seed))


@given(st.integers(10_000, 10**9))
def test_other_fleets_in_roles(seed):
    """Fifty other fleets; in the nightly profile ten thousand."""
    check_equal(*random_roles(seed))


def test_a_need_that_a_number_covers_but_for_rounding():
    """The last model's need is what seven of its replicas carry, one bit more; eight must not count as its cheapest."""
    check_equal(*random_fleet(21769099))


@pytest.mark.parametrize("seed", [4933, 4978])
def test_fleets_that_presolve_gets_wrong(seed):
    """The plan is cheaper than the answer with presolve, and as good as the one without."""
    check_equal(*random_fleet(seed))


@pytest.mark.parametrize("seed", by_day(range(6), ["0", "4"]))
@pytest.mark.parametrize(
    "sizes",
    [FleetSizes(models=30, variants=3, pools=3, replicas=6), FleetSizes(models=12, variants=6, pools=4, replicas=20)],
    ids=["many models", "many replicas"],
)
def test_larger_fleets(sizes, seed):
    """Within one per cent of the coverage and, where both cover the same, of the price."""
    wants, stock = random_fleet(1000 + seed, sizes)
    plan, answer = allocate(wants, stock), exact(wants, stock, POLICY)
    mine = [covered([want], plan)[0] / want.need for want in wants if want.need > 0]
    best = [answer.covered[want.key][0] / want.need for want in wants if want.need > 0]
    assert sum(mine) >= 0.99 * sum(best)
    if mine == pytest.approx(best, abs=1e-6):
        assert price_of(wants, plan.numbers, POLICY) <= 1.01 * answer.price
