"""A comparison made before the scorecard existed, to lay beside what the same kinds of scenarios show now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wva.sim.scorecard import shown
from wva.sim.scorecard.card import Card, Part

POLICIES: Final = ("wva", "hpa-inflight-tuned", "hpa-kv", "static-peak", "wva-queueing")

FIGURES: Final = {
    "sine": ("99.9% at 1.10", "99.9% at 1.01", "100% at 1.23", "100% at 1.57", "60%"),
    "step": ("87.8% at 1.33", "93.4% at 1.18", "96.7% at 1.65", "100% at 1.64", "36%"),
    "bursts": ("58% at 2.09", "52% to 79% at 2.2 to 5", "80% at 4.9", "100% at 1.64", "30%"),
    "slow-ramp": ("99.9% at 1.11", "99.9% at 1.02", "99.9% at 1.19", "100% at 1.63", "62%"),
    "slow-pods": ("86.6% at 1.34", "87.4% at 1.30", "90.6% at 2.1", "100% at 1.25", "74%"),
}
"""By scenario: share of requests with their first token within 1 s, and cost, of each of ``POLICIES``."""

DIFFERENCES: Final = """\
Where the figures differ, these differences between the worlds come into question. In the first one

- the engines were those of the demo, and the time of a step did not grow with the context,
- users waited for their first token without end and did not try again, so that a queue was longer and later requests
  were late with it,
- the gateway always knew the least loaded replica, also in the seconds after a change,
- a pod that ended handed its queue back,
- scrapes, cycles and HPAs looked at the same moments, and the metrics adapter had no delay,
- the scenarios were of the same kinds, and not the same: rates, times and the two variants' speeds differ.
"""


def rows(card: Card) -> Iterator[tuple[str, ...]]:
    """Yield a row for each figure of the first comparison whose scenario and policy ran now."""
    for part in card.parts:
        for policy, earlier in zip(POLICIES, FIGURES.get(part.scenario.name, ()), strict=False):
            now = _now(part, policy)
            if now is not None:
                yield (part.scenario.name, policy, earlier, now)


def _now(part: Part, policy: str) -> str | None:
    cell = part.cell(policy)
    if cell is None:
        return None
    share, cost = cell.figures["ttft_attainment"], cell.figures["cost_ratio"]
    return (
        f"{shown.share(share.mean)}{shown.interval(share, shown.COLUMNS[0])} at "
        f"{cost.mean:.2f}{shown.interval(cost, shown.COLUMNS[1])}"
    )
