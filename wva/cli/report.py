"""``wva report --shadow``: what really ran against what WVA would have run, as text, JSON and a page.

Connection settings are those of the controller: ``PROMETHEUS_TOKEN_PATH`` and the others, from the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from wva import log
from wva.cli.remote import add_controller_namespace
from wva.clock import SystemClock
from wva.collect.queries import TargetLabels, validate_namespace
from wva.command_error import CommandError
from wva.command_line import add_output, print_json
from wva.hindsight.recordings import read_all
from wva.hindsight.report import text
from wva.hindsight.report.days import MOST_DAYS, ShadowReport
from wva.hindsight.report.history import from_prometheus
from wva.hindsight.report.page import html
from wva.hindsight.report.recorded import from_recordings
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.numbers import Whole, shown
from wva.prometheus.answers import PrometheusError
from wva.prometheus.authentication import connection_of
from wva.prometheus.client import PrometheusClient

_DAYS: Final = Whole(1, MOST_DAYS)
_DEFAULT_DAYS: Final = 7
_IN_ALL_SECONDS: Final = 600.0
EXAMPLES: Final = (
    "wva report --shadow --prometheus http://localhost:9090",
    "wva report --shadow --from cycles --days 1 --html report.html",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the source, the days and the form of the report."""
    parser.description = (
        "Say what really ran, and what WVA in shadow mode would have run: GPU-hours, cost and late requests, by day "
        "and by variant. The numbers come from the counters that Prometheus has of the controller, or from recordings, "
        "where each variant counts as if it were in shadow mode."
    )
    parser.epilog = (
        "A token and certificates for Prometheus are taken from the environment, as by `wva run`: "
        "PROMETHEUS_BEARER_TOKEN, PROMETHEUS_TOKEN_PATH, PROMETHEUS_CA_CERT_PATH and so on. So is WVA_METRICS_JOB, the "
        "job of the controller's targets. Exit status: 0, 1 when nothing can be reported, 2 on a wrong flag."
    )
    add = parser.add_argument
    add("--shadow", action="store_true", required=True, help="report on shadow mode: there is no other report yet")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="Prometheus that scrapes the controller")
    source.add_argument("--from", dest="path", metavar="DIR", help="a folder of recordings made with --record-dir")
    days = f"days of UTC, of which today or the last recorded day is the last: 1 to {MOST_DAYS}"
    add("--days", type=_days, default=_DEFAULT_DAYS, metavar="N", help=f"{days} (default: {_DEFAULT_DAYS})")
    add("--namespace", "-n", type=_namespace, metavar="NAME", help="only variants of this namespace (default: all)")
    add_controller_namespace(
        parser, ": Prometheus is asked for the counters of targets there, '' for those of any target"
    )
    add_output(parser)
    add("--html", metavar="FILE", help="also write a page that needs no other file and no network")


def _days(word: str) -> int:
    days = _DAYS.find(word)
    if days is None:
        raise argparse.ArgumentTypeError(f"{shown(word)}: expected {_DAYS.expected}")
    return days


def _namespace(word: str) -> str:
    try:
        return validate_namespace(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Raises CommandError when there is nothing to report."""
    log.configure(level="error", encoding="console")
    namespace: str | None = arguments.namespace

    def takes(key: VariantKey) -> bool:
        return namespace in (None, key.namespace)

    if arguments.path is not None:
        recordings = read_all(arguments.path)
        report = from_recordings(recordings, days=arguments.days, source=f"recordings in {arguments.path}", takes=takes)
        missing = "two recorded cycles with a variant are needed at least"
    else:
        report = asyncio.run(_from_prometheus(arguments, takes))
        controller = arguments.controller_namespace
        origin = f" from a controller in namespace {controller} (--controller-namespace)" if controller else ""
        missing = (
            f"Prometheus has no counters of a variant in shadow mode{origin}: does it scrape the controller, and does "
            "the VariantAutoscaling or its namespace have the annotation wva.llmd.ai/mode: shadow?"
        )
    if not report.figures:
        where = "" if namespace is None else f" in namespace {namespace}"
        raise CommandError(f"there is nothing to report on {report.span}{where}: {missing}")
    if arguments.html is not None:
        try:
            Path(arguments.html).write_text(html(report), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"--html={arguments.html}: {error.strerror}") from error
    if arguments.output == "json":
        print_json(report.document())
    else:
        for line in text.lines(report):
            print(log.printable(line))
    return 0


async def _from_prometheus(arguments: argparse.Namespace, takes: Callable[[VariantKey], bool]) -> ShadowReport:
    settings = connection_of(arguments.prometheus, "--prometheus", os.environ)
    target = TargetLabels(arguments.controller_namespace, os.environ.get("WVA_METRICS_JOB", ""))
    try:
        matchers = target.matchers
    except ValueError as error:
        raise CommandError(str(error)) from error
    instruments = Instruments(CollectorRegistry())
    try:
        async with (
            asyncio.timeout(_IN_ALL_SECONDS),
            PrometheusClient(settings, clock=SystemClock(), instruments=instruments) as client,
        ):
            return await from_prometheus(
                client,
                days=arguments.days,
                now=time.time(),
                address=settings.base_url,
                takes=takes,
                matchers=matchers,
            )
    except PrometheusError as error:
        raise CommandError(error.message) from error
    except TimeoutError as error:
        raise CommandError(f"{settings.base_url} did not answer all queries within {_IN_ALL_SECONDS:g} s") from error
