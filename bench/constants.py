"""What the short scenarios see of the numbers by which the engine looks ahead: each halved, and doubled.

``python -m bench.constants`` prints a Markdown table for docs/design/engine.md; arguments are seeds (default: 61). On
two cores a seed takes about ten minutes.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from types import ModuleType
from typing import Final

from wva.sim import rivals
from wva.sim.scorecard.suites import SCENARIOS, SUITES

MODULES: Final = ("foresee", "pace", "warm", "wants", "progress")
FACTORS: Final = (0.5, 2.0)

Runs = Mapping[tuple[str, int], tuple[float, float]]
"""The share in time and the cost of each scenario with each seed."""


@dataclass(frozen=True)
class Trial:
    """A constant with another value; without a name nothing is other than it is."""

    module: str = ""
    name: str = ""
    factor: float = 1.0


def main(words: list[str]) -> None:
    """Print the table."""
    seeds = [int(word) for word in words] or [61]
    trials = [Trial(module, name, factor) for module, name in constants() for factor in FACTORS]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        results = list(pool.map(play, [Trial(), *trials], [seeds] * (len(trials) + 1)))
    base, found = results[0], dict(zip(trials, results[1:], strict=True))
    print("| Constant | Halved | Doubled |\n|---|---|---|")
    unseen = []
    for module, name in constants():
        cells = [difference(base, found[Trial(module, name, factor)]) for factor in FACTORS]
        if any(cells):
            print(f"| `{module}.{name}` | {' | '.join(cell or '-' for cell in cells)} |")
        else:
            unseen.append(f"`{module}.{name}`")
    print(f"\nOf {len(base)} runs none changes with {', '.join(unseen)}.")


def constants() -> Iterator[tuple[str, str]]:
    """Yield module and name of each constant that is a number, or some numbers."""
    for module in MODULES:
        for name, value in vars(_module(module)).items():
            numbers = value if isinstance(value, tuple) else (value,)
            owned = name.lstrip("_").isupper() and name in _module(module).__annotations__
            if owned and all(isinstance(each, (int, float)) for each in numbers):
                yield module, name


def play(trial: Trial, seeds: list[int]) -> Runs:
    """Run all short scenarios with a constant multiplied; whole numbers stay whole, and at least 1."""
    places = []
    if trial.name:
        value = getattr(_module(trial.module), trial.name)
        other = tuple(each * trial.factor for each in value) if isinstance(value, tuple) else value * trial.factor
        if isinstance(value, int):
            other = max(1, round(other))
        # Who has imported the constant has a name of his own for it.
        used = [each for name, each in sorted(sys.modules.items()) if name.startswith("wva.decide")]
        places = [(each, value) for each in used if vars(each).get(trial.name) is value]
        for place, _ in places:
            setattr(place, trial.name, other)
    try:
        return {(name, seed): _outcome(name, seed) for name in SUITES["quick"] for seed in seeds}
    finally:
        for place, before in places:
            setattr(place, trial.name, before)


def difference(before: Runs, after: Runs) -> str:
    """Return in words how many runs differ and by how much; empty if none does."""
    changed = sum(before[run] != after[run] for run in before)
    points = [100.0 * (after[run][0] - before[run][0]) for run in before]
    cost = statistics.fmean(100.0 * (after[run][1] / before[run][1] - 1.0) for run in before)
    if not changed:
        return ""
    ends = f"{_signed(min(points), 1)} to {_signed(max(points), 1)}"
    runs = "1 run" if changed == 1 else f"{changed} runs"
    return f"{runs}, {_signed(statistics.fmean(points), 2)} points ({ends}), cost {_signed(cost, 1)} %"


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
