"""``wva backtest``: plays other policies on a user's own traffic, from Prometheus to a page.

Connection settings are those of the controller: ``PROMETHEUS_TOKEN_PATH`` and the others, from the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from wva import log
from wva.clock import SystemClock
from wva.collect.queries import validate_namespace
from wva.command_error import CommandError, UsageError
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.model.policy import Policy, QueueingRules, ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.variant import ModelKey
from wva.numbers import Real
from wva.policy_file import read_policy
from wva.prometheus.answers import PrometheusError
from wva.prometheus.authentication import connection_of
from wva.prometheus.client import PrometheusClient
from wva.sim.commands.runs import SEEDS, WORKERS, play_to_the_end, progress_bar

if TYPE_CHECKING:
    from wva.sim.backtest.history import RecordedHistory
    from wva.sim.backtest.scenario import Backtest
    from wva.sim.rivals.wva import WvaSetup
    from wva.sim.scorecard.card import Card

DEFAULT_POLICIES: Final = ("wva", "wva-queueing", "hpa-kv", "static-peak", "clairvoyant")

_NOW: Final = re.compile(r"now(?:-(?P<ago>.+))?")
_SECONDS: Final = Real(0.0, 1e11)
_STEP: Final = Real(1.0, 3600.0)
_LONGEST_AGO_DAYS: Final = 3660
EXAMPLES: Final = (
    "wva backtest --prometheus http://localhost:9090 --from now-24h --to now --namespace models",
    "wva backtest --prometheus http://localhost:9090 --from now-2h --to now --policy wva configmaps.yaml",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the history, of the runs and of the policies."""
    parser.description = (
        "Read the history of a model from Prometheus, fit simulated engines to it, and run policies on the same "
        "traffic. Writes a page with plots, and a summary. Needs the bench extra: in a clone of WVA, pip install "
        "'.[bench]'."
    )
    parser.epilog = (
        "A token and certificates for Prometheus are taken from the environment, as by `wva run`: "
        "PROMETHEUS_BEARER_TOKEN, PROMETHEUS_TOKEN_PATH, PROMETHEUS_CA_CERT_PATH and so on. What was read is kept in "
        "the folder, and the same command goes on where it was interrupted. Exit status: 0, 1 when it cannot be done, "
        "2 on a wrong flag."
    )
    add_history(parser, required=True)
    parser.add_argument(
        "--policy",
        nargs="+",
        action="extend",
        metavar="NAME|FILE",
        help="policies by name, or WVA with the ConfigMaps of a file (default: wva, wva-queueing, hpa-kv, static-peak, "
        "clairvoyant)",
    )


