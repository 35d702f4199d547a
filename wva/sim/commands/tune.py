"""``wva tune``: tries thresholds for a user's own traffic in the scenario of a backtest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.command_error import CommandError, UsageError
from wva.model.records import replace
from wva.sim.commands.backtest import add_history, played, prepared
from wva.sim.commands.runs import play_to_the_end

_NAMES: Final = (
    "A name tells K (kvCacheThreshold), k (kvSpareTrigger), q (queueSpareTrigger), the interval of the cycles, and the "
    "window of the HPA. wva has the defaults."
)
_BEST: Final = 2
"""The number of sets of thresholds that are tried with other intervals and windows."""
EXAMPLES: Final = (
    "wva tune",
    "wva tune --prometheus http://localhost:9090 --from now-24h --to now --namespace models",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the history and of the runs."""
    parser.description = (
        "Try thresholds of WVA on the history of a backtest, and propose those with the lowest cost that serve enough "
        "requests in time. Run it after `wva backtest` in the same folder, or give it the flags of that command. Needs "
        "the bench extra."
    )
    parser.epilog = "Exit status: 0, 1 when it cannot be done, 2 on a wrong flag."
    add_history(parser, required=False)


def run(arguments: argparse.Namespace) -> int:
    """Try thresholds, write the page, print a proposal and return the exit status. Raises CommandError."""
    log.configure(level="error", encoding="console")
    return play_to_the_end(_tune, arguments)


def _tune(arguments: argparse.Namespace) -> None:
    from wva.sim.backtest.play import AS_RECORDED
    from wva.sim.backtest.report import read, write
    from wva.sim.backtest.tune import DEFAULT, frontier, only, pareto, proposal, thresholds, timings
    from wva.sim.rivals.wva import WvaSetup
    from wva.sim.scorecard.card import best

    folder = Path(arguments.out)
    if not arguments.prometheus:
        try:
            backtest = read(folder)
        except OSError as error:
            message = f"cannot read {error.filename}: {error.strerror}; run wva backtest first, or give --prometheus"
            raise CommandError(message) from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CommandError(f"{folder} has no backtest of this version: {str(error)[:200]}") from error
    elif arguments.start and arguments.end:
        backtest = prepared(arguments, folder)
    else:
        raise UsageError("--prometheus needs --from and --to")
    # First the thresholds; then the best of them with other timings, and the defaults beside them.
    base = WvaSetup(interval_seconds=backtest.interval_seconds, down_seconds=backtest.scenario.hpa_down_seconds)
    first_round = {choice.name: choice for choice in thresholds(base)}
    card = played(
        backtest, {name: choice.setup for name, choice in first_round.items()}, list(first_round), arguments, about=base
    )
    remaining, finalists = list(card.parts[0].cells), []
    for _ in range(_BEST):
        best_cell = best(remaining)
        remaining.remove(best_cell)
        finalists.append(first_round[best_cell.policy])
    second_round = {choice.name: choice for choice in timings(finalists)}
    choices = {cell.policy: first_round[cell.policy] for cell in pareto(card)} | second_round
    setups = {name: choice.setup for name, choice in choices.items()} | {DEFAULT: base}
    final_card = played(backtest, setups, [DEFAULT, AS_RECORDED, *choices], arguments, about=base)
    tried_card = only(final_card, choices)
    winner = best(tried_card.parts[0].cells)
    front = pareto(tried_card)
    lines = [*proposal(choices[winner.policy], winner, final_card.parts[0].cell(DEFAULT)), *frontier(front)]
    final_card = only(final_card, {DEFAULT, AS_RECORDED, winner.policy, *(cell.policy for cell in front)})
    final_card = replace(final_card, notes=(*final_card.notes, f"Proposed: {winner.policy}. {_NAMES}"))
    paths = write(backtest, final_card, folder, name="tune", more=lines)
    print("\n".join(lines))
    print(f"written: {', '.join(str(path) for path in paths)}")
