"""Why a model whose pods are Ready has no samples: its series may be there, under another name or with other labels.

WVA reads series by their names and by the labels ``namespace``, ``pod`` and ``model_name``. So it does not find a
series to which a user's own scrape configuration gives other labels, or which another program exports under its own
name, as Ray does. When no pod of a model has reported anything for a cycle, WVA sends one more query that looks for
such series, and the missing samples say what it found. The query is about at most 50 models, and about each of them
every five minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Final

from wva.collect.queries import STRAY_SERIES, Query, joined, namespace_matcher, quote, regex_literal
from wva.model.metrics import SampleState
from wva.model.snapshot import Snapshot
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantVector, PrometheusError, Querier

_SERIES: Final = "vllm:num_requests_waiting"
_NAMES: Final = ("ray_vllm:num_requests_waiting", "ray_vllm_num_requests_waiting", "vllm_num_requests_waiting")
_NAMESPACES: Final = ("kubernetes_namespace", "exported_namespace", "k8s_namespace_name")
_PODS: Final = ("kubernetes_pod_name", "pod_name", "exported_pod", "k8s_pod_name")
_NO_NAMESPACE: Final = "no namespace"
WORDS: Final[Mapping[str, str]] = {
    **{name: f"Prometheus has {name}, expected {_SERIES}, of its model" for name in _NAMES},
    **{label: f"series of its model have the label {label}, expected pod" for label in _PODS},
    **{label: f"series of its model have the label {label}, expected namespace" for label in _NAMESPACES},
    _NO_NAMESPACE: "series of its model have no label namespace",
}
"""By signal of the query, what is wrong. WVA reports the first one that it finds."""
_MOST_MODELS: Final = 50
_PAUSE_SECONDS: Final = 300.0
_QUERY_SECONDS: Final = 3.0


def stray_query(models: Collection[ModelKey]) -> Query:
    """Return the query for series of models that no other query finds, with the model's namespace where it is known."""
    ours = namespace_matcher(sorted({model.namespace for model in models}))[1:-1]
    pattern = quote("|".join(regex_literal(name) for name in sorted({model.model_id for model in models})))
    names, by_model = f"model_name=~{pattern}", "by (namespace, model_name)"
    expressions = {name: f"count {by_model} ({name}{{{names}}})" for name in _NAMES}
    for label in _PODS:
        expressions[label] = f'count {by_model} ({_SERIES}{{{ours},{names},pod="",{label}!=""}})'
    for label in _NAMESPACES:
        # The label ``namespace`` of such a series, if it has one, is the namespace of its exporter.
        matchers = f"{ours.replace('namespace', label, 1)},{ours.replace('=~', '!~', 1)}"
        counted = f"count by ({label}, model_name) ({_SERIES}{{{matchers},{names}}})"
        expressions[label] = f'label_replace({counted}, "namespace", "$1", "{label}", "(.*)")'
    expressions[_NO_NAMESPACE] = f'count by (model_name) ({_SERIES}{{namespace="",{names}}})'
    return Query(STRAY_SERIES, joined(expressions), essential=False)


class StraySeries:
    """Remembers which models are silent, and what WVA has found out about their series: ``words``, by model."""

    def __init__(self, prometheus: Querier, note: Callable[[str, Iterable[str], Mapping[str, str]], None]) -> None:
        """Know nothing; ``note`` takes the result of the query (``QueryFailures.note``)."""
        self.words: dict[ModelKey, str] = {}
        self._prometheus = prometheus
        self._note = note
        self._silent: dict[ModelKey, float] = {}
        """The models of which no pod reports anything, and when WVA asked about them last (seconds since the epoch)."""

    def see(self, snapshot: Snapshot) -> None:
        """Note which models are silent in a cycle. A model that reports is forgotten."""
        models = {variant.key: variant.model for variant in snapshot.variants}
        reports: dict[ModelKey, bool] = {}
        for replica in snapshot.replicas:
            model = models[replica.variant]
            if not reports.get(model):
                reports[model] = any(
                    sample.state is not SampleState.MISSING for sample in (replica.kv_usage, replica.queue_length)
                )
        failed = {namespace for failure in snapshot.failures for namespace in failure.namespaces}
        silent = [model for model, reported in reports.items() if not reported and model.namespace not in failed]
        self._silent = {model: self._silent.get(model, -inf) for model in silent}
        self.words = {model: words for model, words in self.words.items() if model in self._silent}

    async def look(self, now: float) -> None:
        """Ask about the models that were silent in the last cycle, if it is time. ``now``: seconds since the epoch."""
        due = sorted((at, model) for model, at in self._silent.items() if not 0.0 <= now - at < _PAUSE_SECONDS)
        models = [model for _, model in due[:_MOST_MODELS]]
        if not models:
            return
        namespaces = sorted({model.namespace for model in models})
        self._silent.update(dict.fromkeys(models, now))
        query, reason, vector = stray_query(models), "", InstantVector()
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                vector = await self._prometheus.query(query.text, name=query.name, at=now)
        except TimeoutError:
            reason = f"Prometheus did not answer within {_QUERY_SECONDS:g} s"
        except PrometheusError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - the cycle goes on without
            reason = f"its answer cannot be read: {cause_of(error)}"
        failed = dict.fromkeys(namespaces, f"query {query.name}: {reason}") if reason else {}
        self._note(STRAY_SERIES, namespaces, failed)
        if not reason:
            self._take(models, vector)

    def _take(self, models: Iterable[ModelKey], vector: InstantVector) -> None:
        for model in models:
            signals = set()
            for series in vector.series:
                labels = series.metric
                # A series that is exported under another name often has the namespace of its exporter.
                near = labels.signal in _NAMES or labels.namespace in {None, "", model.namespace}
                if labels.model_name == model.model_id and near:
                    signals.add(labels.signal)
            problem = next((words for signal, words in WORDS.items() if signal in signals), None)
            self.words.pop(model, None)
            if problem is not None:
                self.words[model] = problem
