"""``wva bench quality``: compares the decisions of WVA with other autoscalers in a simulated world."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wva.command_error import CommandError, UsageError
from wva.command_line import with_examples
from wva.sim.commands.runs import SEEDS, WORKERS, play_to_the_end, progress_bar

if TYPE_CHECKING:
    from wva.sim.scorecard.quality import SuitePlan
    from wva.sim.scorecard.runs import Workshop

_ORDER: Final = ("wva", "hpa", "keda", "kpa", "ray", "fixed", "static", "clairvoyant")
"""The beginnings of names of policies in the order of tables."""
_SHOWN_FAILURES: Final = 5
EXAMPLES: Final = (
    "wva bench quality --list",
    "wva bench quality --suite quick",
    "wva bench quality --requests mine.csv --policy wva hpa-kv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmarks with their flags."""
    parser.description = (
        "Benchmarks that need no GPU. Needs the bench extra: in a clone of WVA, pip install '.[bench]'."
    )
    benchmarks = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK", required=True)
    quality = benchmarks.add_parser(
        "quality",
        help="compare WVA with other autoscalers: requests in time, and cost",
        description="Run WVA and other autoscalers on the same traffic in a simulated world, print a table, and write "
        "a scorecard: a page with plots (HTML), Markdown, and JSON. Runs that are in the folder already are kept.",
        epilog=with_examples("Exit status: 0, 1 when there is no scorecard, 2 on a wrong flag.", EXAMPLES),
    )
    add = quality.add_argument
    suites = (
        "which scenarios to run: quick takes minutes and tunes nothing, learning half an hour with long scenarios in "
        "which there is something to learn, roles minutes with prefill and decode in pods of their own, full two hours "
        "(default: quick)"
    )
    add("--suite", choices=("quick", "learning", "roles", "full"), default="quick", help=suites)
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "metavar": "NAME"}
    add("--scenario", **several, help="these scenarios (see --list) instead of a suite's")
    own = "your own requests, from a CSV file, instead of a suite's scenarios"
    add("--requests", type=Path, metavar="FILE", help=own)
    add("--policy", **several, help="only these policies (see --list)")
    seeds = (
        "runs of each policy in each scenario (default: quick and roles 3, learning 1, full 5; scenarios of over "
        "60,000 requests have 3 of them)"
    )
    add("--seeds", type=SEEDS, metavar="N", help=seeds)
    folder = Path("scorecard")
    page = "write the Markdown to this file, too, and its tables beside it; the seeds are others than without"
    add("--out", type=Path, default=folder, metavar="DIR", help="folder for all files (default: scorecard)")
    add("--markdown", type=Path, metavar="FILE", help=page)
    recorded = "write the runs of WVA to this file, too: a later release is compared with them"
    add("--record", type=Path, metavar="FILE", help=recorded)
    add("--jobs", type=WORKERS, metavar="N", help="processes side by side (default: one per core)")
    add("--list", action="store_true", help="list scenarios and policies and exit")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark that the arguments name and return the exit status. Raises CommandError."""
    return play_to_the_end(_list if arguments.list else _quality, arguments, subject="the benchmark")


def _list(_: argparse.Namespace) -> None:
    from wva.sim.scorecard.suites import SCENARIOS, SUITES

    for suite, names in SUITES.items():
        print(f"scenarios of the suite {suite}:")
        for name in names:
            print(f"  {name:24} {SCENARIOS[name].title}")
    print("policies:")
    for name in _policies():
        print(f"  {name}")


def _policies() -> list[str]:
    """Return all policies in the order of tables; after each family its policy with a target tuned in hindsight."""
    from wva.sim.rivals import FAMILIES, POLICIES
    from wva.sim.scorecard.card import TUNED

    policies: list[str] = []
    plain = [name for name in POLICIES if "@" not in name]
    for prefix in (*_ORDER, ""):
        for name in plain:
            if name.startswith(prefix) and name not in policies:
                policies.append(name)
                if name in FAMILIES:
                    policies.append(f"{name}{TUNED}")
    return policies


def _plan(arguments: argparse.Namespace) -> SuitePlan:
    """Return the plan that the flags describe. Raises UsageError, and ValueError for an unusable file."""
    from wva.sim.rivals import DEFAULTS, FAMILIES, OF_ROLES, POLICIES, with_target
    from wva.sim.scorecard.card import TUNED, PolicyFamily
    from wva.sim.scorecard.effort import fewer_seeds
    from wva.sim.scorecard.quality import SuitePlan
    from wva.sim.scorecard.recorded import recordings
    from wva.sim.scorecard.suites import (
        DEFAULT_SEEDS,
        DEVELOPMENT_SEEDS,
        PAGE_SEEDS,
        SCENARIOS,
        SUITES,
        scenario_of_requests,
        title_of,
    )

    own_scenarios = () if arguments.requests is None else (scenario_of_requests(arguments.requests),)
    scenario_names = _known(
        "--scenario", arguments.scenario or (() if own_scenarios else SUITES[arguments.suite]), SCENARIOS
    )
    families = {f"{name}{TUNED}": PolicyFamily(f"{name}{TUNED}", members) for name, members in FAMILIES.items()}
    order = _policies()
    tuned = {"full": families.keys(), "roles": {f"{name}{TUNED}" for name in OF_ROLES}}.get(arguments.suite, set())
    policy_names = arguments.policy or [name for name in order if name not in families or name in tuned]
    policies = _known("--policy", policy_names, {**POLICIES, **families}, shown=order)
    seeds = DEVELOPMENT_SEEDS if arguments.markdown is None else PAGE_SEEDS
    scenarios = (*own_scenarios, *(SCENARIOS[name] for name in scenario_names))
    chosen_seeds = tuple(seeds[: arguments.seeds or DEFAULT_SEEDS[arguments.suite]])
    return SuitePlan(
        title="Scorecard" if own_scenarios or arguments.scenario else title_of(arguments.suite),
        scenarios=scenarios,
        policies=tuple(name for name in policies if name not in families),
        families=tuple(families[name] for name in policies if name in families),
        seeds=chosen_seeds,
        order=tuple(order),
        recorded=() if arguments.policy else tuple(recordings()),
        fewer={} if arguments.seeds else fewer_seeds(scenarios, chosen_seeds),
        same={with_target(name, target): name for name, target in DEFAULTS.items()},
        of_roles=frozenset(OF_ROLES),
    )


def _known(
    flag: str, names: Sequence[str], known: Mapping[str, object], *, shown: Sequence[str] | None = None
) -> list[str]:
    """Return the names, each once. Raises UsageError for an unknown one."""
    for name in names:
        if name not in known:
            raise UsageError(f"{flag}={name!r}: expected one of {', '.join(shown or known)}")
    return list(dict.fromkeys(names))


def _quality(arguments: argparse.Namespace) -> None:
    """Play the runs and write the scorecard. Raises CommandError."""
    from wva.sim.rivals import POLICIES
    from wva.sim.rivals import run as play
    from wva.sim.scorecard.overview import overview
    from wva.sim.scorecard.quality import RunsFailedError, judge, publish, write
    from wva.sim.scorecard.runs import Workshop
    from wva.sim.scorecard.sources import digest_of, module_of
    from wva.sim.scorecard.tables import tables

    try:
        plan = _plan(arguments)
    except ValueError as error:
        raise CommandError(str(error)) from error
    arguments.out.mkdir(parents=True, exist_ok=True)
    modules = {name: module_of(policy) for name, policy in POLICIES.items()}
    digests = {module: digest_of(module) for module in set(modules.values())}
    programs = {name: digests[module] for name, module in modules.items()}
    workshop = Workshop(play, arguments.out / "runs", digest_of(*digests), programs)
    workers = arguments.jobs or os.cpu_count() or 1
    _tell_effort(plan, workshop, workers)
    try:
        with progress_bar() as progress:
            card = judge(plan, workshop, workers=workers, progress=progress)
    except RunsFailedError as error:
        failed = error.failed
        lines = [f"{run.scenario}, {run.policy}, seed {run.seed}: {run.problem}" for run in failed[:_SHOWN_FAILURES]]
        lines.append(f"{len(failed)} of the runs failed, so there is no scorecard; the others are kept")
        raise CommandError("\n".join(lines)) from error
    card_tables = tables(card)
    print(f"{overview(card_tables)}\n")
    for path in write(card, arguments.out):
        print(path)
    if arguments.record is not None:
        _record(arguments, plan, workshop)
    if arguments.markdown is not None:
        for path in publish(card_tables, arguments.markdown):
            print(path)


def _tell_effort(plan: SuitePlan, workshop: Workshop, workers: int) -> None:
    """Print about how long a plan takes, if it takes minutes, so that users know how long the machine is busy."""
    from wva.sim.scorecard.effort import cpu_seconds
    from wva.sim.scorecard.quality import probable_runs

    runs = probable_runs(plan)
    missing = [job for job in runs if not workshop.file(job).exists()]
    minutes = cpu_seconds(missing, plan.seeds[0]) / workers / 60.0
    if minutes >= 1.0:
        unit = "minute" if f"{minutes:.0f}" == "1" else "minutes"
        processes = "1 core" if workers == 1 else f"{workers} cores"
        sys.stderr.write(f"about {len(missing)} runs of {len(runs)} to make: {minutes:.0f} {unit} on {processes}\n")
        sys.stderr.flush()


def _record(arguments: argparse.Namespace, plan: SuitePlan, workshop: Workshop) -> None:
    """Write the runs of WVA as recorded runs of this release. Raises CommandError."""
    from wva import __version__
    from wva.sim.rivals.wva import SETUPS
    from wva.sim.scorecard.recorded import record, save
    from wva.sim.scorecard.runs import RunJob

    page = "" if arguments.markdown is None else f"--markdown {arguments.markdown.name} "  # it has other seeds
    seeds = "" if arguments.seeds is None else f"--seeds {arguments.seeds} "
    command = f"wva bench quality --suite {arguments.suite} {seeds}{page}--record {arguments.record.name}"
    jobs = [
        RunJob(scenario, policy, seed)
        for scenario in plan.scenarios
        for seed in plan.seeds_of(scenario)
        for policy in plan.policies
        if policy in SETUPS
    ]
    try:
        recorded_runs = record(jobs, workshop, source=f"WVA {__version__}", command=command, ending=f"-v{__version__}")
        save(recorded_runs, arguments.record)
    except (OSError, ValueError) as error:
        raise CommandError(f"--record={arguments.record}: {error}") from error
    print(arguments.record)
