"""3.7 Shrinks on trial: replicas that carry less alone than they seemed to while others served beside them.

What a replica carries can depend on how many there are. Where requests share prefixes, fewer replicas find fewer of
them in their caches, and compute more. So a fleet that seems enough can be too small as soon as the others have gone;
the model grows, seems to have too many replicas, and shrinks again. So after a shrink WVA remembers for a while what
the smaller fleet seemed to carry. If it carries less than that, and less than a demand that it seemed to carry, WVA
regrets the shrink: for an hour no shrink leaves so few replicas again, unless they seem to carry much more of the
demand than they did then. Each time that WVA regrets the shrink again, this lasts twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wva.decide.measure.need import Need
from wva.model.memory import Foresight, Regret, ShrinkTrial
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey

_TRIAL_SECONDS: Final = 900.0
_LESS: Final = 0.75
"""A fleet carries less than was believed if it carries less than this share of it."""
_ALIKE: Final = 0.7
"""Replicas that seem to carry much more of the demand than when they were regretted may be left alone."""
_REGRET_SECONDS: Final = 3600.0
_LONGEST_SECONDS: Final = 6 * 3600.0
_MORE: Final = 1.0 + 1e-6
WORDS: Final = "with fewer replicas each of them carried less than it seemed"

Numbers = tuple[tuple[VariantKey, int], ...]
"""Replicas by variant, sorted."""
Carries = Callable[[Mapping[VariantKey, int]], float]


def asked_for(variants: Sequence[Variant]) -> Numbers:
    """Return the replicas that the variants of a model are asked for."""
    asked = [
        (variant.key, variant.spec_replicas if variant.status_desired is None else variant.status_desired)
        for variant in variants
    ]
    return tuple(sorted(asked))


def tried(
    memory: Foresight, asked: Numbers, *, demand: float, carries: Carries, now: float
) -> tuple[ShrinkTrial | None, Regret | None]:
    """Return the shrink that is on trial after this cycle, and the one that is regretted."""
    trial, regret = memory.trial, memory.regret
    if trial is not None and now - trial.at >= _TRIAL_SECONDS:
        trial = None
    if trial is not None:
        carried = carries(dict(trial.numbers))
        if carried < demand <= trial.carries and carried < _LESS * trial.carries:
            room, times = trial.carries / demand, 1
            if regret is not None and _within(trial.numbers, regret.numbers):
                room, times = max(room, regret.room), regret.times + 1
            regret, trial = Regret(trial.numbers, room, now, times), None
    if memory.asked and asked != memory.asked and _within(asked, memory.asked):
        trial = ShrinkTrial(asked, now, carries(dict(asked)))
    return trial, regret


def regretting(need: Need, regret: Regret | None, now: float) -> Need:
    """Return a need whose shrinks leave more than the replicas of a regretted shrink, while the regret is in force."""
    if regret is None or need.rate is None:
        return need
    if now - regret.at >= min(_LONGEST_SECONDS, _REGRET_SECONDS * 2.0 ** (regret.times - 1)):
        return need
    carried = need.carried(dict(regret.numbers))
    least = _MORE * carried
    if least <= need.sufficient or _ALIKE * carried > regret.room * need.demand:
        return need
    stays = need.rate.stays or ((need.sufficient, ""),)
    return replace(need, sufficient=least, rate=replace(need.rate, stays=(*stays, (least, WORDS))))


def _within(numbers: Numbers, others: Numbers) -> bool:
    """Tell whether no variant has more replicas in ``numbers`` than in ``others``."""
    other_counts = dict(others)
    return all(count <= other_counts.get(key, 0) for key, count in numbers)
