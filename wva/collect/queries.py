"""The PromQL queries of a cycle, and the escaping and validation of the texts in them.

There are two queries for each chunk of at most 100 namespaces and 4,000 pods, for any number of models in them: KV
usage and queue length, each with the time of its last sample. WVA asks for the time because an instant query stamps its
results with the evaluation time, and ``max_over_time`` shows a series for a minute after its last sample. A signal is
the highest value of the last minute over the engines of a pod, as in v0.5.1.

WVA sends further queries only about the namespaces of models whose analyzer needs them. If a namespace has more than
4,000 pods, those about engines ask about parts of them. ``request_counts`` has one more query. Such a query joins
several expressions by ``or``, and the label ``signal`` tells them apart. No series that a pod exposes can make a query
fail, because the query aggregates series before it matches them.

Three defences keep texts from changing a query. Namespaces are validated against what Kubernetes allows. Literal text
inside a regular expression is quoted for RE2. And every value stands inside a string literal whose quotes, backslashes
and line ends are escaped, so that no text can end the literal it stands in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from wva.api.core import is_namespace
from wva.model.variant import ModelKey
from wva.prometheus.answers import Labels

MAX_NAMESPACES_PER_CHUNK: Final = 100
MAX_PODS_PER_CHUNK: Final = 4_000
"""An answer with the counters of so many pods has 60,000 series and less than 16 MiB (``answers``)."""

KV_CACHE_USAGE: Final = "kv_cache_usage"
QUEUE_LENGTH: Final = "queue_length"
IN_PROGRESS: Final = "in_progress"
ENGINE_SIGNALS: Final = "engine_signals"
ENGINE_COUNTERS: Final = "engine_counters"
ENGINE_PREFILLS: Final = "engine_prefills"
SCHEDULER_QUEUE: Final = "scheduler_queue"
PUBLISHED_NUMBER: Final = "published_number"
STRAY_SERIES: Final = "stray_series"

_RE2_SPECIAL: Final = re.compile(r"([\\.+*?()|\[\]{}^$])")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN_CHARACTERS: Final = 80

_BY_POD: Final = "by (namespace, model_name, pod)"
_QUEUE_LABELS: Final = "by (namespace, model_name, target_model_name)"
_QUEUE_SERIES: Final = "by (namespace, pod, inference_pool, fairness_id, priority, model_name, target_model_name)"
"""All labels of the picker's series, so that a picker that is scraped twice counts once."""


_KV_USAGE_SERIES: Final = "vllm:kv_cache_usage_perc"
_WAITING_SERIES: Final = "vllm:num_requests_waiting"


class SampleSignal(StrEnum):
    """What the essential queries say of each pod: the values of the label ``signal``."""

    VALUE = "value"
    TIMESTAMP = "timestamp"
    DORMANT = "dormant"
    """Only with the KV usage, and only of a pod whose engines all sleep."""


class EngineSignal(StrEnum):
    """The signals of a pod in ``engine_signals``, of some minutes: the values of the label ``signal``.

    The token analyzer and the queueing model use them; the demand analyzer has the counters of ``CounterSignal``. To
    add a signal, begin here; ``tests/test_engine_signals.py`` names the other places that need it.
    """

    CACHE_CONFIG = "cache_config"
    KV_USAGE = "kv_usage"
    WAITING = "waiting"
    RUNNING = "running"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    PREFIX_HIT_RATE = "prefix_hit_rate"
    SUCCESS_RATE = "success_rate"
    TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105 - no secret
    INTER_TOKEN_LATENCY = "inter_token_latency"  # noqa: S105 - no secret


class CounterSignal(StrEnum):
    """The counters of a pod in ``engine_counters``, all of one scrape: the values of the label ``signal``.

    The demand analyzer uses them. To add a counter, begin here; ``tests/test_engine_signals.py`` names the other places
    that need it.
    """

    TIME = "time"
    CACHE_CONFIG = "cache_config"
    KV_USAGE = "kv_usage"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"
    REFUSED = "refused"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    PROMPTS = "prompts"
    ANSWER_TOKENS = "answer_tokens"
    ANSWERS = "answers"
    GAP_SECONDS = "gap_seconds"
    GAPS = "gaps"


