"""``wva doctor [NAMESPACE/NAME]``: says at which link the chain from the load to the replicas is broken."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

from wva import log
from wva.api.meta import Key
from wva.cli import remote
from wva.cli.cluster import connected
from wva.command_error import CommandError
from wva.command_line import add_output, print_json
from wva.config.declare import shortened
from wva.doctor import Link, examine
from wva.doctor.examination import Examination
from wva.migration.objects import Severity

_CALL_SECONDS: Final = 30.0
_IN_ALL_SECONDS: Final = 300.0
_MOST_CHARACTERS: Final = 4000
"""A condition has room for 32 KiB, and an object may say more than it may."""
_STATUS: Final = {Severity.MUST: 1, Severity.SHOULD: 3, Severity.NOTE: 0}
_WORDS: Final = {Severity.MUST: "broken", Severity.SHOULD: "warning", Severity.NOTE: "note"}
EXAMPLES: Final = (
    "wva doctor",
    "wva doctor models/chat --service-account monitoring/prometheus-k8s",
    "wva doctor --context production --output json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the variant, how the controller is asked, and the form of the report."""
    parser.description = (
        "Walk the chain from the definition of VariantAutoscalings to the replicas, for all variants or for one, and "
        "say at which link it is broken and what mends it. Nothing is written."
    )
    parser.epilog = (
        "Exit status: 0 when nothing is wrong, 1 when something is broken or nothing could be read, 2 on a wrong "
        "flag, 3 when there are only warnings, or parts that could not be looked at."
    )
    parser.add_argument("variant", nargs="?", metavar="NAMESPACE/NAME", help="only this VariantAutoscaling")
    add_output(parser)
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report and return the status. Raises CommandError when nothing can be looked at."""
    log.configure(level="error", encoding="console")  # the findings say what is wrong in a ConfigMap
    only = None
    if arguments.variant is not None:
        only = remote.named(arguments.variant, "of a VariantAutoscaling")
    try:
        examination = asyncio.run(_examined(arguments, only))
    except TimeoutError as error:
        raise CommandError(f"the cluster did not answer within {_IN_ALL_SECONDS:g} s") from error
    if arguments.output == "json":
        findings = [
            {
                "link": fault.link.value,
                "name": fault.name,
                "severity": _WORDS[fault.finding.severity],
                "kind": fault.finding.kind,
                "namespace": fault.finding.key.namespace,
                "object": fault.finding.key.name,
                "problem": _short(fault.finding.problem),
                "change": fault.finding.change,
            }
            for fault in examination.diagnoses
        ]
        variants = [str(key) for key in examination.variants]
        unread = [_short(reason) for reason in examination.unread]
        print_json({"status": status_of(examination), "variants": variants, "findings": findings, "unread": unread})
    else:
        for line in lines(examination):
            print(log.printable(line))
    return status_of(examination)


async def _examined(arguments: argparse.Namespace, only: Key | None) -> Examination:
    connection = connected(arguments.context, call_seconds=_CALL_SECONDS)
    async with asyncio.timeout(_IN_ALL_SECONDS), connection as client, AsyncExitStack() as stack:
        ask, unasked = None, ""
        try:
            controller = await stack.enter_async_context(remote.remote(arguments))
            ask = controller.get
        except CommandError as error:
            unasked = f"controller: {error}"
        namespace, lease = arguments.controller_namespace, arguments.lease
        examination = await examine(client, ask=ask, namespace=namespace, lease=lease, only=only)
        examination.unread += [unasked] if unasked else []
        return examination


def _short(text: str) -> str:
    """Return a text, which may have messages of objects in it, cut to what a report has room for."""
    return shortened(text, _MOST_CHARACTERS)


def status_of(examination: Examination) -> int:
    """Return the exit status of the worst finding. A part that was not looked at counts as a warning.

    If the VariantAutoscalings could not be listed, the command has not looked at anything that it is about.
    """
    if not examination.listed:
        return 1
    statuses = {_STATUS[fault.finding.severity] for fault in examination.diagnoses} | (
        {3} if examination.unread else set()
    )
    return 1 if 1 in statuses else max(statuses, default=0)


def lines(examination: Examination) -> Iterator[str]:
    """Yield the report as lines for people. A link is ``ok`` only if all parts were looked at."""
    sound = "nothing found" if examination.unread else "ok"
    for link in Link:
        faults = [fault for fault in examination.diagnoses if fault.link is link]
        yield f"{link.value:14}{'' if faults else sound}".rstrip()
        for fault in faults:
            finding = fault.finding
            yield f"  {_WORDS[finding.severity]}: {fault.name}: {finding.kind} {finding.key}: {_short(finding.problem)}"
            if finding.change:
                yield f"    {finding.change}"
    if examination.unread:
        yield ""
        yield "not looked at"
        yield from (f"  {_short(reason)}" for reason in examination.unread)
    yield ""
    broken = sum(fault.finding.severity is Severity.MUST for fault in examination.diagnoses)
    warnings = sum(fault.finding.severity is Severity.SHOULD for fault in examination.diagnoses)
    unread = f", {len(examination.unread)} parts not looked at" if examination.unread else ""
    looked_at = (
        f"{len(examination.variants)} variants looked at" if examination.listed else "the variants could not be listed"
    )
    yield f"{looked_at}: {broken} broken, {warnings} warnings{unread}"
