"""``wva run``: settings, connection, application, exit status.

A fault that no waiting can mend ends the process with status 1 and one line per problem, all of them at once. The
process waits for everything else: an API server or a Prometheus that does not answer now may answer in a minute.
Meanwhile the probes answer and name what the process waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

from wva import __version__, log
from wva.api.meta import Key
from wva.app import (
    Application,
    Environment,
    Probes,
    election_problems,
    new_registry,
    server_problems,
)
from wva.cli.first_read import read_until_known
from wva.cli.flags import fail, given_flags
from wva.clock import SystemClock
from wva.collect.credential_files import connection_problems
from wva.config import Given, Loaded, Settings, fatal_problems, load
from wva.config.load import unknown_keys
from wva.config.prometheus import PrometheusSettings
from wva.garbage import searched_afterwards, young_only
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ConfigurationError
from wva.model.records import replace
from wva.serve.address import Address, AddressError
from wva.serve.certs import CertificateError

_PROBES: Final = "--health-probe-bind-address"


def run(arguments: argparse.Namespace) -> int:
    """Run the controller until SIGTERM or SIGINT and return the exit status."""
    given = Given(given_flags(arguments), dict(os.environ), {})
    loaded = load(given)
    with asyncio.Runner(loop_factory=_loop_factory(loaded.settings)) as runner:
        return runner.run(_main(given, loaded))


def _loop_factory(settings: Settings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop; None is asyncio's own.

    That is the default although uvloop is faster: connections reset while they open confuse its file descriptors
    (uvloop's issue 653) and it aborts the process, and a controller that stays up is worth more than a quicker one.
    """
    if settings.event_loop == "asyncio":
        return None
    import uvloop  # noqa: PLC0415 - not needed otherwise

    return uvloop.new_event_loop


async def _main(given: Given, loaded: Loaded) -> int:
    log.configure(level=loaded.settings.effective_log_level, encoding=loaded.settings.log_encoding)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        return await _Start(given, loaded, stop).run()
    except ConfigurationError as error:
        return _refuse([*_problems(loaded, given), str(error)])
    except (AddressError, CertificateError) as error:
        return _refuse([str(error)])


class _Start:
    """From what is known at the first moment to a running application."""

    def __init__(self, given: Given, loaded: Loaded, stop: asyncio.Event) -> None:
        self._given = given
        self._loaded = loaded
        self._stop = stop
        self._instruments = Instruments(new_registry())
        self._waiting_for = "waiting for the API server"

    async def run(self) -> int:
        """Read the main ConfigMap, judge the settings, run. Returns the exit status."""
        async with AsyncExitStack() as stack:
            probes = await self._early_probes(stack)
            data = await self._main_config_map()
            if data is None:
                return 0
            given = replace(self._given, config_map=data)
            loaded = load(given)
            settings = loaded.settings
            log.configure(level=settings.effective_log_level, encoding=settings.log_encoding)
            if probes is not None and probes.address != _probe_address(settings):
                await probes.close()
            async with self._connect(settings) as client:
                # Objects in the caches live long. If the collector looked at all of them again and again, everything
                # else would wait: a quarter of a second with 30,000 pods.
                environment = Environment(
                    settings,
                    given,
                    client,
                    self._instruments,
                    probes=probes,
                    synced=young_only(),
                    cycle=searched_afterwards,
                )
                problems = [*_problems(loaded, given), *server_problems(environment)]
                if problems:
                    return _refuse(problems)
                return await _serve(environment, loaded, self._stop)

    async def _early_probes(self, stack: AsyncExitStack) -> Probes | None:
        """Listen where flags and environment say.

        An address that is none, or taken, is judged with everything else: the ConfigMap may give another one.
        """
        address = _probe_address(self._loaded.settings)
        if address is None:
            return None
        probes = Probes(address, instruments=self._instruments, not_ready=lambda: [self._waiting_for])
        try:
            return await stack.enter_async_context(probes)
        except AddressError as error:
            log.get("main").warning("early_probes_off", reason=str(error), next="read the ConfigMap")
            return None

    async def _main_config_map(self) -> Mapping[str, str] | None:
        """Return the data of the main ConfigMap; None when the process was asked to end before it could be read."""
        reading = asyncio.ensure_future(self._read())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            for task in (reading, stopping):
                task.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)

    async def _read(self) -> Mapping[str, str]:
        settings = self._loaded.settings
        key = Key(settings.pod_namespace, settings.config_map_name)
        async with self._connect(settings) as client:
            return await read_until_known(client, key, waiting=self._say_waiting, clock=SystemClock())

    def _say_waiting(self, reason: str) -> None:
        self._waiting_for = f"waiting for the API server: {reason}"
        log.get("main").warning("waiting_for_api_server", reason=reason, next="try again")

    def _connect(self, settings: Settings) -> AbstractAsyncContextManager[KubeClient]:
        return KubeClient.connect(instruments=self._instruments, timeout_seconds=settings.rest_client_timeout)


def _probe_address(settings: Settings) -> Address | None:
    try:
        return Address.parse(settings.health_probe_bind_address, setting=_PROBES)
    except AddressError:
        return None


def _problems(loaded: Loaded, given: Given) -> list[str]:
    """Return every reason in the settings why the process could never work."""
    settings, problems = loaded.settings, fatal_problems(loaded, given)
    if settings.prometheus_base_url:
        problems += connection_problems(PrometheusSettings.of(settings))
    return problems + election_problems(settings)


def _refuse(problems: list[str]) -> int:
    """Print one line per problem and return the status of a process that could never work."""
    for problem in problems:
        fail(problem)
    return 1


async def _serve(environment: Environment, loaded: Loaded, stop: asyncio.Event) -> int:
    logger = log.get("main")
    settings = environment.settings
    for problem in loaded.problems:
        logger.warning("setting_rejected", key=problem.key, problem=str(problem))
    if loaded.without_effect:
        logger.warning("settings_without_effect", settings=list(loaded.without_effect))
    for key in unknown_keys(environment.given.config_map):
        logger.warning("setting_unknown", key=key, config_map=settings.config_map_name)
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
    application = Application(environment)
    gc.freeze()  # start-up objects live for ever; the collector need not look at them again
    return await application.run(stop)
