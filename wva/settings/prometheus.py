"""Settings of what is asked of Prometheus: the connection, and how long an answer counts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

from wva.settings.origin import Count, Duration, OptionalDuration, Switch, key


class ConnectionSettings(BaseModel):
    """How Prometheus is reached. If the environment gives the URL, all of these come from there."""

    prometheus_base_url: Annotated[str, key("PROMETHEUS_BASE_URL")] = Field(
        "", description="URL of Prometheus; required."
    )
    prometheus_allow_http: Annotated[Switch, key("PROMETHEUS_ALLOW_HTTP")] = Field(
        False, description="Allow a plain http URL: queries and token cross the network unencrypted."
    )
    prometheus_tls_insecure_skip_verify: Annotated[Switch, key("PROMETHEUS_TLS_INSECURE_SKIP_VERIFY")] = Field(
        False, description="Do not verify the certificate of Prometheus; development only."
    )
    prometheus_ca_cert_path: Annotated[str, key("PROMETHEUS_CA_CERT_PATH")] = Field(
        "", description="File with the CA of Prometheus."
    )
    prometheus_client_cert_path: Annotated[str, key("PROMETHEUS_CLIENT_CERT_PATH")] = Field(
        "", description="Client certificate for mTLS."
    )
    prometheus_client_key_path: Annotated[str, key("PROMETHEUS_CLIENT_KEY_PATH")] = Field(
        "", description="Private key of the client certificate."
    )
    prometheus_server_name: Annotated[str, key("PROMETHEUS_SERVER_NAME")] = Field(
        "", description="Name expected in the certificate."
    )
    prometheus_bearer_token: Annotated[SecretStr, key("PROMETHEUS_BEARER_TOKEN")] = Field(
        SecretStr(""), description="Bearer token; wins over PROMETHEUS_TOKEN_PATH."
    )
    prometheus_token_path: Annotated[str, key("PROMETHEUS_TOKEN_PATH")] = Field(
        "", description="File with the bearer token; WVA reads it again when it changes."
    )


class MetricsCacheSettings(BaseModel):
    """How long an answer of Prometheus counts. Durations are seconds."""

    metrics_cache_enabled: Annotated[Switch, key("PROMETHEUS_METRICS_CACHE_ENABLED", dynamic=True)] = Field(
        True, description="Use an answer of Prometheus again within the TTL; false: every cycle asks."
    )
    metrics_cache_ttl: Annotated[Duration | None, key("PROMETHEUS_METRICS_CACHE_TTL", dynamic=True)] = Field(
        None, description="TTL: how long an answer may be used again. When absent, every cycle asks."
    )
    metrics_cache_cleanup_interval: Annotated[
        Duration, key("PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL", dynamic=True)
    ] = Field(60.0, description="Drop kept answers that were not used for this long.")
    metrics_cache_fetch_interval: Annotated[
        OptionalDuration, key("PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL", dynamic=True)
    ] = Field(30.0, description="How often kept answers are renewed between cycles; 0: never.")
    fresh_threshold: Annotated[Duration, key("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", dynamic=True)] = Field(
        60.0, description="A sample younger than this is fresh."
    )
    stale_threshold: Annotated[Duration, key("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", dynamic=True)] = Field(
        120.0, description="An answer older than this is not used again, even within the TTL."
    )
    unavailable_threshold: Annotated[Duration, key("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", dynamic=True)] = (
        Field(300.0, description="A sample this old or older is missing; between this and fresh it is stale.")
    )
    metrics_cache_max_size: Annotated[Count, key("PROMETHEUS_METRICS_CACHE_MAX_SIZE", dynamic=True)] = Field(
        0, description="How many answers are kept at most, one for each 100 namespaces; 0: no limit."
    )
