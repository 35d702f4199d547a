"""What scenarios see of the numbers by which the engine looks ahead: each taken away, halved, and doubled.

``python -m bench.constants`` prints Markdown tables for docs/design/engine.md; arguments are seeds (default: 61). Most
numbers are tried in the short scenarios: on two cores a seed takes about ten minutes. What is learned from the share in
time takes long scenarios, in which the replicas of the model are too few (``LONG``): ``1 --module served``.

With ``--learners`` no number is another one, but each part that learns is off in turn, in the suite ``learning`` and in
scenarios where users get less than was planned.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from math import inf
from multiprocessing import get_context
from types import ModuleType
from typing import Any, Final

from wva.model.variant import Variant, VariantKey
from wva.sim import rivals
from wva.sim.scorecard.suites import SCENARIOS, SUITES

MODULES: Final = ("foresee", "pace", "warm", "wants", "progress", "served", "regret")
FACTORS: Final = (0.5, 2.0)
LONG: Final[Mapping[str, Sequence[str]]] = {
    "served": ("step", "random-routing-step", "stale-routing", "half-speed", "agents", "conversation-3s"),
    "regret": ("agents",),
}
"""The scenarios of modules that do nothing in the short ones."""
ABSENT: Final[Mapping[str, float]] = {
    "_SETTLED_SECONDS": 0.0,
    "_RISEN": inf,
    "_RISE_SECONDS": 0.0,
    "_LEAST_STEP": 0.0,
    "_LARGEST_STEP": inf,
    "_MOST": inf,
    "_HOLD_SECONDS": 0.0,
    "_LOWER_STEP": 0.0,
    "_KEPT": 0.0,
    "_JUDGED": inf,
    "_WORTHWHILE": 0.0,
    "_VAIN_SECONDS": 0.0,
    "_UNSEEN_SECONDS": 0.0,
    "_OTHER": inf,
    "_TRIAL_SECONDS": 0.0,
    "_LESS": 0.0,
    "_ALIKE": 0.0,
    "_REGRET_SECONDS": 0.0,
    "_LONGEST_SECONDS": inf,
    "_MORE": 1.0,
}
"""The value with which a number of ``LONG`` has no say."""
_BEYOND_ONE: Final = ("_RISEN", "_JUDGED", "_OTHER", "_MORE")

LEARNING: Final = ("step", "two-models", "low-traffic", "drain", "agents", "stale-routing", "half-speed")
"""The scenarios of ``--learners``, beside the suite of what can be learned."""

Runs = Mapping[tuple[str, int], tuple[float, float]]
"""The share in time and the cost of each scenario with each seed."""


@dataclass(frozen=True)
class Trial:
    """A constant with another value; without a name nothing is other than it is."""

    module: str = ""
    name: str = ""
    value: Any = None


def main(words: list[str]) -> None:
    """Print a table for each set of scenarios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--module", nargs="+", choices=MODULES, default=[each for each in MODULES if each not in LONG])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--learners", action="store_true")
    parser.add_argument("seeds", nargs="*", type=int, default=[61])
    asked = parser.parse_args(words)
    if asked.learners:
        _tell_learners([*SUITES["learning"], *LEARNING], asked.seeds, asked.jobs)
        return
    short = [module for module in asked.module if module not in LONG]
    for modules in [short, *([module] for module in asked.module if module in LONG)]:
        if modules:
            _tell(modules, LONG.get(modules[0], SUITES["quick"]), asked.seeds, asked.jobs)


