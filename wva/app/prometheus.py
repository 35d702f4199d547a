"""The connection to Prometheus, from the settings."""

from __future__ import annotations

from wva.app.environment import Environment
from wva.collect.prometheus import PrometheusClient
from wva.config.prometheus import PrometheusSettings


def prometheus_client(environment: Environment) -> PrometheusClient:
    """Return the client, which connects when it is entered."""
    settings = PrometheusSettings.of(environment.settings)
    return PrometheusClient(
        settings, clock=environment.clock, instruments=environment.instruments, random=environment.random
    )
