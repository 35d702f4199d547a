"""What the users of a model shall get: the objectives of the demand analyzer, and who asks for them.

Several places may ask for objectives of a model. For each of the three values the nearest place that has it counts:
annotations of its variants, an entry of the saturation ConfigMap for it, its service class, the ``default`` entries of
its namespace and of all namespaces. What tenants write counts only within the limit that the administrator sets. A
value beyond it is refused as a whole: a model must not get GPUs because somebody asked for what is not allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from wva.numbers import Real

TTFT_SECONDS: Final = Real(0.001, 3600.0)
ITL_SECONDS: Final = Real(0.001, 60.0)
IN_TIME: Final = Real(0.5, 0.999)
"""What may be asked for. Fewer late requests than one in a thousand cannot be told from chance."""
TTFT_MILLISECONDS: Final = Real(1000.0 * TTFT_SECONDS.minimum, 1000.0 * TTFT_SECONDS.maximum)
ITL_MILLISECONDS: Final = Real(1000.0 * ITL_SECONDS.minimum, 1000.0 * ITL_SECONDS.maximum)
"""The same, in the unit in which people write it."""


class Objectives(Struct, frozen=True, gc=False):
    """How quickly users shall be served, in seconds, and how many of them.

    ``ttft_seconds`` is the time to the first token, ``itl_seconds`` the mean time between the tokens of an answer.
    ``in_time`` is the share of requests that shall meet them.
    """

    ttft_seconds: float = 1.0
    itl_seconds: float = 0.1
    in_time: float = 0.99

    def in_words(self, ttft: str = "", itl: str = "", in_time: str = "") -> str:
        """Return all three for people, each with words after it."""
        first = f"first token within {time_in_words(self.ttft_seconds)}{ttft}"
        between = f"between tokens {time_in_words(self.itl_seconds)}{itl}"
        return f"{first}, {between}, in time {percent(self.in_time)}{in_time}"


DEFAULT_OBJECTIVES: Final = Objectives()
"""The objectives of a model for which nobody asks for any."""
TIGHTEST: Final = Objectives(0.1, 0.02, IN_TIME.maximum)
"""The tightest objectives that tenants may ask for if the administrator sets no limit."""


class AskedObjectives(Struct, frozen=True, gc=False):
    """The objectives that one place asks for, for a model; None where it asks for none.

    ``origin`` names the place, for people. ``tenant``: the place is in a namespace of workloads, so the limit for
    tenants holds.
    """

    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    in_time: float | None = None
    origin: str = ""
    tenant: bool = False

    @property
    def says(self) -> bool:
        """Whether it asks for any objective."""
        return (self.ttft_seconds, self.itl_seconds, self.in_time) != (None, None, None)


class RefusedObjective(NamedTuple):
    """An objective that is not allowed: the place that asks for it, and for people what is in force."""

    source: AskedObjectives
    words: str


class AgreedObjectives(Struct, frozen=True, gc=False):
    """The objectives in force.

    ``words`` say where they come from, for people; ``refused`` is what was asked for and is not allowed. Both are empty
    if nobody asked for any objective.
    """

    objectives: Objectives = DEFAULT_OBJECTIVES
    words: str = ""
    refused: tuple[RefusedObjective, ...] = ()


NOTHING_ASKED: Final = AgreedObjectives()
_FIELDS: Final = (
    ("ttft_seconds", "time to the first token", TTFT_SECONDS),
    ("itl_seconds", "time between tokens", ITL_SECONDS),
    ("in_time", "share in time", IN_TIME),
)


def agreed(levels: Sequence[Sequence[AskedObjectives]], tightest: Objectives = TIGHTEST) -> AgreedObjectives:
    """Return the objectives in force. For each of them the first of ``levels`` that asks for it counts.

    If those of one level differ, the tightest counts. ``tightest`` is the limit for tenants.
    """
    values, origins, refused = [], [], []
    for field, name, limits in _FIELDS:
        limit, share = float(getattr(tightest, field)), field == "in_time"
        formatted = percent if share else time_in_words
        value, origin = getattr(DEFAULT_OBJECTIVES, field), "built in"
        beyond = []
        for level in levels:
            pairs = [(wanted, source) for source in level if (wanted := getattr(source, field)) is not None]
            beyond += [pair for pair in pairs if pair[1].tenant and (pair[0] > limit if share else pair[0] < limit)]
            allowed = [pair for pair in pairs if pair not in beyond]
            if allowed:
                value, source = max(allowed, key=_value) if share else min(allowed, key=_value)
                differ = len({wanted for wanted, _ in allowed}) > 1
                origin = f"{source.origin}, the tightest of {len(allowed)}" if differ else source.origin
                break
        values.append(min(max(value, limits.minimum), limits.maximum))
        origins.append(origin)
        side = "at most" if share else "at least"
        for wanted, source in beyond:
            asked, expected = f"{source.origin}: got {name} {formatted(wanted)}", f"{side} {formatted(limit)}"
            in_force = f"in force: {formatted(values[-1])}"
            words = f"{asked}, expected {expected}, the tightest that a tenant may ask for; {in_force}"
            refused.append(RefusedObjective(source, words))
    objectives = Objectives(*values)
    return AgreedObjectives(objectives, objectives.in_words(*[f" ({origin})" for origin in origins]), tuple(refused))


def _value(pair: tuple[float, AskedObjectives]) -> float:
    return pair[0]


def percent(share: float) -> str:
    """Return ``99.9 %``."""
    return f"{100.0 * share:.4g} %"


def time_in_words(seconds: float) -> str:
    """Return ``3 s``, ``300 ms``."""
    return f"{seconds:.4g} s" if seconds >= 1.0 else f"{1000.0 * seconds:.4g} ms"
