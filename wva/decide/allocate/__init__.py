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
together. If that exceeds another limit, its models are added, and so on. Both searches are exact, unless one uses up
the ``effort`` of the policy, or ends within half a per cent for over a hundred models. Then the plan has a ``gap``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wva.decide.allocate.records import UNLIMITED, AllocationPolicy, Offer, Plan, SharingRule, Stock, Want
from wva.decide.allocate.search import ROUNDING, Joint, Line, Numbers, Part, Scarce, direct, lines_of, spread
from wva.decide.allocate.sharing import Claim, Room
from wva.decide.amounts import rounded_up
from wva.model.decision import Limit
from wva.model.variant import VariantKey

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
    lacks = {model.want.key: lack for model in models if (lack := model.lack(wanted))}
    limits: dict[VariantKey, Limit] = {}
    for model in models if lacks else ():
        limits |= model.ceiling(lacks.get(model.want.key, 0.0), wanted)
    fleet = _Fleet(models, stock, policy)
    numbers = fleet.granted(wanted) if stock.counted else wanted
    if numbers is not wanted:
        limits |= fleet.denials(wanted, numbers)
        lacks = {model.want.key: lack for model in models if (lack := model.lack(numbers))}
    return Plan(numbers, lacks, limits, max((model.gap for model in models), default=0.0))


class _Model:
    """One model: the capacity to cover as far as the bounds allow, its lines with their numbers, and the gap."""

    def __init__(self, want: Want, move_share: float, alone: Scarce, *, frozen: bool) -> None:
        """Find the numbers that the model gets if GPUs are no limit."""
        self.want, self.gap = want, 0.0
        self.offers = sorted(want.offers, key=lambda offer: offer.key) if len(want.offers) > 1 else want.offers
        self.lines = lines_of(self.offers, move_share, frozen=frozen)
        need = want.believed
        if math.isnan(want.need):
            need = sum(offer.bounded(offer.present) * offer.capacity for offer in self.offers if not offer.pinned)
        if want.keeps_one and self.lines and not any(offer.pinned and offer.present > 0 for offer in self.offers):
            need = max(need, min(line.capacity for line in self.lines))
        # A little less counts as enough: the difference is rounding.
        self.goal = min(max(0.0, need * (1 - ROUNDING)), sum([line.high * line.capacity for line in self.lines]))
        numbers = direct(self.lines, self.goal)
        if numbers is not None:
            self.numbers: Numbers = numbers
            return
        part = Part(self.lines, self.goal, alone)
        self.lines = part.lines
        found, lowest = part.cheapest()
        # If no numbers suffice because of rounding, the model gets the largest ones.
        cost, _, self.numbers = found or part.choice(tuple(line.high for line in part.lines))
        self.gap = 1 - lowest / cost if found and cost > lowest * (1 + ROUNDING) else 0.0

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

    def ceiling(self, lack: float, numbers: Mapping[VariantKey, int]) -> dict[VariantKey, Limit]:
        """Return the limit of the cheapest variant that is at its ceiling, if the model lacks capacity."""
        full = [offer for offer in self.offers if not offer.pinned and numbers[offer.key] >= offer.bounds[1]]
        if not full or not lack:
            return {}
        cheapest = min(full, key=lambda offer: (offer.price / offer.capacity, offer.key))
        return {cheapest.key: Limit(cheapest.ceiling_origin, rounded_up(lack / cheapest.capacity * (1 - ROUNDING)))}


