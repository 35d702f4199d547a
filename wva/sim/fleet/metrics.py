"""Exposition text of vLLM's V1 engine, written by hand: a registry per pod would cost more than the engines.

Names, types and label sets are those of vLLM 0.11, with what trips up its readers: counters end in ``_total``;
``cache_config_info`` carries its settings and ``engine`` but no ``model_name``; every series has an ``engine`` label,
one per data-parallel engine; all finish reasons are there from the start; the inter-token histogram is exposed under
its old name too. Labels come sorted, as the Python client writes them. Left out are the series that this project does
not read (iteration sizes, request parameters, LoRA, process metrics).

In: views of engines, taken by the fleet. Out: one page. Series of several pods are grouped by family, as the format
demands; ``namespace`` and ``pod`` labels are added where one page stands for many pods (``honor_labels``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from wva.sim.fleet.counters import (
    DECODE_TIME,
    E2E_LATENCY,
    FINISH_REASONS,
    GENERATION_TOKENS,
    INTER_TOKEN_LATENCY,
    PREFILL_TIME,
    PROMPT_TOKENS,
    QUEUE_TIME,
    TIME_TO_FIRST_TOKEN,
)
from wva.sim.fleet.engine import EngineSample, Histogram
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.replica import PodKey, PoolKey

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class EngineView:
    """What a page says about one engine.

    Attributes:
        model: served model.
        pod: pod the engine runs in.
        engine: index of the data-parallel engine.
        parameters: for the cache configuration.
        sample: its values at one instant.
        broken_gauges: gauges show NaN.
        timestamp_milliseconds: written behind each sample; None leaves the time to the scraper.

    """

    model: PoolKey
    pod: PodKey
    engine: int
    parameters: EngineParameters
    sample: EngineSample
    broken_gauges: bool = False
    timestamp_milliseconds: int | None = None


_GAUGES: Final[tuple[tuple[str, str, Callable[[EngineView], float]], ...]] = (
    ("vllm:num_requests_running", "Requests being computed.", lambda view: view.sample.running),
    ("vllm:num_requests_waiting", "Requests in the engine's queue.", lambda view: view.sample.waiting),
    ("vllm:kv_cache_usage_perc", "Share of KV cache blocks in use, 0 to 1.", lambda view: view.sample.kv_cache_usage),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[EngineView], float]], ...]] = (
    (
        "vllm:prefix_cache_queries_total",
        "Tokens looked up in the prefix cache.",
        lambda view: view.sample.prefix_cache_queries,
    ),
    (
        "vllm:prefix_cache_hits_total",
        "Tokens found in the prefix cache.",
        lambda view: view.sample.prefix_cache_hits,
    ),
    ("vllm:num_preemptions_total", "Preempted sequences.", lambda view: view.sample.preemptions),
    ("vllm:prompt_tokens_total", "Prompt tokens, also those found in a cache.", lambda view: view.sample.prompt_tokens),
    ("vllm:generation_tokens_total", "Tokens generated.", lambda view: view.sample.generation_tokens),
)
_HISTOGRAMS: Final = (
    ("vllm:request_prompt_tokens", "Prompt tokens per finished request.", PROMPT_TOKENS),
    ("vllm:request_generation_tokens", "Generated tokens per finished request.", GENERATION_TOKENS),
    ("vllm:time_to_first_token_seconds", "Seconds until the first token.", TIME_TO_FIRST_TOKEN),
    ("vllm:inter_token_latency_seconds", "Seconds between tokens.", INTER_TOKEN_LATENCY),
    (
        "vllm:time_per_output_token_seconds",
        "Seconds between tokens, under the name used before.",
        INTER_TOKEN_LATENCY,
    ),
    ("vllm:e2e_request_latency_seconds", "Seconds per request.", E2E_LATENCY),
    ("vllm:request_queue_time_seconds", "Seconds in the queue.", QUEUE_TIME),
    ("vllm:request_prefill_time_seconds", "Seconds of prefill.", PREFILL_TIME),
    ("vllm:request_decode_time_seconds", "Seconds of decoding.", DECODE_TIME),
)


def render(views: Sequence[EngineView], *, pod_labels: bool) -> str:
    """Return the page of ``views``; with ``pod_labels`` each series names its namespace and pod."""
    lines: list[str] = []
    targets = [_Target.of(view, pod_labels=pod_labels) for view in views]
    for name, text, gauge in _GAUGES:
        lines += _header(name, text, "gauge")
        lines += (
            f"{name}{{{target.head}{target.tail}}} {'NaN' if target.view.broken_gauges else float(gauge(target.view))}"
            f"{target.stamp}"
            for target in targets
        )
    for name, text, counter in _COUNTERS:
        lines += _header(name, text, "counter")
        lines += (
            f"{name}{{{target.head}{target.tail}}} {float(counter(target.view))}{target.stamp}" for target in targets
        )
    lines += _success(targets)
    for name, text, histogram in _HISTOGRAMS:
        lines += _header(name, text, "histogram")
        for target in targets:
            lines += _histogram(name, target, target.view.sample.histograms[histogram])
    lines += _cache_config(targets)
    return "\n".join(lines) + "\n"


def gateway_lines(queues: Iterable[tuple[PoolKey, int, int]], *, pool: str, namespaces: bool) -> str:
    """Return the endpoint picker's page: requests and bytes queued per model in flow control.

    The picker's series carry no namespace; on a page for many namespaces (``namespaces``) the label is added, as
    Prometheus adds it from the scraped target.
    """
    rows = list(queues)
    lines: list[str] = []
    for position, (name, text) in enumerate(
        (
            ("inference_extension_flow_control_queue_size", "Requests held in flow control."),
            ("inference_extension_flow_control_queue_bytes", "Bytes of the requests held in flow control."),
        ),
        start=1,
    ):
        lines += _header(name, text, "gauge")
        for row in rows:
            model: PoolKey = row[0]
            name_label = escape(model.model_id)
            middle = f',namespace="{escape(model.namespace)}"' if namespaces else ""
            lines.append(
                f'{name}{{fairness_id="default-flow",inference_pool="{escape(pool)}",model_name="{name_label}"{middle},'
                f'priority="0",target_model_name="{name_label}"}} {row[position]}'
            )
    return "\n".join(lines) + "\n"


def escape(value: str) -> str:
    """Return a label value as the text format wants it between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class _Target:
    """A view and its labels as text, split where ``finished_reason`` and ``le`` sort in."""

    view: EngineView
    head: str
    tail: str
    pod_labels: dict[str, str]
    stamp: str

    @classmethod
    def of(cls, view: EngineView, *, pod_labels: bool) -> _Target:
        extra = {"namespace": view.pod.namespace, "pod": view.pod.name} if pod_labels else {}
        extra_text = "".join(f',{label}="{escape(value)}"' for label, value in extra.items())
        return cls(
            view=view,
            head=f'engine="{view.engine}"',
            tail=f',model_name="{escape(view.model.model_id)}"{extra_text}',
            pod_labels=extra,
            stamp="" if view.timestamp_milliseconds is None else f" {view.timestamp_milliseconds}",
        )


