"""``wva tune``: thresholds for a user's own traffic, tried on what a backtest has fitted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wva.cli.backtest import CannotRunError, guarded, played, prepared
from wva.model.records import replace

if TYPE_CHECKING:
    from wva.sim.backtest.scenario import Backtest

_NAMES: Final = (
    "A name tells K (kvCacheThreshold), k (kvSpareTrigger), q (queueSpareTrigger), the interval of the cycles, and the "
    "window of the HPA. wva has the defaults."
)
_BEST: Final = 2
"""So many sets of thresholds are tried with other intervals and windows."""


def run(arguments: argparse.Namespace) -> int:
    """Try thresholds, write the page and print a proposal; status 1 with a line when that cannot be."""
    return guarded(_tune, arguments)


def _found(arguments: argparse.Namespace) -> Backtest:
    """Return what to try on: from a folder of ``wva backtest``, else from Prometheus. Raises CannotRunError."""
    from wva.sim.backtest.report import read  # noqa: PLC0415 - needs the bench extra

    if arguments.prometheus:
        if not (arguments.start and arguments.end):
            raise CannotRunError("--prometheus needs --from and --to")
        return prepared(arguments, Path(arguments.out))
    try:
        return read(Path(arguments.out))
    except OSError as error:
        message = f"cannot read {error.filename}: {error.strerror}; run wva backtest first, or give --prometheus"
        raise CannotRunError(message) from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CannotRunError(f"{arguments.out} has no backtest of this version: {str(error)[:200]}") from error


def _tune(arguments: argparse.Namespace) -> None:
    from wva.sim.backtest.play import AS_RECORDED  # noqa: PLC0415 - needs the bench extra
    from wva.sim.backtest.report import write  # noqa: PLC0415 - same
    from wva.sim.backtest.tune import DEFAULT, frontier, only, pareto, proposal, thresholds, timings  # noqa: PLC0415 - same
    from wva.sim.rivals.wva import WvaSetup  # noqa: PLC0415 - same
    from wva.sim.scorecard.card import best  # noqa: PLC0415 - same

    found = _found(arguments)
    base = WvaSetup(interval_seconds=found.interval_seconds)
    first = {choice.name: choice for choice in thresholds(base)}
    card = played(found, {name: choice.setup for name, choice in first.items()}, list(first), arguments, about=base)
    left, finalists = list(card.parts[0].cells), []
    for _ in range(_BEST):
        chosen = best(left)
        left.remove(chosen)
        finalists.append(first[chosen.policy])
    second = {choice.name: choice for choice in timings(finalists)}
    choices = {cell.policy: first[cell.policy] for cell in pareto(card)} | second
    setups = {name: choice.setup for name, choice in choices.items()} | {DEFAULT: base}
    final = played(found, setups, [DEFAULT, AS_RECORDED, *choices], arguments, about=base)
    tried = only(final, choices)
    winner = best(tried.parts[0].cells)
    front = pareto(tried)
    lines = [*proposal(choices[winner.policy], winner, final.parts[0].cell(DEFAULT)), *frontier(front)]
    final = only(final, {DEFAULT, AS_RECORDED, winner.policy, *(cell.policy for cell in front)})
    final = replace(final, notes=(*final.notes, f"Proposed: {winner.policy}. {_NAMES}"))
    paths = write(found, final, Path(arguments.out), name="tune", more=lines)
    print("\n".join(lines))
    print(f"written: {', '.join(str(path) for path in paths)}")