_GAPS: Final = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_TOTALS: Final[Mapping[CounterSignal, tuple[str, ...]]] = {
    CounterSignal.PROMPT_TOKENS: ("vllm:prompt_tokens_total",),
    CounterSignal.CACHED_TOKENS: (
        "vllm:prompt_tokens_cached_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
    ),
    CounterSignal.PROMPTS: ("vllm:time_to_first_token_seconds_count",),
    CounterSignal.ANSWER_TOKENS: ("vllm:request_generation_tokens_sum",),
    CounterSignal.ANSWERS: ("vllm:request_generation_tokens_count",),
    CounterSignal.GAP_SECONDS: tuple(f"{name}_sum" for name in _GAPS),
    CounterSignal.GAPS: tuple(f"{name}_count" for name in _GAPS),
}
"""Counters that are sums over the engines of a pod, by the names that they have; the first name is the present one."""
SERIES_OF: Final[Mapping[str, str]] = {
    CounterSignal.RUNNING: "vllm:num_requests_running",
    CounterSignal.FINISHED: "vllm:request_success_total",
    **{signal: names[0] for signal, names in _TOTALS.items()},
}
"""By signal, the name of its series on the engine's page; a pod without one of these signals has no counters."""


class PrefillSignal(StrEnum):
    """The signal of a pod in ``engine_prefills``: the value of the label ``signal``."""

    SECONDS = "seconds"
    FIRST = "first"


PREFILL_SERIES: Final[Mapping[str, str]] = {
    PrefillSignal.SECONDS: "vllm:request_prefill_time_seconds_sum",
    PrefillSignal.FIRST: "vllm:time_to_first_token_seconds_sum",
}


