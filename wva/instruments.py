"""The controller's metrics about itself: every name, type, label and help text in one place.

The ``wva_*`` series about variants (the output) are in ``publish.metrics``. These here tell how the controller
is doing. One instance per application with its own registry, so that two controllers in one process do not mix.
Label values are resource names, stages and reasons from fixed sets; the only user-supplied ones are a variant's
namespace and name, which Kubernetes restricts to DNS labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

_CYCLE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUERY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """All own metrics, registered in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register every metric; a second instance on the same registry is an error of prometheus_client."""
        self.registry = registry
        # The library doubles each counter with the time of its creation, which has no use; the switch is global.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types here
        self.event_loop_lag = Histogram(
            "wva_event_loop_lag_seconds",
            "How much later than planned the event loop woke a task, measured ten times a second.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self._kubernetes(registry)
        self._queues(registry)
        self._cycles(registry)
        self._endpoint(registry)
        self._gateways(registry)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Give counters with known labels all their series: what has not happened is 0, and its first time is seen."""
        results = ("success", "error")
        samples = product(("kv_cache_usage", "queue_length"), ("fresh", "stale", "missing", "invalid"))
        reviews = product(("token", "access"), ("allowed", "denied", "failed", "cached", "throttled"))
        series: list[tuple[Counter, Iterable[tuple[str, ...]]]] = [
            (self.cycles, product(results)),
            (self.status_patches, product(("success", "conflict", "error"))),
            (self.events_recorded, product(("created", "aggregated", "dropped", "failed"))),
            (self.samples, samples),
            (self.samples_ignored, product(("foreign_pod", "not_ready", "other_model", "malformed"))),
            (self.prometheus_cache_lookups, product(("hit", "miss"))),
            (self.gateway_reads, product(results)),
            (self.activations, product((*results, "refused"))),
            (self.certificate_reloads, product(("success", "rejected"))),
            (self.endpoint_reviews, reviews),
        ]
        for counter, rows in series:
            for row in rows:
                counter.labels(*row)

    def _kubernetes(self, registry: CollectorRegistry) -> None:
        self.watch_restarts = Counter(
            "wva_watch_restarts",
            "Watch streams that ended and were opened again, by cause: ended, idle, expired (410, followed by a new "
            "list), throttled (429), unavailable (5xx), unreachable (no connection), denied (401, 403), failed.",
            ["resource", "cause"],
            registry=registry,
        )
        self.watch_events = Counter(
            "wva_watch_events",
            "Watch events received, by type: added, modified, deleted, bookmark, error, unknown.",
            ["resource", "type"],
            registry=registry,
        )
        self.lists = Counter("wva_lists", "Full lists read from the API server.", ["resource"], registry=registry)
        self.undecodable_objects = Counter(
            "wva_undecodable_objects",
            "Objects from lists and watches that did not decode and were left out.",
            ["resource"],
            registry=registry,
        )
        self.cache_objects = Gauge("wva_cache_objects", "Objects in the cache.", ["resource"], registry=registry)
        self.caches_kept = Gauge(
            "wva_caches_kept",
            "Caches that the controller keeps as last known while the API server refuses their kind (403, 404), for "
            "five minutes at most.",
            ["resource"],
            registry=registry,
        )
        self.api_requests = Counter(
            "wva_kubernetes_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no answer).",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.events_recorded = Counter(
            "wva_events_recorded",
            "Kubernetes events by result: created, aggregated, dropped, failed.",
            ["result"],
            registry=registry,
        )
        self.variants_left = Gauge(
            "wva_variants_left",
            "Variants that this controller would take and leaves to another controller that decides on them.",
            registry=registry,
        )
        self.leader = Gauge("wva_leader", "1 while this process leads (or leader election is off).", registry=registry)

    def _queues(self, registry: CollectorRegistry) -> None:
        self.queue_depth = Gauge("wva_workqueue_depth", "Keys waiting in the work queue.", ["queue"], registry=registry)
        self.queue_adds = Counter("wva_workqueue_adds", "Keys added to the work queue.", ["queue"], registry=registry)
        self.queue_retries = Counter(
            "wva_workqueue_retries", "Keys put back after a failure.", ["queue"], registry=registry
        )
        self.reconciles = Counter(
            "wva_reconciles",
            "Reconciles by result: success, error, timeout.",
            ["controller", "result"],
            registry=registry,
        )
        self.reconcile_duration = Histogram(
            "wva_reconcile_duration_seconds",
            "Time of one reconcile.",
            ["controller"],
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )

    def _cycles(self, registry: CollectorRegistry) -> None:
        self.cycle_duration = Histogram(
            "wva_cycle_duration_seconds",
            "Time of an optimizer cycle by stage: collect, decide, publish.",
            ["stage"],
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )
        self.loop_restarts = Counter(
            "wva_loop_restarts",
            "Restarts of loops of the process that ended with an unexpected error.",
            ["loop"],
            registry=registry,
        )
        self.cycles = Counter(
            "wva_cycles", "Optimizer cycles by result: success, error.", ["result"], registry=registry
        )
        self.last_cycle = Gauge(
            "wva_last_cycle_timestamp_seconds",
            "When the last cycle succeeded, or the loop began if none has since, in seconds since the epoch; 0 while "
            "not leading.",
            registry=registry,
        )
        self.cycle_interval = Gauge(
            "wva_cycle_interval_seconds",
            "Time from the start of a cycle to the start of the next, as configured; 0 while not leading.",
            registry=registry,
        )
        self.queries = Counter(
            "wva_prometheus_queries",
            "PromQL queries by name and result: success, error, timeout.",
            ["query", "result"],
            registry=registry,
        )
        self.query_duration = Histogram(
            "wva_prometheus_query_duration_seconds",
            "Time of one PromQL query.",
            buckets=_QUERY_BUCKETS,
            registry=registry,
        )
        self.prometheus_up = Gauge(
            "wva_prometheus_up",
            "1 while Prometheus answered the last round of queries, for one namespace at least.",
            registry=registry,
        )
        self.prometheus_cache_lookups = Counter(
            "wva_prometheus_cache_lookups",
            "Looks into the cache of Prometheus' answers, one per hundred namespaces and cycle, by result: hit, miss.",
            ["result"],
            registry=registry,
        )
        self.prometheus_cache_entries = Gauge(
            "wva_prometheus_cache_entries",
            "Answers of Prometheus that are kept, counted in hundreds of namespaces.",
            registry=registry,
        )
        self.prometheus_credentials_usable = Gauge(
            "wva_prometheus_credentials_usable",
            "By kind (token, tls): 1 while the files of the connection to Prometheus can be used, 0 while they cannot "
            "and the last good ones, if there were any, are in force; absent without files.",
            ["kind"],
            registry=registry,
        )
        self.samples = Counter(
            "wva_samples",
            "Samples by signal (kv_cache_usage, queue_length) and state (fresh, stale, missing, invalid).",
            ["signal", "state"],
            registry=registry,
        )
        self.samples_ignored = Counter(
            "wva_samples_ignored",
            "Samples of no ready replica of a known variant, by cause: foreign_pod, not_ready, other_model, malformed.",
            ["cause"],
            registry=registry,
        )
        self.holds = Counter(
            "wva_holds", "Variant cycles in which the number was held, by reason.", ["reason"], registry=registry
        )
        self.status_patches = Counter(
            "wva_status_patches", "Status patches by result: success, conflict, error.", ["result"], registry=registry
        )
        self.config_errors = Gauge(
            "wva_config_invalid_entries",
            "Entries of a ConfigMap that are rejected now.",
            ["config_map"],
            registry=registry,
        )

    def _endpoint(self, registry: CollectorRegistry) -> None:
        self.endpoint_secure = Gauge(
            "wva_endpoint_secure",
            "1 while /metrics is served over HTTPS to authorized clients only, 0 with --metrics-secure=false.",
            registry=registry,
        )
        self.endpoint_requests = Counter(
            "wva_endpoint_requests",
            "Requests to the own endpoints by server (metrics, probes) and HTTP status of the answer.",
            ["server", "code"],
            registry=registry,
        )
        self.endpoint_connections = Gauge(
            "wva_endpoint_connections",
            "Open connections to the own endpoints, those in their TLS handshake included.",
            ["server"],
            registry=registry,
        )
        self.endpoint_connections_closed = Counter(
            "wva_endpoint_connections_closed",
            "Connections that this side ended, by cause: handshake (no TLS, or none in time), slow (a request, or the "
            "reading of an answer, took too long), oversize (too much before a request was complete), evicted (idle, "
            "and its place was needed), refused (no place).",
            ["server", "cause"],
            registry=registry,
        )
        self.endpoint_reviews = Counter(
            "wva_endpoint_reviews",
            "Questions who a client is (token) and what it may do (access), by outcome: allowed, denied, failed (the "
            "API server could not be asked), cached (answered without asking), throttled (not asked: the client has "
            "caused too many reviews).",
            ["review", "outcome"],
            registry=registry,
        )
        self.endpoint_review_duration = Histogram(
            "wva_endpoint_review_duration_seconds",
            "Time of one review by the API server, retries included.",
            ["review"],
            buckets=_QUERY_BUCKETS,
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "wva_certificate_expiry_timestamp_seconds",
            "When the certificate of /metrics that is in force runs out, in seconds since the epoch; 0 without one.",
            registry=registry,
        )
        self.certificate_reloads = Counter(
            "wva_certificate_reloads",
            "Changes of the certificate files by result: success, rejected (the last good pair is kept).",
            ["result"],
            registry=registry,
        )

    def _gateways(self, registry: CollectorRegistry) -> None:
        self.gateway_reads = Counter(
            "wva_gateway_reads",
            "Reads of an inference pool's queue while a model behind it is at zero, by result: success, error.",
            ["result"],
            registry=registry,
        )
        self.activations = Counter(
            "wva_activations",
            "Starts from zero by result: success, error (not written), refused (requests wait, nothing can start).",
            ["result"],
            registry=registry,
        )
