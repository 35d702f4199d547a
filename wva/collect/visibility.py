"""Whether autoscalers can already see a number: whether Prometheus has it, at the times for which they ask.

KEDA and HPA read ``wva_desired_replicas`` from Prometheus, which has it one scrape after it was published. While KEDA
still reads zero, it takes a running target back to zero. So a start from zero waits until KEDA can read the number.

Two things delay KEDA beyond the scrape. KEDA asks Prometheus for the value at the last whole second, so it sees a
sample from the next whole second on; this module asks for the same time. And KEDA asks first, then looks how many
replicas exist, then writes. A KEDA that asked before the number was there must have looked before the replicas exist,
so there is a pause at the end. The pause also covers clocks that differ.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from wva.clock import Clock
from wva.collect.answers import InstantVector, PrometheusError, Querier
from wva.collect.promql import quote
from wva.model.variant import VariantKey
from wva.numbers import MAX_REPLICAS, Real

VISIBLE_SECONDS: Final = 2.4
"""How long to wait at most for the number: requests that wait for a first replica wait for this, too."""
SETTLE_SECONDS: Final = 0.25
"""How long an autoscaler may take from its question to the look at the replicas."""
_POLL_SECONDS: Final = 0.2
_AFTER_THE_SECOND: Final = 0.005
_PUBLISHED: Final = Real(0, MAX_REPLICAS)
_NAME: Final = "published_number"


async def wait_visible(key: VariantKey, desired: int, *, prometheus: Querier, clock: Clock) -> bool:
    """Return once no autoscaler acts on less than ``desired`` for a variant any more; tell whether that is so.

    False: Prometheus did not have the number within ``VISIBLE_SECONDS``.
    """
    text = published_query(key)
    limit = clock.monotonic() + VISIBLE_SECONDS
    while (left := limit - (asked := clock.monotonic())) > 0:
        now = clock.now()
        try:
            async with asyncio.timeout(left):
                answer = await prometheus.query(text, name=_NAME, at=math.floor(now))
        except (PrometheusError, TimeoutError):
            answer = InstantVector()
        values = [_PUBLISHED.find(series.value[1]) for series in answer.series if series.value is not None]
        if any(value is not None and value >= desired for value in values):
            await clock.sleep(max(0.0, asked + SETTLE_SECONDS - clock.monotonic()))
            return True
        pause = min(_POLL_SECONDS, _to_next_second(clock.now()), limit - clock.monotonic())
        await clock.sleep(max(0.0, pause))
    return False


def _to_next_second(now: float) -> float:
    """Return how long it takes until autoscalers ask for a later time."""
    return math.floor(now) + 1 - now + _AFTER_THE_SECOND


def published_query(key: VariantKey) -> str:
    """Return the query for what Prometheus has of a variant's number.

    The series' own namespace is ``exported_namespace`` where the scrape adds a ``namespace`` of the target.
    """
    name, namespace = quote(key.name), quote(key.namespace)
    series = (f"wva_desired_replicas{{variant_name={name},{label}={namespace}}}" for label in _NAMESPACE_LABELS)
    return f"max({' or '.join(series)})"


_NAMESPACE_LABELS: Final = ("exported_namespace", "namespace")
