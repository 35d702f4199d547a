"""Which model gets how much of its need if the GPUs do not suffice for all.

The result is the capacity of each model, and numbers that show that this capacity is possible. Prices do not count
here. Each ``SharingRule`` is a series of raises. A raise gives one model more capacity, up to a goal. All other models
keep the capacity that they were given, but they may have to change to another kind of GPU to make room.

A model whose requests need several roles is raised in all of them together, by the requests that all of them carry.
The largest number of requests is found by trying: where the roles cannot reach a goal together, the search says by how
much the goal was too high. Then the roles after the first are raised without it, and so on: requests that have passed a
role need only the roles after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import add, sub
from typing import Final, NamedTuple

from wva.decide.allocate.records import SharingRule, Want
from wva.decide.allocate.search import ROUNDING, Choice, Joint, Line, Numbers, Part, Scarce
from wva.model.records import replace

_LEAN: Final = 1e-9  # the price of all GPUs if a whole need costs 1: of equal coverages the one with few GPUs wins
_PER_MODEL, _PER_RAISE = 400, 3  # making room needs so much effort per model, and takes one third of the effort left
_NEAR: Final = 1e-8  # share of the most: goals for several roles are tried until they differ by no more
_SLIGHT: Final = 1e-12  # share of the most that counts for nothing


class Leg:
    """One model, or one of its roles: the most that it can use, its choice, and what it begins with.

    ``lines`` are the lines that can take scarce GPUs, with the places of their limits; ``every`` has all lines.
    ``capacity`` is what the leg is given, at first what it has without more GPUs. ``promised`` is the
    capacity of the present numbers, with replicas that have not been created yet.
    """

    def __init__(self, want: Want, lines: Sequence[Line], most: float, scarce: Scarce) -> None:
        """Begin with the replicas that exist. ``lines`` are all of the model, also those without scarce GPUs."""
        self.want, self.every, self.most, self._scarce = want, lines, most, scarce
        self.lines: list[tuple[Line, list[int]]] = []
        self._beside = 0.0
        for line in lines:
            places = scarce.places_of(line)
            if places and line.high > line.base:
                lean = _LEAN * line.gpus * sum(1 / (1 + scarce.free[place]) for place in places) / len(scarce.free)
                self.lines.append((replace(line.within(line.base, line.high), slope=lean, added=0.0), places))
            else:
                self._beside += line.high * line.capacity
        self.unit = max(min((line.capacity for line, _ in self.lines), default=0.0), 1e-6 * most)
        self.capacity = min(most, self._beside + sum(line.base * line.capacity for line, _ in self.lines))
        self.promised = min(most, sum(offer.bounded(offer.present) * offer.capacity for offer in want.offers))
        self.held = self.part(self.capacity)
        self.choice = self.held.choice(tuple(line.low for line in self.held.lines))

    def part(self, goal: float, price_of_lack: float = math.inf) -> Part:
        """Return the model as a part of the search whose goal is this capacity."""
        return Part([line for line, _ in self.lines], goal - self._beside, self._scarce, price_of_lack)

    def numbers(self, lines: Sequence[Line]) -> Numbers:
        """Return numbers of all lines that together have the capacity that the model was given."""
        numbers = {line.offers: number for line, number in zip(self.held.lines, self.choice[2], strict=True)}
        return tuple(numbers.get(line.offers, line.high) for line in lines)

    def usable(self, spare: Sequence[int]) -> float:
        """Return the most capacity that one variant could add with these GPUs."""
        left = [min(spare[place] for place in places) // line.gpus for line, places in self.lines]
        return max(number * line.capacity for number, (line, _) in zip(left, self.lines, strict=True))


class Claim:
    """One model that needs scarce GPUs: the most that it can use, and the capacity that it is given.

    Its ``legs`` are its roles in the order in which requests pass them, or the model itself. An amount is the number of
    requests of the model that all legs carry, as far as each needs to carry them. For a model without roles it is a
    capacity.
    """

    def __init__(self, legs: Sequence[Leg]) -> None:
        """Begin with what all legs have."""
        self.legs, self.want = legs, legs[0].want
        self.growing = [leg for leg in legs if leg.lines]
        self.most = max([leg.want.requests(leg.most) for leg in legs])
        units = [leg.want.requests(leg.capacity + leg.unit) - leg.want.requests(leg.capacity) for leg in self.growing]
        self.unit = legs[0].unit if len(legs) == 1 else max(min(units, default=0.0), 1e-6 * self.most)
        self.promised = self._together([leg.promised for leg in legs])

    @property
    def amount(self) -> float:
        """The amount that all legs have."""
        return self._together([leg.capacity for leg in self.legs])

    @property
    def missing(self) -> float:
        """What the model could still use."""
        missing = self.most - self.amount
        return missing if missing > ROUNDING * self.most and self.growing else 0.0

    def goals(self) -> list[tuple[Leg, float]]:
        """Return each leg with the capacity that it is given, as far as the legs after it can use that."""
        goals, most = [], math.inf
        for leg in reversed(self.legs):
            goals.append((leg, min(leg.capacity, leg.want.needed(most))))
            if leg.capacity < leg.most:
                most = min(most, leg.want.requests(leg.capacity))
        return goals[::-1]

    def usable(self, spare: Sequence[int]) -> float:
        """Return the most that could be added with these GPUs."""
        return min(leg.usable(spare) / (leg.want.part if leg.want.joined else 1.0) for leg in self.growing)

    def _together(self, capacities: Sequence[float]) -> float:
        """Return the amount that legs with these capacities carry. A leg that has all that it needs limits nothing."""
        pairs = zip(self.legs, capacities, strict=True)
        return min([leg.want.requests(capacity) for leg, capacity in pairs if capacity < leg.most], default=self.most)


class _Attempt(NamedTuple):
    """How much of a goal a model can reach."""

    goal: float
    choices: list[Choice]  # of its legs
    beside: list[tuple[Leg, Choice]]  # of other legs that make room; they keep what they were given
    lacks: bool  # whether a leg does not reach the goal
    covered: float  # the amount that all legs have
    highest: float  # no choices exceed this amount, as far as is known


class Room:
    """The models that share scarce GPUs, the most important first, and the GPUs that they leave."""

    def __init__(self, claims: Sequence[Claim], scarce: Scarce) -> None:
        """Begin with all scarce GPUs left."""
        self._claims, self._scarce, self._spare = claims, scarce, scarce.free

    def share(self, rule: SharingRule, *, delayed: bool) -> None:
        """Give each model the capacity that the rule grants."""
        best_effort = rule not in {SharingRule.PRIORITY, SharingRule.SCORE}
        at_once = delayed or rule is SharingRule.SCORE

        def turn_of(claim: Claim, turns: int) -> tuple[float, ...]:
            if rule is SharingRule.SCORE:
                return (-claim.want.weight * claim.missing,)
            return (claim.want.priority if rule is SharingRule.PRIORITY_ROUND_ROBIN else 0, turns)

        for _, level in groupby(self._claims, key=lambda claim: 0 if at_once else claim.want.priority):
            claims = list(level)
            for claim in claims if best_effort else ():
                self._raise(claim, claim.most, whole=True)
            for claim in claims if rule is SharingRule.PRIORITY else ():
                self._raise(claim, claim.promised)
            if rule is SharingRule.NONE:
                continue
            # Raise the model whose turn it is, until no model can have more. If turns are equal, the order counts.
            waiting = sorted(
                (turn_of(claim, 0), index, 0, claim) for index, claim in enumerate(claims) if claim.missing
            )
            while waiting:
                _, index, turns, claim = heappop(waiting)
                raise_by = math.inf
                if rule not in {SharingRule.PRIORITY, SharingRule.PRIORITY_EXHAUSTIVE}:
                    # One replica, or half of an equal share of what is left if that is more.
                    most = claim.usable(self._spare)
                    raise_by = claim.unit * max(1, most // (2 * (1 + len(waiting)) * claim.unit))
                if self._raise(claim, min(claim.most, claim.amount + raise_by)) and claim.missing:
                    heappush(waiting, (turn_of(claim, turns + 1), index, turns + 1, claim))
                elif len(claim.legs) > 1:
                    # Requests that have passed the first role need only the others.
                    later = Claim(claim.legs[1:])
                    if later.missing:
                        heappush(waiting, (turn_of(later, turns), index, turns, later))

    def _raise(self, claim: Claim, goal: float, *, whole: bool = False) -> bool:
        """Raise a model to ``goal``, or as near as possible. Return whether it gets there. ``whole``: all or none."""
        if not claim.missing:
            return True
        attempt = self._tried(claim, goal)
        enough = not attempt.lacks
        if len(claim.legs) > 1 and not enough and not whole:
            attempt = self._largest(claim, attempt)
        # Slightly less than is covered, because rounding must not make these numbers too few.
        covered = attempt.covered - _SLIGHT * claim.most
        if len(claim.legs) > 1 and covered <= claim.amount:
            return enough
        for leg, choice in attempt.beside:
            leg.choice = choice
        if attempt.beside:
            self._spare = self._scarce.left_by(leg.choice for sharer in self._claims for leg in sharer.legs)
        for leg, choice in zip(claim.legs, attempt.choices, strict=True) if enough or not whole else ():
            capacity = min(leg.most, leg.want.needed(covered))
            if capacity > leg.capacity:
                leg.capacity, leg.held = capacity, leg.part(capacity)
            left = tuple(map(add, self._spare, leg.choice[1]))
            leg.choice = leg.held.choice(choice[2])
            self._spare = tuple(map(sub, left, leg.choice[1]))
        return enough

    def _tried(self, claim: Claim, goal: float, floor: int = 0) -> _Attempt:
        """Return the best choices for a goal. The search ends when the effort that is left falls to ``floor``."""
        goals = [min(leg.most, leg.want.needed(goal)) for leg in claim.legs]
        prices = [1.0 / (claim.most * (leg.want.part if leg.want.joined else 1.0)) for leg in claim.legs]
        parts = [leg.part(capacity, price) for leg, capacity, price in zip(claim.legs, goals, prices, strict=True)]
        spare, choices, beside, highest = self._spare, [], [], goal
        for leg, part in zip(claim.legs, parts, strict=True):
            left = tuple(map(add, spare, leg.choice[1]))
            choices.append(part.cheapest(left=left)[0] or part.choice(leg.choice[2]))
            spare = tuple(map(sub, left, choices[-1][1]))
        if any(map(_lack, parts, choices)):
            # To make room, other models change to other kinds of GPUs.
            effort = self._scarce.effort
            legs = [leg for sharer in self._claims for leg in sharer.legs if any(leg.choice[1])]
            others = [leg for leg in legs if leg not in claim.legs]
            if effort > max(floor, _PER_MODEL * len(others)):
                start = [*(leg.choice for leg in others), *choices]
                joint = Joint([*(leg.held for leg in others), *parts], start, self._scarce, 2 * _LEAN)
                joint.solve(max(floor, effort - effort // _PER_RAISE))
                beside, choices = list(zip(others, joint.choices, strict=False)), joint.choices[len(others) :]
                # The lower bound of the lack of all legs together says how much one of them lacks at least.
                highest -= max(0.0, joint.bound - _LEAN) * claim.most / len(parts)
        lacks = list(map(_lack, parts, choices))
        covered = [
            leg.want.requests(capacity - lack)
            for leg, capacity, lack in zip(claim.legs, goals, lacks, strict=True)
            if lack
        ]
        return _Attempt(goal, choices, beside, any(lacks), min(covered, default=goal), highest)

    def _largest(self, claim: Claim, attempt: _Attempt) -> _Attempt:
        """Return the choices with which all legs together carry the most. ``attempt`` did not reach its goal."""
        best, high, floor = attempt, attempt.highest, self._scarce.effort - self._scarce.effort // _PER_RAISE
        while high - best.covered > _NEAR * claim.most:
            # The bound may be the most itself. But where a leg has all that it needs, the bound falls in small steps.
            near = attempt.goal - high >= high - best.covered
            goal = high if near else (best.covered + high) / 2
            attempt = self._tried(claim, goal, floor)
            best = max(best, attempt, key=lambda candidate: candidate.covered)
            high = min(high, attempt.highest) if attempt.lacks else high
        return best


def _lack(part: Part, choice: Choice) -> float:
    return part.lack(choice[2])