def add_history(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the flags of the history and of the runs."""
    add = parser.add_argument
    add("--prometheus", required=required, metavar="URL", help="Prometheus with the history")
    start = "start of the history: ISO 8601, Unix seconds, or such as now-2h"
    add("--from", dest="start", required=required, metavar="TIME", help=start)
    add("--to", dest="end", required=required, metavar="TIME", help="end of the history: as --from, or now")
    add("--namespace", "-n", default="", metavar="NAME", help="namespace of the model (default: the only one)")
    add("--model", default="", metavar="ID", help="model, as vLLM has it in model_name (default: the only one)")
    add("--step", default="30s", metavar="DURATION", help="distance of two points of the history (default: 30s)")
    add("--out", default="backtest", metavar="DIR", help="folder for all files (default: backtest)")
    add("--ttft", default="1s", metavar="DURATION", help="objective for the time to first token (default: 1s)")
    between = "objective for the mean time between tokens (default: 100ms)"
    add("--itl", default="100ms", metavar="DURATION", help=between)
    add("--start-up", metavar="DURATION", help="how long a pod starts (default: as in the history)")
    add("--seeds", type=SEEDS, default=1, metavar="N", help="runs of each policy (default: 1)")
    add("--jobs", type=WORKERS, metavar="N", help="processes side by side (default: one per core)")


def run(arguments: argparse.Namespace) -> int:
    """Read the history, fit it, run the policies, write the page and return the exit status. Raises CommandError."""
    log.configure(level="error", encoding="console")
    return play_to_the_end(_backtest, arguments)


def _backtest(arguments: argparse.Namespace) -> None:
    from wva.sim.backtest.play import AS_RECORDED
    from wva.sim.backtest.report import markdown, write
    from wva.sim.rivals import POLICIES
    from wva.sim.rivals.wva import WvaSetup

    # The names of all policies, each with its file if it comes from one.
    files: dict[str, str | None] = {}
    for word in arguments.policy or DEFAULT_POLICIES:
        file = None if word in POLICIES else word
        if file is not None and not Path(word).is_file():
            policy_names = ", ".join(sorted(name for name in POLICIES if "@" not in name))
            raise UsageError(f"--policy={word!r}: expected a file of ConfigMaps, or one of {policy_names}")
        name = word if file is None else Path(word).stem
        reserved = file is not None and (name in POLICIES or name == AS_RECORDED)
        if reserved or files.get(name, file) != file:
            raise UsageError(f"--policy={word!r}: another policy has the name {name}: give the file another name")
        files[name] = file
    folder = Path(arguments.out)
    backtest = prepared(arguments, folder)
    setups = {
        name: WvaSetup(of_the_stage(read_policy(file, {backtest.namespace}).over(Policy()), backtest))
        for name, file in files.items()
        if file is not None
    }
    card = played(backtest, setups, [AS_RECORDED, *files], arguments)
    paths = write(backtest, card, folder, name="backtest")
    print("\n".join(markdown(backtest, card)))
    print(f"\nwritten: {', '.join(str(path) for path in paths)}")


def prepared(arguments: argparse.Namespace, folder: Path) -> Backtest:
    """Return the backtest from Prometheus, and keep it in the folder. Raises CommandError."""
    from wva.model.objectives import Objectives
    from wva.sim.backtest.fit import fit
    from wva.sim.backtest.report import keep
    from wva.sim.backtest.scenario import backtest
    from wva.sim.stage.scenario import StartUp

    objectives = Objectives(duration("--ttft", arguments.ttft), duration("--itl", arguments.itl))
    start_up = None if arguments.start_up is None else StartUp(duration("--start-up", arguments.start_up))
    history = _history(arguments, folder)
    try:
        fits = [fit(variant, history) for variant in history.variants]
        fitted_backtest = backtest(history, fits, objectives=objectives, start_up=start_up)
    except ValueError as error:
        raise CommandError(str(error)) from error
    try:
        keep(fitted_backtest, folder)
    except OSError as error:
        raise CommandError(f"--out={folder}: {error.strerror}") from error
    return fitted_backtest


def played(
    backtest: Backtest,
    setups: dict[str, WvaSetup],
    names: Sequence[str],
    arguments: argparse.Namespace,
    *,
    about: object = None,
) -> Card:
    """Return the scorecard of some policies. Raises CommandError.

    ``about`` says what the names of the setups stand for; without it, they stand for ``setups``.
    """
    from wva.sim.backtest.play import AsRecorded, Play, digest
    from wva.sim.rivals import POLICIES
    from wva.sim.scorecard.quality import RunsFailedError, SuitePlan, judge
    from wva.sim.scorecard.runs import Workshop
    from wva.sim.scorecard.sources import digest_of, module_of

    workers = arguments.jobs or os.cpu_count() or 1
    recorded = AsRecorded(backtest.step_seconds, backtest.replicas)
    program = digest_of(Play.__module__, *map(module_of, POLICIES.values()))
    folder = Path(arguments.out) / "runs" / digest(about or sorted(setups.items()), recorded)
    workshop = Workshop(Play(setups, recorded), folder, program)
    title = f"{backtest.model_id} in {backtest.namespace}"
    plan = SuitePlan(title, (backtest.scenario,), tuple(names), (), tuple(range(1, arguments.seeds + 1)), tuple(names))
    try:
        with progress_bar() as progress:
            return judge(plan, workshop, workers=workers, progress=progress)
    except RunsFailedError as error:
        raise CommandError(
            "\n".join(f"{failed_run.policy}: {failed_run.problem}" for failed_run in error.failed)
        ) from error


def of_the_stage(policy: Policy, backtest: Backtest) -> Policy:
    """Return a policy for the model of the stage, whose name differs from the user's model."""
    from wva.sim.stage.observe import MODEL

    model = ModelKey(backtest.namespace, backtest.model_id)
    saturation = replace(policy.saturation_for(model), analyzer_name=policy.analyzer_for(model))
    to_zero = policy.scale_to_zero_for(model)
    target = policy.service_target_for(model)
    return replace(
        policy,
        saturation=saturation,
        overrides=(),
        namespaces=(),
        queueing=QueueingRules(policy.queueing_for(model)),
        scale_to_zero=ScaleToZeroRules(
            ScaleToZeroEntry("default", "", enabled=to_zero.enabled, retention_seconds=to_zero.retention_seconds)
        ),
        service_targets=() if target is None else (replace(target, model_id=MODEL.model_id),),
        profiles=tuple(
            replace(profile, model_id=MODEL.model_id)
            for profile in policy.profiles
            if profile.model_id == backtest.model_id
        ),
    )


def _history(arguments: argparse.Namespace, folder: Path) -> RecordedHistory:
    """Return the history that the flags describe. Raises CommandError."""
    from wva.sim.backtest.fetch import ModelSpan, fetch, visible_models
    from wva.sim.backtest.history import history

    settings = connection_of(arguments.prometheus, "--prometheus", os.environ)
    now = time.time()
    start, end = moment("--from", arguments.start, now), moment("--to", arguments.end, now)
    step = _STEP.find(duration("--step", arguments.step))
    if step is None:
        raise UsageError(f"--step={arguments.step!r}: expected 1s to 1h")
    if end > now + step:
        raise UsageError(f"--to={arguments.end!r} is in the future")
    try:
        if arguments.namespace:
            validate_namespace(arguments.namespace)
    except ValueError as error:
        raise UsageError(f"--namespace: {error}") from error
    start = start // step * step  # so that the next command finds the chunks that this one keeps

    async def read() -> RecordedHistory:
        clock = SystemClock()
        async with PrometheusClient(settings, clock=clock, instruments=Instruments(CollectorRegistry())) as client:
            namespace, model = arguments.namespace, arguments.model
            if not (namespace and model):
                fitting = [
                    pair
                    for pair in await visible_models(client, start, end, clock=clock)
                    if namespace in ("", pair[0]) and model in ("", pair[1])
                ]
                if not fitting:
                    raise CommandError(
                        "no engine of vLLM reports in this time: is it the right Prometheus, time and namespace?"
                    )
                if len(fitting) > 1:
                    choices = ", ".join(
                        log.printable(f"{model_id} in {model_namespace}") for model_namespace, model_id in fitting[:20]
                    )
                    raise CommandError(f"several models report: choose one with --namespace and --model: {choices}")
                ((namespace, model),) = fitting
            try:
                span = ModelSpan(namespace, model, start, end, step)
            except ValueError as error:
                raise UsageError(str(error)) from error
            chunks = await fetch(client, span, folder, clock=clock, address=client.source, progress=_show_parts)
            return history(span, chunks)

    try:
        return asyncio.run(read())
    except PrometheusError as error:
        raise CommandError(f"{error.message}; what was read is kept in {folder}") from error
    except OSError as error:
        raise CommandError(f"--out={folder}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(str(error)) from error


def moment(flag: str, text: str, now: float) -> float:
    """Return a time in seconds since the epoch: ISO 8601, seconds, ``now`` or ``now-2h``. Raises CommandError."""
    relative = _NOW.fullmatch(text)
    if relative is not None:
        return now - (duration(flag, relative["ago"], days=_LONGEST_AGO_DAYS) if relative["ago"] else 0.0)
    number = _SECONDS.find(text)
    if number is not None:
        return number
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        message = f"{flag}={text!r}: expected a time such as 2026-01-31T08:00:00Z, seconds since the epoch, or now-2h"
        raise UsageError(message) from None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()


def duration(flag: str, text: str, *, days: int = 1) -> float:
    """Return a duration in seconds, which is at most ``days``. Raises CommandError."""
    try:
        seconds = Real(0.0, days * 86400.0, above=True).find(parse_duration(text))
    except ValueError as error:
        raise UsageError(f"{flag}={text!r}: {error}") from error
    if seconds is None:
        raise UsageError(f"{flag}={text!r}: expected more than nothing and at most {24 * days} h")
    return seconds


def _show_parts(done: int, count: int) -> None:
    """Show on a terminal how much of the history has been read."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rhistory: {done} of {count} parts" + ("\n" if done == count else ""))