def _header(name: str, text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _success(targets: Iterable[_Target]) -> Iterator[str]:
    name = "vllm:request_success_total"
    yield from _header(name, "Finished requests.", "counter")
    for target in targets:
        for reason in FINISH_REASONS:
            count = float(target.view.sample.finished[reason])
            yield f'{name}{{{target.head},finished_reason="{reason}"{target.tail}}} {count}{target.stamp}'


def _histogram(name: str, target: _Target, histogram: Histogram) -> Iterator[str]:
    for bound, count in zip(_bounds_text(histogram.bounds), histogram.cumulative, strict=True):
        yield f'{name}_bucket{{{target.head},le="{bound}"{target.tail}}} {count}.0{target.stamp}'
    yield f"{name}_count{{{target.head}{target.tail}}} {histogram.count}.0{target.stamp}"
    yield f"{name}_sum{{{target.head}{target.tail}}} {histogram.total}{target.stamp}"


@cache
def _bounds_text(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(bound) for bound in bounds), "+Inf")


def _cache_config(targets: Iterable[_Target]) -> Iterator[str]:
    name = "vllm:cache_config_info"
    yield from _header(name, "Settings of the KV cache.", "gauge")
    for target in targets:
        parameters = target.view.parameters
        labels = {
            "block_size": str(parameters.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": str(target.view.engine),
            "gpu_memory_utilization": "0.9",
            "num_gpu_blocks": str(parameters.num_gpu_blocks),
            "num_gpu_blocks_override": "None",
            "sliding_window": "None",
        } | target.pod_labels
        text = ",".join(f'{label}="{escape(value)}"' for label, value in sorted(labels.items()))
        yield f"{name}{{{text}}} 1.0{target.stamp}"
