"""Step 4: how many replicas each variant gets. All models, all variants, all GPUs: one function.

The plan is the best one in this order:

1. Coverage: as much of the needs as possible, by priority or as ``SharingRule`` says.
2. Price: of all replicas, and of the moves. An added replica costs a share more than one that is there, so a plan that
   is cheaper by less than it costs to move is not taken.
3. The most capacity, where the price is the same.
4. The fewest moves, then equal numbers for equal variants, then the names.

No variant gets more than its ceiling, more than its scaler can be brought to, or GPUs that are not free. What exists is
never cut for want of GPUs.

Each model is solved alone. If that exceeds a limit, all models that draw from it are solved together, which may exceed
another limit, and so on. Both searches are exact, unless one takes more than the ``effort`` of the policy, or comes
within half a per cent for more than a hundred models: then the plan has a ``gap``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wva.decide.allocate.records import UNLIMITED, AllocationPolicy, Offer, Plan, SharingRule, Stock, Want
from wva.decide.allocate.search import ROUNDING, Joint, Line, Numbers, Part, Scarce, direct, lines_of, spread
from wva.decide.allocate.sharing import Claim, Room
from wva.decide.amounts import AMPLE, rounded_up
from wva.model.decision import Limit
from wva.model.variant import VariantKey

__all__ = ["UNLIMITED", "AllocationPolicy", "Offer", "Plan", "SharingRule", "Stock", "Want", "allocate"]

_DEFAULT = AllocationPolicy()


def allocate(wants: Sequence[Want], stock: Stock = UNLIMITED, policy: AllocationPolicy = _DEFAULT) -> Plan:
    """Return the best plan for all models, whatever their order and that of their offers."""
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
    """A model with the capacity to cover, as far as the bounds allow, the numbers of its lines, and their gap."""

    def __init__(self, want: Want, move_share: float, alone: Scarce, *, frozen: bool) -> None:
        """Give it what it has where GPUs are no limit."""
        self.want, self.gap = want, 0.0
        self.offers = sorted(want.offers, key=lambda offer: offer.key) if len(want.offers) > 1 else want.offers
        self.lines = lines_of(self.offers, move_share, frozen=frozen)
        need = min(want.need, AMPLE)
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
        # If rounding says that no numbers suffice, it gets all that there are.
        cost, _, self.numbers = found or part.choice(tuple(line.high for line in part.lines))
        self.gap = 1 - lowest / cost if found and cost > lowest * (1 + ROUNDING) else 0.0

    def put(self, numbers: dict[VariantKey, int]) -> None:
        """Add the numbers of the variants."""
        spread(self.lines, self.numbers, numbers)
        if sum([len(line.offers) for line in self.lines]) < len(self.offers):
            for offer in self.offers:
                numbers.setdefault(offer.key, offer.bounded(offer.present if offer.pinned else offer.existing))

    def lack(self, numbers: Mapping[VariantKey, int]) -> float:
        """Return the capacity that numbers leave uncovered. Unknown capacity covers nothing that counts."""
        need = min(self.want.need, AMPLE)
        if not need > 0:
            return 0.0
        lack = need - sum([numbers[offer.key] * offer.capacity for offer in self.want.offers if not offer.pinned])
        return lack if lack > 2 * ROUNDING * need else 0.0

    def ceiling(self, lack: float, numbers: Mapping[VariantKey, int]) -> dict[VariantKey, Limit]:
        """Return who keeps its cheapest variant from covering what it lacks although GPUs are no limit."""
        full = [offer for offer in self.offers if not offer.pinned and numbers[offer.key] >= offer.bounds[1]]
        if not full or not lack:
            return {}
        cheapest = min(full, key=lambda offer: (offer.price / offer.capacity, offer.key))
        return {cheapest.key: Limit(cheapest.ceiling_origin, rounded_up(lack / cheapest.capacity * (1 - ROUNDING)))}


class _Fleet:
    """All models, the most important first, and the free GPUs that they draw from."""

    def __init__(self, models: Sequence[_Model], stock: Stock, policy: AllocationPolicy) -> None:
        """Take the GPUs of what comes in any case: floors, and numbers that are kept because no capacity is known."""
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
        """Return the numbers within the stock: these very numbers if all of them are."""
        granted = numbers | self._kept if self._kept else numbers
        while exceeded := {name for name, gpus in self._left().items() if gpus < 0} - self._active:
            self._active, effort = self._active | exceeded, self._policy.effort
            granted = dict(granted)
            for names, models in self._groups():
                # Two thirds of the effort go to who gets how much, the rest to the lowest price of that.
                shared = effort * 2 // 3
                places = {name: at for at, name in enumerate(sorted(names))}
                scarce = Scarce(shared, places, tuple(self._free.get(name, 0) for name in places))
                capped = [(model, [self._capped(line) for line in model.lines]) for model in models]
                claims = [Claim(model.want, lines, model.goal, scarce) for model, lines in capped]
                Room(claims, scarce).share(self._policy.sharing, delayed=self._policy.delayed)
                scarce.effort += effort - shared
                # Begin with the cheapest numbers that need no more GPUs than those that show that it can be met.
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
        """Return who keeps variants from what they would get if there were GPUs enough, and by how many replicas."""
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
        """Return the GPUs that the models leave, below 0 if they take too many. Kept numbers have theirs already."""
        left = dict(self._free)
        for model in self._models:
            for line, number in zip(model.lines, model.numbers, strict=True):
                if number > line.base:
                    for name in line.limits:
                        left[name] = left.get(name, 0) - (number - line.base) * line.gpus
        return left

    def _groups(self) -> list[tuple[set[str], list[_Model]]]:
        """Return active limits with the models that share them, directly or through others."""
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
        """Return a line with no more than all GPUs that are free."""
        most = min((line.base + self._free.get(name, 0) // line.gpus for name in line.limits), default=line.high)
        return line if most >= line.high else line.within(line.low, line.down(most) or line.low)
