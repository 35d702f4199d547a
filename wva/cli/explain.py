"""``wva explain NAMESPACE/NAME``: why a variant has its number, and what would have given it another one."""

from __future__ import annotations

import argparse
import asyncio
import math
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from wva import log
from wva.api.meta import format_time
from wva.cli import remote
from wva.command_error import CommandError, UsageError
from wva.command_line import add_output, print_json
from wva.hindsight.cycle import at_or_before
from wva.hindsight.explanation import Explanation, explanation, lines
from wva.hindsight.flips import INTERVAL_SECONDS
from wva.hindsight.recordings import read_all
from wva.model.variant import VariantKey
from wva.serve.decisions import explain_path

_NAMED: Final = 5
"""Variants that are named when the one that was asked for is not there."""
EXAMPLES: Final = (
    "wva explain models/chat --service-account monitoring/prometheus-k8s",
    "wva explain models/chat --from cycles --at 2026-01-31T12:00:00Z",
    "wva explain models/chat --from cycles --output json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the variant, the recording and the form of the answer."""
    parser.description = (
        "Say why a variant has its number: the steps from demand to limits, the samples with their age, what was "
        "ignored, who limited, and the smallest change of each input that would have given another number."
    )
    parser.add_argument("variant", metavar="NAMESPACE/NAME", help="the VariantAutoscaling")
    parser.add_argument(
        "--from",
        dest="path",
        metavar="FILE|DIR",
        help="a recording, or a folder of them; - reads standard input (default: the controller in the cluster)",
    )
    parser.add_argument(
        "--at", metavar="TIME", help="the cycle at or before this time (2026-01-31T12:00:00Z); default: the last one"
    )
    parser.add_argument("--no-changes", action="store_true", help="leave out what would have given another number")
    add_output(parser)
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Raises CommandError when there is none."""
    key = VariantKey(*remote.named(arguments.variant, "of a VariantAutoscaling"))
    with_changes = not arguments.no_changes
    if arguments.path is not None:
        recordings = read_all(arguments.path)
        chosen = at_or_before(recordings, math.inf if arguments.at is None else _seconds(arguments.at))
        if chosen is None:
            raise CommandError(f"no recorded cycle at {arguments.at} or before")
        previous = at_or_before(recordings, math.nextafter(chosen.now, -math.inf))
        interval = INTERVAL_SECONDS if previous is None else chosen.now - previous.now
        document = explanation(chosen, key, with_changes=with_changes, interval_seconds=interval)
        if document is None:
            variants = sorted(str(variant.key) for variant in chosen.snapshot.variants)
            hint = f"; it has {', '.join(variants[:_NAMED])}{', ...' if variants[_NAMED:] else ''}" if variants else ""
            raise CommandError(f"the cycle at {format_time(chosen.now)} has no decision on {key}{hint}")
    else:
        document = asyncio.run(_controller_explanation(arguments, key, with_changes=with_changes))
    if arguments.output == "json":
        print_json(document)
    else:
        for line in lines(document):
            print(log.printable(line))
    return 0


async def _controller_explanation(arguments: argparse.Namespace, key: VariantKey, *, with_changes: bool) -> Explanation:
    """Return the explanation that the controller in the cluster gives. Raises CommandError."""
    query = {} if arguments.at is None else {"at": str(_seconds(arguments.at))}
    query |= {} if with_changes else {"changes": "false"}
    path = f"{explain_path(key.namespace, key.name)}?{urlencode(query)}"
    async with remote.remote(arguments) as controller:
        body = await controller.get(path.removesuffix("?"))
    try:
        return msgspec.json.decode(body, type=Explanation)
    except msgspec.DecodeError as error:
        raise CommandError(f"the answer of pod {controller.pod} is no explanation: {error}") from error


def _seconds(text: str) -> float:
    """Return a time in seconds since the epoch. Raises CommandError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--at={text!r}: expected a time as 2026-01-31T12:00:00Z") from error
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
