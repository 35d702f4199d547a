"""Whether autoscalers can already see a number: whether Prometheus has it, at the times for which they ask.

KEDA and HPA read ``wva_desired_replicas`` from Prometheus, which has it one scrape after it was published. While KEDA
still reads zero, it takes a running target back to zero. So a start from zero waits until KEDA can read the number.

Two things delay KEDA beyond the scrape. KEDA asks Prometheus for the value at the last whole second, so it sees a
sample from the next whole second on; this module asks for the same time. And KEDA asks first, then looks how many
replicas exist, then writes. A KEDA that asked before the number was there must have looked before the replicas exist,
so there is a pause at the end. The pause also covers clocks that differ.

A series counts only with the labels that Prometheus gave to the target: the namespace of the controller, and its job if
that is known. Every pod may expose a series of this name, but the page of a pod cannot set these two labels: Prometheus
renames a label ``namespace`` of the page to ``exported_namespace``. HPA and KEDA are told to read the same series.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final

from wva import log
from wva.clock import Clock
from wva.collect.answers import InstantVector, PrometheusError, Querier
from wva.collect.promql import quote
from wva.config.declare import printable
from wva.model.variant import VariantKey
from wva.numbers import MAX_REPLICAS, Real

VISIBLE_SECONDS: Final = 2.4
"""How long to wait at most for the number: requests that wait for a first replica wait for this, too."""
SETTLE_SECONDS: Final = 0.25
"""How long an autoscaler may take from its question to the look at the replicas."""
DIAGNOSIS_SECONDS: Final = 0.3
"""How long to look for series of other targets when there is none of the controller."""
_POLL_SECONDS: Final = 0.2
_AFTER_THE_SECOND: Final = 0.005
_PUBLISHED: Final = Real(0, MAX_REPLICAS)
_NAME: Final = "published_number"
_TOLD_TARGETS: Final = 3

_log = log.get("collect.visibility")


@dataclass(frozen=True, slots=True)
class TargetLabels:
    """What Prometheus calls this controller as a target: its namespace, and its job (empty: every job there)."""

    namespace: str
    job: str = ""

    @property
    def matchers(self) -> str:
        """The matchers of a selector that takes the series of this target only."""
        job = f"job={quote(self.job)}," if self.job else ""
        return f"{job}namespace={quote(self.namespace)}"

    def __str__(self) -> str:
        """Return the selector, for people."""
        return f"{{{self.matchers}}}"


async def wait_visible(
    key: VariantKey, desired: int, *, target: TargetLabels, prometheus: Querier, clock: Clock
) -> bool:
    """Return once no autoscaler acts on less than ``desired`` for a variant any more; tell whether that is so.

    False: Prometheus did not have the number within ``VISIBLE_SECONDS``. If it has no series of ``target`` at all, the
    log names the targets that it has such series of.
    """
    text = published_query(key, target)
    limit = clock.monotonic() + VISIBLE_SECONDS
    absent = False
    while (left := limit - (asked := clock.monotonic())) > 0:
        now = clock.now()
        answer = await _ask(prometheus, text, now=now, seconds=left)
        absent = absent if answer is None else not answer.series
        values = _values(answer)
        if any(value >= desired for value in values):
            await clock.sleep(max(0.0, asked + SETTLE_SECONDS - clock.monotonic()))
            return True
        pause = min(_POLL_SECONDS, _to_next_second(clock.now()), limit - clock.monotonic())
        await clock.sleep(max(0.0, pause))
    if absent:
        await _tell_others(key, target, prometheus=prometheus, now=clock.now())
    return False


async def _ask(prometheus: Querier, text: str, *, now: float, seconds: float) -> InstantVector | None:
    """Return the answer for the last whole second; None when there is none in time."""
    try:
        async with asyncio.timeout(seconds):
            return await prometheus.query(text, name=_NAME, at=math.floor(now))
    except (PrometheusError, TimeoutError):
        return None


def _values(answer: InstantVector | None) -> list[float]:
    series = () if answer is None else answer.series
    values = (_PUBLISHED.find(one.value[1]) for one in series if one.value is not None)
    return [value for value in values if value is not None]


async def _tell_others(key: VariantKey, target: TargetLabels, *, prometheus: Querier, now: float) -> None:
    """Log which other targets have a number of the variant: a forged one, or this controller under other labels."""
    answer = await _ask(prometheus, unpinned_query(key), now=now, seconds=DIAGNOSIS_SECONDS)
    found = () if answer is None else answer.series
    names = {
        f"job={printable(one.metric.get('job', ''))} namespace={printable(one.metric.get('namespace', ''))}"
        for one in found
    }
    if names:
        _log.warning(
            "published_number_not_found",
            variant=str(key),
            expected=str(target),
            found_only=sorted(names)[:_TOLD_TARGETS],
            hint="WVA_METRICS_JOB must be the job, and POD_NAMESPACE the namespace, of the target in Prometheus; "
            "a number of another target does not count",
        )


def _to_next_second(now: float) -> float:
    """Return how long it takes until autoscalers ask for a later time."""
    return math.floor(now) + 1 - now + _AFTER_THE_SECOND


def published_query(key: VariantKey, target: TargetLabels) -> str:
    """Return the query for what Prometheus has of a variant's number, as this controller published it.

    The variant's own namespace is ``exported_namespace``, since the target has a ``namespace``.
    """
    return f"max(wva_desired_replicas{{{target.matchers},{_of_variant(key)}}})"


def unpinned_query(key: VariantKey) -> str:
    """Return the query for all targets that have such a number: for a message, not for a decision.

    One series per target. In a target without a namespace of its own, the variant's namespace is still ``namespace``.
    """
    name, namespace = quote(key.name), quote(key.namespace)
    honored = f'wva_desired_replicas{{variant_name={name},namespace={namespace},exported_namespace=""}}'
    return f"group by (job, namespace) (wva_desired_replicas{{{_of_variant(key)}}} or {honored})"


def _of_variant(key: VariantKey) -> str:
    return f"variant_name={quote(key.name)},exported_namespace={quote(key.namespace)}"
