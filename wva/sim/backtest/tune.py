"""Tries thresholds on a fitted scenario, and finds the best ones.

There are two rounds: thresholds with the interval and the HPA's window that are in force, then intervals and windows
with the best thresholds. A choice is worth looking at when no other serves as many requests in time at a lower cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.sim.rivals.wva import WvaSetup
from wva.sim.scorecard.card import Card, Cell

DEFAULT: Final = "wva"
"""The policy name of the controller's defaults."""

_KV_THRESHOLDS: Final = (0.7, 0.8, 0.9)
_KV_TRIGGERS: Final = (0.05, 0.1, 0.2, 0.3)
_QUEUE_TRIGGERS: Final = (1.0, 3.0)
_INTERVALS: Final = (15.0, 30.0, 60.0)
_WINDOWS: Final = (60.0, 120.0, 300.0, 600.0)
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of thresholds by name, and the setup that has them."""

    name: str
    setup: WvaSetup

    @property
    def saturation(self) -> SaturationPolicy:
        """Its thresholds."""
        return self.setup.policy.saturation

    def entry(self) -> str:
        """Return the ConfigMap to paste."""
        saturation = self.saturation
        return "\n".join(
            (
                "apiVersion: v1",
                "kind: ConfigMap",
                "metadata:",
                "  name: wva-saturation-scaling-config",
                "data:",
                "  default: |",
                "    analyzerName: percentage",
                f"    kvCacheThreshold: {saturation.kv_cache_threshold:g}",
                f"    queueLengthThreshold: {saturation.queue_length_threshold:g}",
                f"    kvSpareTrigger: {saturation.kv_spare_trigger:g}",
                f"    queueSpareTrigger: {saturation.queue_spare_trigger:g}",
            )
        )


def thresholds(base: WvaSetup) -> list[Choice]:
    """Return the choices of the first round."""
    choices = []
    for threshold, trigger, queue in product(_KV_THRESHOLDS, _KV_TRIGGERS, _QUEUE_TRIGGERS):
        saturation = SaturationPolicy(
            kv_cache_threshold=threshold,
            kv_spare_trigger=trigger,
            queue_spare_trigger=queue,
            analyzer_name=Analyzer.PERCENTAGE,
        )
        choices.append(_choice(replace(base, policy=Policy(saturation=saturation))))
    return choices


def timings(best: Sequence[Choice]) -> list[Choice]:
    """Return the choices of the second round: other intervals and windows for some of the first."""
    return [
        _choice(replace(choice.setup, interval_seconds=interval, down_seconds=window))
        for choice, interval, window in product(best, _INTERVALS, _WINDOWS)
    ]


def pareto(card: Card) -> tuple[Cell, ...]:
    """Return the policies that no other beats in both share and cost, the cheapest first."""
    (part,) = card.parts
    front: list[Cell] = []
    for cell in sorted(part.cells, key=lambda cell: (_cost(cell), -cell.attainment)):
        if not front or cell.attainment > front[-1].attainment + _SAME:
            front.append(cell)
    return tuple(front)


def only(card: Card, names: Collection[str]) -> Card:
    """Return a scorecard with these policies alone."""
    (part,) = card.parts
    cells = tuple(cell for cell in part.cells if cell.policy in names)
    timelines = {name: timeline for name, timeline in part.timelines.items() if name in names}
    return replace(card, parts=(replace(part, cells=cells, timelines=timelines),))


def frontier(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table of the best choices."""
    yield "## Worth choosing from"
    yield ""
    yield "Each serves more requests in time than all that cost less. A name tells K (`kvCacheThreshold`), k"
    yield "(`kvSpareTrigger`), q (`queueSpareTrigger`), the interval, and the window of the HPA."
    yield ""
    yield "| choice | in time | cost | replicas | turns |"
    yield "|---|---|---|---|---|"
    for cell in cells:
        figures = cell.figures
        yield (
            f"| {cell.policy} | {cell.attainment:.2%} | {_cost(cell):,.1f} | {figures['mean_replicas'].mean:.1f} | "
            f"{figures['reversals'].mean:.0f} |"
        )
    yield ""


def proposal(choice: Choice, cell: Cell, default: Cell | None) -> Iterator[str]:
    """Yield the lines with the settings and their result."""
    setup = choice.setup
    yield "## Proposed"
    yield ""
    yield "```yaml"
    yield choice.entry()
    yield "```"
    yield ""
    yield f"- cycles every {setup.interval_seconds:g} s (`GLOBAL_OPT_INTERVAL`)"
    yield f"- HPA: `scaleDown.stabilizationWindowSeconds: {setup.down_seconds:g}`"
    yield f"- it would have cost {_cost(cell):,.1f} and served {cell.attainment:.1%} of the requests in time"
    if default is not None:
        yield f"- the defaults would have cost {_cost(default):,.1f} and served {default.attainment:.1%}"
    yield ""


def _choice(setup: WvaSetup) -> Choice:
    saturation = setup.policy.saturation
    name = (
        f"K{saturation.kv_cache_threshold:g}-k{saturation.kv_spare_trigger:g}-q{saturation.queue_spare_trigger:g}"
        f"-{setup.interval_seconds:g}s-{setup.down_seconds:g}s"
    )
    return Choice(name, setup)


def _cost(cell: Cell) -> float:
    return cell.figures["cost"].mean
