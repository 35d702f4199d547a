"""``wva run``: settings, connection, application, exit status.

What could never work ends the process with status 1 and one line per problem, all of them at once. Everything else is
waited for: an API server or a Prometheus that does not answer now may answer in a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Mapping

from wva import __version__, log
from wva.api.kinds import CONFIG_MAPS
from wva.api.meta import Key
from wva.app import Application, Environment, election_problems, new_registry, prometheus_settings
from wva.cli.flags import fail, given_flags
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, ConfigurationError, NotFound
from wva.serve.address import AddressError
from wva.serve.certs import CertificateError
from wva.settings import Given, Loaded, Settings, fatal_problems, load

_CONFIG_MAP_ATTEMPTS = 3
_CONFIG_MAP_TIMEOUT_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


def run(arguments: argparse.Namespace) -> int:
    """Run the controller until SIGTERM or SIGINT and return the exit status."""
    flags = given_flags(arguments)
    # Not uvloop: connections reset while they open confuse its file descriptors (its issue 653), and it aborts.
    return asyncio.run(_main(Given(flags, dict(os.environ), {})))


async def _main(given: Given) -> int:
    loaded = load(given)
    log.configure(level=loaded.settings.effective_log_level, encoding=loaded.settings.log_encoding)
    instruments = Instruments(new_registry())
    problems: list[str] = []
    try:
        async with KubeClient.connect(
            instruments=instruments, timeout_seconds=loaded.settings.rest_client_timeout
        ) as client:
            data, unreachable = await _main_config_map(client, loaded.settings)
            given = Given(given.flags, given.environment, data)
            loaded = load(given)
            settings = loaded.settings
            problems = _problems(loaded, given)
            if not problems:
                log.configure(level=settings.effective_log_level, encoding=settings.log_encoding)
                return await _serve(Environment(settings, given, client, instruments), loaded)
            if unreachable:
                problems.append(unreachable)
    except ConfigurationError as error:
        problems = [*_problems(loaded, given), str(error)]
    except (AddressError, CertificateError) as error:
        problems = [str(error)]
    for problem in problems:
        fail(problem)
    return 1


def _problems(loaded: Loaded, given: Given) -> list[str]:
    """Return every reason why the process could never work."""
    settings, problems = loaded.settings, fatal_problems(loaded, given)
    if settings.prometheus_base_url:
        problems += prometheus_settings(settings).validate()
    return problems + election_problems(settings)


async def _main_config_map(client: KubeClient, settings: Settings) -> tuple[Mapping[str, str], str]:
    """Return the main ConfigMap's data and, if it could not be read, why.

    A ConfigMap that does not exist is an empty one: everything may come from flags and environment.
    """
    key = Key(settings.pod_namespace, settings.config_map_name)
    reason = ""
    for attempt in range(_CONFIG_MAP_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        try:
            async with asyncio.timeout(_CONFIG_MAP_TIMEOUT_SECONDS):
                return (await client.get(CONFIG_MAPS, key)).data, ""
        except NotFound:
            return {}, ""
        except (ApiError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
    return {}, f"the cluster at {client.host} cannot be reached, so ConfigMap {key} could not be read: {reason}"


async def _serve(environment: Environment, loaded: Loaded) -> int:
    logger = log.get("main")
    settings = environment.settings
    for problem in loaded.problems:
        logger.warning("setting_rejected", key=problem.key, problem=str(problem))
    for line in loaded.without_effect:
        logger.warning("setting_without_effect", setting=line)
    logger.info(
        "starting",
        version=__version__,
        namespace=settings.pod_namespace,
        config_map=settings.config_map_name,
        saturation_config_map=settings.saturation_config_map_name,
        watch_namespace=settings.watch_namespace or "all",
        interval_seconds=settings.global_opt_interval,
        sources={name: source for name, source in loaded.sources.items() if source != "default"},
    )
    application = Application(environment)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gc.freeze()  # start-up objects live for ever; the collector need not look at them again
    return await application.run(stop)
