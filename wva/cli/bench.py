"""``wva bench quality``: how well WVA decides, beside other autoscalers, in a simulated world."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from wva.cli.flags import fail, fail_on_system

if TYPE_CHECKING:
    from wva.sim.scorecard.quality import Plan, Progress
    from wva.sim.scorecard.runs import RunOutcome

_NEEDED: Final = ("highspy", "numba", "numpy", "plotly", "rich")
"""What of the bench extra must be there."""
_ORDER: Final = ("wva", "hpa", "keda", "kpa", "static", "clairvoyant")
"""The beginnings of names of policies in the order of tables."""
_TUNED_GROUP: Final = "hpa-"
"""The beginning of the names of policies that a suite also has tuned."""
_TOLD_FAILURES: Final = 5
_TOLD_EVERY_SECONDS: Final = 60.0
"""How often progress is told where there is no terminal."""
_INTERRUPTED: Final = 130


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark that the arguments name and return the exit status."""
    missing = missing_library()
    if missing is not None:
        return fail(f"the benchmark needs {missing}: in a clone of WVA, pip install '.[bench]'")
    if arguments.list:
        return _list()
    try:
        try:
            plan = _plan(arguments)
        except ValueError as error:
            return fail(str(error))
        with ended_as_by_ctrl_c():
            return _quality(plan, arguments)
    except KeyboardInterrupt:
        return interrupted()
    except OSError as error:
        return fail_on_system(error)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Have SIGTERM end the command as Ctrl-C does: with its processes."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def missing_library() -> str | None:
    """Return the name of a library of the bench extra that is not installed; None when all are."""
    return next((name for name in _NEEDED if find_spec(name) is None), None)


def interrupted() -> int:
    """Say that the same command continues, and return the status of a program that was interrupted."""
    sys.stderr.write("wva: interrupted; the same command continues\n")
    return _INTERRUPTED


def _list() -> int:
    from wva.sim.scorecard.suites import SCENARIOS, SUITES  # noqa: PLC0415 - slow to import

    for suite, names in SUITES.items():
        print(f"scenarios of the suite {suite}:")
        for name in names:
            print(f"  {name:24} {SCENARIOS[name].title}")
    print("policies:")
    for name in _policies():
        print(f"  {name}")
    return 0


def _policies() -> list[str]:
    """Return the policies of a suite: all, and those that are tuned in hindsight."""
    from wva.sim.rivals import FAMILIES, POLICIES  # noqa: PLC0415 - slow to import
    from wva.sim.scorecard.card import TUNED  # noqa: PLC0415 - same

    plain = [name for name in POLICIES if "@" not in name]

    def rank(name: str) -> tuple[int, int]:
        place = next((place for place, start in enumerate(_ORDER) if name.startswith(start)), len(_ORDER))
        return place, plain.index(name)

    found: list[str] = []
    for name in sorted(plain, key=rank):
        found.append(name)
        if name in FAMILIES and name.startswith(_TUNED_GROUP):
            found.append(f"{name}{TUNED}")
    return found


def _plan(arguments: argparse.Namespace) -> Plan:
    """Return what the flags ask for. Raises ValueError naming the flag."""
    from wva.sim.rivals import FAMILIES, POLICIES  # noqa: PLC0415 - slow to import
    from wva.sim.scorecard.card import TUNED, Family  # noqa: PLC0415 - same
    from wva.sim.scorecard.quality import Plan  # noqa: PLC0415 - same
    from wva.sim.scorecard.suites import (  # noqa: PLC0415 - same
        DEFAULT_SEEDS,
        SCENARIOS,
        SUITES,
        scenario_of_requests,
    )

    own = () if arguments.requests is None else (scenario_of_requests(arguments.requests),)
    named = own or arguments.scenario
    names = _known("--scenario", arguments.scenario or (() if own else SUITES[arguments.suite]), SCENARIOS)
    families = {f"{name}{TUNED}": Family(f"{name}{TUNED}", members) for name, members in FAMILIES.items()}
    order = _policies()
    policies = _known("--policy", arguments.policy or order, {**POLICIES, **families}, shown=order)
    seeds = arguments.seeds or DEFAULT_SEEDS[arguments.suite]
    title = "Scorecard" if named else f"Scorecard: suite {arguments.suite}"
    return Plan(
        title=title,
        scenarios=(*own, *(SCENARIOS[name] for name in names)),
        policies=tuple(name for name in policies if name not in families),
        families=tuple(families[name] for name in policies if name in families),
        seeds=tuple(range(1, seeds + 1)),
        order=tuple(order),
    )


def _known(
    flag: str, names: Sequence[str], known: Mapping[str, object], *, shown: Sequence[str] | None = None
) -> list[str]:
    """Return the names, each once. Raises ValueError for one that is not known."""
    for name in names:
        if name not in known:
            raise ValueError(f"{flag}={name!r}: expected one of {', '.join(shown or known)}")
    return list(dict.fromkeys(names))


def _quality(plan: Plan, arguments: argparse.Namespace) -> int:
    from wva.sim.rivals import POLICIES  # noqa: PLC0415 - slow to import
    from wva.sim.rivals.wva import SETUPS  # noqa: PLC0415 - same
    from wva.sim.scorecard.markdown import markdown  # noqa: PLC0415 - same
    from wva.sim.scorecard.quality import RunsFailedError, judge, write  # noqa: PLC0415 - same
    from wva.sim.scorecard.runs import Workshop, program_digest, simulator_digest  # noqa: PLC0415 - same
    from wva.sim.stage.run import run as play  # noqa: PLC0415 - same

    arguments.out.mkdir(parents=True, exist_ok=True)
    rivals = POLICIES.keys() - SETUPS.keys()
    workshop = Workshop(play, arguments.out / "runs", program_digest(), simulator_digest(), rivals)
    workers = arguments.jobs or os.cpu_count() or 1
    try:
        with progress_bar() as progress:
            found = judge(plan, workshop, workers=workers, progress=progress)
    except RunsFailedError as error:
        return _failed(error.failed)
    for path in write(found, arguments.out):
        print(path)
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(found), encoding="utf-8")
        print(arguments.markdown)
    return 0


def _failed(failed: Sequence[RunOutcome]) -> int:
    """Say which runs have no result, and why."""
    for each in failed[:_TOLD_FAILURES]:
        sys.stderr.write(f"wva: {each.scenario}, {each.policy}, seed {each.seed}: {each.problem}\n")
    return fail(f"{len(failed)} of the runs failed, so there is no scorecard; the others are kept")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show on a terminal how many runs are done; elsewhere a line says it once per minute, and one more at the end."""
    from rich.console import Console  # noqa: PLC0415 - of the extra
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    counts: Counter[bool] = Counter()
    told = time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=None)

        def progress(outcome: RunOutcome, expected: int) -> None:
            nonlocal told
            counts[outcome.kept] += 1
            if not console.is_terminal and time.monotonic() - told >= _TOLD_EVERY_SECONDS:
                told = time.monotonic()
                sys.stderr.write(f"{counts.total()} of {expected} runs\n")
                sys.stderr.flush()
            bar.update(
                task, advance=1, total=expected, description=f"{outcome.scenario} {outcome.policy}"[:44].ljust(44)
            )

        yield progress
    runs = "1 run" if counts.total() == 1 else f"{counts.total()} runs"
    sys.stderr.write(f"{runs}, {counts[True]} of them kept from before\n")
