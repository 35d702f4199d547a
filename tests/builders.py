"""Builders of domain values with defaults, so that a test names only the values that it needs."""

from __future__ import annotations

from typing import Any

from wva.api.meta import ObjectList, T
from wva.api.resource import Resource
from wva.decide.progress import Moment, progress_of
from wva.decide.trust import VariantReadings
from wva.model.metrics import MISSING, ReplicaMetrics, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Compatibility, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey

NOW = 1_700_000_000.0
"""A time, in seconds since the epoch."""

NAMESPACE = "ns"
INVALID = Sample(SampleState.INVALID, detail="'NaN' is not a number")


def variant(
    name: str = "a",
    *,
    replicas: int = 1,
    desired: int | None = None,
    model: str = "m",
    minimum: int | None = None,
    maximum: int | None = None,
    namespace: str = NAMESPACE,
    **fields: Any,
) -> Variant:
    """Return a variant whose replicas exist and are ready; ``desired`` is the number in its status."""
    built = Variant(
        key=VariantKey(namespace, name),
        model=ModelKey(namespace, model),
        target=name,
        accelerator="A100",
        spec_replicas=replicas,
        current_replicas=replicas,
        ready_replicas=replicas,
        status_desired=desired,
        bounds=Bounds(minimum, maximum),
    )
    return replace(built, **fields)


def sample(value: float | Sample | None, at: float = NOW - 5) -> Sample:
    """Return a fresh sample of a number, a missing sample for None, and a sample as it is."""
    if value is None:
        return MISSING
    return value if isinstance(value, Sample) else Sample(SampleState.FRESH, float(value), at)


def stale(value: float) -> Sample:
    """Return a sample that is two minutes old."""
    return Sample(SampleState.STALE, float(value), NOW - 120, "120 s old")


def replica(
    pod: str = "a-0",
    *,
    variant: str = "a",
    kv: float | Sample | None = 0.5,
    queue: float | Sample | None = 0,
    namespace: str = NAMESPACE,
    at: float = NOW - 5,
) -> ReplicaMetrics:
    """Return a Ready pod with its samples, which was scraped ``at`` a time."""
    return ReplicaMetrics(pod, VariantKey(namespace, variant), sample(kv, at), sample(queue, at))


def standing(of: Variant, pods: tuple[ReplicaMetrics, ...] = ()) -> VariantReadings:
    """Return the readings of a variant without any history; ``pods`` are its Ready pods."""
    return VariantReadings(of.key, progress_of(of, replicas=pods, entry=None, moment=Moment(NOW, 600.0)), pods)


def policy(*, compatibility: Compatibility | None = None, **saturation: Any) -> Policy:
    """Return a policy of the percentage analyzer with the shipped thresholds, except for those named."""
    fields = {"analyzer_name": Analyzer.PERCENTAGE} | saturation
    return Policy(saturation=SaturationPolicy(**fields), compatibility=compatibility)


def decoded_list(resource: Resource[T], data: bytes) -> ObjectList[T]:
    """Decode a list in one piece, leaving out and counting the items that do not decode."""
    page = resource.decode_page(data)
    items = tuple(resource.decode_items(page))
    found = tuple(item for item in items if item is not None)
    return ObjectList(found, page.metadata.resource_version, len(items) - len(found))
