"""``wva backtest``: what a user's own traffic would have met under other policies, from Prometheus to a page.

Connection settings are those of the controller: ``PROMETHEUS_TOKEN_PATH`` and the others, from the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from wva import log
from wva.cli.bench import ended_as_by_ctrl_c, interrupted, missing_library, progress_bar
from wva.cli.flags import fail, fail_on_system
from wva.cli.policy_file import PolicyFileError, read_policy
from wva.clock import SystemClock
from wva.collect.answers import PrometheusError
from wva.collect.credential_files import connection_problems
from wva.collect.prometheus import PrometheusClient, PrometheusSettings
from wva.config import Given, load
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.model.policy import Policy, QueueingRules, ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.variant import ModelKey
from wva.numbers import Real

if TYPE_CHECKING:
    from wva.sim.backtest.history import History
    from wva.sim.backtest.scenario import Backtest
    from wva.sim.rivals.wva import WvaSetup
    from wva.sim.scorecard.card import Card

DEFAULT_POLICIES: Final = ("wva", "wva-queueing", "hpa-kv", "static-peak", "clairvoyant")

_NOW: Final = re.compile(r"now(?:-(?P<ago>.+))?")
_SECONDS: Final = Real(0.0, 1e11)
_STEP: Final = Real(1.0, 3600.0)
_LONGEST_AGO_DAYS: Final = 3660


class CannotRunError(Exception):
    """What was asked for cannot be done; the text says why, on one line each."""


def run(arguments: argparse.Namespace) -> int:
    """Read the history, fit it, run the policies and write the page; status 1 with a line when that cannot be."""
    return guarded(_run, arguments)


def guarded(command: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Run a command and return its exit status; what it cannot do is told on a line each."""
    log.configure(level="error", encoding="console")
    missing = missing_library()
    if missing is not None:
        return fail(f"this command needs {missing}: in a clone of WVA, pip install '.[bench]'")
    try:
        with ended_as_by_ctrl_c():
            command(arguments)
    except CannotRunError as error:
        return max(fail(log.printable(line)) for line in str(error).splitlines())
    except OSError as error:
        return fail_on_system(error)
    except KeyboardInterrupt:
        return interrupted()
    return 0


def _run(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.out)
    files = _files(arguments.policy or DEFAULT_POLICIES)
    found = prepared(arguments, folder)
    setups, names = _policies(files, found)
    _finish(found, played(found, setups, names, arguments), folder)


def prepared(arguments: argparse.Namespace, folder: Path) -> Backtest:
    """Return what runs need, from Prometheus; it is kept in the folder. Raises CannotRunError."""
    from wva.sim.backtest.fit import fit  # noqa: PLC0415 - needs the bench extra
    from wva.sim.backtest.report import keep  # noqa: PLC0415 - same
    from wva.sim.backtest.scenario import backtest  # noqa: PLC0415 - same
    from wva.sim.stage.scenario import Objectives, StartUp  # noqa: PLC0415 - same

    objectives = Objectives(duration("--ttft", arguments.ttft), duration("--itl", arguments.itl))
    start_up = None if arguments.start_up is None else StartUp(duration("--start-up", arguments.start_up))
    history = _history(arguments, folder)
    try:
        fits = [fit(variant, history) for variant in history.variants]
        found = backtest(history, fits, objectives=objectives, start_up=start_up)
    except ValueError as error:
        raise CannotRunError(str(error)) from error
    try:
        keep(found, folder)
    except OSError as error:
        raise CannotRunError(f"--out={folder}: {error.strerror}") from error
    return found


def played(
    found: Backtest,
    setups: dict[str, WvaSetup],
    names: Sequence[str],
    arguments: argparse.Namespace,
    *,
    about: object = None,
) -> Card:
    """Return the scorecard of some policies. Raises CannotRunError.

    ``about`` tells what the names of the setups mean; without it they mean these setups.
    """
    from wva.sim.backtest.play import AsRecorded, Play, digest  # noqa: PLC0415 - needs the bench extra
    from wva.sim.scorecard.quality import Plan, RunsFailedError, judge  # noqa: PLC0415 - same
    from wva.sim.scorecard.runs import Workshop, program_digest  # noqa: PLC0415 - same

    workers = arguments.jobs or os.cpu_count() or 1
    recorded = AsRecorded(found.step_seconds, found.replicas)
    folder = Path(arguments.out) / "runs" / digest(about or sorted(setups.items()), recorded)
    workshop = Workshop(Play(setups, recorded), folder, program_digest())
    title = f"{found.model_id} in {found.namespace}"
    plan = Plan(title, (found.scenario,), tuple(names), (), tuple(range(1, arguments.seeds + 1)), tuple(names))
    try:
        with progress_bar() as progress:
            return judge(plan, workshop, workers=workers, progress=progress)
    except RunsFailedError as error:
        raise CannotRunError("\n".join(f"{each.policy}: {each.problem}" for each in error.failed)) from error


def _finish(found: Backtest, result: Card, folder: Path) -> None:
    from wva.sim.backtest.report import markdown, write  # noqa: PLC0415 - needs the bench extra

    paths = write(found, result, folder, name="backtest")
    print("\n".join(markdown(found, result)))
    print(f"\nwritten: {', '.join(str(path) for path in paths)}")


