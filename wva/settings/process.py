"""Settings of the process itself: where it listens, who leads, how it logs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from wva.settings.origin import ENV_ONLY, FLAG_ONLY, Count, Duration, Level, Switch, given

_NO_WEBHOOK: Final = "there is no webhook"
_DEBUG_VERBOSITY: Final = 4


class ProcessSettings(BaseModel):
    """Addresses, certificates, leader election, logging. Durations are seconds."""

    metrics_bind_address: Annotated[
        str,
        given("metrics-bind-address", "metrics-addr", keys=("METRICS_BIND_ADDRESS", "METRICS_ADDR"), metavar="ADDRESS"),
    ] = Field("0", description="Address of /metrics, such as :8443; 0 switches it off.")
    health_probe_bind_address: Annotated[
        str,
        given(
            "health-probe-bind-address",
            "probe-addr",
            keys=("HEALTH_PROBE_BIND_ADDRESS", "PROBE_ADDR"),
            metavar="ADDRESS",
        ),
    ] = Field(":8081", description="Address of /healthz and /readyz; 0 switches them off.")
    leader_elect: Annotated[Switch, given("leader-elect", "enable-leader-election", metavar="BOOL")] = Field(
        False, description="With several processes, let only one decide: the leader, elected through a Lease."
    )
    leader_election_id: Annotated[str, given("leader-election-id")] = Field(
        "72dd1cf1.llm-d.ai", min_length=1, description="Name of the Lease."
    )
    leader_election_lease_duration: Annotated[Duration, given("leader-election-lease-duration", metavar="DURATION")] = (
        Field(15.0, description="How long a standby waits after the leader's last renewal before it takes over.")
    )
    leader_election_renew_deadline: Annotated[Duration, given("leader-election-renew-deadline", metavar="DURATION")] = (
        Field(10.0, description="How long the leader tries to renew the Lease before it stops leading.")
    )
    leader_election_retry_period: Annotated[Duration, given("leader-election-retry-period", metavar="DURATION")] = (
        Field(2.0, description="Time between two attempts to acquire or renew the Lease.")
    )
    rest_client_timeout: Annotated[Duration, given("rest-client-timeout", metavar="DURATION")] = Field(
        60.0, description="Time limit of one request to the API server."
    )
    metrics_secure: Annotated[Switch, given("metrics-secure", metavar="BOOL")] = Field(
        True, description="Serve /metrics over HTTPS to clients that the API server allows; false: plain HTTP for all."
    )
    enable_http2: Annotated[
        Switch,
        given("enable-http2", metavar="BOOL", no_effect="the endpoints speak HTTP/1.1 only; true changes nothing"),
    ] = Field(False, description="Accepted for compatibility.")
    watch_namespace: Annotated[str, given("watch-namespace", metavar="NAMESPACE")] = Field(
        "", description="Watch only this namespace; empty watches all."
    )
    metrics_cert_path: Annotated[str, given("metrics-cert-path", metavar="DIR")] = Field(
        "", description="Directory with the certificate of /metrics; empty: WVA makes a self-signed one."
    )
    metrics_cert_name: Annotated[str, given("metrics-cert-name", metavar="FILE")] = Field(
        "tls.crt", description="File name of the certificate in that directory."
    )
    metrics_cert_key: Annotated[str, given("metrics-cert-key", metavar="FILE")] = Field(
        "tls.key", description="File name of its private key."
    )
    webhook_cert_path: Annotated[str, given("webhook-cert-path", metavar="DIR", no_effect=_NO_WEBHOOK)] = Field(
        "", description="Accepted for compatibility."
    )
    webhook_cert_name: Annotated[str, given("webhook-cert-name", metavar="FILE", no_effect=_NO_WEBHOOK)] = Field(
        "tls.crt", description="Accepted for compatibility."
    )
    webhook_cert_key: Annotated[str, given("webhook-cert-key", metavar="FILE", no_effect=_NO_WEBHOOK)] = Field(
        "tls.key", description="Accepted for compatibility."
    )
    verbosity: Annotated[Count, given("v", keys=("V",), metavar="N", dynamic=True)] = Field(
        2,
        ge=0,
        le=10,
        description="Log verbosity as in the Go controller: 0 to 3 is info, 4 and above debug. LOG_LEVEL wins.",
    )
    log_level: Annotated[Level | None, given("zap-log-level", keys=("LOG_LEVEL",), metavar="LEVEL", dynamic=True)] = (
        Field(None, description="Log level: debug, info, warn or error. When absent, the verbosity counts.")
    )
    log_encoding: Annotated[
        Literal["json", "console"], given("zap-encoder", keys=("LOG_ENCODING",), metavar="FORM")
    ] = Field("json", description="Form of the log lines.")
    zap_devel: Annotated[
        Switch,
        given("zap-devel", places=FLAG_ONLY, metavar="BOOL", no_effect="use --zap-encoder and --zap-log-level"),
    ] = Field(False, description="Accepted for compatibility.")
    zap_stacktrace_level: Annotated[
        str,
        given("zap-stacktrace-level", places=FLAG_ONLY, no_effect="unexpected errors always carry their traceback"),
    ] = Field("", description="Accepted for compatibility.")
    zap_time_encoding: Annotated[
        str, given("zap-time-encoding", places=FLAG_ONLY, no_effect="times are ISO 8601 in UTC")
    ] = Field("", description="Accepted for compatibility.")
    event_loop: Annotated[Literal["asyncio", "uvloop"], given("event-loop", places=ENV_ONLY)] = Field(
        "asyncio",
        description="Event loop. uvloop is faster with many connections, but can abort the process when one is reset "
        "while it opens.",
    )
    record_dir: Annotated[str, given("record-dir", metavar="DIR")] = Field(
        "", description="Directory for recordings of the last 100 cycles, for `wva replay`; empty records nothing."
    )
    inferno_metric_aliases: Annotated[
        Switch, given("inferno-metric-aliases", keys=("WVA_INFERNO_METRIC_ALIASES",), metavar="BOOL")
    ] = Field(
        False,
        description="Publish wva_current_replicas, wva_desired_replicas, wva_desired_ratio and wva_desired_source a "
        "second time under their older names, which begin with inferno_ instead of wva_.",
    )

    @property
    def effective_log_level(self) -> str:
        """The level in force: LOG_LEVEL if given, else what the verbosity means."""
        return self.log_level or ("debug" if self.verbosity >= _DEBUG_VERBOSITY else "info")
