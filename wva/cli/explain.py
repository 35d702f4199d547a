"""``wva explain NAMESPACE/NAME``: why a variant has its number, and what would have given it another one."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from wva import log
from wva.api.meta import format_time
from wva.cli import remote
from wva.cli.decide import read_all
from wva.command_error import CommandError, UsageError
from wva.command_line import add_output, print_json
from wva.decide.amounts import replicas
from wva.decide.flips import INTERVAL_SECONDS
from wva.model.variant import VariantKey
from wva.publish.explanation import Explanation, ShownSample, explanation
from wva.serve.decisions import explain_path

_SHOWN: Final = 40
"""Samples that are shown to people; JSON has all."""
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
        if arguments.at is not None:
            until = _seconds(arguments.at)
            recordings = [recording for recording in recordings if recording.now <= until]
            if not recordings:
                raise CommandError(f"no recorded cycle at {arguments.at} or before")
        chosen = recordings[-1]
        interval = chosen.now - recordings[-2].now if len(recordings) > 1 else 0.0
        found = explanation(
            chosen, key, with_changes=with_changes, interval_seconds=interval if interval > 0.0 else INTERVAL_SECONDS
        )
        if found is None:
            known = sorted(str(variant.key) for variant in chosen.snapshot.variants)
            some = f"; it has {', '.join(known[:_NAMED])}{', ...' if known[_NAMED:] else ''}" if known else ""
            raise CommandError(f"the cycle at {format_time(chosen.now)} has no decision on {key}{some}")
    else:
        found = asyncio.run(_asked(arguments, key, with_changes=with_changes))
    if arguments.output == "json":
        print_json(found)
    else:
        for line in lines(found):
            print(log.printable(line))
    return 0


async def _asked(arguments: argparse.Namespace, key: VariantKey, *, with_changes: bool) -> Explanation:
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


def lines(found: Explanation) -> Iterator[str]:
    """Yield an explanation as lines for people."""
    before = "nothing published before" if found.previous is None else f"{found.previous} before"
    yield f"{found.variant}: {replicas(found.desired)} ({found.reason}) at {format_time(found.at)}"
    yield f"  {found.message}"
    yield f"  {before}; {found.current} exist, {found.ready} Ready; the number is {found.source}"
    yield f"  model {found.model}{_role(found.role)}, analyzer {found.analyzer}"
    if found.objectives:
        yield f"  objectives: {found.objectives}"
    if found.served:
        yield f"  {found.served}"
    yield f"  accelerator {found.accelerator}, cost {found.cost:g} per replica"
    yield ""
    yield "steps"
    said = ""
    for step in found.steps:
        limit = f" [{step.limit}]" if step.limit else ""
        reason = "the same reason" if step.reason == said else step.reason
        yield f"  {step.stage:10}{step.change:10}{reason}{limit}"
        said = step.reason
    yield ""
    yield "samples"
    yield from _sample_lines(found.samples)
    if found.ignored:
        yield ""
        yield "ignored samples"
        yield from _sample_lines(found.ignored)
    if found.notes:
        yield ""
        yield "not read"
        yield from (f"  {note}" for note in found.notes)
    if found.siblings:
        yield ""
        yield "other variants of the model"
        for each in found.siblings:
            number = f"{replicas(each.desired)}, {each.current} exist ({each.reason})"
            yield f"  {each.variant}: {number}, {each.accelerator}, cost {each.cost:g}{_role(each.role)}"
    if found.changes is not None:
        yield ""
        yield "smallest changes that give another number"
        for flip in found.changes.flips:
            yield f"  {flip.change.words:40} {found.desired} -> {flip.number} ({flip.reason})"
        if not found.changes.flips:
            yield "  none"
        if found.changes.in_vain:
            yield "tried up to here, with the same number"
            yield from (f"  {change.words}" for change in found.changes.in_vain)


def _role(role: str) -> str:
    return f", role {role}" if role else ""


def _sample_lines(samples: Sequence[ShownSample]) -> Iterator[str]:
    if not samples:
        yield "  none"
    width = max([len(sample.of) for sample in samples[:_SHOWN]], default=0)
    for sample in samples[:_SHOWN]:
        value = "-" if sample.value is None else f"{sample.value:.6g}"
        age = "no time" if sample.age_seconds is None else f"{sample.age_seconds:.0f} s old"
        detail = f" {sample.detail}" if sample.detail else ""
        yield f"  {sample.of:{width}}  {sample.signal:20} {value:>12}  {age:10} {sample.state.value}{detail}"
    if len(samples) > _SHOWN:
        yield f"  and {len(samples) - _SHOWN} more (--output json has all)"


def _seconds(text: str) -> float:
    """Return a time in seconds since the epoch. Raises CommandError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--at={text!r}: expected a time as 2026-01-31T12:00:00Z") from error
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