class QueueSignal(StrEnum):
    """The signals of a model in ``scheduler_queue``: the values of the label ``signal``."""

    SIZE = "size"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL text, and its name in metrics and logs. Without an answer to an ``essential`` query, WVA holds."""

    name: str
    text: str
    essential: bool = True


def chunks(namespaces: Iterable[str], pods: Mapping[str, int] = {}) -> list[tuple[str, ...]]:
    """Return the namespaces sorted, without repetition, in groups of at most 100 and with at most 4,000 ``pods``.

    A namespace with more pods is a group of its own.
    """
    groups: list[tuple[str, ...]] = []
    count = MAX_PODS_PER_CHUNK + 1
    for namespace in sorted(set(namespaces)):
        count += pods.get(namespace, 0)
        if count > MAX_PODS_PER_CHUNK or len(groups[-1]) >= MAX_NAMESPACES_PER_CHUNK:
            groups.append(())
            count = pods.get(namespace, 0)
        groups[-1] += (namespace,)
    return groups


def _essential(name: str, metric: str, namespaces: Sequence[str]) -> Query:
    series = metric + namespace_matcher(namespaces)
    expressions: dict[str, str] = {
        SampleSignal.VALUE: f"max {_BY_POD} (max_over_time({series}[1m]))",
        SampleSignal.TIMESTAMP: f"max {_BY_POD} (timestamp({series}))",
    }
    return Query(name, joined(expressions))


def _kv_cache_usage(namespaces: Sequence[str]) -> Query:
    query = _essential(KV_CACHE_USAGE, _KV_USAGE_SERIES, namespaces)
    awake = f'{namespace_matcher(namespaces)[:-1]},sleep_state="awake"}}'
    dormant = {SampleSignal.DORMANT.value: f"max {_BY_POD} (vllm:engine_sleep_state{awake}) == 0"}
    return replace(query, text=f"{query.text} or {joined(dormant)}")


ESSENTIAL_QUERIES: Final[Mapping[str, Callable[[Sequence[str]], Query]]] = {
    KV_CACHE_USAGE: _kv_cache_usage,
    QUEUE_LENGTH: partial(_essential, QUEUE_LENGTH, _WAITING_SERIES),
}
"""By name, the queries that every decision needs: functions of namespaces. These functions, and those of all other
queries, raise ValueError without a namespace or for an invalid one."""


def in_progress(namespaces: Sequence[str]) -> Query:
    """Return the query about the requests in progress of each model: those that run and those that wait in engines.

    No query matches ``__name__`` by a pattern, which would be shorter here: some stores allow one exact name only.
    """
    matchers, by_model = namespace_matcher(namespaces), "by (namespace, model_name)"
    gauges: dict[str, str] = {
        EngineSignal.RUNNING: f"sum {by_model} (vllm:num_requests_running{matchers})",
        EngineSignal.WAITING: f"sum {by_model} (vllm:num_requests_waiting{matchers})",
    }
    return Query(IN_PROGRESS, f"sum {by_model} ({joined(gauges)})", essential=False)


def engine_signals(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about engines for the token analyzer and the queueing model.

    The query returns no series for a mean over no requests, since NaN would count as a broken value. ``rate`` divides
    by its whole window, so it is too low for a series that began within the window: after a restart of Prometheus all
    replicas would seem half as busy as they are. For such a series the query uses its last step (``irate``).

    vLLM 0.11 names the counters of the prefix cache ``..._total`` and the time between tokens
    ``inter_token_latency``; before, both had other names.
    """
    matchers = _matchers(namespaces, pods)

    def rate(*metrics: str, window: str) -> str:
        return " or ".join(f"sum {_BY_POD} (rate({metric}{matchers}[{window}]))" for metric in metrics)

    def ratio(part: Sequence[str], whole: Sequence[str], window: str) -> str:
        return f"({rate(*part, window=window)}) / (({rate(*whole, window=window)}) > 0)"

    def average(*histograms: str, window: str) -> str:
        return ratio([f"{name}_sum" for name in histograms], [f"{name}_count" for name in histograms], window)

    success = f"vllm:request_success_total{matchers}"
    hits, queries = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"
    expressions = {
        **_gauges(matchers),
        EngineSignal.INPUT_TOKENS: average("vllm:request_prompt_tokens", window="5m"),
        EngineSignal.OUTPUT_TOKENS: average("vllm:request_generation_tokens", window="5m"),
        EngineSignal.PREFIX_HIT_RATE: ratio((f"{hits}_total", hits), (f"{queries}_total", queries), "5m"),
        EngineSignal.SUCCESS_RATE: per_engine(
            "sum", f"(rate({success}[1m]) and {success} offset 1m) or irate({success}[1m])", "finished_reason"
        ),
        EngineSignal.TIME_TO_FIRST_TOKEN: average("vllm:time_to_first_token_seconds", window="1m"),
        EngineSignal.INTER_TOKEN_LATENCY: average(
            "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", window="1m"
        ),
    }
    return Query(ENGINE_SIGNALS, joined(expressions), essential=False)


