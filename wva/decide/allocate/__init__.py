"""Step 4: ``allocate`` finds the number of replicas of each variant, for all models and all GPUs at once.

The plan is the best one in this order:

1. Coverage: the plan covers as much of the needs as possible, by priority or as ``SharingRule`` says.
2. Price: all replicas and moves together cost the least. A replica that is added costs a share (``move_share``) more
   than one that is present. So WVA does not take a plan that saves less than its moves cost.
3. Capacity: of plans with the same price, the one with the most capacity is the best.
4. Then the fewest moves count, then equal numbers for equal variants, then the order of the names.

No variant gets more replicas than its ceiling, a number that its scaler ignores, or GPUs that are not free. Replicas
that exist are never removed because GPUs are missing.

Each model is first solved alone. If the result exceeds a limit, all models that draw from this limit are solved
together. If that exceeds another limit, its models are added, and so on. Both searches are exact, with two exceptions:
a search uses up the ``effort`` of the policy, or it has over a hundred models and ends within half a per cent. Then the
plan has a ``gap``.

A model whose requests need several roles has a want for each role. Requests pass the roles in order, so a role gets no
more than the roles after it can use. Requests that have passed a role have to be served, so the roles after it may get
more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wva.decide.allocate.records import UNLIMITED, AllocationPolicy, Offer, Plan, SharingRule, Stock, Want
from wva.decide.allocate.search import ROUNDING, Joint, Line, Numbers, Part, Scarce, direct, lines_of, spread
from wva.decide.allocate.sharing import Claim, Leg, Room
from wva.decide.amounts import rounded_up
from wva.model.decision import ROLE_LIMIT, Limit
from wva.model.roles import place_of
from wva.model.variant import ModelKey, VariantKey

__all__ = ["UNLIMITED", "AllocationPolicy", "Offer", "Plan", "SharingRule", "Stock", "Want", "allocate"]

_DEFAULT = AllocationPolicy()


def allocate(wants: Sequence[Want], stock: Stock = UNLIMITED, policy: AllocationPolicy = _DEFAULT) -> Plan:
    """Return the best plan for all models. The order of the wants and of their offers does not matter."""
    alone = Scarce(policy.effort)
    ordered = sorted(wants, key=lambda want: (want.priority, -want.weight, want.key))
    models = [_Model(want, policy.move_share, alone, frozen=stock.frozen) for want in ordered]
    wanted: dict[VariantKey, int] = {}
    for model in models:
        model.put(wanted)
    short = {model.want.key: lack for model in models if (lack := model.lack(wanted))}
    limits: dict[VariantKey, Limit] = {}
    for model in models if short else ():
        limits |= model.ceiling(short.get(model.want.key, 0.0), wanted)
    joined = _joined(models)
    fitting = _fitting(joined, short, wanted, alone)
    fleet = _Fleet(models, joined, stock, policy)
    numbers = fleet.granted(fitting) if stock.counted else fitting
    lacks, binding = short, {}
    if numbers is not wanted:
        lacks = {model.want.key: lack for model in models if (lack := model.lack(numbers))}
        limits |= fleet.denials(wanted, numbers)
    for roles in joined if lacks else ():
        index = _binder(roles, short, lacks, limits)
        if index is not None:
            binder = binding[roles[index].want.key.whole] = roles[index].want.key
            held = [
                offer.key for role in roles[:index] for offer in role.offers if wanted[offer.key] > numbers[offer.key]
            ]
            limits |= {key: Limit(f"{ROLE_LIMIT}{binder.role}", wanted[key] - numbers[key]) for key in held}
    return Plan(numbers, lacks, limits, max((model.gap for model in models), default=0.0), binding)


class _Model:
    """One model: the capacity to cover as far as the bounds allow, its lines with their numbers, and the gap."""

    def __init__(self, want: Want, move_share: float, alone: Scarce, *, frozen: bool) -> None:
        """Find the numbers that the model gets if GPUs are no limit."""
        self.want = want
        self.offers = sorted(want.offers, key=lambda offer: offer.key) if len(want.offers) > 1 else want.offers
        self.lines = lines_of(self.offers, move_share, frozen=frozen)
        need = want.believed
        if math.isnan(want.need):
            need = sum(offer.bounded(offer.present) * offer.capacity for offer in self.offers if not offer.pinned)
        if want.keeps_one and self.lines and not any(offer.pinned and offer.present > 0 for offer in self.offers):
            need = max(need, min(line.capacity for line in self.lines))
        # A little less counts as enough: the difference is rounding.
        goal = min(max(0.0, need * (1 - ROUNDING)), sum([line.high * line.capacity for line in self.lines]))
        self._solve(goal, alone)

    def lower(self, requests: float, alone: Scarce) -> bool:
        """Lower the goal to what ``requests`` of the model need. Return False if that would not lower it."""
        goal = self.want.needed(requests) * (1 - ROUNDING)
        if goal >= self.goal:
            return False
        self._solve(goal, alone)
        return True

    def _solve(self, goal: float, alone: Scarce) -> None:
        """Find the cheapest numbers for a goal."""
        self.goal, self.gap = goal, 0.0
        numbers = direct(self.lines, goal)
        if numbers is not None:
            self.numbers: Numbers = numbers
            return
        part = Part(self.lines, goal, alone)
        self.lines = part.lines
        choice, lowest = part.cheapest()
        # If no numbers suffice because of rounding, the model gets the largest ones.
        cost, _, self.numbers = choice or part.choice(tuple(line.high for line in part.lines))
        self.gap = 1 - lowest / cost if choice and cost > lowest * (1 + ROUNDING) else 0.0

    def put(self, numbers: dict[VariantKey, int]) -> None:
        """Put the number of each variant into ``numbers``."""
        spread(self.lines, self.numbers, numbers)
        if sum([len(line.offers) for line in self.lines]) < len(self.offers):
            for offer in self.offers:
                numbers.setdefault(offer.key, offer.bounded(offer.present if offer.pinned else offer.existing))

    def lack(self, numbers: Mapping[VariantKey, int]) -> float:
        """Return the part of the need that numbers do not cover. Variants of unknown capacity cover nothing."""
        need = self.want.believed
        if not need > 0:
            return 0.0
        lack = need - sum([numbers[offer.key] * offer.capacity for offer in self.offers if not offer.pinned])
        return lack if lack > 2 * ROUNDING * need else 0.0

    def carried(self, lacks: Mapping[ModelKey, float]) -> float:
        """Return how many requests of the model this role carries if it misses its part of ``lacks``."""
        return self.want.requests(self.want.believed - lacks[self.want.key])

    def ceiling(self, lack: float, numbers: Mapping[VariantKey, int]) -> dict[VariantKey, Limit]:
        """Return the limit of the cheapest variant that is at its ceiling, if the model lacks capacity."""
        full = [offer for offer in self.offers if not offer.pinned and numbers[offer.key] >= offer.bounds[1]]
        if not full or not lack:
            return {}
        cheapest = min(full, key=lambda offer: (offer.price / offer.capacity, offer.key))
        return {cheapest.key: Limit(cheapest.ceiling_origin, rounded_up(lack / cheapest.capacity * (1 - ROUNDING)))}


def _joined(models: Sequence[_Model]) -> list[list[_Model]]:
    """Return the models in their order, in groups. Roles whose requests need each other are one group.

    The roles of a group are in the order in which requests pass them.
    """
    joined: list[list[_Model]] = []
    indices: dict[ModelKey, int] = {}
    for model in models:
        index = indices.setdefault(model.want.key.whole, len(joined)) if model.want.joined else len(joined)
        if index == len(joined):
            joined.append([])
        joined[index].append(model)
    return [
        sorted(roles, key=lambda role: place_of(role.want.key.role)) if len(roles) > 1 else roles for roles in joined
    ]


def _fitting(
    joined: Sequence[Sequence[_Model]], lacks: Mapping[ModelKey, float], wanted: dict[VariantKey, int], alone: Scarce
) -> dict[VariantKey, int]:
    """Return numbers with which no role carries more than a later role that lacks capacity.

    If nothing has to change, the result is the object ``wanted`` itself.
    """
    fitting = wanted
    for roles in joined if lacks else ():
        most = math.inf
        for role in reversed(roles):
            if role.lower(most, alone):
                fitting = dict(fitting)
                role.put(fitting)
            if role.want.key in lacks:
                most = min(most, role.carried(lacks))
    return fitting


def _binder(
    roles: Sequence[_Model],
    short: Mapping[ModelKey, float],
    lacks: Mapping[ModelKey, float],
    limits: Mapping[VariantKey, Limit],
) -> int | None:
    """Return the index of the role that keeps a model from serving more, None if none does.

    Among the roles that something limits, it is the one that carries the fewest requests. ``short`` has what roles lack
    by their bounds alone, and ``lacks`` what they lack in the end.
    """
    lacking = [index for index, role in enumerate(roles) if role.want.joined and role.want.key in lacks]
    limited = [
        index
        for index in lacking
        if roles[index].want.key in short or any(offer.key in limits for offer in roles[index].offers)
    ]
    return min(limited or lacking, key=lambda index: (roles[index].carried(lacks), -index), default=None)


class _Fleet:
    """All models, the most important first, and the free GPUs that they draw from."""

    def __init__(
        self, models: Sequence[_Model], joined: Sequence[list[_Model]], stock: Stock, policy: AllocationPolicy
    ) -> None:
        """Take away the GPUs of replicas that come in any case.

        These are the replicas up to the floor, and those of variants of unknown capacity. ``joined`` has the models in
        groups: roles whose requests need each other are one group.
        """
        self._models, self._joined, self._policy = models, joined, policy
        self._free = dict(stock.free)
        self._active: set[str] = set()
        self._pinned_numbers: dict[VariantKey, int] = {}
        offers = [offer for model in models if stock.inventory for offer in model.offers if offer.limits]
        for offer in offers:
            self._take(offer, offer.bounded(offer.existing) - max(0, offer.existing))
        for offer in [offer for offer in offers if offer.pinned]:
            base, number = offer.bounded(offer.existing), offer.bounded(offer.present)
            if number > base:
                free = min(self._free.get(name, 0) for name in offer.limits) // max(1, offer.gpus)
                granted = min(number, base + free)
                self._take(offer, granted - base)
                if granted < number:
                    self._pinned_numbers[offer.key] = granted

    def _take(self, offer: Offer, coming: int) -> None:
        for name in offer.limits if coming > 0 else ():
            self._free[name] = max(0, self._free.get(name, 0) - coming * max(1, offer.gpus))

    def granted(self, numbers: dict[VariantKey, int]) -> dict[VariantKey, int]:
        """Return the numbers that the stock allows; the same object if it allows all of them."""
        granted = numbers | self._pinned_numbers if self._pinned_numbers else numbers
        while exceeded := {name for name, gpus in self._left().items() if gpus < 0} - self._active:
            self._active, effort = self._active | exceeded, self._policy.effort
            granted = dict(granted)
            for names, joined in self._groups():
                # Two thirds of the effort go to sharing the GPUs, the rest to finding the lowest price.
                shared = effort * 2 // 3
                places = {name: index for index, name in enumerate(sorted(names))}
                scarce = Scarce(shared, places, tuple(self._free.get(name, 0) for name in places))
                claims = [
                    Claim([Leg(role.want, list(map(self._capped, role.lines)), role.goal, scarce) for role in roles])
                    for roles in joined
                ]
                Room(claims, scarce).share(self._policy.sharing, delayed=self._policy.delayed)
                scarce.effort += effort - shared
                # Begin with the cheapest numbers that take no more GPUs than those that ``Room`` found.
                parts, start = [], []
                for leg, goal in [pair for claim in claims for pair in claim.goals()]:
                    part = Part(leg.every, goal, scarce)
                    parts.append(part)
                    start.append(part.cheapest(left=leg.choice[1])[0] or part.choice(leg.numbers(part.lines)))
                joint = Joint(parts, start, scarce)
                joint.solve()
                effort = scarce.effort
                gap = 0.0 if joint.closed else 1 - joint.bound / joint.cost
                models = [role for roles in joined for role in roles]
                for model, part, choice in zip(models, parts, joint.choices, strict=True):
                    model.lines, model.numbers, model.gap = part.lines, choice[2], gap
                    model.put(granted)
        return granted

    def denials(self, wanted: Mapping[VariantKey, int], granted: Mapping[VariantKey, int]) -> dict[VariantKey, Limit]:
        """Return the limit of each variant that gets fewer replicas than with enough GPUs, and how many fewer."""
        left, limits = self._left(), {}
        for model in self._models:
            for offer in model.offers:
                names = offer.limits if offer.key in self._pinned_numbers else self._active.intersection(offer.limits)
                binding = [(left.get(name, 0), name) for name in names]
                fewer = wanted[offer.key] - granted[offer.key]
                if fewer > 0 and binding:
                    limits[offer.key] = Limit(min(binding)[1], fewer)
        return limits

    def _left(self) -> dict[str, int]:
        """Return the GPUs that the models leave, below 0 if they take too many. ``_free`` excludes kept numbers."""
        left = dict(self._free)
        for model in self._models:
            for line, number in zip(model.lines, model.numbers, strict=True):
                if number > line.base:
                    for name in line.limits:
                        left[name] = left.get(name, 0) - (number - line.base) * line.gpus
        return left

    def _groups(self) -> list[tuple[set[str], list[list[_Model]]]]:
        """Return groups of active limits, each with the models that share them directly or through other models."""
        groups: list[tuple[set[str], list[int]]] = []
        for index, roles in enumerate(self._joined):
            lines = [line for role in roles for line in role.lines if self._active & set(line.limits)]
            lines = [line for line in lines if line.high > line.base]
            if lines:
                names = {name for line in map(self._capped, lines) if line.high > line.base for name in line.limits}
                overlapping = [group for group in groups if not names.isdisjoint(group[0])]
                groups = [group for group in groups if names.isdisjoint(group[0])]
                names = (names & self._active).union(*(group[0] for group in overlapping))
                groups.append((names, sorted([index, *(member for group in overlapping for member in group[1])])))
        return [(names, [self._joined[index] for index in indices]) for names, indices in groups]

    def _capped(self, line: Line) -> Line:
        """Return a line whose numbers take at most the GPUs that are free."""
        most = min((line.base + self._free.get(name, 0) // line.gpus for name in line.limits), default=line.high)
        return line if most >= line.high else line.within(line.low, line.down(most) or line.low)
