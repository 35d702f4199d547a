"""Whether autoscalers can already see a number: whether Prometheus has it.

KEDA and HPA read ``wva_desired_replicas`` from Prometheus, which has it one scrape after it was published. KEDA takes a
target that it finds running back to zero while it still reads zero, so a start from zero waits for this.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wva.clock import Clock
from wva.collect.answers import InstantVector, PrometheusError, Querier
from wva.collect.promql import quote
from wva.collect.samples import parse_number
from wva.model.variant import VariantKey

VISIBLE_SECONDS: Final = 2.2
"""How long to wait at most: whoever waits for a first replica waits for this, too."""
_POLL_SECONDS: Final = 0.2
_NAME: Final = "published_number"


async def wait_visible(key: VariantKey, desired: int, *, prometheus: Querier, clock: Clock) -> bool:
    """Return once Prometheus has at least ``desired`` for a variant, or after ``VISIBLE_SECONDS``; tell which."""
    text = published_query(key)
    limit = clock.monotonic() + VISIBLE_SECONDS
    while (left := limit - clock.monotonic()) > 0:
        try:
            async with asyncio.timeout(left):
                answer = await prometheus.query(text, name=_NAME, at=clock.now())
        except (PrometheusError, TimeoutError):
            answer = InstantVector()
        values = [parse_number(series.value[1]) for series in answer.series if series.value is not None]
        if any(value is not None and value >= desired for value in values):
            return True
        await clock.sleep(min(_POLL_SECONDS, max(0.0, limit - clock.monotonic())))
    return False


def published_query(key: VariantKey) -> str:
    """Return the query for what Prometheus has of a variant's number.

    The series' own namespace is ``exported_namespace`` where the scrape adds a ``namespace`` of the target.
    """
    name, namespace = quote(key.name), quote(key.namespace)
    series = (f"wva_desired_replicas{{variant_name={name},{label}={namespace}}}" for label in _NAMESPACE_LABELS)
    return f"max({' or '.join(series)})"


_NAMESPACE_LABELS: Final = ("exported_namespace", "namespace")
