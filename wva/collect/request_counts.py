"""The finished, running and waiting requests of a model, which scaling to zero has to know.

WVA sends one query for each window (``retention``) in use and each hundred namespaces, about the models that run and
may go to zero.

v0.5.1 asked for finished requests alone, so it took a model that was busy with its first long request for idle. This
query also asks for the requests that run or wait, in the engines and at the gateway. A missing count stays unknown.

``increase`` is also 0 where Prometheus has few samples: after two scrapes by a new server, or of a pod that served long
before its first scrape. So the query also returns how much of the window has samples of the model, from any of its
pods, since pods are replaced. And a counter that did not exist when the window began counts with its whole value: these
requests finished within the window, or at an unknown time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.collect.promql import namespace_matcher
from wva.collect.queries import Query, chunks, joined
from wva.collect.retention import LONGEST_SECONDS, Window, window_of
from wva.collect.shared_queries import Make, Settled
from wva.godurations import format_promql_duration
from wva.model.snapshot import RequestCounts
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.numbers import Real
from wva.prometheus.answers import InstantSeries, InstantVector

REQUEST_COUNTS: Final = "request_counts"
_COUNT: Final = Real(0, 1e15)
"""More requests than any model serves in a year; a larger number is an attempt to break a sum."""
_BY_MODEL: Final = "by (namespace, model_name)"
_ENGINES: Final = "max by (namespace, model_name, pod, engine)"

Ask = Callable[[Hashable, Make, Sequence[str]], Awaitable[Settled]]
"""Asks a query about namespaces; by the first argument the callee remembers those that spoil answers."""


class RequestSignal(StrEnum):
    """The signals of a model in ``request_counts``: the values of the label ``signal``."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"
    QUEUED = "queued"
    COVERED = "covered"


@dataclass(slots=True)
class _ModelRequests:
    """The numbers found about one model by signal; ``problem`` says why one is not known."""

    window: Window
    values: dict[str, float] = field(default_factory=dict)
    problem: str = ""

    def add(self, series: InstantSeries) -> None:
        signal = series.metric.signal or ""
        value = None if series.value is None else _COUNT.find(series.value[1])
        if value is None:
            self.problem = self.problem or f"{signal} requests are not {_COUNT.expected}"
        else:
            self.values[signal] = self.values.get(signal, 0.0) + value

    def counts(self, model: ModelKey) -> RequestCounts:
        """Return the counts. A problem makes all of them unknown; a missing queue at the gateway is no problem."""
        window, values, problem = self.window, self.values, self.problem
        needed = (RequestSignal.FINISHED, RequestSignal.RUNNING, RequestSignal.WAITING)
        missing = [signal for signal in needed if signal not in values]
        if missing and not problem:
            problem = f"no samples of requests that are {', '.join(missing)}"
        if problem:
            return RequestCounts(model, window.seconds, detail=problem)
        present = (RequestSignal.RUNNING, RequestSignal.WAITING, RequestSignal.QUEUED)
        in_progress = math.fsum(values.get(signal, 0.0) for signal in present)
        parts = max(0.0, values.get(RequestSignal.COVERED, 0.0) - 1)
        covered = min(window.seconds, parts * window.part_seconds)
        return RequestCounts(
            model, window.seconds, values[RequestSignal.FINISHED], in_progress, covered_seconds=covered
        )


def request_query(namespaces: Iterable[str], window: Window) -> Query:
    """Return the query about some namespaces. Raises ValueError when there is none, or one that is no namespace."""
    matchers = namespace_matcher(namespaces)
    span, gap, part = (
        format_promql_duration(seconds) for seconds in (window.seconds, window.gap_seconds, window.part_seconds)
    )
    # Look back one part more than the window has, since the first part ends when the window begins.
    looked_at = format_promql_duration(window.seconds + window.part_seconds)
    success = f"vllm:request_success_total{matchers}"
    gap_free = f"count {_BY_MODEL} (count_over_time(vllm:request_success_total{matchers}[{gap}]))"
    expressions: dict[str, str] = {
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
    return Query(REQUEST_COUNTS, joined(expressions), essential=False)


async def count_requests(models: Mapping[ModelKey, float], ask: Ask) -> tuple[RequestCounts, ...]:
    """Return the requests of models, sorted; ``models`` has their retention in seconds. The queries run side by side.

    Without an answer the counts are unknown, and the detail says why.
    """
    by_window: dict[Window, list[ModelKey]] = {}
    found: dict[ModelKey, _ModelRequests] = {}
    counts: list[RequestCounts] = []
    for model, retention in models.items():
        window = window_of(retention)
        if window is None:
            words = f"a retention period of {retention:g} s is longer than the longest window: {LONGEST_SECONDS} s"
            counts.append(RequestCounts(model, retention, detail=words))
        else:
            found[model] = _ModelRequests(window)
            by_window.setdefault(window, []).append(model)
    async with asyncio.TaskGroup() as tasks:
        for window, group in sorted(by_window.items(), key=lambda entry: entry[0].seconds):
            for namespaces in chunks(model.namespace for model in group):
                some = {model: found[model] for model in group if model.namespace in namespaces}
                tasks.create_task(_ask(window, some, ask))
    counts += [requests.counts(model) for model, requests in found.items()]
    return tuple(sorted(counts, key=lambda each: each.model))


async def _ask(window: Window, found: Mapping[ModelKey, _ModelRequests], ask: Ask) -> None:
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
        name = labels.target_model_name or labels.model_name or ""
        known = found.get(ModelKey(labels.namespace or "", name))
        if known is not None:
            try:
                known.add(series)
            except Exception as error:  # noqa: BLE001 - the other models are still counted
                known.problem = f"reading requests failed: {cause_of(error)}"
