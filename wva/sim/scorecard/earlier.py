"""The results of the first comparison, which was made before the scorecard, for a table beside the present ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wva.sim.scorecard import shown
from wva.sim.scorecard.card import Card, ScenarioCard

POLICIES: Final = ("wva", "hpa-inflight-tuned", "hpa-kv", "static-peak", "wva-queueing")

FIGURES: Final = {
    "sine": ("99.9% at 1.10", "99.9% at 1.01", "100% at 1.23", "100% at 1.57", "60%"),
    "step": ("87.8% at 1.33", "93.4% at 1.18", "96.7% at 1.65", "100% at 1.64", "36%"),
    "bursts": ("58% at 2.09", "52% to 79% at 2.2 to 5", "80% at 4.9", "100% at 1.64", "30%"),
    "slow-ramp": ("99.9% at 1.11", "99.9% at 1.02", "99.9% at 1.19", "100% at 1.63", "62%"),
    "slow-pods": ("86.6% at 1.34", "87.4% at 1.30", "90.6% at 2.1", "100% at 1.25", "74%"),
}
"""By scenario: share of requests with their first token within 1 s, and cost, of each of ``POLICIES``."""

DIFFERENCES: Final = (
    "The columns differ by the engines and the users. The first comparison, and the scenarios first-..., have the "
    "illustrative engines of the demo: their steps do not get longer with the context, and their KV cache fills before "
    "their computing is used up. Users wait for their first token without end and never try again. The other scenarios "
    "have engines derived from data sheets, whose computing is used up at a low usage of the KV cache, and users who "
    "give up. What is left between the first two columns has other causes. In the first comparison a pod that ended "
    "handed its queue back; scrapes, cycles and HPAs looked at the same moments, and the metrics adapter had no delay; "
    "rates and times were of the same kinds, and not the same."
)
"""Why the figures differ."""


def rows(card: Card) -> Iterator[tuple[str, ...]]:
    """Yield a row for each figure of the first comparison for which a scenario of its kind ran now."""
    parts = {part.scenario.name: part for part in card.parts}
    for name, figures in FIGURES.items():
        for policy, then in zip(POLICIES, figures, strict=True):
            now = [_now(parts.get(scenario), policy) for scenario in (f"first-{name}", name)]
            if any(now):
                yield (name, policy, then, *(figure or shown.NONE for figure in now))


def _now(part: ScenarioCard | None, policy: str) -> str | None:
    cell = None if part is None else part.cell(policy)
    if cell is None:
        return None
    share, cost = cell.figures["ttft_attainment"], cell.figures["cost_ratio"]
    return (
        f"{shown.share(share.mean)}{shown.interval(share, shown.COLUMNS[0])} at "
        f"{cost.mean:.2f}{shown.interval(cost, shown.COLUMNS[1])}"
    )
