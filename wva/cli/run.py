"""``wva run``: settings, connection, application, exit status.

If waiting cannot solve a problem, the process prints one line for each such problem and ends with status 1. It waits
for an API server or a Prometheus that does not answer. Meanwhile the probes name what the process waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from wva import __version__, log
from wva.api.kinds import CONFIG_MAPS
from wva.api.meta import Key
from wva.app import Application, Probes, election_problems, new_registry, server_problems
from wva.cli.flags import add_settings_flags, given_flags
from wva.clock import Clock, SystemClock
from wva.command_error import CommandError
from wva.config import Inputs, Loaded, Settings, fatal_problems, load
from wva.config.load import unknown_keys
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, ConfigurationError, Forbidden, NotFound, Unreachable
from wva.model.records import replace
from wva.prometheus.authentication import connection_problems
from wva.prometheus.settings import PrometheusSettings
from wva.serve.addresses import Address, AddressError
from wva.serve.certs import CertificateError
from wva.slices import searched_afterwards, switch_often, young_only

_READ_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 10.0


class UnreadError(Exception):
    """The main ConfigMap could not be read; the message is one line for the operator."""


EXAMPLES: Final = (
    "PROMETHEUS_BASE_URL=https://prometheus.monitoring.svc:9090 wva run",
    "wva run --leader-elect --metrics-bind-address=:8443 --zap-log-level=debug",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all settings."""
    parser.description = "Run the controller. The cluster is KUBECONFIG, else the one it runs in, else ~/.kube/config."
    parser.epilog = (
        "Every setting may also come from the environment or the main ConfigMap; flags win. See "
        "docs/configuration.md. Exit status: 0 after SIGTERM, 1 when it could never work, 2 on a wrong flag."
    )
    add_settings_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the controller until SIGTERM or SIGINT and return the exit status. Raises CommandError."""
    inputs = Inputs(given_flags(arguments), dict(os.environ), {})
    loaded = load(inputs)
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loaded.settings.event_loop != "asyncio":
        # asyncio is the default although uvloop is faster. Connections that are reset while they open confuse uvloop's
        # file descriptors (its issue 653) and it aborts the process; a controller that stays up is worth more.
        import uvloop  # noqa: PLC0415 - not needed otherwise

        new_loop = uvloop.new_event_loop
    switch_often()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            return runner.run(_run(inputs, loaded))
        except ConfigurationError as error:
            raise CommandError("\n".join([*_problems(loaded, inputs), str(error)])) from error
        except (AddressError, CertificateError) as error:
            raise CommandError(str(error)) from error


async def _run(inputs: Inputs, loaded: Loaded) -> int:
    """Read the main ConfigMap, check the settings, and run. Raises CommandError and the errors that ``run`` catches."""
    settings = loaded.settings
    log.configure(level=settings.effective_log_level, encoding=settings.log_encoding)
    logger = log.get("main")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    instruments = Instruments(new_registry())
    connect = partial(KubeClient.connect, instruments=instruments)
    waiting_for = "waiting for the API server"

    def say_waiting(reason: str) -> None:
        nonlocal waiting_for
        waiting_for = f"waiting for the API server: {reason}"
        logger.warning("waiting_for_api_server", reason=reason, next="try again")

    async def read_config_map() -> Mapping[str, str]:
        key = Key(settings.pod_namespace, settings.config_map_name)
        async with connect(timeout_seconds=settings.rest_client_timeout) as client:
            return await read_until_known(client, key, waiting=say_waiting, clock=SystemClock())

    async with AsyncExitStack() as stack:
        # The probes listen at once at the address from flags and environment. If this address is invalid or in use, the
        # process judges it later with all settings, since the ConfigMap may give another one.
        probes: Probes | None = None
        address = _probe_address(settings)
        if address is not None:
            try:
                probes = await stack.enter_async_context(
                    Probes(address, instruments=instruments, not_ready=lambda: [waiting_for])
                )
            except AddressError as error:
                logger.warning("early_probes_off", reason=str(error), next="read the ConfigMap")

        # The main ConfigMap, unless the process is asked to end before it can be read.
        reading = asyncio.ensure_future(read_config_map())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return 0
            inputs = replace(inputs, config_map=reading.result())
        finally:
            for task in (reading, stopping):
                task.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)

        loaded = load(inputs)
        settings = loaded.settings
        log.configure(level=settings.effective_log_level, encoding=settings.log_encoding)
        if probes is not None and probes.address != _probe_address(settings):
            await probes.close()
        async with connect(timeout_seconds=settings.rest_client_timeout) as client:
            problems = [*_problems(loaded, inputs), *server_problems(settings, instruments=instruments)]
            if problems:
                raise CommandError("\n".join(problems))
            for problem in loaded.problems:
                logger.warning("setting_rejected", key=problem.key, problem=str(problem))
            if loaded.without_effect:
                logger.warning("settings_without_effect", settings=list(loaded.without_effect))
            for unknown in unknown_keys(inputs.config_map):
                logger.warning("setting_unknown", key=unknown, config_map=settings.config_map_name)
            logger.info(
                "starting",
                version=__version__,
                event_loop=type(asyncio.get_running_loop()).__module__.partition(".")[0],
                namespace=settings.pod_namespace,
                config_map=settings.config_map_name,
                saturation_config_map=settings.saturation_config_map_name,
                watch_namespace=settings.watch_namespace or "all",
                interval_seconds=settings.global_opt_interval,
                sources={name: source for name, source in loaded.sources.items() if source != "default"},
            )
            # Objects in the caches live long. A full garbage collection of them stops everything else: for a quarter
            # of a second with 30,000 pods.
            application = Application(
                settings,
                inputs,
                client=client,
                instruments=instruments,
                probes=probes,
                synced=young_only(),
                cycle=searched_afterwards,
            )
            gc.freeze()  # start-up objects live until exit; the garbage collector can skip them
            return await application.run(stop)


def _probe_address(settings: Settings) -> Address | None:
    """Return where the probes listen; None if they are off or the address is invalid."""
    try:
        return Address.parse(settings.health_probe_bind_address, setting="--health-probe-bind-address")
    except AddressError:
        return None


def _problems(loaded: Loaded, inputs: Inputs) -> list[str]:
    """Return every problem of the settings with which the process can never work."""
    settings, problems = loaded.settings, fatal_problems(loaded, inputs)
    if settings.prometheus_base_url:
        problems += connection_problems(PrometheusSettings.of(settings))
    return problems + election_problems(settings)


async def read_once(client: KubeClient, key: Key) -> Mapping[str, str] | None:
    """Return the data of the main ConfigMap, None when there is none. Raises UnreadError."""
    try:
        async with asyncio.timeout(_READ_SECONDS):
            return (await client.get(CONFIG_MAPS, key)).data
    except NotFound:
        return None
    except Forbidden as error:
        raise UnreadError(
            f"not allowed to read ConfigMap {key}: expected permission to get configmaps in namespace "
            f"{key.namespace}: {error}"
        ) from error
    except (ApiError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_READ_SECONDS:g} s"
        answered = isinstance(error, ApiError) and not isinstance(error, Unreachable)
        problem = "gives no answer of use" if answered else "cannot be reached"
        raise UnreadError(f"the cluster at {client.host} {problem} for ConfigMap {key}: {reason}") from error


async def read_until_known(
    client: KubeClient, key: Key, *, waiting: Callable[[str], None], clock: Clock
) -> Mapping[str, str]:
    """Return the data of the main ConfigMap, empty when there is none. Retry for ever, and give ``waiting`` each error.

    This reads without the caches, since they need settings. WVA checks no setting before the API server answers: a
    setting that flags and environment lack may be in the ConfigMap.
    """
    backoff = Backoff(base_seconds=_RETRY_SECONDS, cap_seconds=_LONGEST_RETRY_SECONDS)
    while True:
        try:
            return await read_once(client, key) or {}
        except UnreadError as error:
            waiting(str(error))
        await clock.sleep(backoff.next(clock.monotonic()))