def _files(words: Sequence[str]) -> dict[str, str | None]:
    """Return the names of policies, with the file of each that is one. Raises CannotRunError."""
    from wva.sim.backtest.play import AS_RECORDED  # noqa: PLC0415 - needs the bench extra
    from wva.sim.rivals import POLICIES  # noqa: PLC0415 - same

    found: dict[str, str | None] = {}
    for word in words:
        file = None if word in POLICIES else word
        if file is not None and not Path(word).is_file():
            known = ", ".join(sorted(name for name in POLICIES if "@" not in name))
            raise CannotRunError(f"--policy={word!r}: expected a file of ConfigMaps, or one of {known}")
        name = word if file is None else Path(word).stem
        taken = file is not None and (name in POLICIES or name == AS_RECORDED)
        if taken or found.get(name, file) != file:
            raise CannotRunError(f"--policy={word!r}: another policy has the name {name}: give the file another name")
        found[name] = file
    return found


def _policies(files: Mapping[str, str | None], found: Backtest) -> tuple[dict[str, WvaSetup], list[str]]:
    """Return the setups of policies that are files, and the names of all to run. Raises CannotRunError."""
    from wva.sim.backtest.play import AS_RECORDED  # noqa: PLC0415 - needs the bench extra
    from wva.sim.rivals.wva import WvaSetup  # noqa: PLC0415 - same

    setups: dict[str, WvaSetup] = {}
    for name, file in files.items():
        if file is None:
            continue
        try:
            policy = read_policy(file, {found.namespace}).over(Policy())
        except PolicyFileError as error:
            raise CannotRunError(str(error)) from error
        setups[name] = WvaSetup(of_the_stage(policy, found))
    return setups, [AS_RECORDED, *files]


def of_the_stage(policy: Policy, found: Backtest) -> Policy:
    """Return a policy as it holds for the model of the stage, which has another name than the user's own."""
    from wva.sim.stage.observe import MODEL  # noqa: PLC0415 - needs the bench extra

    model = ModelKey(found.namespace, found.model_id)
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
            if profile.model_id == found.model_id
        ),
    )


def _history(arguments: argparse.Namespace, folder: Path) -> History:
    """Return the history that the flags ask for. Raises CannotRunError."""
    from wva.sim.backtest.fetch import Span, fetch, visible_models  # noqa: PLC0415 - needs the bench extra
    from wva.sim.backtest.history import history  # noqa: PLC0415 - same

    settings = _connection(arguments)
    now = time.time()
    start, end = moment("--from", arguments.start, now), moment("--to", arguments.end, now)
    step = _STEP.find(duration("--step", arguments.step))
    if step is None:
        raise CannotRunError(f"--step={arguments.step!r}: expected 1s to 1h")
    if end > now + step:
        raise CannotRunError(f"--to={arguments.end!r} is in the future")
    start = start // step * step  # so that the next command finds what this one keeps

    async def read() -> History:
        clock = SystemClock()
        async with PrometheusClient(settings, clock=clock, instruments=Instruments(CollectorRegistry())) as client:
            namespace, model = arguments.namespace, arguments.model
            if not (namespace and model):
                visible = await visible_models(client, start, end, clock=clock)
                namespace, model = _chosen(visible, namespace, model)
            span = Span(namespace, model, start, end, step)
            return history(
                span, await fetch(client, span, folder, clock=clock, address=settings.base_url, progress=_show_parts)
            )

    try:
        return asyncio.run(read())
    except PrometheusError as error:
        raise CannotRunError(f"{error.message}; what was read is kept in {folder}") from error
    except OSError as error:
        raise CannotRunError(f"--out={folder}: {error.strerror}") from error
    except ValueError as error:
        raise CannotRunError(str(error)) from error


def _connection(arguments: argparse.Namespace) -> PrometheusSettings:
    """Return how Prometheus is reached. Raises CannotRunError."""
    given = load(Given({}, dict(os.environ), {})).settings
    settings = replace(
        PrometheusSettings.of(given),
        base_url=arguments.prometheus,
        allow_http=arguments.prometheus.startswith("http://") or given.prometheus_allow_http,
    )
    problems = connection_problems(settings)
    if problems:
        raise CannotRunError("\n".join(problem.replace("PROMETHEUS_BASE_URL", "--prometheus") for problem in problems))
    return settings


def _chosen(visible: Sequence[tuple[str, str]], namespace: str, model: str) -> tuple[str, str]:
    fitting = [pair for pair in visible if (not namespace or pair[0] == namespace) and (not model or pair[1] == model)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise CannotRunError("no engine of vLLM reports in this time: is it the right Prometheus, time and namespace?")
    told = ", ".join(log.printable(f"{model_id} in {space}") for space, model_id in fitting[:20])
    raise CannotRunError(f"several models report: choose one with --namespace and --model: {told}")


def moment(flag: str, text: str, now: float) -> float:
    """Return a time in seconds since the epoch: ISO 8601, seconds, ``now`` or ``now-2h``. Raises CannotRunError."""
    relative = _NOW.fullmatch(text)
    if relative is not None:
        return now - (duration(flag, relative["ago"], days=_LONGEST_AGO_DAYS) if relative["ago"] else 0.0)
    number = _SECONDS.find(text)
    if number is not None:
        return number
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"{flag}={text!r}: expected a time such as 2026-01-31T08:00:00Z, seconds since the epoch, or now-2h"
        raise CannotRunError(message) from None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()


def duration(flag: str, text: str, *, days: int = 1) -> float:
    """Return a duration of so many days at most in seconds. Raises CannotRunError."""
    try:
        found = Real(0.0, days * 86400.0, above=True).find(parse_duration(text))
    except ValueError as error:
        raise CannotRunError(f"{flag}={text!r}: {error}") from error
    if found is None:
        raise CannotRunError(f"{flag}={text!r}: expected more than nothing and at most {24 * days} h")
    return found


def _show_parts(done: int, count: int) -> None:
    """Tell on a terminal how much of the history is there."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rhistory: {done} of {count} parts" + ("\n" if done == count else ""))
