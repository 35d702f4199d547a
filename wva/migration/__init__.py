"""``wva migrate``: finds what users must change before this controller takes over from the Go controller.

``objects`` reads objects from a cluster or from files. ``checks`` and ``scalers`` yield findings about them. Nothing is
written to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from wva.migration.checks import (
    configuration_findings,
    controller_findings,
    shared_target_findings,
    variant_findings,
)
from wva.migration.objects import Finding, FoundObjects, Severity
from wva.migration.scalers import adapter_findings, autoscaler_findings, pair_findings, scaled_object_findings

__all__ = ["Finding", "FoundObjects", "Severity", "check"]


def check(objects: FoundObjects, *, now: float, read_findings: Iterable[Finding] = ()) -> list[Finding]:
    """Return all findings, the worst first.

    ``read_findings`` come from the reader; ``now`` is in seconds since the epoch.
    """
    findings = {
        *read_findings,
        *variant_findings(objects),
        *shared_target_findings(objects),
        *autoscaler_findings(objects),
        *scaled_object_findings(objects),
        *pair_findings(objects),
        *adapter_findings(objects),
        *controller_findings(objects, now),
        *configuration_findings(objects),
    }
    return sorted(findings, key=lambda finding: finding.order)
