"""The dashboard of trust: whether the data are fresh, the controller works, and which requests it sends."""

from __future__ import annotations

from typing import Final

from deploy.observability.generate.grafana import (
    Dashboard,
    PanelExpression,
    PanelRow,
    graph,
    stat,
    states,
    steps,
    warning_above,
    warning_below,
)
from deploy.observability.generate.queries import (
    CONTROLLER,
    TARGET,
    count_or_zero,
    of_variants,
    or_none,
    quantile,
    rate_by,
)

_PROCESS: Final = "{{namespace}} {{instance}}"
_HELD: Final = f'{CONTROLLER}, held="true"'

_NOW: Final = PanelRow(
    "Now",
    (
        stat(
            "Leaders",
            "Processes that lead: one for each controller.",
            PanelExpression(f"sum(wva_leader{{{CONTROLLER}}})"),
            defaults=warning_below(1),
        ),
        stat(
            "Last cycle",
            "Time since the last cycle that succeeded.",
            PanelExpression(f"time() - max(wva_last_cycle_timestamp_seconds{{{CONTROLLER}}})"),
            unit="s",
        ),
        stat(
            "Prometheus",
            "Whether the last round of queries was answered.",
            PanelExpression(f"min(wva_prometheus_up{{{CONTROLLER}}} and wva_leader{{{CONTROLLER}}} == 1)"),
            defaults={
                **warning_below(1),
                "mappings": [{"type": "value", "options": {"0": {"text": "no answer"}, "1": {"text": "answers"}}}],
            },
        ),
        stat(
            "Held",
            "Variants whose number is kept because their data does not allow a change.",
            PanelExpression(count_or_zero(of_variants("wva_desired_reason", _HELD))),
            defaults=warning_above(1),
        ),
        stat(
            "Rejected entries",
            "Entries of ConfigMaps that are not in force.",
            PanelExpression(f"sum(max by (namespace, job, config_map) (wva_config_invalid_entries{{{CONTROLLER}}}))"),
            defaults=warning_above(1),
        ),
        stat(
            "Left to others",
            "Variants that the controller leaves to another one that decides on them.",
            PanelExpression(f"sum(wva_variants_left{{{CONTROLLER}}})"),
        ),
        stat(
            "Protected",
            "Processes that show /metrics to every client: 0 is right.",
            PanelExpression(f"count(wva_endpoint_secure{{{CONTROLLER}}} == 0) or vector(0)"),
            defaults=warning_above(1),
        ),
        stat(
            "Certificate",
            "Time until the first certificate of /metrics runs out.",
            PanelExpression(f"min((wva_certificate_expiry_timestamp_seconds{{{CONTROLLER}}} > 0) - time())"),
            unit="s",
            defaults=warning_below(259200),
        ),
    ),
)
_DATA: Final = PanelRow(
    "Data",
    (
        graph(
            "Samples",
            "Samples per second that cycles looked at, by state. Only fresh ones change a number.",
            PanelExpression(rate_by("state", "wva_samples_total", CONTROLLER), "{{state}}"),
            stacked=True,
        ),
        graph(
            "Samples ignored",
            "Samples per second that belong to no ready replica of a known variant, by cause.",
            PanelExpression(rate_by("cause", "wva_samples_ignored_total", CONTROLLER), "{{cause}}"),
        ),
        graph(
            "Coverage",
            "Share of the replicas that report both signals: the variant with the least.",
            PanelExpression(
                f"min by (exported_namespace) (wva_coverage_ratio{{{CONTROLLER}}})", "{{exported_namespace}}"
            ),
            unit="percentunit",
        ),
        graph(
            "Held variants",
            "Variants whose number is kept, by reason; docs/conditions.md explains each.",
            PanelExpression(
                or_none(
                    f"count by (reason) ({of_variants('wva_desired_reason', _HELD, 'reason')})",
                    "reason",
                ),
                "{{reason}}",
            ),
            stacked=True,
            width=12,
        ),
        graph(
            "Holds",
            "Holds per second and variant, by reason.",
            PanelExpression(rate_by("reason", "wva_holds_total", CONTROLLER), "{{reason}}"),
            width=12,
        ),
    ),
)
_LOOP: Final = PanelRow(
    "Loop",
    (
        states(
            "Leader", "Which process leads.", PanelExpression(f"wva_leader{{{CONTROLLER}}} == 1", _PROCESS), width=12
        ),
        steps(
            "Rejected entries",
            "Entries of ConfigMaps that are not in force, by ConfigMap.",
            PanelExpression(
                f"max by (namespace, job, config_map) (wva_config_invalid_entries{{{CONTROLLER}}})",
                "{{namespace}} {{config_map}}",
            ),
        ),
        graph(
            "Time since the last cycle",
            "Since the last cycle that succeeded, with the interval as configured.",
            PanelExpression(
                f"time() - (wva_last_cycle_timestamp_seconds{{{CONTROLLER}}} > 0)",
                f"{_PROCESS} since the last cycle",
            ),
            PanelExpression(f"wva_cycle_interval_seconds{{{CONTROLLER}}} > 0", f"{_PROCESS} interval"),
            unit="s",
        ),
        graph(
            "Duration of a cycle",
            "95 % of the cycles spend less than this in each stage.",
            PanelExpression(quantile(0.95, "wva_cycle_duration_seconds", CONTROLLER, "stage"), "{{stage}}"),
            unit="s",
        ),
        graph(
            "Cycles",
            "Cycles per second by result.",
            PanelExpression(rate_by("result", "wva_cycles_total", CONTROLLER), "{{result}}"),
            unit="ops",
        ),
        graph(
            "Reconciles",
            "Reconciles per second by controller and result.",
            PanelExpression(
                rate_by("controller, result", "wva_reconciles_total", CONTROLLER), "{{controller}} {{result}}"
            ),
            unit="ops",
        ),
        graph(
            "Work queues",
            "Keys that wait.",
            PanelExpression(f"sum by (queue) (wva_workqueue_depth{{{CONTROLLER}}})", "{{queue}}"),
        ),
        graph(
            "Writes",
            "Status patches and events per second, by result. Conflicts are tried again.",
            PanelExpression(rate_by("result", "wva_status_patches_total", CONTROLLER), "patch {{result}}"),
            PanelExpression(rate_by("result", "wva_events_recorded_total", CONTROLLER), "event {{result}}"),
            unit="ops",
        ),
    ),
)
_OTHERS: Final = PanelRow(
    "What it asks of others",
    (
        graph(
            "Queries of Prometheus",
            "Per second by result: at least four per cycle and hundred namespaces, however many models there are.",
            PanelExpression(rate_by("result", "wva_prometheus_queries_total", CONTROLLER), "{{result}}"),
            unit="reqps",
        ),
        graph(
            "Duration of a query",
            "How long Prometheus takes to answer.",
            PanelExpression(quantile(0.5, "wva_prometheus_query_duration_seconds", CONTROLLER), "50 %"),
            PanelExpression(quantile(0.95, "wva_prometheus_query_duration_seconds", CONTROLLER), "95 %"),
            unit="s",
        ),
        graph(
            "Kept answers",
            "Looks into the cache of Prometheus' answers per second, by result.",
            PanelExpression(rate_by("result", "wva_prometheus_cache_lookups_total", CONTROLLER), "{{result}}"),
            unit="ops",
        ),
        graph(
            "Requests to the API server",
            "Per second, by verb and status; 0 is no answer.",
            PanelExpression(rate_by("verb, code", "wva_kubernetes_requests_total", CONTROLLER), "{{verb}} {{code}}"),
            unit="reqps",
        ),
        graph(
            "Watches",
            "Watch streams that ended and were opened again, per second and cause.",
            PanelExpression(or_none(rate_by("cause", "wva_watch_restarts_total", CONTROLLER), "cause"), "{{cause}}"),
            unit="ops",
        ),
        graph(
            "Objects in the caches",
            "What the controller knows, by resource.",
            PanelExpression(f"max by (resource) (wva_cache_objects{{{CONTROLLER}}})", "{{resource}}"),
        ),
        graph(
            "Scrapes",
            "Requests per second to /metrics and the probes, by status.",
            PanelExpression(rate_by("server, code", "wva_endpoint_requests_total", CONTROLLER), "{{server}} {{code}}"),
            unit="reqps",
        ),
        graph(
            "Processor",
            "Processor time that the processes take, in cores.",
            PanelExpression(rate_by("namespace, instance", "process_cpu_seconds_total", CONTROLLER), _PROCESS),
        ),
        graph(
            "Memory",
            "Memory of the processes.",
            PanelExpression(f"process_resident_memory_bytes{{{CONTROLLER}}}", _PROCESS),
            unit="bytes",
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    "wva-trust",
    "Workload variants / Trust",
    "Freshness of the data, holds, errors, leadership, and the traffic to the API server and Prometheus.",
    TARGET,
    (_NOW, _DATA, _LOOP, _OTHERS),
)