class _Fleet:
    """All models, the most important first, and the free GPUs that they draw from."""

    def __init__(self, models: Sequence[_Model], stock: Stock, policy: AllocationPolicy) -> None:
        """Take the GPUs of replicas that come in any case: up to the floor, and of variants of unknown capacity."""
        self._models, self._policy = models, policy
        self._free = dict(stock.free)
        self._active: set[str] = set()
        self._kept: dict[VariantKey, int] = {}
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
                    self._kept[offer.key] = granted

    def _take(self, offer: Offer, coming: int) -> None:
        for name in offer.limits if coming > 0 else ():
            self._free[name] = max(0, self._free.get(name, 0) - coming * max(1, offer.gpus))

    def granted(self, numbers: dict[VariantKey, int]) -> dict[VariantKey, int]:
        """Return the numbers that the stock allows; the same object if it allows all of them."""
        granted = numbers | self._kept if self._kept else numbers
        while exceeded := {name for name, gpus in self._left().items() if gpus < 0} - self._active:
            self._active, effort = self._active | exceeded, self._policy.effort
            granted = dict(granted)
            for names, models in self._groups():
                # Two thirds of the effort go to sharing the GPUs, the rest to finding the lowest price.
                shared = effort * 2 // 3
                places = {name: at for at, name in enumerate(sorted(names))}
                scarce = Scarce(shared, places, tuple(self._free.get(name, 0) for name in places))
                capped = [(model, [self._capped(line) for line in model.lines]) for model in models]
                claims = [Claim(model.want, lines, model.goal, scarce) for model, lines in capped]
                Room(claims, scarce).share(self._policy.sharing, delayed=self._policy.delayed)
                scarce.effort += effort - shared
                # Begin with the cheapest numbers that take no more GPUs than those that ``Room`` found.
                parts, start = [], []
                for claim, (_, lines) in zip(claims, capped, strict=True):
                    part = Part(lines, min(claim.most, claim.given), scarce)
                    parts.append(part)
                    start.append(part.cheapest(left=claim.choice[1])[0] or part.choice(claim.numbers(part.lines)))
                joint = Joint(parts, start, scarce)
                joint.solve()
                effort = scarce.effort
                gap = 0.0 if joint.closed else 1 - joint.bound / joint.cost
                for model, part, choice in zip(models, parts, joint.choices, strict=True):
                    model.lines, model.numbers, model.gap = part.lines, choice[2], gap
                    model.put(granted)
        return granted

    def denials(self, wanted: Mapping[VariantKey, int], granted: Mapping[VariantKey, int]) -> dict[VariantKey, Limit]:
        """Return the limit of each variant that gets fewer replicas than with enough GPUs, and how many fewer."""
        left, found = self._left(), {}
        for model in self._models:
            for offer in model.offers:
                scarce = offer.limits if offer.key in self._kept else self._active.intersection(offer.limits)
                binding = [(left.get(name, 0), name) for name in scarce]
                fewer = wanted[offer.key] - granted[offer.key]
                if fewer > 0 and binding:
                    found[offer.key] = Limit(min(binding)[1], fewer)
        return found

    def _left(self) -> dict[str, int]:
        """Return the GPUs that the models leave, below 0 if they take too many. ``_free`` excludes kept numbers."""
        left = dict(self._free)
        for model in self._models:
            for line, number in zip(model.lines, model.numbers, strict=True):
                if number > line.base:
                    for name in line.limits:
                        left[name] = left.get(name, 0) - (number - line.base) * line.gpus
        return left

    def _groups(self) -> list[tuple[set[str], list[_Model]]]:
        """Return groups of active limits, each with the models that share them directly or through other models."""
        groups: list[tuple[set[str], list[int]]] = []
        for at, model in enumerate(self._models):
            lines = [line for line in model.lines if line.high > line.base and self._active & set(line.limits)]
            if lines:
                names = {name for line in map(self._capped, lines) if line.high > line.base for name in line.limits}
                joined = [group for group in groups if not names.isdisjoint(group[0])]
                groups = [group for group in groups if names.isdisjoint(group[0])]
                names = (names & self._active).union(*(group[0] for group in joined))
                groups.append((names, sorted([at, *(place for group in joined for place in group[1])])))
        return [(names, [self._models[at] for at in places]) for names, places in groups]

    def _capped(self, line: Line) -> Line:
        """Return a line whose numbers take at most the GPUs that are free."""
        most = min((line.base + self._free.get(name, 0) // line.gpus for name in line.limits), default=line.high)
        return line if most >= line.high else line.within(line.low, line.down(most) or line.low)
