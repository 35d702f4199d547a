"""Random fleets, and an integer solver that allocates to them exactly.

The solver knows nothing of how the allocator works. It covers one model after another as far as it can, keeps that,
and then looks for the lowest price.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import highspy
import numpy as np

from wva.decide.allocate import AllocationPolicy, Offer, Stock, Want
from wva.model.inventory import Inventory
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

INFINITY = highspy.kHighsInf


@dataclass(frozen=True)
class FleetSizes:
    """How large a random fleet may be."""

    models: int = 5
    variants: int = 6
    pools: int = 4
    replicas: int = 8


def stock_of(free: Mapping[str, int]) -> Stock:
    """Return a stock with so many free GPUs by limit."""
    return Stock(dict(free), Inventory())


def random_fleet(seed: int, sizes: FleetSizes = FleetSizes()) -> tuple[list[Want], Stock]:
    """Return models and a stock; in about half of the cases the stock is too small for them."""
    draw = random.Random(seed)
    pools = [f"pool {place}" for place in range(draw.randint(1, sizes.pools))]
    names = [*pools, "quota"] if draw.random() < 0.3 else pools
    wants = [_random_want(draw, place, names, sizes) for place in range(draw.randint(1, sizes.models))]
    scale = draw.choice([0.3, 0.6, 1.0, 2.0]) * len(wants) * sizes.replicas / len(pools)
    return wants, stock_of({name: draw.randint(0, int(scale) + 1) for name in names})


def random_roles(seed: int, sizes: FleetSizes = FleetSizes()) -> tuple[list[Want], Stock]:
    """Return a random fleet in which some models are in two or three roles; the weight of each role is its own."""
    draw = random.Random(f"{seed}/roles")
    wants, stock = random_fleet(seed, sizes)
    found: list[Want] = []
    while wants:
        count = draw.choice([1, 2, 2, 2, 3])
        roles, wants = wants[:count], wants[count:]
        for role, want in zip(("decode", "prefill", "encode"), roles if count > 1 else (), strict=False):
            key = replace(roles[0].key, role=role)
            # Variants that keep their number carry something, too.
            beside = draw.choice([0.0, 0.0, draw.randint(0, 50) / 10])
            part = draw.choice([1.0, 1.0, draw.randint(1, 20) / 10])
            found.append(replace(want, key=key, part=part, beside=beside, priority=roles[0].priority))
        found += roles if count == 1 else []
    return found, stock


def _random_want(draw: random.Random, place: int, names: Sequence[str], sizes: FleetSizes) -> Want:
    pools = [name for name in names if name != "quota"]
    in_quota = "quota" in names and draw.random() < 0.5
    offers = []
    for variant in range(draw.randint(1, sizes.variants)):
        existing = draw.choice([0, 0, 1, 2, draw.randint(0, sizes.replicas)])
        floor = draw.choice([0, 0, 0, 1])
        limits = (draw.choice(pools), *(("quota",) if in_quota else ()))
        offers.append(
            Offer(
                key=VariantKey("ns", f"m{place}-v{variant}"),
                price=draw.choice([5, 10, 20, 40, draw.randint(10, 800) / 10]),
                capacity=draw.choice([1, 2, 4, draw.randint(5, 90) / 10]),
                present=max(0, existing + draw.choice([0, 0, 0, 1, -1])),
                existing=existing,
                floor=floor,
                ceiling=draw.choice([None, None, draw.randint(1, 2 * sizes.replicas)]),
                step=draw.choice([1, 1, 1, 2]),
                gpus=draw.choice([1, 1, 2, 4]),
                limits=() if draw.random() < 0.1 else limits,
            )
        )
    need = draw.choice([0.0, draw.randint(1, 20 * sizes.replicas) / 10, draw.randint(1, 50 * sizes.replicas) / 10])
    return Want(
        ModelKey("ns", f"m{place}"), need, tuple(offers), priority=draw.choice([1, 5, 100]), weight=draw.choice([1, 2])
    )


@dataclass(frozen=True)
class SolverAnswer:
    """What the solver found: what is covered of each need, and the price with the moves.

    Of a model in roles that is the requests that all of them carry, then those that all but the first carry, and so on.
    """

    covered: dict[ModelKey, list[float]]
    price: float


def of_models(wants: Sequence[Want]) -> dict[ModelKey, list[Want]]:
    """Return the wants that need something, those of one model together whose requests need several roles, in order."""
    found: dict[ModelKey, list[Want]] = {}
    for want in sorted(wants, key=lambda want: (want.priority, -want.weight, want.key)):
        if want.need > 0:
            found.setdefault(want.key.whole if want.part else want.key, []).append(want)
    order = ["", "encode", "prefill", "decode"]
    return {key: sorted(roles, key=lambda want: order.index(want.key.role)) for key, roles in found.items()}


def requests(want: Want, capacity: float) -> float:
    """Return the requests of the model that a role carries with so much capacity."""
    return (capacity + want.beside) / (want.part or 1.0)


def ceiling_of(offer: Offer) -> int:
    """Return the most replicas that an offer may have, also if it has no ceiling."""
    return 2**31 - 1 if offer.ceiling is None else offer.ceiling


def base_of(offer: Offer) -> int:
    """Return the replicas that have their GPUs."""
    return min(max(offer.existing, offer.floor), ceiling_of(offer))


def price_of(wants: Sequence[Want], numbers: Mapping[VariantKey, int], policy: AllocationPolicy) -> float:
    """Return the price of a plan with its moves."""
    total = 0.0
    for want in wants:
        for offer in want.offers:
            present = min(max(offer.present, min(offer.floor, ceiling_of(offer))), ceiling_of(offer))
            number = numbers[offer.key]
            total += offer.price * (number + policy.move_share * max(0, number - present))
    return total


def free_after_floors(wants: Sequence[Want], stock: Stock) -> dict[str, int]:
    """Return the GPUs that are free once the replicas of the floors have theirs."""
    free = dict(stock.free)
    for want in sorted(wants, key=lambda want: (want.priority, -want.weight, want.key)):
        for offer in want.offers:
            for name in offer.limits:
                coming = (base_of(offer) - min(offer.existing, base_of(offer))) * offer.gpus
                free[name] = max(0, free.get(name, 0) - coming)
    return free


class Program:
    """An integer program that is extended step by step."""

    def __init__(self, *, presolve: bool) -> None:
        """Begin with nothing."""
        self.solver = highspy.Highs()
        self.solver.silent()
        for option, value in {
            "threads": 1,
            "presolve": "on" if presolve else "off",
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": 1e-9,
            "primal_feasibility_tolerance": 1e-9,
            "mip_heuristic_run_feasibility_jump": False,
        }.items():
            self.solver.setOptionValue(option, value)
        self.columns = 0

    def add(self, cost: float, low: float, high: float, *, whole: bool = False) -> int:
        """Add a column and return it."""
        self.solver.addCol(cost, low, high, 0, np.array([], np.int32), np.array([]))
        if whole:
            self.solver.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def row(self, entries: Mapping[int, float], low: float, high: float) -> None:
        """Add a row."""
        kept = {column: value for column, value in entries.items() if value}
        self.solver.addRow(
            low, high, len(kept), np.array(list(kept), np.int32), np.array(list(kept.values()), np.float64)
        )

    def solve(self, costs: Mapping[int, float]) -> list[float] | None:
        """Minimize, and return the values of the columns, None when there are none."""
        for column in range(self.columns):
            self.solver.changeColCost(column, costs.get(column, 0.0))
        self.solver.run()
        if self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return list(self.solver.getSolution().col_value)
        return None


def exact(
    wants: Sequence[Want],
    stock: Stock,
    policy: AllocationPolicy = AllocationPolicy(),  # noqa: B008 - it is frozen
    *,
    presolve: bool = True,
) -> SolverAnswer:
    """Return what the integer solver finds, for the policy that serves one model after another.

    Within a priority, first as far as the capacity of their present numbers goes.

    With presolve, HiGHS 1.15 takes a worse answer for the best one, about once in 3,000 fleets. Without, it takes five
    times as long.
    """
    program = Program(presolve=presolve)
    prices: dict[int, float] = {}
    taken: dict[str, dict[int, float]] = {}
    carried = {
        want.key: {_column(program, offer, prices, taken, policy): offer.capacity for offer in want.offers}
        for want in wants
    }
    models = of_models(wants)
    for name, gpus in free_after_floors(wants, stock).items():
        program.row(taken.get(name, {}), -INFINITY, gpus)
    promised = {key: _goal(program, roles, carried, promised=True) for key, roles in models.items()}
    covering = {
        key: [_goal(program, roles[place:], carried) for place in range(len(roles))] for key, roles in models.items()
    }
    found: dict[ModelKey, list[float]] = {key: [] for key in models}
    for _, level in groupby(models, key=lambda key: models[key][0].priority):
        equals = list(level)
        for key in equals:
            _most(program, promised[key])
        for key in equals:
            found[key] = [_most(program, goal) for goal in covering[key]]
    values = program.solve(prices)
    assert values is not None
    return SolverAnswer(found, sum(price * values[column] for column, price in prices.items()))


def _most(program: Program, goal: tuple[int, float]) -> float:
    """Find the most of a goal, keep it, and return it."""
    column, scale = goal
    values = program.solve({column: -1.0})
    share = 0.0 if values is None else values[column]
    program.row({column: 1.0}, share - 1e-8, INFINITY)
    return share * scale


def _goal(
    program: Program,
    roles: Sequence[Want],
    carried: Mapping[ModelKey, Mapping[int, float]],
    *,
    promised: bool = False,
) -> tuple[int, float]:
    """Add the column of what all roles carry, as a share of the most, and return it and the most.

    ``promised``: no more than their present numbers carry.
    """
    most = max(requests(want, want.need) for want in roles)
    high = most
    for want in roles if promised else ():
        there = sum(min(max(each.present, each.floor), ceiling_of(each)) * each.capacity for each in want.offers)
        high = min(high, requests(want, there) if there < want.need else most)
    share = program.add(0, 0, high / most)
    for want in roles:
        # A role that has all that it needs limits nothing.
        enough = program.add(0, 0, 1, whole=True)
        entries = {column: value / most for column, value in carried[want.key].items()}
        part = want.part or 1.0
        program.row(
            {share: part, **{column: -value for column, value in entries.items()}, enough: -2.0 * part},
            -INFINITY,
            want.beside / most,
        )
        program.row({enough: -want.need / most, **entries}, 0.0, INFINITY)
    return share, most


def _column(
    program: Program,
    offer: Offer,
    prices: dict[int, float],
    taken: dict[str, dict[int, float]],
    policy: AllocationPolicy,
) -> int:
    """Add the columns of one variant, and return that of its number."""
    high = min(ceiling_of(offer), 10_000)
    low = min(offer.floor, high)
    number = program.add(offer.price, low, high, whole=True)
    present = min(max(offer.present, low), high)
    existing = min(max(offer.existing, low), high)
    moved = program.add(0, 0, INFINITY)
    program.row({moved: 1.0, number: -1.0}, -present, INFINITY)
    prices |= {number: offer.price, moved: offer.price * policy.move_share}
    used = program.add(0, 0, INFINITY)
    program.row({used: 1.0, number: -1.0}, -base_of(offer), INFINITY)
    for name in offer.limits:
        taken.setdefault(name, {})[used] = offer.gpus
    if offer.step > 1:
        _holes(program, number, (low, high), {present, existing}, offer)
    return number


def _holes(program: Program, number: int, bounds: tuple[int, int], kept: set[int], offer: Offer) -> None:
    """Exclude the numbers that the scaler would ignore: the program chooses one of several ranges."""
    low, high = bounds
    ranges = [
        (low, offer.existing - offer.step),
        (max(low, offer.existing + offer.step), high),
        *((one, one) for one in kept),
    ]
    ranges = [(first, min(last, high)) for first, last in ranges if first <= min(last, high)]
    chosen = [program.add(0, 0, 1, whole=True) for _ in ranges]
    program.row(dict.fromkeys(chosen, 1.0), 1, 1)
    program.row({number: -1.0, **{column: last for column, (_, last) in zip(chosen, ranges, strict=True)}}, 0, INFINITY)
    program.row(
        {number: -1.0, **{column: first for column, (first, _) in zip(chosen, ranges, strict=True)}}, -INFINITY, 0
    )


def without_stock(wants: Sequence[Want]) -> list[Want]:
    """Return the models with offers that take no GPUs."""
    return [replace(want, offers=tuple(replace(offer, limits=()) for offer in want.offers)) for want in wants]
