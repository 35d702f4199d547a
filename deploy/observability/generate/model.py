"""The dashboard of one model: the latency of its users, the load of its replicas, and their number and cost."""

from __future__ import annotations

from typing import Final

from deploy.observability.generate.grafana import Dashboard, PanelExpression, PanelRow, Variable, graph, stat, steps
from deploy.observability.generate.queries import CONTROLLER, TARGET, WINDOW, cost, of_model, quantile, rate_by

_CHOSEN: Final = f'{CONTROLLER}, exported_namespace=~"$namespace"'
_MODELS: Final = 'model_name="$model"'
_ENGINES: Final = f'namespace=~"$namespace", {_MODELS}'
_NAME: Final = "{{exported_namespace}}/{{variant_name}}"


def _quantiles(*histograms: str) -> list[PanelExpression]:
    """Return three quantiles of a histogram. vLLM has renamed some, so the first name with series counts."""
    return [
        PanelExpression(
            " or ".join(quantile(share, histogram, _ENGINES) for histogram in histograms), f"{share * 100:g} %"
        )
        for share in (0.5, 0.95, 0.99)
    ]


def _mean(metric: str, chosen: str) -> str:
    return f"avg(max by (namespace, pod) ({metric}{{{chosen}}}))"


def _of_model_itself(metric: str, *labels: str) -> str:
    """Return a gauge about the model, which has no variant."""
    by = ", ".join(("exported_namespace", "model_name", *labels))
    return f"max by ({by}) ({metric}{{{_CHOSEN}, {_MODELS}}})"