def engine_counters(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about the counters of engines for the demand analyzer.

    Values are as they were scraped, since a rate would hide the time of the scrape. If a counter has several names, the
    query takes the first one that a pod has: the time between tokens had another name before vLLM 0.11, and the tokens
    found in the prefix cache are counted together with those of the prompt (``prompt_tokens_cached``) since
    https://github.com/vllm-project/vllm/pull/33290.
    """
    matchers = _matchers(namespaces, pods)

    def finished(more: str) -> str:
        return per_engine("sum", f"vllm:request_success_total{matchers[:-1]}{more}}}", "finished_reason")

    expressions: dict[str, str] = {
        CounterSignal.TIME: f"max {_BY_POD} (timestamp(vllm:num_requests_running{matchers}))",
        **_gauges(matchers),
        CounterSignal.FINISHED: finished(""),
        CounterSignal.ABORTED: finished(',finished_reason="abort"'),
        CounterSignal.REFUSED: per_engine("sum", f"vllm:admission_rejections_total{matchers}", "reason"),
        **{
            signal: " or ".join(per_engine("sum", f"{metric}{matchers}") for metric in metrics)
            for signal, metrics in _TOTALS.items()
        },
    }
    return Query(ENGINE_COUNTERS, joined(expressions), essential=False)


def engine_prefills(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about the times of prompts and of first tokens at the engines of models in roles."""
    matchers = _matchers(namespaces, pods)
    parts = {signal: per_engine("sum", f"{series}{matchers}") for signal, series in PREFILL_SERIES.items()}
    return Query(ENGINE_PREFILLS, joined(parts), essential=False)


def picker_gauge(name: str, matchers: str, shape: str = "{}") -> str:
    """Return an expression for a gauge of endpoint pickers; ``shape`` is a function to apply to the gauge.

    In llm-d-router the gauge is named ``llm_d_epp_...``. Its name in GAIE is ``inference_extension_...``, which
    llm-d-router will drop. A picker that shows both names counts once.
    """
    new, old = (shape.format(f"{prefix}_{name}{matchers}") for prefix in ("llm_d_epp", "inference_extension"))
    return f"{new} or ({old} unless on (namespace, pod) llm_d_epp_{name}{matchers})"


def held_back(name: str, matchers: str, shape: str = "{}") -> str:
    """Return an expression for what pickers hold back for each model, by the ``name`` of the queue's gauge.

    ``shape`` is that of ``picker_gauge``. A picker that is scraped twice counts once.
    """
    gauge = picker_gauge(f"flow_control_queue_{name}", matchers, shape)
    return f"sum {_QUEUE_LABELS} (max {_QUEUE_SERIES} ({gauge}))"


def scheduler_queue(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about requests that endpoint pickers hold back, with the time of the oldest sample.

    The size in bytes is a metric of llm-d-router; GAIE has none.
    """
    matchers = _matchers(namespaces, pods)
    times = picker_gauge("flow_control_queue_size", matchers, "timestamp({})")
    expressions: dict[str, str] = {
        QueueSignal.SIZE: held_back("size", matchers),
        QueueSignal.BYTES: held_back("bytes", matchers),
        QueueSignal.TIMESTAMP: f"min {_QUEUE_LABELS} ({times})",
    }
    return Query(SCHEDULER_QUEUE, joined(expressions), essential=False)


ANALYZER_QUERIES: Final[Mapping[str, Callable[..., Query]]] = {
    ENGINE_SIGNALS: engine_signals,
    ENGINE_COUNTERS: engine_counters,
    ENGINE_PREFILLS: engine_prefills,
    SCHEDULER_QUEUE: scheduler_queue,
}
"""By name, the queries that WVA sends only if an analyzer needs them: functions of namespaces."""
BY_PODS: Final = frozenset({ENGINE_SIGNALS, ENGINE_COUNTERS, ENGINE_PREFILLS})
"""Queries with several series for each pod; their second argument may restrict them to some pods (``parts``)."""


def parts(pods: Iterable[str]) -> tuple[str, ...]:
    """Return matchers that divide the pods into parts of at most 4,000, by the last character of their names.

    In names that Kubernetes makes, this character is random. The last part has all pods that are in no other part. Up
    to 4,000 pods are one part, with an empty matcher.
    """
    ends = Counter(name[-1:] for name in pods)
    if ends.total() <= MAX_PODS_PER_CHUNK:
        return ("",)
    groups, count = [""], 0
    for end in sorted(ends):
        if groups[-1] and count + ends[end] > MAX_PODS_PER_CHUNK:
            groups.append("")
            count = 0
        groups[-1] += regex_literal(end)
        count += ends[end]
    *first, _ = groups
    others = f"pod!~{quote(f'.*[{str().join(first)}]')}" if first else ""
    return (*[f"pod=~{quote(f'.*[{group}]')}" for group in first], others)


def _matchers(namespaces: Sequence[str], pods: str) -> str:
    matchers = namespace_matcher(namespaces)
    return f"{matchers[:-1]},{pods}}}" if pods else matchers


def per_engine(aggregation: str, metric: str, *more_labels: str) -> str:
    """Return an aggregate for each pod over its engines; an engine that is scraped twice counts once."""
    return f"{aggregation} {_BY_POD} (max by ({_engine(*more_labels)}) ({metric}))"


def per_model(metric: str, *more_labels: str) -> str:
    """Return the sum for each model over its engines; an engine that is scraped twice counts once."""
    return f"sum by (namespace, model_name) (max by ({_engine(*more_labels)}) ({metric}))"


def _engine(*more_labels: str) -> str:
    """Return the labels of one series of an engine."""
    return ", ".join(("namespace", "model_name", "pod", "engine", *more_labels))


def model_of(labels: Labels) -> ModelKey:
    """Return the model that a series is about; a picker tells the model that is served beside the one asked for."""
    return ModelKey(labels.namespace or "", labels.target_model_name or labels.model_name or "")


def _gauges(matchers: str) -> dict[str, str]:
    """Return the expressions of the gauges of an engine, as of the last scrape."""
    labels = "namespace, model_name, pod, engine, kv_cache_size_tokens, num_gpu_blocks, block_size"
    return {
        EngineSignal.CACHE_CONFIG: f"max by ({labels}) (vllm:cache_config_info{matchers})",
        EngineSignal.KV_USAGE: per_engine("avg", f"{_KV_USAGE_SERIES}{matchers}"),
        EngineSignal.WAITING: per_engine("sum", f"{_WAITING_SERIES}{matchers}"),
        EngineSignal.RUNNING: per_engine("sum", f"vllm:num_requests_running{matchers}"),
    }


def joined(expressions: Mapping[str, str]) -> str:
    """Return one expression for several, which are told apart by the label ``signal``."""
    return " or ".join(f'label_replace({text}, "signal", "{signal}", "", "")' for signal, text in expressions.items())


def quote(text: str) -> str:
    r"""Return text as a double-quoted PromQL string literal that means exactly this text.

    PromQL allows no raw line end inside double quotes, and other control characters make a query unreadable in
    logs: all of them are written as ``\n`` or ``\xNN``. Raises ValueError for half a character (a lone surrogate),
    which no label can hold and no request can carry.
    """
    if _SURROGATE.search(text):
        raise ValueError(f"{text[:_SHOWN_CHARACTERS]!a} is no text: it has half a character")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", escaped) + '"'


def regex_literal(text: str) -> str:
    """Return an RE2 expression that matches exactly this text."""
    return _RE2_SPECIAL.sub(r"\\\1", text)


def validate_namespace(text: str) -> str:
    """Return the text if it is a Kubernetes namespace (RFC 1123 label), else raise ValueError."""
    if not is_namespace(text):
        expected = "lower-case letters, digits and '-', at most 63 characters"
        raise ValueError(f"{text[:_SHOWN_CHARACTERS]!r} is not a namespace: {expected}")
    return text


def namespace_matcher(namespaces: Iterable[str]) -> str:
    """Return ``{namespace=~"a|b"}``. Raises ValueError without a namespace (all would match), or for an invalid one."""
    pattern = "|".join(regex_literal(validate_namespace(namespace)) for namespace in namespaces)
    if not pattern:
        raise ValueError("a query without namespaces would read every namespace")
    return f"{{namespace=~{quote(pattern)}}}"


@dataclass(frozen=True, slots=True)
class TargetLabels:
    """The labels that Prometheus gives the controller as a target; an empty one may have any value."""

    namespace: str
    job: str = ""

    @property
    def matchers(self) -> str:
        """The matchers of a selector that takes the series of this target only."""
        labels = {"job": self.job, "namespace": self.namespace}
        return ",".join(f"{label}={quote(value)}" for label, value in labels.items() if value)
