"""The finished, running and waiting requests of a model, which scaling to zero has to know.

There is one query per window (``retention``) in use and hundred namespaces, about the models that run and may go to
zero. v0.5.1 asked for finished requests alone, so it took a model that was busy with its first long request for idle.
This query also asks for the requests that run or wait, in the engines and at the gateway. A missing count stays
unknown.

``increase`` is also 0 where Prometheus has seen next to nothing: after two scrapes of a new server, or of a pod that
has served long before it was scraped. So the query asks how much of the window has samples of the model at all, from
any of its pods, since pods are replaced. And a counter that was not there when the window began counts with its whole
value: these requests finished within the window, or it is not known when.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.collect.answers import InstantVector, Series
from wva.collect.promql import namespace_matcher
from wva.collect.queries import Query, chunks
from wva.collect.retention import LONGEST_SECONDS, Window, window_of
from wva.collect.shared_queries import Make, Settled
from wva.godurations import format_promql_duration
from wva.model.failures import cause_of
from wva.model.snapshot import RequestCounts
from wva.model.variant import ModelKey
from wva.numbers import Real

REQUEST_COUNTS: Final = "request_counts"
_COUNT: Final = Real(0, 1e15)
"""More requests than any model serves in a year; a larger number is an attempt to break a sum."""
_BY_MODEL: Final = "by (namespace, model_name)"
_ENGINES: Final = "max by (namespace, model_name, pod, engine)"

Ask = Callable[[Hashable, Make, Sequence[str]], Awaitable[Settled]]
"""Asks a query about namespaces; the first argument separates what is remembered of those that spoil answers."""


class RequestSignal(StrEnum):
    """What ``request_counts`` tells of a model, as the label ``signal`` calls it."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"
    QUEUED = "queued"
    COVERED = "covered"


@dataclass(slots=True)
class _Found:
    """What was found about one model; ``problem`` says why something is not known."""

    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def request_query(namespaces: Iterable[str], window: Window) -> Query:
    """Return the query about some namespaces. Raises ValueError when there is none, or one that is no namespace."""
    matchers = namespace_matcher(namespaces)
    span, gap, part = (
        format_promql_duration(seconds) for seconds in (window.seconds, window.gap_seconds, window.part_seconds)
    )
    # One part more than the window has: the first one ends when the window begins.
    looked_at = format_promql_duration(window.seconds + window.part_seconds)
    success = f"vllm:request_success_total{matchers}"
    gap_free = f"count {_BY_MODEL} (count_over_time(vllm:request_success_total{matchers}[{gap}]))"
    expressions = {
        RequestSignal.FINISHED: (
            f"sum {_BY_MODEL} (max by (namespace, model_name, pod, engine, finished_reason)"
            f" ((max_over_time({success}[{span}]) unless {success} offset {span}) or increase({success}[{span}])))"
        ),
        RequestSignal.RUNNING: f"sum {_BY_MODEL} ({_ENGINES} (vllm:num_requests_running{matchers}))",
        RequestSignal.WAITING: f"sum {_BY_MODEL} ({_ENGINES} (vllm:num_requests_waiting{matchers}))",
        RequestSignal.QUEUED: (
            f"sum by (namespace, model_name, target_model_name) (inference_extension_flow_control_queue_size{matchers})"
        ),
        RequestSignal.COVERED: f"count_over_time(({gap_free})[{looked_at}:{part}])",
    }
    parts = (f'label_replace({text}, "signal", "{signal}", "", "")' for signal, text in expressions.items())
    return Query(REQUEST_COUNTS, " or ".join(parts), essential=False)


async def count_requests(models: Mapping[ModelKey, float], ask: Ask) -> tuple[RequestCounts, ...]:
    """Return the requests of models, given with their retention in seconds, sorted; the queries go side by side.

    What has no answer is unknown, and says so.
    """
    windows = {model: window_of(retention) for model, retention in models.items()}
    found = {model: _Found() for model, window in windows.items() if window is not None}
    by_window: dict[Window, list[ModelKey]] = {}
    for model, window in windows.items():
        if window is not None:
            by_window.setdefault(window, []).append(model)
    groups = [
        (window, [model for model in group if model.namespace in namespaces])
        for window, group in sorted(by_window.items(), key=lambda entry: entry[0].seconds)
        for namespaces in chunks(model.namespace for model in group)
    ]
    async with asyncio.TaskGroup() as tasks:
        for window, group in groups:
            tasks.create_task(_count(window, {model: found[model] for model in group}, ask))
    return tuple(_counts(model, models[model], windows[model], found.get(model)) for model in sorted(models))


async def _count(window: Window, found: Mapping[ModelKey, _Found], ask: Ask) -> None:
    """Fill in what one query tells about the models of one window."""
    namespaces = sorted({model.namespace for model in found})
    settled = await ask((REQUEST_COUNTS, window.seconds), lambda some: request_query(some, window), namespaces)
    answer = settled.answers.get(REQUEST_COUNTS, InstantVector())
    doubt = f"query {REQUEST_COUNTS}: {answer.warnings[0]}" if answer.warnings else ""
    for model, entry in found.items():
        failure = settled.failed.get(model.namespace)
        entry.problem = doubt if failure is None else failure.message
    for series in answer.series:
        labels = series.metric
        name = labels.get("target_model_name") or labels.get("model_name", "")
        known = found.get(ModelKey(labels.get("namespace", ""), name))
        if known is not None:
            try:
                _add(known, labels.get("signal", ""), series)
            except Exception as error:  # noqa: BLE001 - the other models are counted all the same
                known.problem = f"reading requests failed: {cause_of(error)}"


def _add(found: _Found, signal: str, series: Series) -> None:
    value = None if series.value is None else _COUNT.find(series.value[1])
    if value is None:
        found.problem = found.problem or f"{signal} requests are not {_COUNT.expected}"
        return
    found.values[signal] = found.values.get(signal, 0.0) + value


def _counts(model: ModelKey, retention: float, window: Window | None, found: _Found | None) -> RequestCounts:
    """Return the counts; a problem makes all of them unknown. No queue at a gateway is needed: the engines report."""
    if window is None or found is None:
        words = f"a retention period of {retention:g} s is longer than the longest window: {LONGEST_SECONDS} s"
        return RequestCounts(model, retention, detail=words)
    if found.problem:
        return RequestCounts(model, window.seconds, detail=found.problem)
    values = found.values
    needed = (RequestSignal.FINISHED, RequestSignal.RUNNING, RequestSignal.WAITING)
    missing = [signal for signal in needed if signal not in values]
    if missing:
        return RequestCounts(model, window.seconds, detail=f"no samples of requests that are {', '.join(missing)}")
    present = (RequestSignal.RUNNING, RequestSignal.WAITING, RequestSignal.QUEUED)
    in_progress = math.fsum(values.get(signal, 0.0) for signal in present)
    parts = max(0.0, values.get(RequestSignal.COVERED, 0.0) - 1)
    covered = min(window.seconds, parts * window.part_seconds)
    return RequestCounts(model, window.seconds, values[RequestSignal.FINISHED], in_progress, covered_seconds=covered)
