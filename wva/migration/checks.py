"""All checks over one inventory."""

from __future__ import annotations

from collections.abc import Iterable

from wva.migration.adapter import adapter_findings
from wva.migration.configuration import configuration_findings
from wva.migration.controllers import controller_findings
from wva.migration.finding import Finding
from wva.migration.objects import Inventory
from wva.migration.scalers import scaler_findings
from wva.migration.variants import variant_findings


def check(inventory: Inventory, *, now: float, found: Iterable[Finding] = ()) -> list[Finding]:
    """Return every finding, the worst first; ``found`` are those of the reading, ``now`` is seconds since the epoch."""
    findings = {
        *found,
        *variant_findings(inventory),
        *scaler_findings(inventory),
        *adapter_findings(inventory),
        *controller_findings(inventory, now),
        *configuration_findings(inventory),
    }
    return sorted(findings, key=lambda finding: finding.order)
