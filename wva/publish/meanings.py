"""What a reason means, in a sentence: one table for the console and the documentation.

A reason that is an obstacle has its sentence in the table of obstacles. Here are those of the other decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wva.model.decision import Reason
from wva.publish.obstacles import OBSTACLES

_OF_DECISIONS: Final[Mapping[Reason, str]] = {
    Reason.SCALE_UP: "The model is saturated, and this variant gets more replicas.",
    Reason.SCALE_DOWN: "The load fits on fewer replicas, and this variant gives one back.",
    Reason.STEADY: "The number is right.",
    Reason.SIBLING_GROWS: "Another variant of the model grows.",
    Reason.SIBLING_SHRINKS: "Another variant of the model shrinks.",
    Reason.REPLICAS_PENDING: "Replicas of this variant are starting. They count as idle.",
    Reason.PENDING_SUFFICES: "Replicas of another variant are starting, and they will be enough.",
    Reason.GROWTH_SETTLING: "The controller waits until the last growth shows in the measurements.",
    Reason.SHRINK_UNFINISHED: "The smaller number stands. The scaler has not applied it yet.",
    Reason.SHRINK_WITHDRAWN: "A smaller number that had begun is not justified any more.",
    Reason.GROWTH_WITHDRAWN: "A larger number that had begun is not justified any more.",
    Reason.SHRINK_UNSAFE: "There is room, but not enough for one replica less.",
    Reason.SHRINK_STABILIZED: "One replica less would carry the present demand, but replicas stay for some time. "
    "The message says why, and for how long.",
    Reason.IDLE: "The model had no request during its retention period and may go to zero.",
    Reason.MODEL_MINIMUM: "Only with `compatibility: v0.5`: the model may not go to zero, so its cheapest variant "
    "keeps one replica.",
    Reason.SCALE_FROM_ZERO: "The variant was started because requests wait at the gateway.",
    Reason.INACTIVE: "The target has zero replicas.",
    Reason.NOT_DECIDED: "The first cycle has not run yet.",
    Reason.COMPATIBILITY: "Decided with `compatibility: v0.5`.",
    Reason.MODEL_BASED: "Only in recordings of older versions: HYBRID mode decided.",
    Reason.SAFETY_OVERRIDE: "Only in recordings of older versions: HYBRID mode decided, and saturation overruled it.",
}

MEANINGS_OF_REASONS: Final[Mapping[str, str]] = {
    **{str(reason): meaning for reason, meaning in _OF_DECISIONS.items()},
    **{obstacle.reason: obstacle.meaning for obstacle in OBSTACLES},
}
"""The sentence of each reason of a decision, and of each reason with which a condition says that something is wrong."""
