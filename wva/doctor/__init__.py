"""Finds where the chain from the load to the replicas is broken: ``wva doctor``.

The chain has links: the definition of VariantAutoscalings, the controller and its rights, its configuration, then for
each variant its object, target, pods, metrics, decision and publication, the scaler that reads the number, and the
replicas. ``cluster`` reads what there is, ``installation`` and ``variants`` look at the links, and the checks of
``wva.migration`` look at scalers and ConfigMaps. Nothing is written to the cluster.
"""

from __future__ import annotations

from wva.doctor.diagnosis import Diagnosis, Link
from wva.doctor.examination import examine

__all__ = ["Diagnosis", "Link", "examine"]
