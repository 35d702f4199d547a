"""What the users of a model got: the share of its requests that were served within the objectives.

A request is in time if its first token came within the objective, and if the mean time between its tokens was within
it. The engines count the two apart, so the share is the smaller one of the two. A request that was refused, or aborted
before its first token, is late. Without requests there is no share.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from msgspec import Struct

from wva.model.objectives import Objectives, percent
from wva.model.roles import DECODE, PREFILL, computes
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import ModelKey, VariantKey

WINDOWS: Final = ("5m", "1h")
"""The times of ``InTime``, in the spelling of Prometheus."""
NOT_MEASURED: Final = Trouble("NotMeasured", "it is not known what users got within the last hour", known=False)
"""There were no requests, Prometheus gave no answer, or the engines lack a histogram."""

LATELY: Final = "2m"
LATELY_SECONDS: Final = 120.0
"""The time of ``ServedLately``."""

_BEYOND_CHANCE = 3.0
"""So many standard deviations more late requests than allowed are no chance: a model with ten requests an hour that
serves one of them late has not missed 99 %."""


def by_chance(allowed: float) -> float:
    """Return how many late requests beyond the allowed ones may still be chance."""
    return _BEYOND_CHANCE * sqrt(allowed)


class ServedShare(Struct, frozen=True, gc=False):
    """The requests within a window of time, and the share of them (0 to 1) that was in time."""

    requests: float
    share: float

    def below(self, wanted: float) -> bool:
        """Tell whether more requests were late than the wanted share in time allows, by more than chance."""
        allowed = self.requests * (1.0 - wanted)
        return self.requests * (1.0 - self.share) > allowed + by_chance(allowed)


class ServedLately(Struct, frozen=True, gc=False):
    """What the users of a model got in the ``LATELY_SECONDS`` before ``at`` (seconds since the epoch).

    ``requests`` is how many there were, ``first`` the share of them (0 to 1) whose first token was in time, and
    ``between`` the share whose mean time between tokens was.
    """

    model: ModelKey
    at: float
    requests: float
    first: float
    between: float

    def of(self, role: str) -> ServedShare:
        """Return the share that was in time of what pods of a role compute: prompts, answers, or both."""
        first = self.first if computes(role, PREFILL) else 1.0
        return ServedShare(self.requests, min(first, self.between) if computes(role, DECODE) else first)


class InTime(Struct, frozen=True, gc=False):
    """What the users of a model got, within the last five minutes and the last hour; None without a request.

    ``objectives`` are those that the requests were judged by. ``first`` is the first variant of the model: what WVA
    publishes once for a model is published with this one.
    """

    objectives: Objectives
    first: VariantKey
    five_minutes: ServedShare | None = None
    hour: ServedShare | None = None

    @property
    def missed(self) -> bool:
        """Whether the objectives were not met within the hour, and are not now.

        After a bad time the share of the last hour stays low for up to an hour, although the model serves everybody in
        time again.
        """
        wanted, now, lately = self.objectives.in_time, self.five_minutes, self.hour
        return now is not None and lately is not None and now.share < wanted and lately.below(wanted)

    @property
    def words(self) -> str:
        """The shares for people, empty without any."""
        shares = ((self.five_minutes, "5 minutes"), (self.hour, "hour"))
        parts = [
            f"{percent(served.share)} of {served.requests:.0f} in the last {span}" for served, span in shares if served
        ]
        return f"requests in time: {', '.join(parts)}" if parts else ""

    @property
    def trouble(self) -> Trouble:
        """What a condition says about these shares."""
        if self.missed:
            return Trouble(TroubleReason.OBJECTIVE_MISSED, f"{self.words}; expected: {self.objectives.in_words()}")
        return NOT_MEASURED if self.hour is None else UNTROUBLED
