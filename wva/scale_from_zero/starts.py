"""Writes a start from zero once autoscalers can read its number, and remembers it until the caches show it.

KEDA and HPA read ``wva_desired_replicas`` from Prometheus, which has a number one scrape after it was published. While
KEDA still reads zero, it takes a running target back to zero. So a start waits until KEDA can read the number.

Two things delay KEDA beyond the scrape. KEDA asks Prometheus for the value at the last whole second, so it sees a
sample from the next whole second on; this module asks for the same time. And KEDA asks first, then looks how many
replicas exist, then writes. If KEDA asked before the number was there, the replicas may exist only after it has looked.
So there is a pause at the end, which also covers clocks that differ.

A series counts only with the labels that Prometheus gave to the target: the namespace of the controller, and its job if
that is known. Every pod may expose a series of this name, but the page of a pod cannot set these two labels: Prometheus
renames a label ``namespace`` of the page to ``exported_namespace``. The guides configure HPA and KEDA the same way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wva import log
from wva.actuation import START_MANAGER
from wva.api.meta import Key
from wva.clock import Clock
from wva.collect.queries import PUBLISHED_NUMBER, TargetLabels, quote
from wva.collect.resolution import CollectStores
from wva.config.declare import printable
from wva.kube.client import KubeClient
from wva.kube.errors import NotFound
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey
from wva.numbers import MAX_REPLICAS, Real
from wva.prometheus.answers import InstantVector, PrometheusError, Querier

ACTIVATION_SECONDS: Final = 30.0
"""How long a start counts although the caches say zero; they are rarely behind by a second."""
VISIBLE_SECONDS: Final = 2.4
"""How long to wait for the number at most: requests that wait for a first replica wait for this, too."""
SETTLE_SECONDS: Final = 0.25
"""How long an autoscaler may take from its question to the look at the replicas."""
DIAGNOSIS_SECONDS: Final = 0.3
"""How long to look for series of other targets when there is none of the controller."""
_POLL_SECONDS: Final = 0.2
_AFTER_THE_SECOND: Final = 0.005
_PUBLISHED: Final = Real(0, MAX_REPLICAS)
_SHOWN_TARGETS: Final = 3

_log = log.get("collect.visibility")


class Activations(dict[VariantKey, tuple[int, float]]):
    """Starts by variant: with how many replicas, and when (seconds since the epoch).

    A start is kept until the caches show it, or until it is too old to believe. Between the write of the scale
    subresource and its watch event the caches still say zero replicas. A cycle that believed them would publish 0, and
    an autoscaler would take the start back.
    """

    def apply(self, variant: Variant, now: float) -> Variant:
        """Return the variant as it will be once the caches have caught up.

        A start that the caches show is forgotten. If the target goes to zero after that, another client has done so.
        """
        if variant.key not in self:
            return variant
        desired, at = self[variant.key]
        # The start may be a little newer than a cycle that began before it; the clock may have been set back.
        if variant.active or abs(now - at) > ACTIVATION_SECONDS:
            del self[variant.key]
            return variant
        return replace(variant, spec_replicas=desired, current_replicas=desired, activated_at=at)


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts targets; ``client`` writes only while this process leads, ``prometheus`` is where autoscalers read."""

    client: KubeClient
    stores: CollectStores
    prometheus: Querier
    labels: TargetLabels
    clock: Clock
    note: Callable[[str, Iterable[str], Mapping[str, str]], None] = lambda *_: None
    """Notes the outcome of a query (``QueryFailures.note``)."""

    async def wait_visible(self, key: VariantKey, desired: int) -> bool:
        """Wait until no autoscaler acts on a number below ``desired`` for a variant; tell whether that is so.

        False: Prometheus did not have the number within ``VISIBLE_SECONDS``. If it has such a series only of other
        targets, the log names them: the number is forged, or the labels of the controller are not as expected.
        """
        text = published_query(key, self.labels)
        limit = self.clock.monotonic() + VISIBLE_SECONDS
        absent = False
        while (left := limit - (asked_at := self.clock.monotonic())) > 0:
            answer = await self._ask(key.namespace, text, seconds=left)
            if answer is not None:
                absent = not answer.series
                numbers = (_PUBLISHED.find(series.value[1]) for series in answer.series if series.value is not None)
                if any(number is not None and number >= desired for number in numbers):
                    await self.clock.sleep(max(0.0, asked_at + SETTLE_SECONDS - self.clock.monotonic()))
                    return True
            now = self.clock.now()
            to_next_second = math.floor(now) + 1 - now + _AFTER_THE_SECOND
            await self.clock.sleep(max(0.0, min(_POLL_SECONDS, to_next_second, limit - self.clock.monotonic())))
        if not absent:
            return False
        answer = await self._ask(key.namespace, unpinned_query(key), seconds=DIAGNOSIS_SECONDS)
        names = {
            f"job={printable(series.metric.get('job', ''))} namespace={printable(series.metric.get('namespace', ''))}"
            for series in (() if answer is None else answer.series)
        }
        if names:
            _log.warning(
                "published_number_not_found",
                variant=str(key),
                expected=f"{{{self.labels.matchers}}}",
                found_only=sorted(names)[:_SHOWN_TARGETS],
                hint="WVA_METRICS_JOB must be the job, and POD_NAMESPACE the namespace, of the target in Prometheus; "
                "a number of another target does not count",
            )
        return False

    async def _ask(self, namespace: str, text: str, *, seconds: float) -> InstantVector | None:
        """Return the answer for the last whole second; None when there is none in time."""
        answer, failed = None, {}
        try:
            async with asyncio.timeout(seconds):
                answer = await self.prometheus.query(text, name=PUBLISHED_NUMBER, at=math.floor(self.clock.now()))
        except (PrometheusError, TimeoutError) as error:
            no_answer = f"Prometheus did not answer within {seconds:.2g} s"
            reason = error.message if isinstance(error, PrometheusError) else no_answer
            failed = {namespace: f"query {PUBLISHED_NUMBER}: {reason}"}
        self.note(PUBLISHED_NUMBER, (namespace,), failed)
        return answer

    async def scale(self, key: VariantKey, desired: int) -> None:
        """Write the scale subresource. Raises ApiError: NotFound, or Conflict when the target has moved on."""
        va = self.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        target = None if va is None else self.stores.targets.named(va)
        if target is None:
            raise NotFound(404, "NotFound", "the target is gone", attempted=f"scale the target of {key}")
        resource, metadata = self.stores.targets.kind_of(target).resource, target.metadata
        await self.client.scale(
            resource, metadata.key, desired, version=metadata.resource_version, manager=START_MANAGER
        )


def published_query(key: VariantKey, target: TargetLabels) -> str:
    """Return the query for the number of a variant that this controller published.

    The variant's own namespace is ``exported_namespace``, since the target has a ``namespace``.
    """
    return f"max(wva_desired_replicas{{{target.matchers},{_of_variant(key)}}})"


def unpinned_query(key: VariantKey) -> str:
    """Return the query for all targets that have such a number, one series each: for a message, not for a decision.

    If a target has no namespace of its own, the variant's namespace is still ``namespace``.
    """
    name, namespace = quote(key.name), quote(key.namespace)
    honored = f'wva_desired_replicas{{variant_name={name},namespace={namespace},exported_namespace=""}}'
    return f"group by (job, namespace) (wva_desired_replicas{{{_of_variant(key)}}} or {honored})"


def _of_variant(key: VariantKey) -> str:
    return f"variant_name={quote(key.name)},exported_namespace={quote(key.namespace)}"