_NOW: Final = PanelRow(
    "Now",
    (
        stat(
            "Replicas",
            "Replicas of the model's variants that exist.",
            PanelExpression(f"sum({of_model('wva_current_replicas', _CHOSEN, _MODELS)})"),
        ),
        stat(
            "Desired",
            "Replicas that should exist.",
            PanelExpression(f"sum({of_model('wva_desired_replicas', _CHOSEN, _MODELS)})"),
        ),
        stat(
            "Cost",
            "Cost of the replicas that exist, in the unit of spec.variantCost.",
            PanelExpression(f"sum({cost(_CHOSEN, _MODELS)})"),
        ),
        stat(
            "KV cache",
            "Mean share of the KV cache that is in use.",
            PanelExpression(_mean("vllm:kv_cache_usage_perc", _ENGINES)),
            unit="percentunit",
        ),
        stat(
            "Waiting",
            "Requests that wait in the queues of the engines.",
            PanelExpression(f"sum(vllm:num_requests_waiting{{{_ENGINES}}})"),
        ),
        stat(
            "Running",
            "Requests that are being computed.",
            PanelExpression(f"sum(vllm:num_requests_running{{{_ENGINES}}})"),
        ),
        stat(
            "First token",
            "95 % of the requests have their first token within this time.",
            PanelExpression(quantile(0.95, "vllm:time_to_first_token_seconds", _ENGINES)),
            unit="s",
        ),
        stat(
            "Requests",
            "Finished requests per second.",
            PanelExpression(f"sum(rate(vllm:request_success_total{{{_ENGINES}}}{WINDOW}))"),
            unit="reqps",
        ),
    ),
)
_USERS: Final = PanelRow(
    "What users see",
    (
        graph(
            "In time",
            "Share of the requests that were served within the objectives of the model, over 5 minutes and an hour, "
            "and the share that shall be.",
            PanelExpression(_of_model_itself("wva_in_time_ratio", "window"), "last {{window}}"),
            PanelExpression(_of_model_itself("wva_objective_ratio"), "objective"),
            unit="percentunit",
            width=24,
        ),
        graph(
            "Time to first token",
            "How long requests wait for their first token.",
            *_quantiles("vllm:time_to_first_token_seconds"),
            unit="s",
        ),
        graph(
            "Time between tokens",
            "The pace of the answers after the first token.",
            *_quantiles("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
            unit="s",
        ),
        graph(
            "Finished requests",
            "Per second, by the reason why they ended.",
            PanelExpression(rate_by("finished_reason", "vllm:request_success_total", _ENGINES), "{{finished_reason}}"),
            unit="reqps",
            stacked=True,
        ),
    ),
)
_ENGINE_ROW: Final = PanelRow(
    "Engines",
    (
        graph(
            "KV cache",
            "Share of the KV cache in use: mean and fullest replica. One of the two signals that saturation is judged "
            "by.",
            PanelExpression(_mean("vllm:kv_cache_usage_perc", _ENGINES), "mean"),
            PanelExpression(f"max(vllm:kv_cache_usage_perc{{{_ENGINES}}})", "fullest"),
            unit="percentunit",
        ),
        graph(
            "Queue",
            "Requests that wait in a replica: mean and longest queue. The other signal.",
            PanelExpression(_mean("vllm:num_requests_waiting", _ENGINES), "mean"),
            PanelExpression(f"max(vllm:num_requests_waiting{{{_ENGINES}}})", "longest"),
        ),
        graph(
            "KV cache by replica",
            "Share of the KV cache in use, for each pod.",
            PanelExpression(f"max by (namespace, pod) (vllm:kv_cache_usage_perc{{{_ENGINES}}})", "{{pod}}"),
            unit="percentunit",
        ),
        graph(
            "Requests in the engines",
            "Requests that are being computed, and requests that wait.",
            PanelExpression(f"sum(vllm:num_requests_running{{{_ENGINES}}})", "running"),
            PanelExpression(f"sum(vllm:num_requests_waiting{{{_ENGINES}}})", "waiting"),
            stacked=True,
        ),
        graph(
            "Tokens",
            "Tokens per second of the requests that finished, in and out.",
            PanelExpression(f"sum(rate(vllm:request_prompt_tokens_sum{{{_ENGINES}}}{WINDOW}))", "prompt"),
            PanelExpression(f"sum(rate(vllm:request_generation_tokens_sum{{{_ENGINES}}}{WINDOW}))", "generated"),
        ),
        graph(
            "Prefix cache",
            "Share of the prompt's tokens that were found in the prefix cache.",
            PanelExpression(
                f"sum(rate(vllm:prefix_cache_hits_total{{{_ENGINES}}}{WINDOW}))"
                f" / (sum(rate(vllm:prefix_cache_queries_total{{{_ENGINES}}}{WINDOW})) > 0)",
                "hits",
            ),
            unit="percentunit",
        ),
    ),
)
_REPLICAS: Final = PanelRow(
    "Replicas",
    (
        steps(
            "Replicas by variant",
            "Replicas that exist.",
            PanelExpression(of_model("wva_current_replicas", _CHOSEN, _MODELS), _NAME),
        ),
        steps(
            "Desired by variant",
            "Replicas that should exist: the cheapest variant grows first, the dearest shrinks first.",
            PanelExpression(of_model("wva_desired_replicas", _CHOSEN, _MODELS), _NAME),
        ),
        graph(
            "Cost by variant",
            "Cost of the replicas that exist, in the unit of spec.variantCost.",
            PanelExpression(cost(_CHOSEN, _MODELS), _NAME),
            stacked=True,
            width=12,
        ),
        graph(
            "Coverage",
            "Share of the replicas that report both signals. Below 100 % nothing shrinks.",
            PanelExpression(of_model("wva_coverage_ratio", _CHOSEN, _MODELS), _NAME),
            unit="percentunit",
            width=12,
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    "wva-model",
    "Workload variants / Model",
    "Latency, load, replicas and cost of one model.",
    (
        *TARGET,
        Variable("namespace", "Namespace", f"wva_variant_cost{{{CONTROLLER}}}", "exported_namespace"),
        Variable("model", "Model", f"wva_variant_cost{{{_CHOSEN}}}", "model_name", several=False),
    ),
    (_NOW, _USERS, _ENGINE_ROW, _REPLICAS),
)
