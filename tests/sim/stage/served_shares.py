"""The share in time as the pages of the engines tell it, beside what the users of the stage really got.

docs/objectives.md has the table of it, which ``python -m tests.sim.stage.served_shares`` prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wva.collect.in_time import ITL_BOUNDS, TTFT_BOUNDS, judged_at, served
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.records import replace
from wva.prometheus.answers import InstantSeries, Labels
from wva.sim.fleet import counters
from wva.sim.fleet.columns import SERVED
from wva.sim.fleet.engine import EngineSample, sample
from wva.sim.rivals.registry import POLICIES
from wva.sim.scorecard.suites import SCENARIOS, SUITES
from wva.sim.stage.world import StageWorld

NAMES = SUITES["full"]
FIRST_TOKENS = (0.3, 1.0, 3.0, 10.0)
_HISTOGRAMS = {
    "first": (counters.TIME_TO_FIRST_TOKEN, TTFT_BOUNDS),
    "between": (counters.TIME_PER_OUTPUT_TOKEN, ITL_BOUNDS),
}


class SharesInTime(NamedTuple):
    """Shares in time of one scenario at one objective: of all users, by the page, and of all users at its bound."""

    first_token_seconds: float
    truth: float
    page: float
    at_bound: float
    """Of all users, by the bound that the objective is judged at."""


class PagedWorld(StageWorld):
    """A stage that keeps the last page of each replica that was scraped, as Prometheus does."""

    def __init__(self, *arguments, **rest):
        """Have no page yet."""
        self.pages: dict[str, EngineSample] = {}
        super().__init__(*arguments, **rest)

    def _scrape(self, replica, at):
        super()._scrape(replica, at)
        if replica.scrapes[-1].values:
            self.pages[replica.name] = sample(self.service.columns, self.service.handle, replica.row)


def _by_page(pages: dict[str, EngineSample], objectives: Objectives) -> float:
    """Return the share that WVA would publish over the whole run."""
    series = []
    for signal, (row, bounds) in _HISTOGRAMS.items():
        for page in pages.values():
            histogram = page.histograms[row]
            assert set(bounds) <= set(histogram.bounds)
            for bound, count in zip((*histogram.bounds, None), histogram.cumulative, strict=True):
                le = "+Inf" if bound is None else f"{bound:g}"
                series.append(InstantSeries(Labels(signal=f"{signal}_1h", le=le), (0.0, str(count))))
    return served(series, objectives)["1h"].share


def _by_users(world: StageWorld, objectives: Objectives) -> float:
    """Return the same share of the users: the smaller one of those within each objective, of everybody who came."""
    columns = world.service.columns
    own = slice(world.traffic.count)  # where there are roles, the rows behind those of the requests are for prompts
    arrival, first, finish, length = (
        np.asarray(getattr(columns, name)[own], dtype=np.float64) for name in ("arrival", "first", "finish", "length")
    )
    answered = np.asarray(columns.state[own]) == SERVED
    with np.errstate(invalid="ignore"):
        soon = answered & (first - arrival <= objectives.ttft_seconds)
        fluent = answered & ((finish - first) / np.maximum(length - 1, 1) <= objectives.itl_seconds)
    return float(min(soon.mean(), fluent.mean()))


def shares(name: str) -> Iterator[SharesInTime]:
    """Yield the shares of a scenario, at each objective, with the fleet that WVA has by default."""
    scenario = SCENARIOS[name]
    world = PagedWorld(scenario, seed=1)
    world.run(POLICIES["wva"](scenario, 1))
    for seconds in FIRST_TOKENS:
        objectives = replace(DEFAULT_OBJECTIVES, ttft_seconds=seconds)
        bound = judged_at(seconds, TTFT_BOUNDS)
        assert bound is not None
        yield SharesInTime(
            seconds,
            truth=_by_users(world, objectives),
            page=_by_page(world.pages, objectives),
            at_bound=_by_users(world, replace(objectives, ttft_seconds=bound)),
        )


def row(name: str, found: Sequence[SharesInTime]) -> str:
    """Return a row of the table: the users in time within 1 s, and how far the page is off at each objective."""
    truth = next(each.truth for each in found if each.first_token_seconds == 1.0)
    points = [round(100 * (each.page - each.truth), 1) + 0.0 for each in found]  # never -0.0
    return f"| `{name}` | {100 * truth:.1f} % | {' | '.join(f'{each:+.1f}' for each in points)} |"


if __name__ == "__main__":
    for each in NAMES:
        sys.stdout.write(f"{row(each, list(shares(each)))}\n")
