"""The past as Prometheus has it: what a cycle at an earlier time would have read.

A process that has just started has learned nothing yet, but Prometheus has the series from which it would have learned.
``PastAnswers`` answers the queries of a cycle at earlier times, by range queries over several of these times.
``PastPods`` tells which pods served then. A pod that is gone is in no cache, but its series have its name, and the name
shows which variant it belonged to.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Protocol

import msgspec

from wva.api.core import Pod
from wva.api.meta import ObjectMeta
from wva.collect.queries import Query, chunks, namespace_matcher
from wva.collect.shared_queries import Round, SharedQueries
from wva.collect.variants import AcceptedVariant
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey
from wva.prometheus.answers import InstantSeries, InstantVector, Labels, Querier, RangeQuerier, RangeSeries
from wva.slices import beside

PAST_PODS: Final = "past_pods"
QUERY_SECONDS: Final = 5.0
_TIMES_OF_PODS: Final = 2_000
"""How many times are asked for together, times the pods: so much more takes more memory than a cycle."""
_MOST_TIMES: Final = 60
_ALIKE_SECONDS: Final = 0.001
_MADE_NAME: Final = re.compile(r"-[a-z0-9]{1,10}-[a-z0-9]{1,5}|-[0-9]{1,5}")
"""What Kubernetes adds to the name of a Deployment, or of a set, to make the name of a pod."""


class PastQuerier(Querier, RangeQuerier, Protocol):
    """A source of answers to instant queries and to range queries."""


class FirstSamples:
    """Answers a query with the first time since ``begin`` at which each namespace had an answer to it.

    The times that it looks at are ``step_seconds`` apart. Times are in seconds since the epoch.
    """

    def __init__(self, prometheus: RangeQuerier, begin: float, step_seconds: float) -> None:
        """Ask nothing yet."""
        self._prometheus = prometheus
        self._begin = begin
        self._step_seconds = step_seconds

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query about the time until ``at``. Raises PrometheusError."""
        matrix = await self._prometheus.query_range(
            f"count by (namespace) ({promql})",
            name=name,
            start=self._begin,
            end=at,
            step_seconds=self._step_seconds,
            timeout_seconds=QUERY_SECONDS,
        )
        return InstantVector(
            tuple(
                InstantSeries(msgspec.convert(series.metric, Labels), series.values[0])
                for series in matrix
                if series.values
            )
        )


