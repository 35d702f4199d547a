"""The finished, running and waiting requests of a model, which scaling to zero has to know.

WVA sends one query for each window (``retention``) in use and each hundred namespaces, about the models that run and
may go to zero.

v0.5.1 asked for finished requests alone, so it took a model that was busy with its first long request for idle. This
query also asks for the requests that run or wait, in the engines and at the gateway. A missing count stays unknown.
WVA asks for running and waiting requests by pod. Otherwise a pod of no variant, such as a proxy that repeats the page
of an engine, would keep a model from zero for ever.

``increase`` is also 0 where Prometheus has few samples: after two scrapes by a new server, or of a pod that served long
before its first scrape. So the query also returns how much of the window has samples of the model, from any of its
pods, since pods are replaced. And a counter that did not exist when the window began counts with its whole value: these
requests finished within the window, or at an unknown time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from wva.collect.queries import Query, chunks, held_back, joined, model_of, namespace_matcher, per_engine, per_model
from wva.collect.retention import LONGEST_SECONDS, Window, window_of
from wva.collect.samples import COUNTED
from wva.collect.shared_queries import Make, Settled
from wva.godurations import format_promql_duration
from wva.model.snapshot import RequestCounts
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantSeries, InstantVector

REQUEST_COUNTS: Final = "request_counts"
_BY_MODEL: Final = "by (namespace, model_name)"

Ask = Callable[[Hashable, Make, Sequence[str]], Awaitable[Settled]]
"""Asks a query about namespaces. The callee remembers under its first argument which namespaces spoil answers."""
Ours = Callable[[str, str], bool]


class RequestSignal(StrEnum):
    """The signals of a model in ``request_counts``: the values of the label ``signal``."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"
    QUEUED = "queued"
    COVERED = "covered"


def request_query(namespaces: Iterable[str], window: Window) -> Query:
    """Return the query about some namespaces. Raises ValueError when there is none, or one that is no namespace."""
    matchers = namespace_matcher(namespaces)
    span, gap, part = map(format_promql_duration, (window.seconds, window.gap_seconds, window.part_seconds))
    # Look back one part more than the window has, since the first part ends when the window begins.
    looked_at = format_promql_duration(window.seconds + window.part_seconds)
    success = f"vllm:request_success_total{matchers}"
    gap_free = f"count {_BY_MODEL} (count_over_time({success}[{gap}]))"
    expressions: dict[str, str] = {
        RequestSignal.FINISHED: per_model(
            f"(max_over_time({success}[{span}]) unless {success} offset {span}) or increase({success}[{span}])",
            "finished_reason",
        ),
        RequestSignal.RUNNING: per_engine("sum", f"vllm:num_requests_running{matchers}"),
        RequestSignal.WAITING: per_engine("sum", f"vllm:num_requests_waiting{matchers}"),
        RequestSignal.QUEUED: held_back("size", matchers),
        RequestSignal.COVERED: f"count_over_time(({gap_free})[{looked_at}:{part}])",
    }
    return Query(REQUEST_COUNTS, joined(expressions), essential=False)


async def count_requests(
    models: Mapping[ModelKey, float], ask: Ask, *, ours: Ours = lambda *_: True
) -> tuple[RequestCounts, ...]:
    """Return the requests of models, sorted; ``models`` has their retention in seconds. The queries run side by side.

    ``ours`` tells whether a pod, by namespace and name, is one of a variant: what runs or waits in any other pod does
    not count. Without an answer the counts are unknown, and the detail says why.
    """
    by_window: dict[Window, list[ModelKey]] = {}
    counts: list[RequestCounts] = []
    for model, retention in models.items():
        window = window_of(retention)
        if window is None:
            words = f"a retention period of {retention:g} s is longer than the longest window: {LONGEST_SECONDS} s"
            counts.append(RequestCounts(model, retention, detail=words))
        else:
            by_window.setdefault(window, []).append(model)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                _ask(window, [model for model in group_models if model.namespace in namespaces], ask, ours)
            )
            for window, group_models in by_window.items()
            for namespaces in chunks(model.namespace for model in group_models)
        ]
    counts += [model_counts for task in tasks for model_counts in task.result()]
    return tuple(sorted(counts, key=lambda model_counts: model_counts.model))


async def _ask(window: Window, models: Sequence[ModelKey], ask: Ask, ours: Ours) -> list[RequestCounts]:
    """Return what one query tells about the models of one window."""
    namespaces = sorted({model.namespace for model in models})
    settled = await ask((REQUEST_COUNTS, window.seconds), lambda part: request_query(part, window), namespaces)
    answer = settled.answers.get(REQUEST_COUNTS, InstantVector())
    doubt = f"query {REQUEST_COUNTS}: {answer.warnings[0]}" if answer.warnings else ""
    failures = {namespace: failure.message for namespace, failure in settled.failed.items()}
    series_by_model: dict[ModelKey, list[InstantSeries]] = {model: [] for model in models}
    for series in answer.series:
        model, pod = model_of(series.metric), series.metric.pod
        if model in series_by_model and (pod is None or ours(model.namespace, pod)):
            series_by_model[model].append(series)
    counts = []
    for model, model_series in series_by_model.items():
        problem = failures.get(model.namespace, doubt)
        try:
            counts.append(
                RequestCounts(model, window.seconds, detail=problem) if problem else _sum(model, model_series, window)
            )
        except Exception as error:  # noqa: BLE001 - the other models are still counted
            detail = f"reading requests failed: {cause_of(error)}"
            counts.append(RequestCounts(model, window.seconds, detail=detail))
    return counts


def _sum(model: ModelKey, model_series: Iterable[InstantSeries], window: Window) -> RequestCounts:
    """Return the counts. A problem makes all of them unknown; a missing queue at the gateway is no problem."""
    values: dict[str, float] = {}
    for series in model_series:
        signal = series.metric.signal or ""
        value = None if series.value is None else COUNTED.range.find(series.value[1])
        if value is None:
            detail = f"{signal} requests are not {COUNTED.range.expected}"
            return RequestCounts(model, window.seconds, detail=detail)
        values[signal] = values.get(signal, 0.0) + value
    needed = (RequestSignal.FINISHED, RequestSignal.RUNNING, RequestSignal.WAITING)
    missing = [signal for signal in needed if signal not in values]
    if missing:
        return RequestCounts(model, window.seconds, detail=f"no samples of requests that are {', '.join(missing)}")
    present = (RequestSignal.RUNNING, RequestSignal.WAITING, RequestSignal.QUEUED)
    in_progress = math.fsum(values.get(signal, 0.0) for signal in present)
    parts = max(0.0, values.get(RequestSignal.COVERED, 0.0) - 1)
    covered = min(window.seconds, parts * window.part_seconds)
    return RequestCounts(model, window.seconds, values[RequestSignal.FINISHED], in_progress, covered_seconds=covered)
