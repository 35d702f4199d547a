"""Which model gets how much of its need if the GPUs do not suffice for all.

The result is the capacity of each model, and numbers that show that this capacity is possible. Prices do not count
here. Each ``SharingRule`` is a series of raises. A raise gives one model more capacity, up to a goal. All other models
keep the capacity that they were given, but they may have to change to another kind of GPU to make room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import add, sub
from typing import Final

from wva.decide.allocate.records import SharingRule, Want
from wva.decide.allocate.search import ROUNDING, Joint, Line, Numbers, Part, Scarce
from wva.model.records import replace

_LEAN: Final = 1e-9  # the price of all GPUs if a whole need costs 1: of equal coverages the one with few GPUs wins
_PER_MODEL, _PER_RAISE = 400, 3  # making room needs so much effort per model, and takes one third of the effort left


class Claim:
    """One model that needs scarce GPUs: the most that it can use, the capacity that it is given, and its choice.

    ``promised`` is the capacity of the present numbers, also of replicas that have not been created yet.
    """

    def __init__(self, want: Want, lines: Sequence[Line], most: float, scarce: Scarce) -> None:
        """Begin with the replicas that exist. ``lines`` are all of the model, also those without scarce GPUs."""
        self.want, self.most, self._scarce = want, most, scarce
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
        self.given = min(most, self._beside + sum(line.base * line.capacity for line, _ in self.lines))
        self.promised = min(most, sum(offer.bounded(offer.present) * offer.capacity for offer in want.offers))
        self.held = self.part(self.given)
        self.choice = self.held.choice(tuple(line.low for line in self.held.lines))

    @property
    def missing(self) -> float:
        """The capacity that the model could still use."""
        missing = self.most - self.given
        return missing if missing > ROUNDING * self.most and self.lines else 0.0

    def part(self, goal: float, price_of_lack: float = math.inf) -> Part:
        """Return the model as a part of the search whose goal is this capacity."""
        return Part([line for line, _ in self.lines], goal - self._beside, self._scarce, price_of_lack)

    def numbers(self, lines: Sequence[Line]) -> Numbers:
        """Return numbers of all lines that together have the capacity that the model was given."""
        numbers = {line.offers: number for line, number in zip(self.held.lines, self.choice[2], strict=True)}
        return tuple(numbers.get(line.offers, line.high) for line in lines)


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
            waiting = sorted((turn_of(claim, 0), at, 0, claim) for at, claim in enumerate(claims) if claim.missing)
            while waiting:
                _, at, turns, claim = heappop(waiting)
                amount = claim.most
                if rule not in {SharingRule.PRIORITY, SharingRule.PRIORITY_EXHAUSTIVE}:
                    # One replica, or half of an equal share of what is left if that is more.
                    left = [min(self._spare[place] for place in places) // line.gpus for line, places in claim.lines]
                    most = max(number * line.capacity for number, (line, _) in zip(left, claim.lines, strict=True))
                    amount = claim.unit * max(1, most // (2 * (1 + len(waiting)) * claim.unit))
                if self._raise(claim, min(claim.most, claim.given + amount)) and claim.missing:
                    heappush(waiting, (turn_of(claim, turns + 1), at, turns + 1, claim))

    def _raise(self, claim: Claim, goal: float, *, whole: bool = False) -> bool:
        """Give a model as much capacity as possible up to ``goal``; tell whether it has all. ``whole``: all or none."""
        if not claim.missing:
            return True
        part = claim.part(goal, 1.0 / claim.most)
        choice = part.cheapest(left=tuple(map(add, self._spare, claim.choice[1])))[0] or part.choice(claim.choice[2])
        if part.lack(choice[2]):
            # To make room, other models change to other kinds of GPUs.
            effort = self._scarce.effort
            others = [each for each in self._claims if each is not claim and any(each.choice[1])]
            if effort > _PER_MODEL * len(others):
                parts, choices = [each.held for each in others], [each.choice for each in others]
                joint = Joint([*parts, part], [*choices, choice], self._scarce, 2 * _LEAN)
                joint.solve(effort - effort // _PER_RAISE)
                for each, found in zip(others, joint.choices, strict=False):
                    each.choice = found
                self._spare = self._scarce.left_by(each.choice for each in self._claims)
                choice = joint.choices[-1]
        enough = not part.lack(choice[2])
        if enough or not whole:
            left = tuple(map(add, self._spare, claim.choice[1]))
            # Slightly less than is covered, because rounding must not make these numbers too few.
            covered = goal - part.lack(choice[2]) - 1e-12 * claim.most
            if covered > claim.given:
                claim.given, claim.held = covered, claim.part(covered)
            claim.choice = claim.held.choice(choice[2])
            self._spare = tuple(map(sub, left, claim.choice[1]))
        return enough
