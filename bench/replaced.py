"""Which objectives give the default analyzer what other analyzers have: ``python -m bench.replaced [SCENARIO ...]``.

The others are the queueing model, with each of its optimizers, and HYBRID mode. What they have in a scenario is in the
data of docs/scorecard.md. The default analyzer is tried with one setting after the other, on the same seeds, until it
has their share in time, less half a point, at no more than their cost. It prints Markdown tables: the settings that are
enough, and what no setting reaches. On two cores all scenarios take an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.sim.rivals.wva import WvaSetup, controllers
from wva.sim.scorecard.suites import SCENARIOS
from wva.sim.stage.run import play
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import StageController

DATA: Final = Path(__file__).parents[1] / "docs" / "scorecard-tables.json"
OTHERS: Final = ("wva-queueing", "wva-queueing-cost-aware", "wva-hybrid")
POINTS: Final = 0.005
_ROUNDED: Final = 0.005  # the data have costs with two digits


class TriedObjectives(NamedTuple):
    """Objectives: the share of requests in time, and both times as multiples of those of the scenario."""

    share: float = 0.99
    ttft: float = 1.0
    itl: float = 1.0

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.share:g}, {self.ttft:g} x TTFT, {self.itl:g} x ITL"


SETTINGS: Final = (
    *(TriedObjectives(itl=itl) for itl in (0.5, 0.4, 0.3)),
    *(TriedObjectives(0.999, 0.5, itl) for itl in (0.4, 0.3)),
    TriedObjectives(0.99, 0.5, 0.25),
    TriedObjectives(0.999, 0.25, 0.25),
    TriedObjectives(0.99, 0.5, 0.5),
    *(TriedObjectives(itl=itl) for itl in (0.45, 0.35)),
    TriedObjectives(0.95, itl=0.4),
    TriedObjectives(0.9, itl=0.5),
    TriedObjectives(itl=0.7),
    TriedObjectives(0.999, 0.25, 0.4),
    *(TriedObjectives(0.999, 0.1, itl) for itl in (0.5, 0.2)),
    TriedObjectives(0.99, 0.25),
    TriedObjectives(0.9),
    TriedObjectives(0.8, itl=0.3),
    TriedObjectives(0.5, 2.0),
    TriedObjectives(0.5, 5.0, 2.0),
    TriedObjectives(0.8, 2.0),
    TriedObjectives(0.5, 10.0, 5.0),
    TriedObjectives(0.9, 0.5, 0.3),
)
"""Beside what the data have of the default. Those that are enough most often come first."""


class ShareAndCost(NamedTuple):
    """The share in time, 0 to 1, and the cost over the ideal one."""

    share: float
    cost: float

    def __str__(self) -> str:
        """Return both as in a table."""
        return f"{self.share:.1%} at {self.cost:.2f}"

    def does_for(self, other: ShareAndCost) -> bool:
        """Return whether this is as good as another: its share, less half a point, at no more cost."""
        return self.share >= other.share - POINTS and self.cost <= other.cost + _ROUNDED


@dataclass
class Found:
    """What the settings gave in a scenario. ``enough`` has the setting for each analyzer for which there is one."""

    scenario: str
    others: Mapping[str, ShareAndCost]
    tried: dict[TriedObjectives, ShareAndCost] = field(default_factory=dict)
    enough: dict[str, TriedObjectives] = field(default_factory=dict)

    def take(self, setting: TriedObjectives, outcome: ShareAndCost) -> bool:
        """Note an outcome; return whether every analyzer has a setting now."""
        self.tried[setting] = outcome
        for name, other in self.others.items():
            if name not in self.enough and outcome.does_for(other):
                self.enough[name] = setting
        return len(self.enough) == len(self.others)

    def nearest(self, name: str) -> ShareAndCost:
        """Return the best share that costs no more than an analyzer's, or else the cheapest outcome."""
        cheap = [outcome for outcome in self.tried.values() if outcome.cost <= self.others[name].cost + _ROUNDED]
        return max(cheap) if cheap else min(self.tried.values(), key=lambda outcome: outcome.cost)


def searched(scenario: str, rows: Mapping[str, ShareAndCost], seeds: Sequence[int]) -> Found:
    """Try settings in a scenario until all other analyzers have one; ``rows`` has what the data have of policies."""
    found = Found(scenario, {name: rows[name] for name in OTHERS})
    if not found.take(TriedObjectives(), rows["wva"]):
        for setting in SETTINGS:
            if found.take(setting, played(scenario, setting, seeds)):
                break
    return found


def played(scenario: str, setting: TriedObjectives, seeds: Sequence[int]) -> ShareAndCost:
    """Run the default analyzer with a setting, once for each seed, and return the means."""
    setup = WvaSetup(Policy(saturation=SaturationPolicy(in_time=setting.share)))

    def asked(world: Scenario, _: int) -> list[StageController]:
        """Return controllers that know other objectives than the users of the scenario have."""
        true = world.objectives
        times = {"ttft_seconds": true.ttft_seconds * setting.ttft, "itl_seconds": true.itl_seconds * setting.itl}
        return controllers(setup, dataclasses.replace(world, objectives=replace(true, **times)))

    figures = [play(SCENARIOS[scenario], "wva", seed, asked).figures for seed in seeds]
    shares, costs = [each.attainment for each in figures], [each.cost / each.ideal_cost for each in figures]
    return ShareAndCost(statistics.fmean(shares), statistics.fmean(costs))


def main(words: Sequence[str]) -> None:
    """Print both tables."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    rows = {
        each["name"]: {row["policy"]: ShareAndCost(row["in_time"], row["cost"]) for row in each["rows"]}
        for each in data["scenarios"]
    }
    seeds = {each["name"]: data["seed_numbers"][: each["seeds"]] for each in data["scenarios"]}
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("scenarios", nargs="*", default=[name for name in rows if "wva" in rows[name]])
    asked = parser.parse_args(words)
    names = [name.removeprefix("wva-") for name in OTHERS]
    print(f"| Scenario | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    outcomes = []
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        tables, runs = (rows[name] for name in asked.scenarios), (seeds[name] for name in asked.scenarios)
        for found in pool.map(searched, asked.scenarios, tables, runs):
            cells = (str(found.enough.get(name, "none")) for name in OTHERS)
            print(f"| `{found.scenario}` | {' | '.join(cells)} |", flush=True)
            outcomes.append(found)
    print("\n| Scenario | Analyzer | It has | The default analyzer has at most |\n|---|---|---|---|")
    for found, name in ((found, name) for found in outcomes for name in OTHERS if name not in found.enough):
        short = name.removeprefix("wva-")
        print(f"| `{found.scenario}` | {short} | {found.others[name]} | {found.nearest(name)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
