"""The cheapest numbers of one model, and of several models that share scarce GPUs.

A ``Line`` is one variant, or several equal ones, with the cost of each number of replicas. Small parts of the cost
decide ties: each unit of capacity lowers the cost by a millionth of the lowest price per unit, and each move adds a
billionth of the lowest price. So among numbers of equal price, the most capacity wins, then the fewest moves.

A ``Part`` is one model: branch and bound over its lines. The cost of each line is convex, so filling up with the
cheapest capacity first gives the cheapest fractional numbers. Their cost is a lower bound for a partial choice. The
search tries the numbers around them, the nearest first, until the bound shows that no number further away is better.

A ``Joint`` is several parts that share GPUs. The GPUs of each limit have a toll. It rises while the parts take too many
GPUs, and falls while GPUs are left. With the tolls each part is solved alone, and the sum is a lower bound for the cost
of all. The gap is the distance from this bound to the cost of the best known choices. The search lists all choices of
each part within the gap, and the cheapest combination that fits is the best of all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from operator import add, gt, le, mul, sub
from typing import Final

from msgspec import Struct

from wva.decide.allocate.records import LARGEST, Offer
from wva.decide.amounts import rounded_up
from wva.model.records import replace
from wva.model.variant import VariantKey

ROUNDING: Final = 1e-9  # differences below this share of an amount are rounding
_TIE: Final = 1e-6  # share of a price that decides between equal ones
_MOST: Final = 200  # lines of one model that are searched, the cheapest per capacity; others keep existing replicas
_EQUAL: Final = 1e-12  # a cost is better if it is lower by this share; a smaller share of a need is rounding
_ANY: Final = 1e308  # more than any cost
_PER_SEARCH, _PER_LIST, _PER_MENU = 3000, 10_000, 200  # numbers tried for the cheapest choice, near ones, all of them
_TRIED: Final = 50  # replicas of one of two lines that are tried one by one
_ROUNDS, _IMPROVED = 60, 10  # rounds of tolls, and after how many of them the choices are improved
_STALE: Final = 4  # rounds without a better bound, after which the steps of the tolls become smaller
_SHARES: Final = (1 / 64, 1 / 8, 1.0, 1 / 8, 1.0)  # of the gap, searched in turn: good choices found early reduce it
_PAIRS: Final = 400_000  # of choices that one combination looks at
_CLOSE: Final = 1e-10  # a gap below this share of the cost is rounding
_MANY, _GOOD = 100, 5e-3  # with more models, choices are not combined, and a gap below this share of the cost stays

Numbers = tuple[int, ...]
Spans = tuple[tuple[int, int], ...]
Gpus = tuple[int, ...]
Choice = tuple[float, Gpus, Numbers]
"""The cost of numbers without tolls, the GPUs that they take from each limit, and the numbers."""


class Line(Struct, gc=False):
    """One variant, or several that cost and carry the same."""

    offers: tuple[Offer, ...]
    capacity: float
    spans: Spans  # the numbers that the scaler can be brought to
    slope: float  # cost of a replica beyond the smallest number
    added: float  # what each replica beyond the present number costs in addition
    present: int
    base: int  # replicas that need no free GPUs; those beyond it take ``gpus`` from each of ``limits``
    gpus: int
    limits: tuple[str, ...]
    low: int = 0
    high: int = 0

    def __post_init__(self) -> None:
        """Store the smallest and the largest number, which the search reads very often."""
        self.low, self.high = self.spans[0][0], max([high for _, high in self.spans])

    def cost(self, number: int, toll: float = 0.0) -> float:
        """Return the cost of a number beyond the smallest one; ``toll`` is for each replica that takes free GPUs."""
        cost = (number - self.low) * self.slope
        if number > self.present:
            cost += (number - max(self.low, self.present)) * self.added
        if toll and number > self.base:
            cost += (number - self.base) * toll
        return cost

    def segments(self, toll: float) -> Iterator[tuple[float, float]]:
        """Return the capacity from the smallest to the largest number in pieces: cost per unit (rising) and amount."""
        breakpoints = sorted(
            {self.low, min(max(self.present, self.low), self.high), min(self.base, self.high), self.high}
        )
        for first, last in pairwise(breakpoints):
            rate = self.slope + (self.added if first >= self.present else 0.0) + (toll if first >= self.base else 0.0)
            yield rate / self.capacity, (last - first) * self.capacity

    def up(self, number: int) -> int | None:
        """Return the smallest possible number that is not below this one."""
        if len(self.spans) == 1:
            return max(number, self.low) if number <= self.high else None
        return next((max(number, low) for low, high in self.spans if number <= high), None)

    def down(self, number: int) -> int | None:
        """Return the largest possible number up to this one."""
        return max((min(number, high) for low, high in self.spans if number >= low), default=None)

    def within(self, low: int, high: int) -> Line:
        """Return the line with numbers from ``low``, which must be possible, to ``high``."""
        return replace(self, spans=tuple((max(low, a), min(high, b)) for a, b in self.spans if a <= high and b >= low))


def lines_of(offers: Sequence[Offer], move_share: float, *, frozen: bool) -> list[Line]:
    """Return the lines of the variants of a model; ``frozen``: replicas that are asked for need no free GPUs."""
    known = [offer for offer in offers if not offer.pinned]
    # A price of 0 counts as a millionth of the highest, so that no free replica is added without need.
    prices = [offer.price if 0 <= offer.price <= LARGEST else LARGEST for offer in known]
    least = _TIE * (max(prices, default=0.0) or 1.0)
    prices = [max(price, least) for price in prices]
    worth = _TIE * min([price / offer.capacity for price, offer in zip(prices, known, strict=True)], default=0.0)
    move = _TIE / 1000 * min(prices, default=0.0)
    lines: dict[object, Line] = {}
    for price, offer in zip(prices, known, strict=True):
        low, high = offer.bounds
        present, base = min(max(offer.present, low), high), min(max(offer.existing, low), high)
        spans: Spans = ((low, high),)
        if offer.step > 1:
            # The scaler ignores a change that is smaller than its step.
            less, more = offer.existing - offer.step, offer.existing + offer.step
            ranges = [(low, min(high, less)), (base, base), (present, present), (max(low, more), high)]
            spans = tuple(sorted([span for span in ranges if span[0] <= span[1]]))
        base = max(base, present) if frozen else base
        slope, added = price - worth * offer.capacity - move, move_share * price + 2 * move
        line = Line((offer,), offer.capacity, spans, slope, added, present, base, max(1, offer.gpus), offer.limits)
        if not (present == base and len(spans) == 1 and len(known) > 1):
            lines[offer.key] = line
            continue
        # For equal variants without an unfinished change, only the sum matters.
        key = _alike(line)
        if (equal := lines.get(key)) is not None:
            spans = ((equal.low + line.low, equal.high + line.high),)
            present, base = equal.present + present, equal.base + base
            line = replace(equal, offers=(*equal.offers, offer), spans=spans, present=present, base=base)
        lines[key] = line
    return sorted(lines.values(), key=lambda line: line.slope / line.capacity)[:_MOST]


def _alike(line: Line) -> tuple[object, ...]:
    return (line.slope, line.added, line.capacity, line.gpus, line.limits)


def direct(lines: Sequence[Line], goal: float) -> Numbers | None:
    """Return the cheapest numbers for a goal without a search; None with over two lines or too many replicas to try."""
    if sum([line.low * line.capacity for line in lines]) >= goal:
        return tuple([line.low for line in lines])
    if len(lines) == 1:
        number = lines[0].up(rounded_up(goal / lines[0].capacity))
        return (lines[0].high if number is None else number,)
    costly, cheap = lines[-1], lines[0]
    if len(lines) > 2 or goal / costly.capacity > _TRIED:  # noqa: PLR2004 - a pair
        return None
    best: Numbers | None = None
    least, count = _ANY, costly.up(costly.low)
    while count is not None and costly.cost(count) < least:
        rest = goal - count * costly.capacity
        cheap_count = cheap.up(max(cheap.low, math.ceil(rest / cheap.capacity)))
        if cheap_count is not None and (cost := costly.cost(count) + cheap.cost(cheap_count)) < least:
            best, least = (cheap_count, count), cost * (1 - _EQUAL)
        count = costly.up(count + 1) if cheap_count is None or cheap_count > cheap.low else None
    return best


def spread(lines: Sequence[Line], numbers: Numbers, counts: dict[VariantKey, int]) -> None:
    """Put the number of each variant into ``counts``. Equal variants share a change if that costs no more."""
    if len(lines) == 1 == len(lines[0].offers):
        counts[lines[0].offers[0].key] = numbers[0]
        return
    groups: dict[object, list[tuple[Line, int]]] = {}
    for line, number in zip(lines, numbers, strict=True):
        counts |= _shared(line.offers, number) if len(line.offers) > 1 else {line.offers[0].key: number}
        groups.setdefault(_alike(line), []).append((line, number))
    for group in groups.values() if len(groups) < len(lines) else ():
        even = _shared([offer for line, _ in group for offer in line.offers], sum(number for _, number in group))
        evened = [(line, sum(even[offer.key] for offer in line.offers)) for line, _ in group]
        costs = [sum(line.cost(n) for line, n in pairs) for pairs in (evened, group)]
        takes = [sum(max(0, n - line.base) for line, n in pairs) for pairs in (evened, group)]
        if all(line.up(n) == n for line, n in evened) and costs[0] <= costs[1] * (1 + 1e-13) and takes[0] <= takes[1]:
            counts |= even


def _shared(offers: Sequence[Offer], number: int) -> dict[VariantKey, int]:
    """Return the numbers of equal variants: replicas go to the smallest, or are taken from the largest.

    The first new replica goes to the variant with the most spare, so among equal variants this variant grows first.
    """
    present = {offer.key: offer.bounded(offer.present) for offer in offers}
    change = number - sum(present.values())
    sign = 1 if change >= 0 else -1
    order = sorted(offers, key=lambda offer: (offer.rank, sign * present[offer.key], offer.key), reverse=sign < 0)
    first = next((offer.key for offer in order if present[offer.key] < offer.bounds[1]), None) if change > 0 else None
    if first is not None:
        present[first], change = present[first] + 1, change - 1
    most = {offer.key: sign * offer.bounds[sign > 0] for offer in offers}
    mirrored = {key: sign * count for key, count in present.items()}
    shared = raised(mirrored, abs(change), ties=[offer.key for offer in order], most=most)
    return {key: sign * count for key, count in shared.items()}


def raised(
    numbers: Mapping[VariantKey, int], count: int, *, ties: Sequence[VariantKey], most: Mapping[VariantKey, int]
) -> dict[VariantKey, int]:
    """Return the numbers as if ``count`` replicas were added one by one, each to the smallest that may still grow.

    A change may be large, so no loop adds them one by one. Among equal numbers, the first in ``ties`` grows; ``ties``
    has every key. ``most`` has the largest number of each key that has one. Replicas that find no room are left out.
    """
    if not numbers or count <= 0:
        return dict(numbers)

    def at(level: int) -> dict[VariantKey, int]:
        return {key: max(number, min(level, most.get(key, level))) for key, number in numbers.items()}

    # Raise all numbers to the highest level for which there are enough replicas, and give out the rest.
    total = sum(numbers.values()) + count
    low = min(numbers.values())
    levels = range(low + 1, max(numbers.values()) + count + 1)
    level = low + bisect_right(levels, total, key=lambda level: sum(at(level).values()))
    shared = at(level)
    rest = total - sum(shared.values())
    for key in [key for key in ties if shared[key] == level and level < most.get(key, level + 1)][:rest]:
        shared[key] += 1
    return shared


@dataclass(slots=True)
class Scarce:
    """What models share: the ``free`` GPUs of limits, the place of each limit by name, and the effort that is left."""

    effort: int
    places: Mapping[str, int] = field(default_factory=dict)
    free: Gpus = ()

    def places_of(self, line: Line) -> list[int]:
        """Return the places of the limits that a line draws from."""
        return [self.places[name] for name in line.limits if name in self.places]

    def left_by(self, choices: Iterable[Choice]) -> Gpus:
        """Return the GPUs that choices leave, below 0 if they take too many."""
        taken = zip((0,) * len(self.free), *(choice[1] for choice in choices), strict=True)
        return tuple(map(sub, self.free, map(sum, taken)))


class Part:
    """One model in the search: its lines, a capacity to cover, and the price of a unit that is not covered."""

    def __init__(self, lines: Sequence[Line], goal: float, scarce: Scarce, price_of_lack: float = math.inf) -> None:
        """Put lines with scarce GPUs first. ``goal`` is the capacity to cover, the smallest numbers included."""
        places = [scarce.places_of(line) for line in lines] if scarce.places else [[]] * len(lines)
        order = sorted(range(len(lines)), key=lambda at: (not places[at], -lines[at].slope / lines[at].capacity, at))
        self.lines = [lines[at] for at in order]
        self._places = [places[at] for at in order]
        self._drawing = sum(map(bool, places))
        self._lows = tuple([line.low for line in self.lines])
        self._need = goal - sum([line.low * line.capacity for line in lines])
        self._tiny = abs(self._need) * _EQUAL
        self._scarce, self._price_of_lack = scarce, price_of_lack
        # The lines with the most capacity per GPU come first.
        drawing = range(self._drawing if price_of_lack < math.inf else 0)
        self._by_gpu = sorted(drawing, key=lambda at: (-self.lines[at].capacity / self.lines[at].gpus, at))
        self._menu: list[Choice] | None = None
        self._left = _PER_MENU

    def lack(self, numbers: Numbers) -> float:
        """Return the capacity that numbers leave uncovered."""
        lack = self._need - sum([(n - line.low) * line.capacity for line, n in zip(self.lines, numbers, strict=True)])
        return lack if lack > self._tiny else 0.0

    def choice(self, numbers: Numbers) -> Choice:
        """Return numbers with what they cost and take."""
        lack, cost, taken = self.lack(numbers), 0.0, [0] * len(self._scarce.free)
        for line, number, places in zip(self.lines, numbers, self._places, strict=True):
            cost += line.cost(number)
            for place in places:
                taken[place] += max(0, number - line.base) * line.gpus
        return cost + (lack * self._price_of_lack if lack else 0.0), tuple(taken), numbers

    def cheapest(self, tolls: Sequence[float] = (), left: Gpus | None = None) -> tuple[Choice | None, float]:
        """Return the cheapest choice with tolls, None if none fits in ``left``, and a lower bound of the cost."""
        if self._menu is None:
            candidates, complete = self._search(tolls, left, _ANY, most=_PER_SEARCH, split=0)
            best = self.choice(candidates[0][1]) if candidates else None
            return best, candidates[0][0] if candidates and complete else self._fill(0, self._need)[0]
        best, lowest = None, math.inf
        self._scarce.effort -= 1
        for choice in self._menu:
            cost = choice[0] + sum(map(mul, tolls, choice[1]))
            if cost < lowest and (left is None or all(map(le, choice[1], left))):
                best, lowest = choice, cost
        return best, lowest

    def near(self, tolls: Sequence[float], limit: float, most: int) -> tuple[list[tuple[float, Choice]], bool]:
        """Return the choices that cost at most ``limit`` with tolls, the cheapest first, and whether these are all."""
        choices, complete = self._menu, True
        if choices is None:
            candidates, complete = self._search(tolls, None, limit, most=most, split=self._drawing)
            choices = [self.choice(numbers) for _, numbers in candidates]
        costs = [(choice[0] + sum(map(mul, tolls, choice[1])), choice) for choice in choices]
        return sorted([pair for pair in costs if pair[0] <= limit]), complete

    def keep_menu(self) -> None:
        """Keep all choices if they are few; the next searches then look only at these."""
        if self._menu is None and self._left > 0:
            menu, complete = self.near((), _ANY, _PER_MENU)
            self._menu = [choice for _, choice in menu] if complete else None

    def _search(
        self, tolls: Sequence[float], left: Gpus | None, limit: float, *, most: int, split: int
    ) -> tuple[list[tuple[float, Numbers]], bool]:
        """Return choices that cost at most ``limit``, with their costs.

        They have all numbers of the first ``split`` lines, and the cheapest numbers of the others.
        """
        self._split = split
        tolled = zip(self.lines, self._places, strict=True)
        self._tolls = [line.gpus * sum([tolls[place] for place in places]) if tolls else 0.0 for line, places in tolled]
        self._segments = [(self._price_of_lack, len(self.lines), math.inf)]
        for index, line in enumerate(self.lines):
            self._segments += [(rate, index, amount) for rate, amount in line.segments(self._tolls[index])]
        self._segments.sort()
        # With many lines, each number takes longer.
        weight = 1 + len(self.lines) // 8
        allowed = self._left = max(2 * len(self.lines) + 50, min(most, self._scarce.effort) // weight)
        candidates = self._walk(0, self._need, limit, self._scarce.free if left is None else left)
        self._scarce.effort -= (allowed - self._left) * weight
        return candidates, self._left > 0

    def _walk(self, first: int, need: float, limit: float, left: Gpus) -> list[tuple[float, Numbers]]:
        """Choose the numbers of the lines from ``first`` on, those nearest to the best fractional numbers first."""
        if need <= self._tiny:
            return [(0.0, self._lows[first:])]
        if first == len(self.lines):
            lack = need * self._price_of_lack
            return [(lack, ())] if lack <= limit else []
        line, places, toll = self.lines[first], self._places[first], self._tolls[first]
        most = line.base + min([left[place] for place in places]) // line.gpus if places else line.high
        # A number that misses the need by rounding alone covers it.
        share = max(0.0, self._fill(first, need)[1] - self._tiny)
        wanted = math.ceil(min(line.low + share / line.capacity, line.high, most))
        candidates: list[tuple[float, Numbers]] = []
        down = None if first + 1 == len(self.lines) and self._price_of_lack == math.inf else line.down(wanted - 1)
        for step, number in ((1, line.up(wanted)), (-1, down)):
            count = number
            while count is not None and count <= most and self._left > 0:
                self._left -= 1
                cost, after = line.cost(count, toll), need - (count - line.low) * line.capacity
                if cost + self._fill(first + 1, after)[0] > limit:
                    break
                taken = max(0, count - line.base) * line.gpus
                rest = tuple([gpus - taken * (place in places) for place, gpus in enumerate(left)]) if places else left
                if cost + self._lacking(first + 1, after, rest) <= limit:
                    for rest_cost, numbers in self._walk(first + 1, after, limit - cost, rest):
                        if first >= self._split:
                            candidates.clear()
                            limit = (cost + rest_cost) * (1 - _EQUAL)
                        candidates.append((cost + rest_cost, (count, *numbers)))
                if step > 0 and after <= self._tiny:
                    break
                count = line.up(count + 1) if step > 0 else line.down(count - 1)
        return candidates

    def _lacking(self, first: int, need: float, left: Gpus) -> float:
        """Return the least price of the lack if the GPUs ``left`` do not suffice for the lines from ``first`` on.

        It is 0 unless lack has a price and all lines draw from scarce GPUs.
        """
        if not self._by_gpu or self._drawing < len(self.lines):
            return 0.0
        free: list[float] = list(left)
        for index in self._by_gpu:
            if index >= first:
                line, place = self.lines[index], self._places[index][0]
                existing = max(line.low, min(line.base, line.high))
                count = min(line.high - existing, free[place] / line.gpus)
                free[place] -= count * line.gpus
                need -= (existing - line.low + count) * line.capacity
        return max(0.0, need) * self._price_of_lack

    def _fill(self, first: int, need: float) -> tuple[float, float]:
        """Return the lowest cost of a capacity, in fractions of lines from ``first`` on, and the part of ``first``."""
        cost = share = 0.0
        for rate, index, amount in self._segments if need > self._tiny else ():
            if need <= self._tiny:
                break
            if index >= first:
                used = min(amount, need)
                cost += rate * used
                need -= used
                if index == first:
                    share += used
        return cost, share


class Joint:
    """The best choices so far of several parts, their cost, and a lower bound of the cost."""

    def __init__(self, parts: Sequence[Part], choices: list[Choice], scarce: Scarce, tolerance: float = 0.0) -> None:
        """Begin with choices that fit. Costs that differ by at most ``tolerance`` count as equal."""
        self.choices, self.cost, self.bound = choices, math.fsum(choice[0] for choice in choices), -math.inf
        self.tolls = [0.0] * len(scarce.free)
        self._parts, self._scarce, self._tolerance = parts, scarce, tolerance

    def solve(self, reserve: int = 0) -> None:
        """Look for the best choices until the effort that is left falls to ``reserve``."""
        self._reserve = reserve
        for part in self._parts:
            part.keep_menu()
        # Raise the bound by tolls.
        tolls, pace, stale, best_left = self.tolls, 1.0, 0, self._scarce.free
        for turn in range(1, _ROUNDS + 1):
            cheapest = [part.cheapest(tolls) for part in self._parts]
            choices = [choice for choice, _ in cheapest if choice is not None]
            left = self._scarce.left_by(choices)
            bound = math.fsum(lowest for _, lowest in cheapest) - math.fsum(map(mul, tolls, self._scarce.free))
            if min(left, default=0) >= 0 and len(choices) == len(cheapest):
                self._offer(choices)
            if bound > self.bound:
                self.bound, self.tolls, best_left, stale = bound, tolls, left, 0
            else:
                stale += 1
            if stale == _STALE:
                # Go on from the best tolls in smaller steps.
                pace, stale, tolls, bound, left = pace / 2, 0, self.tolls, self.bound, best_left
            if turn % _IMPROVED == 0:
                self._improve(self.tolls)
            # If GPUs of a limit are left and its toll is 0, the toll cannot fall further.
            slope = [0 if gpus > 0 and not toll else -gpus for gpus, toll in zip(left, tolls, strict=True)]
            if self._over or not any(slope):
                break
            step = pace * (self.cost - bound) / sum(component * component for component in slope)
            tolls = [max(0.0, toll + step * component) for toll, component in zip(tolls, slope, strict=True)]
        self._improve(self.tolls)
        self._improve([0.0] * len(tolls))
        for share in _SHARES if len(self._parts) <= _MANY else ():
            limit = self.bound + (self.cost - self.bound) * share
            if not self._over and self._combine(limit):
                # All combinations that cost less than the limit have been looked at.
                self.bound = max(self.bound, min(self.cost, limit))

    @property
    def closed(self) -> bool:
        """Whether no choices can be better."""
        return self.cost - self.bound <= self._tolerance + _CLOSE * abs(self.cost)

    @property
    def _over(self) -> bool:
        """Whether the search ends here: it is closed or good enough, or no effort is left."""
        good = len(self._parts) > _MANY and self.cost - self.bound <= _GOOD * abs(self.cost)
        return good or self.closed or self._scarce.effort <= self._reserve

    def _offer(self, choices: list[Choice]) -> None:
        cost = math.fsum(choice[0] for choice in choices)
        if cost < self.cost:
            self.cost, self.choices = cost, choices

    def _improve(self, tolls: Sequence[float]) -> None:
        """Let each part use the GPUs that the others leave, at its lowest cost with tolls, until that saves nothing."""
        # A GPU must save slightly less than its toll.
        before, tolls = math.inf, [toll * (1 - 1e-9) for toll in tolls]
        while self.cost < before - _CLOSE * abs(self.cost) and not self._over:
            before, spare = self.cost, self._scarce.left_by(self.choices)
            for index, part in enumerate(self._parts):
                cost, taken, _ = self.choices[index]
                left = tuple(map(add, spare, taken))
                better, _ = part.cheapest(tolls, left)
                if better is not None and better[0] < cost:
                    self.cost += better[0] - cost
                    self.choices[index] = better
                    spare = tuple(map(sub, left, better[1]))

    def _combine(self, limit: float) -> bool:
        """Look at the combinations that cost at most ``limit``. Return whether it looked at all of them."""
        free, complete, most = self._scarce.free, True, _PAIRS // len(self._parts)
        lowest = [part.cheapest(self.tolls)[1] for part in self._parts]
        slack = limit + math.fsum(map(mul, self.tolls, free)) - math.fsum(lowest) + _CLOSE * abs(self.cost)
        # By the GPUs taken: how far the cost with tolls is above the lowest, the cost without tolls, and the choices.
        combined: dict[Gpus, tuple[float, float, tuple[Choice, ...]]] = {(0,) * len(free): (0.0, 0.0, ())}
        for part, least in zip(self._parts, lowest, strict=True):
            menu, whole_menu = part.near(self.tolls, least + slack, _PER_LIST)
            if len(combined) * len(menu) > most:
                combined = dict(nsmallest(most // len(menu) + 1, combined.items(), key=lambda item: item[1][0]))
                whole_menu = False
            complete = complete and whole_menu
            self._scarce.effort -= len(combined) * len(menu) // 2
            following: dict[Gpus, tuple[float, float, tuple[Choice, ...]]] = {}
            for taken, (excess, cost, chosen) in combined.items():
                for tolled, choice in menu:
                    if excess + tolled - least > slack:
                        break
                    sums = tuple(map(add, taken, choice[1]))
                    known = following.get(sums)
                    if not any(map(gt, sums, free)) and (known is None or cost + choice[0] < known[1]):
                        following[sums] = (excess + tolled - least, cost + choice[0], (*chosen, choice))
            combined = following
        if combined:
            self._offer(list(min(combined.values(), key=lambda combination: combination[1])[2]))
        return complete
