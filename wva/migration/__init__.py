"""What has to change before this controller takes over from the Go controller: ``wva migrate``.

``objects`` is what is looked at, read from files by ``manifests`` or from the cluster by ``cluster``; ``variants``,
``scalers``, ``adapter``, ``controllers`` and ``configuration`` look at it and return findings. Nothing here writes.
"""

from __future__ import annotations

from wva.migration.checks import check
from wva.migration.finding import Finding, Severity
from wva.migration.objects import Inventory

__all__ = ["Finding", "Inventory", "Severity", "check"]
