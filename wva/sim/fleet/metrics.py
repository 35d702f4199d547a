"""Exposition text of vLLM's V1 engine, made from templates: a registry per pod would cost more than the engines.

Names, types and label sets are those of vLLM 0.32.0 (``families``), with what confuses readers: counters end in
``_total``; ``cache_config_info`` carries its settings and ``engine`` but no ``model_name``; every series but refusals
has an ``engine`` label, one per data-parallel engine; all finish reasons are there from the start. Labels come sorted,
as the Python client writes them. The ``_created`` series are there if a view says when its engine started; vLLM
leaves them out with ``PROMETHEUS_DISABLE_CREATED_SERIES``. What the server process shows of itself is not here.

In: views of engines, taken by the fleet. Out: one page. Series of several pods are grouped by family, as the format
demands; ``namespace`` and ``pod`` labels are added where one page stands for many pods (``honor_labels``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from wva.sim.fleet.engine import EngineSample, shown_bounds
from wva.sim.fleet.families import FAMILIES, MetricFamily
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
        started_seconds: when its counters began, in seconds since the epoch; None hides that.
        timestamp_milliseconds: written behind each sample; None leaves the time to the scraper.

    """

    model: PoolKey
    pod: PodKey
    engine: int
    parameters: EngineParameters
    sample: EngineSample
    broken_gauges: bool = False
    started_seconds: float | None = None
    timestamp_milliseconds: int | None = None


def render(views: Sequence[EngineView], *, pod_labels: bool) -> str:
    """Return the page of ``views``; with ``pod_labels`` each series names its namespace and pod."""
    bodies = [
        _bodies(
            view.parameters,
            view.engine,
            view.model.model_id,
            view.pod if pod_labels else None,
            view.started_seconds,
            view.timestamp_milliseconds,
        )
        for view in views
    ]
    parts = []
    for position, family in enumerate(FAMILIES):
        parts.append(_header(family.name, family.text, family.kind))
        for body, view in zip(bodies, views, strict=True):
            parts.append(body.samples[position] % _values(family, view))
        if family.kind != "gauge" and any(body.created[position] for body in bodies):
            parts.append(_header(_created(family), family.text, "gauge"))
            parts += [body.created[position] for body in bodies]
    parts.append(_header("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge"))
    parts += [body.settings for body in bodies]
    return "".join(parts)


def gateway_lines(queues: Iterable[tuple[PoolKey, int, int]], *, pool: str, namespaces: bool) -> str:
    """Return the endpoint picker's page: requests and bytes queued per model in flow control.

    The picker's series carry no namespace; on a page for many namespaces (``namespaces``) the label is added, as
    Prometheus adds it from the scraped target.
    """
    rows = list(queues)
    parts: list[str] = []
    for position, (name, text) in enumerate(
        (
            ("inference_extension_flow_control_queue_size", "Requests held in flow control."),
            ("inference_extension_flow_control_queue_bytes", "Bytes of the requests held in flow control."),
        ),
        start=1,
    ):
        parts.append(_header(name, text, "gauge"))
        for row in rows:
            model: PoolKey = row[0]
            name_label = escape(model.model_id)
            middle = f',namespace="{escape(model.namespace)}"' if namespaces else ""
            parts.append(
                f'{name}{{fairness_id="default-flow",inference_pool="{escape(pool)}",model_name="{name_label}"{middle},'
                f'priority="0",target_model_name="{name_label}"}} {row[position]}\n'
            )
    return "".join(parts)


def escape(value: str) -> str:
    """Return a label value as the text format wants it between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class _Bodies:
    """The samples of an engine's families, in order: with ``%s`` for the values, and when each began to count."""

    samples: tuple[str, ...]
    created: tuple[str, ...]
    settings: str


@lru_cache(maxsize=64)
def _bodies(
    parameters: EngineParameters,
    engine: int,
    model: str,
    pod: PodKey | None,
    started_seconds: float | None,
    timestamp_milliseconds: int | None,
) -> _Bodies:
    """Return the templates of an engine: the same for all pods of a model, as long as the labels do not name them."""
    labels = {"model_name": model} | ({} if pod is None else {"namespace": pod.namespace, "pod": pod.name})
    target = ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()).replace("%", "%%")
    end = "\n" if timestamp_milliseconds is None else f" {timestamp_milliseconds}\n"

    def line(name: str, sample: str) -> str:
        if engine and not sample.startswith("{engine}"):
            return ""  # it belongs to the server, whose first engine shows it
        text, _, value = sample.format(engine=f'engine="{engine}"', target=target).rpartition(" ")
        return f"{name}{{{text}}} {value}{end}"

    samples, created = [], []
    for family in FAMILIES:
        templates = family.samples
        if family.histogram is None:
            samples.append("".join(line(family.name, sample) for sample in templates))
        else:
            templates = ("{engine},{target} %s",)
            bounds = (*map(str, shown_bounds(parameters.max_model_len)[family.histogram]), "+Inf")
            buckets = [line(f"{family.name}_bucket", f'{{engine}},le="{bound}",{{target}} %d.0') for bound in bounds]
            count, total = (line(f"{family.name}_{suffix}", templates[0]) for suffix in ("count", "sum"))
            samples.append("".join(buckets) + count + total)
        created.append(
            ""
            if started_seconds is None
            else "".join(
                line(_created(family), f"{sample.rpartition(' ')[0]} {started_seconds!r}") for sample in templates
            )
            % ()
        )
    settings = _settings(parameters) | {"engine": str(engine)} | {n: v for n, v in labels.items() if n != "model_name"}
    text = ",".join(f'{label}="{escape(value)}"' for label, value in sorted(settings.items()))
    return _Bodies(tuple(samples), tuple(created), f"vllm:cache_config_info{{{text}}} 1.0{end}")


def _values(family: MetricFamily, view: EngineView) -> tuple[Any, ...]:
    if family.histogram is not None:
        histogram = view.sample.histograms[family.histogram]
        return (*histogram.cumulative, float(histogram.count), histogram.total)
    values = family.values(view.sample)
    return ("NaN",) * len(values) if view.broken_gauges and family.kind == "gauge" else values


def _created(family: MetricFamily) -> str:
    """Return the name of the family that says when this family began to count."""
    return f"{family.name.removesuffix('_total') if family.kind == 'counter' else family.name}_created"


def _header(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _settings(parameters: EngineParameters) -> dict[str, str]:
    """Return the labels of ``cache_config_info``, without ``engine``: vLLM's own defaults but for the sizes."""
    block_size, blocks = parameters.block_size, parameters.num_gpu_blocks
    longest_blocks = -(-parameters.max_model_len // block_size)
    return _DEFAULT_SETTINGS | {
        "block_size": str(block_size),
        "effective_attention_block_size": str(block_size),
        "kv_cache_max_concurrency": str(blocks / longest_blocks),
        "kv_cache_size_tokens": str(blocks * block_size),
        "num_gpu_blocks": str(blocks),
    }


_DEFAULT_SETTINGS: Final = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}