class PastAnswers:
    """Answers instant queries at some times: sorted, in seconds since the epoch."""

    def __init__(self, prometheus: PastQuerier, times: Sequence[float], *, pods: int = 0) -> None:
        """Ask nothing yet. A query is about so many ``pods``, which may change; about more pods it has fewer times."""
        self._prometheus = prometheus
        self._times = times
        self._known: dict[str, tuple[int, list[InstantVector]]] = {}
        """By query, the answers at successive times, and the position of the first of these times."""
        self.pods = pods

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query at one of the times. Raises PrometheusError."""
        position = self._place(at)
        first, answers = self._known.get(promql, (0, []))
        if not first <= position < first + len(answers):
            first, answers = self._known[promql] = position, await self._ask(promql, name, self._together(position))
        return answers[position - first]

    def forget(self, before: float) -> None:
        """Drop the answers about times before this one."""
        position = self._place(before)
        self._known = {text: known for text, known in self._known.items() if known[0] + len(known[1]) > position}

    def _place(self, at: float) -> int:
        return bisect_left(self._times, at - _ALIKE_SECONDS)

    def _together(self, position: int) -> Sequence[float]:
        """Return the times for one range query: those from a position on that are equally far apart."""
        times = self._times[position : position + max(1, min(_MOST_TIMES, _TIMES_OF_PODS // max(1, self.pods)))]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        same = [abs(gap - gaps[0]) < _ALIKE_SECONDS for gap in gaps]
        return times[: 1 + (same.index(False) if False in same else len(same))]

    async def _ask(self, promql: str, name: str, times: Sequence[float]) -> list[InstantVector]:
        if len(times) == 1:
            return [await self._prometheus.query(promql, name=name, at=times[0])]
        step = times[1] - times[0]
        matrix = await self._prometheus.query_range(
            promql, name=name, start=times[0], end=times[-1], step_seconds=step, timeout_seconds=QUERY_SECONDS
        )
        return await beside(len(matrix), lambda: _at_each(matrix, times, step))


def _at_each(matrix: Iterable[RangeSeries], times: Sequence[float], step: float) -> list[InstantVector]:
    """Return what the answer to a range query says of each of its times."""
    at_each: list[list[InstantSeries]] = [[] for _ in times]
    for series in matrix:
        labels = msgspec.convert(series.metric, Labels)
        for at, text in series.values:
            position = round((at - times[0]) / step)
            if 0 <= position < len(times):
                at_each[position].append(InstantSeries(labels, (at, text)))
    return [InstantVector(tuple(elements)) for elements in at_each]


class PastPods:
    """The pods of variants at earlier times; a caller looks at one time after the other."""

    def __init__(self, variants: Sequence[AcceptedVariant], answers: PastAnswers) -> None:
        """Take the variants and their pods of now."""
        self._variants = variants
        self._shared = SharedQueries(answers)
        self._targets: dict[ModelKey, list[tuple[str, VariantKey]]] = {}
        """By model, the names and keys of its targets, the longest name first."""
        self._now: set[tuple[str, str]] = set()
        for accepted in variants:
            self._targets.setdefault(accepted.variant.model, []).append((accepted.variant.target, accepted.variant.key))
            self._now |= {(pod.metadata.namespace, pod.metadata.name) for pod in (*accepted.ready, *accepted.unready)}
        for targets in self._targets.values():
            targets.sort(key=lambda target: (-len(target[0]), target))
        self._chunks = chunks(model.namespace for model in self._targets)
        self._gone: dict[VariantKey, list[Pod]] = {}

    async def look(self, at: float) -> bool:
        """Find the pods that reported at a time and are gone now; return whether any pod reported then.

        Raises PrometheusError, or returns False, if there is no answer.
        """
        self._gone, any_reports = {}, False
        for namespaces in self._chunks:
            round_ = Round(at, QUERY_SECONDS)
            settled = await self._shared.settle(PAST_PODS, {PAST_PODS: past_pods}, namespaces, round_)
            for series in settled.answers.get(PAST_PODS, InstantVector()).series:
                any_reports = True
                self._note(series.metric)
        return any_reports

    def variants_at(self, at: float) -> list[AcceptedVariant]:
        """Return the variants with the pods that served at the time of the last look, and none that was starting."""
        return [self._then(variant, at) for variant in self._variants]

    def _then(self, variant: AcceptedVariant, at: float) -> AcceptedVariant:
        served = [pod for pod in variant.ready if pod.ready_since is None or pod.ready_since <= at]
        ready = (*served, *self._gone.get(variant.variant.key, ()))
        then = replace(
            variant.variant,
            spec_replicas=len(ready),
            current_replicas=len(ready),
            ready_replicas=len(ready),
            status_desired=None,
            settling_since=None,
            oldest_unready_since=None,
            unschedulable_pods=0,
            unplaced_pods=0,
            failing_pods=0,
            failure="",
            taken_at=None,
        )
        return AcceptedVariant(then, ready)

    def _note(self, labels: Labels) -> None:
        namespace, name = labels.namespace or "", labels.pod or ""
        if (namespace, name) in self._now:
            return
        for target, key in self._targets.get(ModelKey(namespace, labels.model_name or ""), ()):
            if name.startswith(target) and _MADE_NAME.fullmatch(name, len(target)):
                self._gone.setdefault(key, []).append(Pod(ObjectMeta(name=name, namespace=namespace)))
                return


def past_pods(namespaces: Sequence[str]) -> Query:
    """Return the query for the pods of engines that reported lately, with their models."""
    series = f"vllm:num_requests_running{namespace_matcher(namespaces)}"
    return Query(PAST_PODS, f"max by (namespace, model_name, pod) (timestamp({series}))")
