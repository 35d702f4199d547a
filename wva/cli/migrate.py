"""``wva migrate``: what has to change in a cluster, or in manifests, before this controller takes over."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from typing import Final

from wva import log
from wva.cli.cluster import advice, connected
from wva.command_error import CommandError
from wva.command_line import add_output, print_json
from wva.kube.errors import Forbidden
from wva.migration import Finding, FoundObjects, Severity, check
from wva.migration.objects import REFUSED, Manifests, read_cluster

_CALL_SECONDS: Final = 30.0
_IN_ALL_SECONDS: Final = 120.0
EXAMPLES: Final = (
    "wva migrate",
    "wva migrate manifests/ --output json",
    "helm get manifest my-release | wva migrate -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths, the cluster and the output format."""
    parser.description = (
        "Look at a cluster, or at manifests, that the Go controller of the same name was used with, and print what has "
        "to change before this one takes over. Nothing is written."
    )
    parser.epilog = (
        "Exit status: 0 when nothing must change, 1 when something must or nothing could be read, 2 on a wrong flag, 3 "
        "when nothing that was looked at must change, but parts could not be looked at."
    )
    paths = "files or folders of YAML, - for standard input (default: the cluster)"
    parser.add_argument("paths", nargs="*", metavar="PATH", help=paths)
    parser.add_argument("--namespace", "-n", default="", metavar="NAME", help="only this namespace of the cluster")
    parser.add_argument("--context", default=None, metavar="NAME", help="the kubeconfig's context to use")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings and return the status. Raises CommandError when nothing can be read."""
    log.configure(level="error", encoding="console")  # the findings already report problems of a ConfigMap

    async def read() -> tuple[FoundObjects, list[Finding]]:
        connection = connected(arguments.context, call_seconds=_CALL_SECONDS)
        async with asyncio.timeout(_IN_ALL_SECONDS), connection as client:
            return await read_cluster(client, arguments.namespace)

    if arguments.paths:
        manifests = Manifests()
        manifests.read(arguments.paths, sys.stdin)
        objects, read_findings = manifests.objects, manifests.findings
    else:
        try:
            objects, read_findings = asyncio.run(read())
        except TimeoutError as error:
            raise CommandError(f"the cluster cannot be read: no answer within {_IN_ALL_SECONDS:g} s") from error
    refused = [f"{finding.kind} {finding.problem}" for finding in read_findings if finding.problem.startswith(REFUSED)]
    if not objects.size:
        # An empty cluster has nothing to change. One that refuses to be looked at, and an empty folder, are not green.
        reasons = [*refused, *([advice(Forbidden(403, "", ""))] if refused else [])]
        reasons += [f"{name}: expected files (.yaml, .yml or .json) with objects of WVA" for name in arguments.paths]
        if reasons:
            raise CommandError("\n".join(["nothing was looked at", *reasons]))
    findings = check(objects, now=time.time(), read_findings=read_findings)
    if arguments.output == "json":
        entries = [{**asdict(finding), "key": str(finding.key)} for finding in findings]
        print_json({"objects": objects.size, "findings": entries})
    else:
        for finding in findings:
            print(log.printable(f"{finding.severity.value:6} {finding.kind} {finding.key}"))
            print(f"       {log.printable(finding.problem)}")
            if finding.change:
                print(f"       do: {log.printable(finding.change)}")
        counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
        summary = ", ".join(f"{count} {severity.value}" for severity, count in counts.items())
        print(f"{objects.size} objects looked at: {summary}")
    if any(finding.severity is Severity.MUST for finding in findings):
        return 1
    return 3 if refused else 0
