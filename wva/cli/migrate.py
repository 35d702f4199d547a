"""``wva migrate``: what has to change in a cluster, or in manifests, before this controller takes over."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict

from prometheus_client import CollectorRegistry

from wva import log
from wva.cli.flags import fail
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, ConfigurationError
from wva.migration import Finding, Inventory, Severity, check
from wva.migration.cluster import read
from wva.migration.manifests import Manifests, UnreadableError

_CALL_SECONDS = 30.0
_IN_ALL_SECONDS = 120.0


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; status 1 when something must change or nothing could be looked at."""
    log.configure(level="error", encoding="console")  # what is told of a ConfigMap stands in its findings
    try:
        if arguments.paths:
            manifests = Manifests()
            manifests.read(arguments.paths, sys.stdin)
            inventory, found = manifests.inventory, manifests.findings
        else:
            inventory, found = asyncio.run(_read_cluster(arguments.namespace, arguments.context))
    except UnreadableError as error:
        return fail(str(error))
    except (ApiError, ConfigurationError, TimeoutError) as error:
        return fail(f"the cluster cannot be read: {str(error) or f'no answer within {_IN_ALL_SECONDS:g} s'}")
    findings = check(inventory, now=time.time(), found=found)
    if arguments.json:
        _show_json(findings, inventory)
    else:
        _show(findings, inventory)
    return 1 if any(finding.severity is Severity.MUST for finding in findings) else 0


async def _read_cluster(namespace: str, context: str | None) -> tuple[Inventory, list[Finding]]:
    instruments = Instruments(CollectorRegistry())
    async with (
        asyncio.timeout(_IN_ALL_SECONDS),
        KubeClient.connect(instruments=instruments, timeout_seconds=_CALL_SECONDS, context=context) as client,
    ):
        return await read(client, namespace)


def _show_json(findings: list[Finding], inventory: Inventory) -> None:
    entries = [{**asdict(finding), "key": str(finding.key)} for finding in findings]
    json.dump({"objects": inventory.size, "findings": entries}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _show(findings: list[Finding], inventory: Inventory) -> None:
    for finding in findings:
        print(log.printable(f"{finding.severity.value:6} {finding.kind} {finding.key}"))
        print(f"       {log.printable(finding.problem)}")
        if finding.change:
            print(f"       do: {log.printable(finding.change)}")
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    told = ", ".join(f"{count} {severity.value}" for severity, count in counts.items())
    print(f"{inventory.size} objects looked at: {told}")