def _tell(modules: Sequence[str], scenarios: Sequence[str], seeds: Sequence[int], jobs: int) -> None:
    """Print the table of some modules. Numbers that the runs do not see come below it."""
    trials = {found: [Trial(*found, value) for value in values(*found)] for found in constants(modules)}
    each = [Trial(), *(trial for row in trials.values() for trial in row)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        results = dict(zip(each, pool.map(play, each, repeat(scenarios), repeat(seeds)), strict=True))
    base = results[Trial()]
    heads = (["Taken away"] if modules[0] in LONG else []) + ["Halved", "Doubled"]
    print(f"| Constant | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    unseen = []
    for (module, name), row in trials.items():
        cells = [difference(base, results[trial]) for trial in row]
        if any(cells):
            print(f"| `{module}.{name}` | {' | '.join(cell or '-' for cell in cells)} |", flush=True)
        else:
            unseen.append(f"`{module}.{name}`")
    print(f"\nOf {len(base)} runs none changes with {', '.join(unseen)}.")


def _nothing_learned(before: Any, *_: Any, **__: Any) -> Any:
    """Stand in for what changes a memory or a need: return it as it was."""
    return before


def _nothing_surprising(_: Any, *, foreseen: float, **__: Any) -> float:
    """Stand in for the reserve for surprises."""
    return foreseen


def _nothing_kept_warm(_: Any, reserved: float, **__: Any) -> float:
    """Stand in for the demand that comes back: what is in reserve for surprises is all."""
    return reserved


def _nothing_lasting(_: Any, rate: float, **__: Any) -> float:
    """Stand in for what is known of how long a demand lasts: all of it counts."""
    return rate


def _no_start_ups(variants: Sequence[Variant], *_: Any) -> dict[VariantKey, tuple[float, ...]]:
    """Stand in for what is known of the times in which pods start: the usual time counts."""
    return {variant.key: () for variant in variants}


LEARNERS: Final[Mapping[str, Trial]] = {
    "how long pods start": Trial("foresee", "_start_ups", _no_start_ups),
    "how far demand rises": Trial("warm", "reserve", _nothing_surprising),
    "the price of lateness": Trial("warm", "priced", _nothing_learned),
    "when a level comes back": Trial("warm", "worth_keeping", _nothing_kept_warm),
    "how long a level lasts": Trial("warm", "lasting", _nothing_lasting),
    "what users got": Trial("served", "corrected", _nothing_learned),
    "shrinks that are regretted": Trial("regret", "regretting", _nothing_learned),
}


def _tell_learners(scenarios: Sequence[str], seeds: Sequence[int], jobs: int) -> None:
    """Print a table of the scenarios, each with the difference that it makes when a part does not learn."""
    trials = [Trial(), *LEARNERS.values()]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        cells = {(name, trial): pool.submit(play, trial, [name], seeds) for name in scenarios for trial in trials}
        print(f"| Scenario | All on | {' | '.join(LEARNERS)} |\n|---|{'---|' * len(trials)}")
        for name in scenarios:
            base = cells[name, Trial()].result()
            share = statistics.fmean(share for share, _ in base.values())
            parts = [_means(base, cells[name, trial].result()) for trial in LEARNERS.values()]
            print(f"| `{name}` | {share:.1%} | {' | '.join(parts)} |", flush=True)


def _means(before: Runs, after: Runs) -> str:
    """Return by how much share and cost differ in the mean; a dash where no run differs."""
    if before == after:
        return "-"
    points, cost = _changes(before, after)
    return f"{_signed(statistics.fmean(points), 1)}, {_signed(cost, 1)} %"


def values(module: str, name: str) -> list[Any]:
    """Return the values to try: taken away where that is known, halved and doubled.

    Whole numbers stay whole, and at least 1. Where a number is how far something is from 1, that distance is meant; of
    what is kept of the past, how long it is.
    """
    value = getattr(_module(module), name)
    if module in LONG and name == "_KEPT":
        others: list[Any] = [1.0 - (1.0 - value) / factor for factor in FACTORS]
    elif module in LONG and name in _BEYOND_ONE:
        others = [1.0 + (value - 1.0) * factor for factor in FACTORS]
    elif isinstance(value, tuple):
        others = [tuple(each * factor for each in value) for factor in FACTORS]
    else:
        others = [max(1, round(value * factor)) if isinstance(value, int) else value * factor for factor in FACTORS]
    return [ABSENT[name], *others] if module in LONG else others


def constants(modules: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield module and name of each constant that is a number, or some numbers."""
    for module in modules:
        for name, value in vars(_module(module)).items():
            numbers = value if isinstance(value, tuple) else (value,)
            owned = name.lstrip("_").isupper() and name in _module(module).__annotations__
            if owned and all(isinstance(each, (int, float)) for each in numbers):
                yield module, name


def play(trial: Trial, scenarios: Sequence[str], seeds: Sequence[int]) -> Runs:
    """Run the scenarios with another value of a constant."""
    places = []
    if trial.name:
        value = getattr(_module(trial.module), trial.name)
        # Who has imported the constant has a name of his own for it.
        used = [each for name, each in sorted(sys.modules.items()) if name.startswith("wva.decide")]
        places = [(each, value) for each in used if vars(each).get(trial.name) is value]
        for place, _ in places:
            setattr(place, trial.name, trial.value)
    try:
        return {(name, seed): _outcome(name, seed) for name in scenarios for seed in seeds}
    finally:
        for place, before in places:
            setattr(place, trial.name, before)


def difference(before: Runs, after: Runs) -> str:
    """Return in words how many runs differ and by how much; empty if none does."""
    changed = sum(before[run] != after[run] for run in before)
    if not changed:
        return ""
    points, cost = _changes(before, after)
    ends = f"{_signed(min(points), 1)} to {_signed(max(points), 1)}"
    runs = "1 run" if changed == 1 else f"{changed} runs"
    return f"{runs}, {_signed(statistics.fmean(points), 2)} points ({ends}), cost {_signed(cost, 1)} %"


def _changes(before: Runs, after: Runs) -> tuple[list[float], float]:
    """Return by how many points the share of each run differs, and by how many percent the cost does in the mean."""
    points = [100.0 * (after[run][0] - before[run][0]) for run in before]
    return points, statistics.fmean(100.0 * (after[run][1] / before[run][1] - 1.0) for run in before)


def _signed(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0.0:.{digits}f}"


def _outcome(scenario: str, seed: int) -> tuple[float, float]:
    figures = rivals.run(SCENARIOS[scenario], "wva", seed).figures
    return figures.attainment, figures.cost


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"wva.decide.{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
