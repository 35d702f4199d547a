"""The answers that the embedded and a real Prometheus must give on the contract's history.

The queries contain every text that the original controller sends, and the grouped queries that WVA sends. A shared
server also has the series of other tests, so the runner makes the names of namespaces, models and jobs unique
(``scoped``) in page, queries and results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.contract.promql.history import A0, A1, A1_SECOND, B0
from tests.contract.promql.scope import Labels, Result, by_pod, labels
from wva.collect.days import DaySignal, earlier_days
from wva.collect.in_time import in_time_query
from wva.collect.queries import (
    ESSENTIAL_QUERIES,
    CounterSignal,
    EngineSignal,
    QueueSignal,
    SampleSignal,
    engine_counters,
    engine_signals,
    scheduler_queue,
)
from wva.collect.request_counts import RequestSignal, request_query
from wva.collect.retention import Window
from wva.model.in_time import LATELY, WINDOWS
from wva.model.objectives import DEFAULT_OBJECTIVES


@dataclass(frozen=True)
class QueryExpectation:
    """A query, its time, and the expected vector: values by labels, without the labels of the target."""

    query: str
    at_seconds: float
    result: Result
    times_are_absolute: bool = False
    """Whether the values are times, to which the comparison adds the base."""
    times: tuple[Labels, ...] = ()
    """The elements whose values are times, if only some are."""


@dataclass(frozen=True)
class ErrorExpectation:
    """A query that must fail, with the HTTP status and the kind of error."""

    query: str
    status: int
    kind: str


_ONLY = labels()
_GROUP_A0 = labels(namespace="team-a", model_name="llama", pod="a-0")
_GROUP_A1 = labels(namespace="team-a", model_name="llama", pod="a-1")
_GROUP_B0 = labels(namespace="team-b", model_name="qwen", pod="b-0")
_SELECTED = 'namespace="team-a",model_name="llama"'
_BOTH = 'namespace=~"team-a|team-b"'
_KV = "vllm:kv_cache_usage_perc"
_QUEUE_SIZE = "inference_extension_flow_control_queue_size"
_QUEUE_BYTES = "inference_extension_flow_control_queue_bytes"

ORIGINAL_QUERIES = [
    # The minute up to 570 s contains the peak at 525 s, and the minute up to 585 s does not: ranges are left-open.
    QueryExpectation(f"max by (pod) (max_over_time({_KV}{{{_SELECTED}}}[1m]))", 570, by_pod(a_0=0.9, a_1=0.25)),
    QueryExpectation(f"max by (pod) (max_over_time({_KV}{{{_SELECTED}}}[1m]))", 584.999, by_pod(a_0=0.9, a_1=0.25)),
    QueryExpectation(f"max by (pod) (max_over_time({_KV}{{{_SELECTED}}}[1m]))", 585, by_pod(a_0=0.4, a_1=0.25)),
    # A NaN in the window does not hide the other numbers.
    QueryExpectation(f"max by (pod) (max_over_time(vllm:num_requests_waiting{{{_SELECTED}}}[1m]))", 600, by_pod(a_0=9)),
    QueryExpectation(
        f"max by (pod, num_gpu_blocks, block_size) (vllm:cache_config_info{{{_SELECTED}}})",
        600,
        {},
    ),
    QueryExpectation(
        f"max by (pod) (rate(vllm:request_generation_tokens_sum{{{_SELECTED}}}[5m])"
        f" / rate(vllm:request_generation_tokens_count{{{_SELECTED}}}[5m]))",
        600,
        by_pod(a_0=150, a_1=math.nan),
    ),
    QueryExpectation(
        f"max by (pod) (rate(vllm:request_prompt_tokens_sum{{{_SELECTED}}}[5m])"
        f" / rate(vllm:request_prompt_tokens_count{{{_SELECTED}}}[5m]))",
        600,
        by_pod(a_0=500),
    ),
    QueryExpectation(
        f"max by (pod) (rate(vllm:prefix_cache_hits{{{_SELECTED}}}[5m])"
        f" / rate(vllm:prefix_cache_queries{{{_SELECTED}}}[5m]))",
        600,
        {},
    ),
    QueryExpectation(
        f'sum({_QUEUE_SIZE}{{target_model_name="llama"}}) or '
        f'sum({_QUEUE_SIZE}{{model_name="llama",target_model_name=""}})',
        600,
        {_ONLY: 9},
    ),
    QueryExpectation(
        f'sum({_QUEUE_SIZE}{{target_model_name="qwen"}}) or '
        f'sum({_QUEUE_SIZE}{{model_name="qwen",target_model_name=""}})',
        600,
        {_ONLY: 6},
    ),
    QueryExpectation(
        f'sum({_QUEUE_BYTES}{{target_model_name="qwen"}}) or '
        f'sum({_QUEUE_BYTES}{{model_name="qwen",target_model_name=""}})',
        600,
        {_ONLY: 1e21},
    ),
    # The counter rises from 15 to 300 before the restart and from 0 to 285 after it. The samples from 15 s to 600 s
    # span 585 s of the window of 600 s; the counter was 0 at 0 s, so the extrapolation reaches the window's start.
    QueryExpectation(
        'sum(increase(vllm:request_success_total{namespace="team-a",model_name="llama",pod="a-0"}[10m]))',
        600,
        {_ONLY: (285 - 15 + 300) * 600 / 585},
    ),
    QueryExpectation(
        'sum(increase(vllm:request_success_total{namespace="team-b",model_name="qwen"}[10m]))', 600, {_ONLY: 0}
    ),
    QueryExpectation('sum(increase(vllm:request_success_total{namespace="team-a",model_name="none"}[1s]))', 600, {}),
]

GROUPED_QUERIES = [
    # b-0 ended at 200 s with 0.75; a window of a minute contains that before 260 s, the look-back before 500 s.
    QueryExpectation(
        f"max by (namespace, model_name, pod) (max_over_time({_KV}{{{_BOTH}}}[1m]))",
        259.999,
        {_GROUP_A0: 0.4, _GROUP_A1: 0.25, _GROUP_B0: 0.75},
    ),
    QueryExpectation(
        f"max by (namespace, model_name, pod) (max_over_time({_KV}{{{_BOTH}}}[1m]))",
        260,
        {_GROUP_A0: 0.4, _GROUP_A1: 0.25},
    ),
    QueryExpectation(
        f"max by (namespace, model_name, pod) (timestamp({_KV}{{{_BOTH}}}))",
        499.999,
        {_GROUP_A0: 495, _GROUP_A1: 495, _GROUP_B0: 200},
        times_are_absolute=True,
    ),
    QueryExpectation(
        f"max by (namespace, model_name, pod) (timestamp({_KV}{{{_BOTH}}}))",
        500,
        {_GROUP_A0: 495, _GROUP_A1: 495},
        times_are_absolute=True,
    ),
    # With a function inside ``timestamp`` the time is that of the evaluation.
    QueryExpectation(
        f'max by (pod) (timestamp(abs({_KV}{{namespace="team-b"}})))',
        300,
        by_pod(b_0=300),
        times_are_absolute=True,
    ),
    QueryExpectation(
        'count by (namespace, pod) (vllm:cache_config_info{namespace="team-a"}) > 1',
        600,
        {labels(namespace="team-a", pod="a-1"): 2},
    ),
    QueryExpectation(
        f'count by (namespace, model_name, pod, engine) ({_KV}{{namespace=~"team-a"}}) > 1',
        600,
        {},
    ),
    QueryExpectation(
        f'count by (namespace, model_name, pod) ({_KV}{{namespace=~"team-a"}}) > 1',
        600,
        {_GROUP_A1: 2},
    ),
    QueryExpectation(
        'max by (namespace, pod, num_gpu_blocks, block_size) (vllm:cache_config_info{namespace=~"team-a"})',
        600,
        {
            labels(namespace="team-a", pod="a-0", num_gpu_blocks="1000", block_size="16"): 1,
            labels(namespace="team-a", pod="a-1", num_gpu_blocks="2000", block_size="16"): 1,
        },
    ),
    # a-1 began at 540 s with 1000: the extrapolation to the time before that is half a step.
    QueryExpectation(
        f"sum by (namespace, model_name) (increase(vllm:request_success_total{{{_BOTH}}}[2m]))",
        600,
        {
            labels(namespace="team-a", model_name="llama"): 105 * 120 / 105 + 60 * (60 + 7.5) / 60,
            labels(namespace="team-b", model_name="qwen"): 0,
        },
    ),
    QueryExpectation(
        'sum by (namespace, model_name) (rate(vllm:prefix_cache_hits_total{namespace="team-a"}[5m]))'
        ' / sum by (namespace, model_name) (rate(vllm:prefix_cache_queries_total{namespace="team-a"}[5m]))',
        600,
        {labels(namespace="team-a", model_name="llama"): 0.75},
    ),
]

_NAMESPACES = ("team-a", "team-b")
_KV_QUERY = ESSENTIAL_QUERIES["kv_cache_usage"](_NAMESPACES)
_A0_ONLY = {"namespace": "team-a", "model_name": "llama", "pod": "a-0"}
_A1_ONLY = {"namespace": "team-a", "model_name": "llama", "pod": "a-1"}
_B0_ONLY = {"namespace": "team-b", "model_name": "qwen", "pod": "b-0"}
_MISTRAL = {"namespace": "team-a", "model_name": "mistral", "target_model_name": "mistral"}
_ALIAS = {**_MISTRAL, "model_name": "alias"}
_QUEUE_TIME = labels(signal=QueueSignal.TIMESTAMP.value, **_MISTRAL)
_LLAMA = {"namespace": "team-a", "model_name": "llama"}
_QWEN = {"namespace": "team-b", "model_name": "qwen"}
_ALIAS_TIME = labels(signal=QueueSignal.TIMESTAMP.value, **_ALIAS)


def _signals(
    signal: EngineSignal | CounterSignal | RequestSignal | SampleSignal | DaySignal,
    *found: tuple[dict[str, str], float],
) -> Result:
    """Return the elements of a grouped answer that have this signal."""
    return {labels(signal=signal.value, **identity): value for identity, value in found}


def _config(pod: str, engine: str, blocks: str) -> dict[str, str]:
    return {"namespace": "team-a", "pod": pod, "engine": engine, "num_gpu_blocks": blocks, "block_size": "16"}


SENT_QUERIES = [
    # The queries of WVA, unchanged.
    QueryExpectation(
        _KV_QUERY.text,
        600,
        {
            **_signals(SampleSignal.VALUE, (_A0_ONLY, 0.4), (_A1_ONLY, 0.25)),
            **_signals(SampleSignal.TIMESTAMP, (_A0_ONLY, 600), (_A1_ONLY, 600)),
        },
        times=tuple(_signals(SampleSignal.TIMESTAMP, (_A0_ONLY, 600), (_A1_ONLY, 600))),
    ),
    QueryExpectation(
        engine_signals(_NAMESPACES).text,
        600,
        {
            # a-1 has two engines, one of which shows NaN; no token counter of a-1 rises, so it has no such means.
            **_signals(
                EngineSignal.CACHE_CONFIG,
                (_config("a-0", "0", "1000"), 1),
                (_config("a-1", "0", "2000"), 1),
                (_config("a-1", "1", "2000"), 1),
            ),
            **_signals(EngineSignal.KV_USAGE, (_A0_ONLY, 0.4), (_A1_ONLY, math.nan)),
            **_signals(EngineSignal.WAITING, (_A0_ONLY, math.nan), (_B0_ONLY, 2)),
            **_signals(EngineSignal.RUNNING, (_A0_ONLY, 5), (_A1_ONLY, 7)),
            **_signals(EngineSignal.INPUT_TOKENS, (_A0_ONLY, 500)),
            **_signals(EngineSignal.OUTPUT_TOKENS, (_A0_ONLY, 150)),
            **_signals(EngineSignal.PREFIX_HIT_RATE, (_A0_ONLY, 0.75)),
            **_signals(EngineSignal.SUCCESS_RATE, (_A0_ONLY, 1), (_A1_ONLY, 1), (_B0_ONLY, 0)),
            **_signals(EngineSignal.TIME_TO_FIRST_TOKEN, (_A0_ONLY, 0.5)),
            **_signals(EngineSignal.INTER_TOKEN_LATENCY, (_A0_ONLY, 0.02), (_A1_ONLY, 0.03)),
        },
    ),
    QueryExpectation(
        engine_counters(_NAMESPACES).text,
        600,
        {
            # The values are those of the last scrape, so the restart of a-0 shows. The gaps of a-1 have the old metric
            # name, its hits both names, and a series that two jobs scrape counts once.
            **_signals(CounterSignal.TIME, (_A0_ONLY, 600), (_A1_ONLY, 600)),
            **_signals(
                CounterSignal.CACHE_CONFIG,
                (_config("a-0", "0", "1000"), 1),
                (_config("a-1", "0", "2000"), 1),
                (_config("a-1", "1", "2000"), 1),
            ),
            **_signals(CounterSignal.KV_USAGE, (_A0_ONLY, 0.4), (_A1_ONLY, math.nan)),
            **_signals(CounterSignal.WAITING, (_A0_ONLY, math.nan), (_B0_ONLY, 2)),
            **_signals(CounterSignal.RUNNING, (_A0_ONLY, 5), (_A1_ONLY, 7)),
            **_signals(CounterSignal.FINISHED, (_A0_ONLY, 285), (_A1_ONLY, 1060), (_B0_ONLY, 7 + 3)),
            **_signals(CounterSignal.ABORTED, (_B0_ONLY, 3)),
            **_signals(CounterSignal.PROMPT_TOKENS, (_A0_ONLY, 60_000), (_A1_ONLY, 700 + 800)),
            **_signals(CounterSignal.CACHED_TOKENS, (_A0_ONLY, 1800), (_A1_ONLY, 100)),
            **_signals(CounterSignal.PROMPTS, (_A0_ONLY, 120)),
            **_signals(CounterSignal.ANSWER_TOKENS, (_A0_ONLY, 18_000), (_A1_ONLY, 500)),
            **_signals(CounterSignal.ANSWERS, (_A0_ONLY, 120), (_A1_ONLY, 10)),
            **_signals(CounterSignal.GAP_SECONDS, (_A0_ONLY, 360), (_A1_ONLY, 180)),
            **_signals(CounterSignal.GAPS, (_A0_ONLY, 18_000), (_A1_ONLY, 6_000)),
        },
        times=tuple(_signals(CounterSignal.TIME, (_A0_ONLY, 600), (_A1_ONLY, 600))),
    ),
    QueryExpectation(
        scheduler_queue(_NAMESPACES).text,
        600,
        {
            labels(signal=QueueSignal.SIZE.value, **_MISTRAL): 4 + 2 + 3,
            labels(signal=QueueSignal.SIZE.value, **_ALIAS): 1,
            labels(signal=QueueSignal.BYTES.value, **_MISTRAL): 4000 + 500,
            _QUEUE_TIME: 585,
            _ALIAS_TIME: 600,
        },
        times=(_QUEUE_TIME, _ALIAS_TIME),
    ),
    QueryExpectation(
        request_query(_NAMESPACES, Window(300)).text,
        600,
        {
            # a-0 has finished 285 since its restart; a-1 began within the window, so its whole counter counts.
            **_signals(RequestSignal.FINISHED, (_LLAMA, 285 + 1060), (_QWEN, 0)),
            **_signals(RequestSignal.RUNNING, (_A0_ONLY, 5), (_A1_ONLY, 3 + 4)),
            **_signals(RequestSignal.WAITING, (_A0_ONLY, math.nan), (_B0_ONLY, 2)),
            **_signals(RequestSignal.QUEUED, (_MISTRAL, 4 + 2 + 3), (_ALIAS, 1)),
            # The window has ten parts, and the part before it also counts.
            **_signals(RequestSignal.COVERED, (_LLAMA, 11), (_QWEN, 11)),
        },
    ),
    QueryExpectation(
        earlier_days(_NAMESPACES).text,
        600,
        {
            **_signals(DaySignal.FINISHED, (_LLAMA, (285 + 67.5) / 300), (_QWEN, 0)),
            **_signals(DaySignal.RUNNING, (_LLAMA, 5 + 3 + 4)),
            **_signals(DaySignal.RUNNING_BEFORE, (_LLAMA, 5 + 3 + 4)),
            # What waits at a-0 is NaN at 600 s; five waited at 300 s.
            **_signals(DaySignal.WAITING, (_LLAMA, math.nan), (_QWEN, 2)),
            **_signals(DaySignal.WAITING_BEFORE, (_LLAMA, 5), (_QWEN, 2)),
            **_signals(DaySignal.HELD_BACK, (_MISTRAL, 4 + 2 + 3), (_ALIAS, 1)),
            **_signals(DaySignal.HELD_BACK_BEFORE, (_MISTRAL, 4 + 2 + 3), (_ALIAS, 1)),
        },
    ),
    QueryExpectation(
        in_time_query(_NAMESPACES, [DEFAULT_OBJECTIVES]).text,
        600,
        {
            # Each step of a-0 has three first tokens within a second, of four. Its counters begin at 0, at 0 s and
            # again at 315 s, where extrapolation ends.
            labels(signal="first_2m", le="1", **_LLAMA): 24,
            labels(signal="first_2m", le="+Inf", **_LLAMA): 32,
            labels(signal="first_5m", le="1", **_LLAMA): 60,
            labels(signal="first_5m", le="+Inf", **_LLAMA): 80,
            labels(signal="first_1h", le="1", **_LLAMA): 120,
            labels(signal="first_1h", le="+Inf", **_LLAMA): 160,
            labels(signal="ended_2m", **_LLAMA): 120 + 67.5,
            labels(signal="ended_5m", **_LLAMA): 285 + 67.5,
            labels(signal="ended_1h", **_LLAMA): 300 + 285 + 67.5,
            **{
                labels(signal=f"{name}_{window}", **_QWEN): 0
                for name in ("ended", "aborted")
                for window in (LATELY, *WINDOWS)
            },
        },
    ),
]

SEMANTICS = [
    # Selectors
    QueryExpectation(f'{_KV}{{namespace="team-b"}}', 100, {labels(metric=_KV, **B0): 0.5}),
    QueryExpectation(f'{_KV}{{namespace="team-b"}}', -1, {}),
    QueryExpectation(f'{{__name__=~"{_KV}|nothing",namespace!~"team-a|$"}}', 100, {labels(metric=_KV, **B0): 0.5}),
    QueryExpectation(
        f'{_QUEUE_SIZE}{{model_name=~"qw.*",target_model_name=""}}',
        100,
        {labels(metric=_QUEUE_SIZE, model_name="qwen"): 6},
    ),
    QueryExpectation(f'{_KV}{{namespace="team-b",engine!="0"}}', 100, {}),
    QueryExpectation(f'{_KV}{{namespace="team-b"}} offset 3m', 380, {labels(metric=_KV, **B0): 0.75}),
    QueryExpectation(f'max_over_time({_KV}{{pod="a-0",namespace="team-a"}}[1m] offset 1m)', 630, {labels(**A0): 0.9}),
    QueryExpectation('count(contract_text{namespace="team-a",text=~"two.l.*"})', 600, {_ONLY: 1}),
    # Counters
    QueryExpectation(
        'rate(vllm:request_success_total{namespace="team-a",pod="a-0"}[1m])',
        330,
        {labels(**A0): (300 - 285 + 15) / 45 * (45 + 7.5 * 0 + 15) / 60},
    ),
    QueryExpectation('irate(vllm:request_success_total{namespace="team-a",pod="a-0"}[1m])', 315, {labels(**A0): 0}),
    QueryExpectation('irate(vllm:request_success_total{namespace="team-a",pod="a-0"}[1m])', 330, {labels(**A0): 1}),
    QueryExpectation(
        'delta(vllm:num_requests_waiting{namespace="team-a",pod="a-0"}[2m])', 240, {labels(**A0): 2 * 120 / 105}
    ),
    # The rate of a series that began within the window is that of its last step.
    QueryExpectation(
        'sum by (pod) ((rate(vllm:request_success_total{namespace="team-a"}[1m])'
        ' and vllm:request_success_total{namespace="team-a"} offset 1m)'
        ' or irate(vllm:request_success_total{namespace="team-a"}[1m]))',
        570,
        by_pod(a_0=1, a_1=1),
    ),
    QueryExpectation('increase(vllm:request_success_total{namespace="team-a",pod="a-1"}[1m])', 554, {}),
    QueryExpectation(
        'increase(vllm:request_success_total{namespace="team-a",pod="a-1"}[1m])', 555, {labels(**A1): 15 * 1.5}
    ),
    # The extrapolation adds half a step to an end far from the edge, and stops at zero for a counter, not for a gauge.
    QueryExpectation('increase(contract_ended_total{namespace="team-a"}[2m])', 320, {labels(**A0): 90 + 10 + 7.5}),
    QueryExpectation('increase(contract_young_total{namespace="team-a"}[1m])', 345, {labels(**A0): 30 * (45 + 3) / 45}),
    QueryExpectation('delta(contract_young_total{namespace="team-a"}[1m])', 345, {labels(**A0): 30 * (45 + 15) / 45}),
    # Other functions over a range
    QueryExpectation(f'min_over_time({_KV}{{namespace="team-a",pod="a-0"}}[1m])', 540, {labels(**A0): 0.4}),
    QueryExpectation(f'avg_over_time({_KV}{{namespace="team-a",pod="a-0"}}[1m])', 540, {labels(**A0): 0.525}),
    QueryExpectation(f'sum_over_time({_KV}{{namespace="team-a",pod="a-0"}}[1m])', 540, {labels(**A0): 2.1}),
    QueryExpectation(f'count_over_time({_KV}{{namespace="team-a",pod="a-0"}}[1m])', 540, {labels(**A0): 4}),
    QueryExpectation(f'last_over_time({_KV}{{namespace="team-b"}}[5m])', 499, {labels(metric=_KV, **B0): 0.75}),
    QueryExpectation(
        f'max_over_time({_KV}{{namespace="team-a",engine="1"}}[1m])', 600, {labels(**A1_SECOND): math.nan}
    ),
    QueryExpectation('sum_over_time(contract_cancelling{namespace="team-a"}[1m])', 30, {labels(**A0): 1}),
    QueryExpectation('avg_over_time(contract_cancelling{namespace="team-a"}[1m])', 30, {labels(**A0): 1 / 3}),
    # Subqueries: the times are multiples of the step, and the range is left-open.
    QueryExpectation("count_over_time(vector(1)[5m:30s])", 600, {_ONLY: 10}),
    QueryExpectation("sum_over_time(vector(time() % 30)[5m:30s])", 600, {_ONLY: 0}),
    QueryExpectation(
        f'max_over_time(sum by (pod) ({_KV}{{namespace="team-a",pod="a-0"}})[5m:15s])', 600, by_pod(a_0=0.9)
    ),
    QueryExpectation(f'count_over_time((max ({_KV}{{namespace="team-b"}}))[1m:30s] offset 5m)', 600, {_ONLY: 2}),
    QueryExpectation(f'count_over_time((max ({_KV}{{namespace="team-b"}}))[1m:30s])', 600, {}),
    # Aggregation and NaN
    QueryExpectation(f'max ({_KV}{{namespace="team-a"}})', 600, {_ONLY: 0.4}),
    QueryExpectation(f'min ({_KV}{{namespace="team-a"}})', 600, {_ONLY: 0.25}),
    QueryExpectation(f'sum ({_KV}{{namespace="team-a"}})', 600, {_ONLY: math.nan}),
    QueryExpectation(f'avg by (engine) ({_KV}{{namespace="team-a",engine="0"}})', 600, {labels(engine="0"): 0.325}),
    QueryExpectation(
        f'group without (engine, pod, job, instance) ({_KV}{{namespace="team-a"}})',
        600,
        {labels(namespace="team-a", model_name="llama"): 1},
    ),
    QueryExpectation(f'topk(1, {_KV}{{namespace="team-a"}})', 600, {labels(metric=_KV, **A0): 0.4}),
    QueryExpectation(f'bottomk(1, {_KV}{{namespace="team-a"}})', 600, {labels(metric=_KV, **A1): 0.25}),
    # Operators
    QueryExpectation(
        'label_replace(contract_pod_info{pod="a-0",namespace="team-a"}, "node", "old", "", "")'
        ' * on (pod) group_left (node, namespace) label_replace(contract_pod_info{namespace="team-a"}, '
        '"namespace", "", "", "")',
        600,
        {labels(pod="a-0", node="n-0"): 1},
    ),
    QueryExpectation(
        f'{_KV}{{namespace="team-a",engine="0"}} * on (pod) group_left (node) contract_pod_info',
        600,
        {labels(**A0, node="n-0"): 0.4, labels(**A1, node="n-1"): 0.25},
    ),
    QueryExpectation(
        f'contract_pod_info{{namespace="team-a"}} - on (pod) {_KV}{{namespace="team-a",engine="0"}}',
        600,
        by_pod(a_0=0.6, a_1=0.75),
    ),
    QueryExpectation(f'{_KV}{{namespace="team-a"}} > 0.3', 600, {labels(metric=_KV, **A0): 0.4}),
    QueryExpectation(f'{_KV}{{namespace="team-a",engine="0"}} > bool 0.3', 600, {labels(**A0): 1, labels(**A1): 0}),
    QueryExpectation(f'0.3 < {_KV}{{namespace="team-a"}}', 600, {labels(metric=_KV, **A0): 0.4}),
    QueryExpectation(
        f'{_KV}{{namespace="team-a",engine="0"}} and on (pod) contract_pod_info{{node="n-1"}}',
        600,
        {labels(metric=_KV, **A1): 0.25},
    ),
    QueryExpectation(
        f'{_KV}{{namespace="team-a",engine="0"}} unless on (pod) contract_pod_info{{node="n-1"}}',
        600,
        {labels(metric=_KV, **A0): 0.4},
    ),
    QueryExpectation(f'sum by (pod) ({_KV}{{namespace="team-a"}}) / 0', 600, by_pod(a_0=math.inf, a_1=math.nan)),
    QueryExpectation("-vector(2) ^ 2", 600, {_ONLY: -4}),
    QueryExpectation("vector(7) % 4 + 2 * 3", 600, {_ONLY: 9}),
    # Functions of an instant vector
    QueryExpectation('absent(vllm:nothing{namespace="team-a",pod=~"x"})', 600, {labels(namespace="team-a"): 1}),
    QueryExpectation(f'absent({_KV}{{namespace="team-a"}})', 600, {}),
    QueryExpectation(f'vector(scalar({_KV}{{namespace="team-b"}}))', 600, {_ONLY: math.nan}),
    QueryExpectation(f'clamp_max(clamp_min({_KV}{{namespace="team-b"}}, 0.6), 0.65)', 100, {labels(**B0): 0.6}),
    QueryExpectation("round(vector(2.5)) + ceil(vector(1.2)) + floor(vector(1.8)) + abs(vector(-1))", 600, {_ONLY: 7}),
    QueryExpectation("round(vector(7), 5)", 600, {_ONLY: 5}),
    QueryExpectation("vector(time())", 600, {_ONLY: 600}, times_are_absolute=True),
    QueryExpectation('label_replace(vector(1), "deployment", "$1", "", "()")', 600, {_ONLY: 1}),
    QueryExpectation(
        'sum by (set, ordinal) (label_replace(label_replace(contract_pod_info{namespace="team-a"}, '
        '"set", "${1}", "pod", "(.*)-([0-9]+)"), "ordinal", "$2", "pod", "(.*)-([0-9]+)"))',
        600,
        {labels(set="a", ordinal="0"): 1, labels(set="a", ordinal="1"): 1},
    ),
    # Four requests per step: 1 up to 0.1 s, 2 up to 1 s, 1 up to 10 s. The third is at the end of the second bucket.
    QueryExpectation(
        'histogram_quantile(0.75, rate(vllm:time_to_first_token_seconds_bucket{namespace="team-a"}[5m]))',
        600,
        {labels(**A0): 1.0},
    ),
    QueryExpectation(
        'histogram_quantile(0.5, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{namespace="team-a"}[5m])))',
        600,
        {_ONLY: 0.1 + 0.9 / 2},
    ),
    QueryExpectation(
        'histogram_quantile(0.9, contract_bucket{kind="falling",namespace="team-a"})',
        600,
        {labels(namespace="team-a", kind="falling"): 2.4},
    ),
    QueryExpectation(
        'histogram_quantile(0.25, contract_bucket{kind="negative",namespace="team-a"})',
        600,
        {labels(namespace="team-a", kind="negative"): -1},
    ),
    QueryExpectation(
        'histogram_quantile(0.9, contract_bucket{kind="negative",namespace="team-a"})',
        600,
        {labels(namespace="team-a", kind="negative"): 1},
    ),
    # NaN comes last in both topk and bottomk; the bounds of clamp may contradict each other.
    QueryExpectation(
        f'topk(2, {_KV}{{namespace="team-a",pod="a-1"}})',
        600,
        {labels(metric=_KV, **A1): 0.25, labels(metric=_KV, **A1_SECOND): math.nan},
    ),
    QueryExpectation(f'bottomk(1, {_KV}{{namespace="team-a",pod="a-1"}})', 600, {labels(metric=_KV, **A1): 0.25}),
    QueryExpectation(f'topk(1, {_KV}{{namespace="team-a",pod="a-1"}})', 600, {labels(metric=_KV, **A1): 0.25}),
    QueryExpectation("clamp(vector(5), 3, 2)", 600, {}),
    QueryExpectation("clamp(vector(5), 2, 3)", 600, {_ONLY: 3}),
    QueryExpectation("ceil(vector(-0.3)) + 1 / ceil(vector(-0.3))", 600, {_ONLY: -math.inf}),
    QueryExpectation(
        'avg(vector(1e308) or on (x) label_replace(vector(1e308), "x", "y", "", ""))', 600, {_ONLY: 1e308}
    ),
]

EXPECTATIONS = [*ORIGINAL_QUERIES, *GROUPED_QUERIES, *SENT_QUERIES, *SEMANTICS]

ERRORS = [
    ErrorExpectation("sum(", 400, "bad_data"),
    ErrorExpectation("", 400, "bad_data"),
    ErrorExpectation("nosuchfunction(up)", 400, "bad_data"),
    ErrorExpectation("rate(up)", 400, "bad_data"),
    ErrorExpectation('up{job=~"("}', 400, "bad_data"),
    ErrorExpectation(f'{_KV}{{namespace="team-a"}} * on (namespace) contract_pod_info', 422, "execution"),
    ErrorExpectation(f'{_KV}{{namespace="team-a"}} + on (pod) contract_pod_info', 422, "execution"),
    ErrorExpectation(
        'rate({__name__=~"vllm:prefix_cache_(hits|queries)_total",namespace="team-a"}[5m])', 422, "execution"
    ),
]
