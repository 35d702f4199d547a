"""Which parameters a variant is sized with: known ones of its model and accelerator, or learned ones.

Learned parameters belong to a model on an accelerator with a number of GPUs per replica. A variant without an
accelerator learns for itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from wva.decide.analyze.queueing_readings import ModelReading, VariantReading
from wva.decide.queueing.candidates import derived_batch
from wva.decide.queueing.estimation import estimate
from wva.decide.queueing.observation import usable
from wva.decide.queueing.service import IterationTime, Parameters, PrefillDecode
from wva.decide.queueing.system import Profile
from wva.model.capacity import CapacityBasis
from wva.model.policy import Policy, QueueingPolicy
from wva.model.queueing import Estimate, Learned, Observation, QueueingMemory
from wva.model.service import PerformanceProfile
from wva.model.variant import Variant, VariantKey

DEFAULT_BATCH: Final = 256
"""Requests at once where no setting says (vLLM's own default)."""

FIRM_OBSERVATIONS: Final = 3
FIRM_ERROR: Final = 0.3
"""From so many observations on, explained to so many percent, learned parameters are preferred to known ones."""

FIT_STATES: Final = 1 << 16
"""States of all queues that are fitted in one cycle; the fit goes on in the next cycle where this one stopped."""

STEADY_SHARE: Final = 0.1
"""A queue that changes by more than this share of the traffic is not in a steady state, and teaches nothing."""


@dataclass(frozen=True, slots=True)
class Known:
    """Parameters of a replica, its batch, where they come from, and whether they can carry a shrink."""

    parameters: Parameters
    batch: int
    at_tokens: int
    words: str
    firm: bool
    basis: CapacityBasis

    def batch_for(self, output_tokens: float) -> int:
        """Return the largest batch for answers of a mean length."""
        return derived_batch(Profile("", "", self.parameters, self.batch, self.at_tokens), output_tokens)


def key_of(reading: VariantReading) -> VariantKey:
    """Return the variant that a reading is of."""
    return reading.progress.variant.key


def known_parameters(reading: VariantReading, *, policy: Policy, memory: QueueingMemory, tuned: bool) -> Known | None:
    """Return the parameters of a variant, None when none are known. ``tuned``: learned parameters may be preferred."""
    variant = reading.progress.variant
    profile = policy.profile_for(variant.model.model_id, variant.accelerator)
    learned = memory.of(variant.model, _kind(variant))
    firm = _firm(learned)
    if learned.estimate is not None and (profile is None or (tuned and firm)):
        return _estimated(learned, learned.estimate, _batch(variant, profile), firm=firm)
    if profile is None:
        return None
    parameters = PrefillDecode(profile.alpha, profile.beta, profile.gamma, profile.delta)
    if parameters.problem():
        return None
    at_tokens = profile.at_tokens if profile.max_batch_size > 0 else 0
    return Known(
        parameters, _batch(variant, profile), at_tokens, "known parameters", firm=True, basis=CapacityBasis.DERIVED
    )


def learn(
    readings: Sequence[ModelReading],
    settings: Sequence[QueueingPolicy],
    *,
    policy: Policy,
    memory: QueueingMemory,
    now: float,
) -> list[Learned]:
    """Return what is known of every kind of replica that was observed in this cycle, fitted again in turn."""
    found: dict[tuple[str, str, str], Learned] = {}
    for reading, setting in zip(readings, settings, strict=True):
        if not setting.tuning_enabled or not _steady(reading):
            continue
        for variant in reading.variants:
            seen = _observation(variant, policy, now)
            if seen is None:
                continue
            kind = _kind(variant.progress.variant)
            place = (reading.key.namespace, reading.key.model_id, kind)
            found[place] = found.get(place, memory.of(reading.key, kind)).observing([seen], now=now)
    learned = [found[place] for place in sorted(found)]
    turn = _turn(learned)
    estimates = estimate([each.observations for each in turn], [each.estimate for each in turn])
    fitted = {
        (each.model, each.accelerator): replace(each, estimate=None if new is None else replace(new, fitted=now))
        for each, new in zip(turn, estimates, strict=True)
    }
    return [fitted.get((each.model, each.accelerator), each) for each in learned]


def _turn(learned: Sequence[Learned]) -> list[Learned]:
    """Return whose turn it is to be fitted: those never fitted, then those fitted longest ago, within the budget."""
    waiting = sorted(learned, key=lambda each: -math.inf if each.estimate is None else each.estimate.fitted)
    costs = accumulate(sum(seen.batch for seen in each.observations) for each in waiting)
    return [
        each for number, (each, cost) in enumerate(zip(waiting, costs, strict=True)) if not number or cost <= FIT_STATES
    ]


def _steady(reading: ModelReading) -> bool:
    growth = reading.growth
    return growth is not None and abs(growth) <= STEADY_SHARE * reading.answered


def _observation(reading: VariantReading, policy: Policy, now: float) -> Observation | None:
    """Return what a replica of a settled variant did, None where it cannot teach anything."""
    traffic = reading.per_replica
    if traffic is None or not reading.settled:
        return None
    variant = reading.progress.variant
    profile = policy.profile_for(variant.model.model_id, variant.accelerator)
    seen = Observation(
        now,
        traffic.rate,
        traffic.input_tokens,
        traffic.output_tokens,
        traffic.ttft,
        traffic.itl,
        _batch(variant, profile),
    )
    return seen if usable(seen) else None


def _kind(variant: Variant) -> str:
    """Return under which name the parameters of a variant's replicas are kept."""
    name = variant.accelerator or f"unknown/{variant.key.name}"
    return name if variant.gpus_per_replica <= 1 else f"{name}*{variant.gpus_per_replica}"


def _firm(learned: Learned) -> bool:
    estimate = learned.estimate
    enough = len(learned.observations) >= FIRM_OBSERVATIONS
    return estimate is not None and enough and estimate.error <= FIRM_ERROR


def _estimated(learned: Learned, found: Estimate, batch: int, *, firm: bool) -> Known:
    words = f"learned from {len(learned.observations)} observations, error {found.error:.0%}"
    basis = CapacityBasis.OBSERVED if firm else CapacityBasis.HISTORY
    return Known(IterationTime(found.alpha, found.beta, found.gamma), batch, 0, words, firm, basis)


def _batch(variant: Variant, profile: PerformanceProfile | None) -> int:
    if profile is not None and profile.max_batch_size > 0:
        return profile.max_batch_size
    if variant.parameters is not None and variant.parameters.max_num_seqs > 0:
        return variant.parameters.max_num_seqs
    return DEFAULT_BATCH
