"""When a model goes to zero: it had no request during its retention period, and nothing speaks against it.

In: what is known of the model and its need. Out: why it stays, in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from wva.decide.measure.need import Need
from wva.decide.trust import ModelReadings
from wva.model.policy import ScaleToZeroPolicy
from wva.model.snapshot import RequestCounts


def why_not_zero(
    model: ModelReadings, need: Need, policy: ScaleToZeroPolicy, growing: Iterable[str], now: float
) -> tuple[str, bool]:
    """Return in words why a model may not go to zero now, empty when it may; and whether that is a surprise.

    A model is idle only if no request finished within its retention period, none runs or waits, no change is unfinished
    and the model was not started within that period. Missing data never counts as idle, nor does a time of which
    Prometheus has no samples. ``growing`` are the names of variants that are asked for more.
    """
    counts = model.counts
    if need.hold is not None or not model.complete:
        gap = "not every replica reports" if need.hold is None else need.hold.message
        return f"nothing is taken to zero on incomplete metrics ({gap})", False
    if counts is None or counts.finished is None or counts.in_progress is None:
        detail = "" if counts is None else counts.detail
        return f"the requests of the model are not known ({detail or 'not counted'})", False
    if counts.retention_seconds < policy.retention_seconds:
        return f"requests are known for the last {counts.retention_seconds:g} s only", False
    busy = _busy(model, counts)
    if busy:
        return busy, False
    if not counts.covered:
        words = f"the history of requests covers {counts.covered_seconds:g} of {counts.retention_seconds:g} s"
        return words, True
    active = [each.progress for each in model.variants if each.progress.variant.active]
    moving = sorted(each.variant.key.name for each in active if each.since is not None) or sorted(growing)
    if moving:
        return f"unfinished change of {', '.join(moving)}", False
    started = [each.variant.activated_at for each in active if each.variant.activated_at is not None]
    age = now - max(started, default=-math.inf)
    if age < policy.retention_seconds:
        return f"started {max(0.0, age):.0f} s ago, gets {policy.retention_seconds:g} s", False
    return "", False


def _busy(model: ModelReadings, counts: RequestCounts) -> str:
    if counts.finished:
        return f"{counts.finished:g} requests finished within {counts.retention_seconds:g} s"
    if counts.in_progress:
        return f"{counts.in_progress:g} requests run or wait"
    queued = math.fsum([pod.queue_length.fresh_value or 0.0 for each in model.variants for pod in each.replicas])
    return f"{queued:g} requests wait" if queued > 0 else ""
