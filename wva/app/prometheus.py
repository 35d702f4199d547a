"""The connection to Prometheus, from the settings."""

from __future__ import annotations

from wva.app.environment import Environment
from wva.collect.prometheus import PrometheusClient, PrometheusSettings
from wva.settings import Settings


def prometheus_client(environment: Environment) -> PrometheusClient:
    """Return the client, which connects when it is entered."""
    settings = prometheus_settings(environment.settings)
    return PrometheusClient(
        settings, clock=environment.clock, instruments=environment.instruments, random=environment.random
    )


def prometheus_settings(settings: Settings) -> PrometheusSettings:
    """Return the connection settings of Prometheus."""
    return PrometheusSettings(
        base_url=settings.prometheus_base_url,
        allow_http=settings.prometheus_allow_http,
        ca_cert_path=settings.prometheus_ca_cert_path,
        client_cert_path=settings.prometheus_client_cert_path,
        client_key_path=settings.prometheus_client_key_path,
        server_name=settings.prometheus_server_name,
        insecure_skip_verify=settings.prometheus_tls_insecure_skip_verify,
        bearer_token=settings.prometheus_bearer_token.get_secret_value(),
        token_path=settings.prometheus_token_path,
    )
