"""The controller's metrics about itself: every name, type, label and help text in one place.

``publish.metrics`` has the ``wva_*`` series about variants. Each application has its own instance and registry, so that
two controllers in one process do not mix.
Label values are resource names, stages and reasons from fixed sets; the only user-supplied ones are a variant's
namespace and name, which Kubernetes restricts to DNS labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

_CYCLE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUERY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """All metrics of the controller about itself, registered in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register every metric; a second instance on the same registry is an error of prometheus_client."""
        self.registry = registry
        # The library adds a series with the creation time to each counter. WVA does not need it; the switch is global.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types here
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)

        def counter(name: str, text: str, labels: Sequence[str] = (), **known: Sequence[str]) -> Counter:
            # Series of known labels start at 0, so that Prometheus sees the first increase.
            metric = Counter(name, text, [*labels, *known], registry=registry)
            for values in product(*known.values()) if known else ():
                metric.labels(*values)
            return metric

        self.event_loop_lag = histogram(
            "wva_event_loop_lag_seconds",
            "How much later than planned the event loop woke a task, measured ten times a second.",
            buckets=_LAG_BUCKETS,
        )

        # The API server: watches, caches, requests, events, the Lease.
        self.watch_restarts = counter(
            "wva_watch_restarts",
            "Watch streams that ended and were opened again, by cause: ended, idle, expired (410, followed by a new "
            "list), throttled (429), unavailable (5xx), unreachable (no connection), denied (401, 403), failed.",
            ["resource", "cause"],
        )
        self.watch_events = counter(
            "wva_watch_events",
            "Watch events received, by type: added, modified, deleted, bookmark, error, unknown.",
            ["resource", "type"],
        )
        self.lists = counter("wva_lists", "Full lists read from the API server.", ["resource"])
        self.undecodable_objects = counter(
            "wva_undecodable_objects",
            "Objects from lists and watches that did not decode and were left out.",
            ["resource"],
        )
        self.cache_objects = gauge("wva_cache_objects", "Objects in the cache.", ["resource"])
        self.caches_kept = gauge(
            "wva_caches_kept",
            "Caches that the controller keeps as last known while the API server refuses their kind (403, 404), for "
            "five minutes at most.",
            ["resource"],
        )
        self.api_requests = counter(
            "wva_kubernetes_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no answer).",
            ["verb", "resource", "code"],
        )
        self.events_recorded = counter(
            "wva_events_recorded",
            "Kubernetes events by result: created, aggregated, dropped, failed.",
            result=("created", "aggregated", "dropped", "failed"),
        )
        self.variants_left = gauge(
            "wva_variants_left",
            "Variants that this controller would take and leaves to another controller that decides on them.",
        )
        self.leader = gauge("wva_leader", "1 while this process leads (or leader election is off).")

        # Work queues and reconciles.
        self.queue_depth = gauge("wva_workqueue_depth", "Keys waiting in the work queue.", ["queue"])
        self.queue_adds = counter("wva_workqueue_adds", "Keys added to the work queue.", ["queue"])
        self.queue_retries = counter("wva_workqueue_retries", "Keys put back after a failure.", ["queue"])
        self.reconciles = counter(
            "wva_reconciles", "Reconciles by result: success, error, timeout.", ["controller", "result"]
        )
        self.reconcile_duration = histogram(
            "wva_reconcile_duration_seconds", "Time of one reconcile.", ["controller"], buckets=_CYCLE_BUCKETS
        )

        # The cycle of decisions, Prometheus, samples, what is published, configuration.
        self.cycle_duration = histogram(
            "wva_cycle_duration_seconds",
            "Time of an optimizer cycle by stage: collect, decide, publish.",
            ["stage"],
            buckets=_CYCLE_BUCKETS,
        )
        self.loop_restarts = counter(
            "wva_loop_restarts", "Restarts of loops of the process that ended with an unexpected error.", ["loop"]
        )
        self.cycles = counter("wva_cycles", "Optimizer cycles by result: success, error.", result=("success", "error"))
        self.last_cycle = gauge(
            "wva_last_cycle_timestamp_seconds",
            "When the last cycle succeeded, or the loop began if none has since, in seconds since the epoch; 0 while "
            "not leading.",
        )
        self.cycle_interval = gauge(
            "wva_cycle_interval_seconds",
            "Time from the start of a cycle to the start of the next, as configured; 0 while not leading.",
        )
        self.queries = counter(
            "wva_prometheus_queries", "PromQL queries by name and result: success, error, timeout.", ["query", "result"]
        )
        self.query_duration = histogram(
            "wva_prometheus_query_duration_seconds", "Time of one PromQL query.", buckets=_QUERY_BUCKETS
        )
        self.prometheus_up = gauge(
            "wva_prometheus_up", "1 while Prometheus answered the last round of queries, for one namespace at least."
        )
        self.prometheus_cache_lookups = counter(
            "wva_prometheus_cache_lookups",
            "Looks into the cache of Prometheus' answers, one per hundred namespaces and cycle, by result: hit, miss.",
            result=("hit", "miss"),
        )
        self.prometheus_cache_entries = gauge(
            "wva_prometheus_cache_entries", "Answers of Prometheus that are kept, counted in hundreds of namespaces."
        )
        self.prometheus_credentials_usable = gauge(
            "wva_prometheus_credentials_usable",
            "By kind (token, tls, headers, parameters): 1 while the files of the connection to Prometheus can be used, "
            "0 while they cannot and the last good ones, if there were any, are in force; absent without files.",
            ["kind"],
        )
        self.samples = counter(
            "wva_samples",
            "Samples by signal (kv_cache_usage, queue_length) and state (fresh, stale, missing, invalid).",
            signal=("kv_cache_usage", "queue_length"),
            state=("fresh", "stale", "missing", "invalid"),
        )
        self.samples_ignored = counter(
            "wva_samples_ignored",
            "Samples of no ready replica of a known variant, by cause: foreign_pod, not_ready, other_model, malformed.",
            cause=("foreign_pod", "not_ready", "other_model", "malformed"),
        )
        self.holds = counter("wva_holds", "Variant cycles in which the number was held, by reason.", ["reason"])
        self.status_patches = counter(
            "wva_status_patches",
            "Status patches by result: success, conflict, error.",
            result=("success", "conflict", "error"),
        )
        self.config_errors = gauge(
            "wva_config_invalid_entries", "Entries of a ConfigMap that are rejected now.", ["config_map"]
        )

        # The own endpoints: /metrics and the probes.
        self.endpoint_secure = gauge(
            "wva_endpoint_secure",
            "1 while /metrics is served over HTTPS to authorized clients only, 0 with --metrics-secure=false.",
        )
        self.endpoint_requests = counter(
            "wva_endpoint_requests",
            "Requests to the own endpoints by server (metrics, probes) and HTTP status of the answer.",
            ["server", "code"],
        )
        self.endpoint_connections = gauge(
            "wva_endpoint_connections",
            "Open connections to the own endpoints, those in their TLS handshake included.",
            ["server"],
        )
        self.endpoint_connections_closed = counter(
            "wva_endpoint_connections_closed",
            "Connections that this side ended, by cause: handshake (no TLS, or none in time), slow (a request, or the "
            "reading of an answer, took too long), oversize (too much before a request was complete), flood (more "
            "frames of HTTP/2 than a client needs), idle (no request for long), evicted (idle, and its place "
            "was needed), refused (no place).",
            ["server", "cause"],
        )
        self.endpoint_reviews = counter(
            "wva_endpoint_reviews",
            "Questions who a client is (token) and what it may do (access), by outcome: allowed, denied, failed (the "
            "API server could not be asked), cached (answered without asking), throttled (not asked: the client has "
            "caused too many reviews).",
            review=("token", "access"),
            outcome=("allowed", "denied", "failed", "cached", "throttled"),
        )
        self.endpoint_review_duration = histogram(
            "wva_endpoint_review_duration_seconds",
            "Time of one review by the API server, retries included.",
            ["review"],
            buckets=_QUERY_BUCKETS,
        )
        self.certificate_expiry = gauge(
            "wva_certificate_expiry_timestamp_seconds",
            "When the certificate of /metrics that is in force runs out, in seconds since the epoch; 0 without one.",
        )
        self.certificate_reloads = counter(
            "wva_certificate_reloads",
            "Changes of the certificate files by result: success, rejected (the last good pair is kept).",
            result=("success", "rejected"),
        )

        # Scale from zero.
        self.gateway_reads = counter(
            "wva_gateway_reads",
            "Reads of an inference pool's queue while a model behind it is at zero, by result: success, error.",
            result=("success", "error"),
        )
        self.activations = counter(
            "wva_activations",
            "Starts from zero by result: success, error (not written), refused (requests wait, nothing can start).",
            result=("success", "error", "refused"),
        )
